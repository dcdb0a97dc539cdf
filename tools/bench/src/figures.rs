//! Every figure that a plan gives: its goal, its unit, and what it says in words. docs/bench-json.md has the same names.

use Goal::{AtLeast, AtMost, Higher, Lower};

/// Value that is good enough for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// None, but more is better.
    Higher,
    /// None, but less is better.
    Lower,
}

/// A figure before it is measured.
#[derive(Debug)]
pub struct Spec {
    pub bench: &'static str,
    pub name: &'static str,
    pub goal: Goal,
    pub unit: &'static str,
    /// One sentence; `{}` is the value.
    pub words: &'static str,
}

const fn ratio(bench: &'static str, name: &'static str, goal: Goal, words: &'static str) -> Spec {
    Spec { bench, name, goal, unit: "ratio", words }
}

const fn units(bench: &'static str, name: &'static str, goal: Goal, unit: &'static str, words: &'static str) -> Spec {
    Spec { bench, name, goal, unit, words }
}

/// The specification of a figure of a plan.
pub fn of(bench: &str, name: &str) -> &'static Spec {
    let mut all = ALL.iter();
    let found = all.find(|spec| (spec.bench, spec.name) == (bench, name));
    found.unwrap_or_else(|| panic!("the table of figures has no {name} of {bench}"))
}

#[rustfmt::skip]
pub const ALL: &[Spec] = &[
    ratio("inline", "inline_over_plain_null", AtLeast(0.97), "Through a cipher that does nothing, inline, reads are {} times as fast as of the plain disk; the 2020 thread has 0.995."),
    ratio("inline", "queue_over_plain_null", Higher, "Through the same cipher and our imitation of dm-crypt's queues, reads are {} times as fast as of the plain disk; the thread has 0.40."),
    ratio("inline", "inline_over_queue_aes", AtLeast(2.0), "Encrypted reads are {} times as fast inline as through our imitation of dm-crypt's queues."),
    ratio("inline", "inline_over_model", AtLeast(0.90), "Encrypted reads inline reach {} times the speed of a bare copy and the bare cipher together."),
    ratio("inline", "of_model_inproc_4k", AtLeast(0.97), "They reach {} times the speed of the same plain and then the bare cipher."),

    ratio("sweep", "auto_over_best_min", AtLeast(0.97), "At its worst point, automatic dispatch is {} times as fast as the better of inline and our imitation of dm-crypt's queues."),
    ratio("sweep", "auto_p99_over_best_max", AtMost(1.1), "At its worst point, the slowest hundredth of requests takes automatic dispatch {} times as long as the better of the two."),
    ratio("sweep", "best_over_itself_min", Higher, "By chance alone, the better of the two is {} times as fast as itself at its worst point."),
    ratio("sweep", "best_p99_over_itself_max", Lower, "By chance alone, the slowest hundredth of requests takes the better of the two {} times as long as itself at its worst point."),
    ratio("sweep", "auto_over_inline_1m_qd1", AtLeast(1.6), "One request of 1 MiB at a time is {} times as fast with helpers as inline alone."),

    ratio("subblock", "shared_over_exclusive_xts", AtLeast(185.0), "Small writes side by side are {} times as fast as with one lock for the disk, with XTS on a slow medium; ext4 gained 185 times."),
    ratio("subblock", "shared_over_exclusive_cbc", Higher, "With CBC, which must rewrite whole sectors, they are {} times as fast."),
    ratio("subblock", "aligned_cost_of_locking", AtMost(0.01), "Writes of whole sectors lose a share of {} to the locking, with CBC in memory."),

    ratio("peers", "encrypted_over_plain_nbd_4k", Higher, "Encryption leaves {} times the speed of the plain disk over NBD: random reads of 4 KiB, 32 in flight."),
    ratio("peers", "encrypted_over_plain_nbd_128k", Higher, "Encryption leaves {} times the speed of the plain disk over NBD: random reads of 128 KiB, 16 in flight."),
    ratio("peers", "encrypted_over_plain_nbd_1m", Higher, "Encryption leaves {} times the speed of the plain disk over NBD: reads of 1 MiB in order, 4 in flight."),
    ratio("peers", "encrypted_over_plain_nbd_1m_write", Higher, "Encryption leaves {} times the speed of the plain disk over NBD: writes of 1 MiB in order, 4 in flight."),
    ratio("peers", "of_model_nbd_4k_qd32", AtLeast(0.97), "Encrypted random reads of 4 KiB, 32 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("peers", "of_model_nbd_4k_qd1", Higher, "One at a time, they reach {} times the speed of the same plain and then the bare cipher."),
    ratio("peers", "of_model_nbd_4k_write", Higher, "Encrypted random writes of 4 KiB, 32 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("peers", "of_model_nbd_128k", AtLeast(0.97), "Encrypted random reads of 128 KiB, 16 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("peers", "of_model_nbd_1m_read", AtLeast(0.98), "Encrypted reads of 1 MiB in order, 4 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("peers", "of_model_nbd_1m_write", AtLeast(0.97), "Encrypted writes of 1 MiB in order, 4 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("peers", "over_best_peer_4k_randread", AtLeast(2.0), "Random reads of 4 KiB, 32 in flight, are {} times as fast as from the best of qemu-nbd, qemu-storage-daemon and nbdkit."),
    ratio("peers", "p99_over_best_peer_4k_randread", AtMost(0.5), "The slowest hundredth of them takes {} times as long as with the best of these."),
    ratio("peers", "over_qemu_1m_read", AtLeast(6.0), "Reads of 1 MiB are {} times as fast as from the better of QEMU's two servers."),
    ratio("peers", "over_nbdkit_luks_4k_qd1", AtLeast(1.5), "Random reads of 4 KiB, one at a time, are {} times as fast as from nbdkit's luks filter."),
    ratio("peers", "over_nbdkit_plain_4k_qd1", AtLeast(1.0), "Our encrypted disk answers them {} times as fast as nbdkit's plain file."),
    ratio("peers", "p50_over_nbdkit_plain_4k_qd1", AtMost(1.0), "Half of them are answered within {} times what nbdkit takes for its plain file."),
    ratio("peers", "cpu_over_nbdkit_luks_4k_qd1", Lower, "Each of them costs {} times the processor time that nbdkit's luks filter takes, where cryptline looks out for requests before it sleeps."),
    ratio("peers", "cpu_asleep_over_nbdkit_luks_4k_qd1", AtMost(1.0), "Each of them costs {} times the processor time that nbdkit's luks filter takes, where cryptline sleeps at once."),
    ratio("peers", "over_nbdkit_plain_128k", AtLeast(0.95), "Random reads of 128 KiB from our encrypted disk are {} times as fast as from nbdkit's plain file."),
    ratio("peers", "over_nbdkit_plain_1m", AtLeast(0.95), "Reads of 1 MiB from our encrypted disk are {} times as fast as from nbdkit's plain file."),
    ratio("peers", "over_nbdkit_plain_1m_write", AtLeast(0.9), "Writes of 1 MiB to our encrypted disk are {} times as fast as to nbdkit's plain file."),
    ratio("peers", "over_nbdkit_plain_4k_randwrite", AtLeast(1.0), "Random writes of 4 KiB to our encrypted disk are {} times as fast as to nbdkit's plain file."),
    ratio("peers", "nbd_chain_over_plain_128k", AtLeast(0.6), "Over another NBD server, our encrypted disk is {} times as fast as nbdkit's plain file: random reads of 128 KiB."),
    ratio("peers", "nbd_chain_over_nbdkit_luks_4k_qd32", AtLeast(1.5), "Over another NBD server, it is {} times as fast as nbdkit's luks filter over the same: random reads of 4 KiB."),

    ratio("busy", "busy_p99_inline_over_queue", AtMost(0.05), "Beside busy processes, the slowest hundredth of small reads takes {} times as long inline as through our imitation of dm-crypt's queues."),
    ratio("busy", "busy_p99_inline_over_nbdkit", AtMost(0.05), "Beside busy processes, the slowest hundredth of small reads takes {} times as long inline as with nbdkit's luks filter."),
    ratio("busy", "busy_p99_inline_over_qemu_nbd", AtMost(0.05), "Beside busy processes, the slowest hundredth of small reads takes {} times as long inline as with qemu-nbd."),
    ratio("busy", "busy_p99_auto_over_queue", Lower, "Beside busy processes, the slowest hundredth of small reads takes {} times as long with automatic dispatch as through our imitation of dm-crypt's queues."),
    ratio("busy", "busy_20_p99_inline_over_queue", Lower, "With a fifth of a processor beside them, it takes {} times as long inline as through our imitation of dm-crypt's queues."),
    ratio("busy", "busy_20_p99_inline_over_nbdkit", Lower, "With a fifth of a processor beside them, it takes {} times as long inline as with nbdkit's luks filter."),
    ratio("busy", "busy_20_p99_inline_over_qemu_nbd", Lower, "With a fifth of a processor beside them, it takes {} times as long inline as with qemu-nbd."),
    ratio("busy", "busy_20_p99_auto_over_queue", Lower, "With a fifth of a processor beside them, it takes {} times as long with automatic dispatch as through our imitation of dm-crypt's queues."),
    ratio("busy", "busy_50_p99_inline_over_queue", Lower, "With half of a processor beside them, it takes {} times as long inline as through our imitation of dm-crypt's queues."),
    ratio("busy", "busy_50_p99_inline_over_nbdkit", Lower, "With half of a processor beside them, it takes {} times as long inline as with nbdkit's luks filter."),
    ratio("busy", "busy_50_p99_inline_over_qemu_nbd", Lower, "With half of a processor beside them, it takes {} times as long inline as with qemu-nbd."),
    ratio("busy", "busy_50_p99_auto_over_queue", Lower, "With half of a processor beside them, it takes {} times as long with automatic dispatch as through our imitation of dm-crypt's queues."),

    ratio("doors", "vhost_over_qsd_luks_4k_qd32", AtLeast(4.0), "A virtual machine reads our encrypted disk {} times as fast as that of qemu-storage-daemon: random reads of 4 KiB, 32 in flight."),
    ratio("doors", "vhost_over_qsd_luks_128k", AtLeast(6.0), "A virtual machine reads our encrypted disk {} times as fast as that of qemu-storage-daemon: 128 KiB in order."),
    ratio("doors", "vhost_encrypted_over_plain_4k_qd32", Higher, "Encryption leaves a virtual machine {} times the speed of the plain disk: random reads of 4 KiB."),
    ratio("doors", "vhost_encrypted_over_plain_128k", Higher, "Encryption leaves a virtual machine {} times the speed of the plain disk: 128 KiB in order."),
    ratio("doors", "of_model_vhost_4k_qd32", AtLeast(0.96), "Encrypted random reads of 4 KiB by a virtual machine, 32 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("doors", "of_model_vhost_4k_qd1", Higher, "One at a time, they reach {} times the speed of the same plain and then the bare cipher."),
    ratio("doors", "of_model_vhost_128k", AtLeast(0.97), "Encrypted reads of 128 KiB in order by a virtual machine reach {} times the speed of the same plain and then the bare cipher."),
    ratio("doors", "of_model_fuse_4k_qd32", Higher, "Encrypted random reads of 4 KiB from a mount, 32 in flight, reach {} times the speed of the same plain and then the bare cipher."),
    ratio("doors", "of_model_fuse_1m", Higher, "Encrypted reads of 1 MiB from a mount reach {} times the speed of the same plain and then the bare cipher."),
    ratio("doors", "vhost_over_nbd_4k_qd1", AtLeast(2.0), "One small read at a time is {} times as fast for a virtual machine as over NBD."),
    ratio("doors", "fuse_over_qsd_luks_4k_qd32", AtLeast(3.0), "Our mount is {} times as fast as that of qemu-storage-daemon: random reads of 4 KiB, 32 in flight."),
    ratio("doors", "fuse_over_qsd_luks_1m", AtLeast(5.0), "Our mount is {} times as fast as that of qemu-storage-daemon: reads of 1 MiB."),
    ratio("doors", "fuse_uring_over_fuse_4k_qd32", Higher, "A mount whose requests come through io_uring is {} times as fast as one without: random reads of 4 KiB."),
    ratio("doors", "fuse_uring_over_fuse_1m", Higher, "A mount whose requests come through io_uring is {} times as fast as one without: reads of 1 MiB."),

    ratio("media", "onstack_over_memcpy", AtMost(1.10), "A request of 4 KiB on the stack takes {} times as long as a bare copy of its bytes."),
    ratio("media", "heap_over_onstack", Lower, "A request from the heap takes {} times as long as one on the stack."),
    units("media", "allocations_per_io", AtMost(0.0), "allocations", "A request on the stack calls the allocator {} times."),
    ratio("media", "btt_write_over_plain", Lower, "A write to a block translation table, which no crash tears, takes {} times as long as one to the medium below it."),

    ratio("zoned", "encrypted_over_plain_zoned_4k_qd1", AtLeast(0.9), "Encryption leaves a zoned disk {} times its speed: writes of 4 KiB, one at a time, on a medium like an SSD."),
    ratio("zoned", "encrypted_over_plain_zoned_128k_qd16", AtLeast(0.9), "Encryption leaves a zoned disk {} times its speed: writes of 128 KiB, 16 in flight, on a medium like an SSD."),
    ratio("zoned", "inline_over_resequenced_pool", Higher, "Whoever submits writes of 4 KiB encrypts them {} times as fast as a pool of threads whose results are put in order again, in memory."),
    ratio("zoned", "auto_over_resequenced_pool", AtLeast(1.0), "At its worst, automatic dispatch writes zones {} times as fast as that pool."),

    ratio("images", "create_from_over_cp", AtLeast(0.9), "Encrypting an image is {} times as fast as copying it with cp."),
    ratio("images", "create_from_over_nbdcopy_serve", AtLeast(1.0), "Encrypting an image is {} times as fast as with nbdcopy into a volume that cryptline serves."),
    ratio("images", "create_from_over_qemu_img_luks", AtLeast(4.0), "Encrypting an image is {} times as fast as with qemu-img, whose target was made before."),
    ratio("images", "create_from_over_cryptsetup_reencrypt", AtLeast(2.5), "Encrypting an image is {} times as fast as with cryptsetup, which works in place and can go on after a crash."),
    ratio("images", "copy_out_over_cp", AtLeast(0.9), "Decrypting an image is {} times as fast as copying it with cp."),
    ratio("images", "create_from_cpu_over_nbdcopy_serve", AtMost(0.7), "Encrypting an image takes {} times the processor time of nbdcopy into a volume that cryptline serves."),
    units("images", "sparse_copy_seconds", Lower, "seconds", "An image of 100 GiB of holes and 100 MiB of data is encrypted in {} seconds."),
    units("images", "sparse_copy_mib", AtMost(110.0), "MiB", "The encrypted copy of that image takes {} MiB on the disk."),

    units("scale", "idle_mib", AtMost(14.0), "MiB", "An idle server of one export holds {} MiB of memory."),
    units("scale", "ready_256_exports_ms", AtMost(300.0), "ms", "A server of 256 exports greets its first client after {} ms."),
    ratio("scale", "export_time_1000_over_256", AtMost(1.25), "Of 1000 exports, each takes {} times as long to open as of 256."),
    units("scale", "export_kib", Lower, "KiB", "Each export more holds {} KiB of memory."),
    units("scale", "export_descriptors", AtMost(2.0), "descriptors", "Each export more holds {} descriptors."),
    units("scale", "possible_client_kib", AtMost(0.1), "KiB", "Each client that may come holds {} KiB of memory before it comes."),
    units("scale", "possible_client_descriptors", AtMost(0.0), "descriptors", "Each client that may come holds {} descriptors before it comes."),
    units("scale", "idle_client_kib", AtMost(100.0), "KiB", "Each client that asks for nothing holds {} KiB of memory."),
    units("scale", "idle_client_descriptors", Lower, "descriptors", "Each client that asks for nothing holds {} descriptors."),
    units("scale", "idle_1000_clients_cpu_ms", AtMost(0.0), "ms", "A server whose 1000 clients ask for nothing uses {} ms of processor time in a second."),
    ratio("scale", "connections_8_over_1", Higher, "Eight connections together read {} times as fast as one."),
    ratio("scale", "vhost_queues_4_over_1", Higher, "A machine with four queues reads {} times as fast as with one."),
    ratio("scale", "sparse_ready_over_small", AtMost(1.25), "A file of 15 TiB, nearly all holes, is served {} times as late as one of 24 MiB."),
    units("scale", "sparse_extents_ms", Lower, "ms", "Its client has the extents of all of it after {} ms."),
    units("scale", "sparse_growth_ms", Lower, "ms", "When it has grown, the next client sees that after {} ms."),
    units("scale", "opening_ms", AtMost(15.0), "ms", "A server of a LUKS2 file that runs a command which does nothing is over after {} ms."),

    ratio("rbd", "rbd_over_librbd_luks2_4k_qd32", AtLeast(1.0), "Random reads of 4 KiB from a Ceph image are {} times as fast as with librbd's own encryption."),
    ratio("rbd", "rbd_over_librbd_luks2_1m_write", AtLeast(1.1), "Writes of 1 MiB to a Ceph image are {} times as fast as with librbd's own encryption."),
    ratio("rbd", "rbd_encrypted_over_raw_4k_qd32", AtLeast(0.97), "Encryption leaves a Ceph image {} times its speed: random reads of 4 KiB."),
    ratio("rbd", "rbd_added_cpu_over_librbd_luks2", AtMost(0.6), "Encryption adds {} times the processor time that librbd's own adds: reads of 1 MiB."),
    ratio("rbd", "rbd_512_write_over_plain", AtLeast(0.95), "Random writes of 512 bytes keep {} times the speed of a plain image."),
    ratio("rbd", "rbd_used_over_live_after_fstrim", AtMost(1.1), "After three quarters of a disk were discarded, its image takes {} times what is left."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_has_every_figure_of_every_plan_and_no_other() {
        let page = include_str!("../../../docs/bench-json.md");
        let sections = page.split("\n## Figures of `").skip(1).filter_map(|section| section.split_once('`'));
        let figures = sections.flat_map(|(bench, section)| {
            let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
            rows.map(move |(name, _)| (bench, name))
        });
        // Those of another program are none of this table.
        let figures: BTreeSet<_> = figures.filter(|(bench, _)| *bench != "cargo xtask bench-python").collect();
        assert_eq!(figures, ALL.iter().map(|spec| (spec.bench, spec.name)).collect());
    }
}
