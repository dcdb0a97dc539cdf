//! Machines and control groups as their files describe them.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

const GIB: u64 = 1 << 20;
const MIB: u64 = 1 << 10;

/// A machine of 24 GiB with 1 GiB of swap, and what else its files say.
struct Machine(TempDir);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("proc/meminfo", "MemTotal: 25165824 kB\nMemAvailable: 20971520 kB\nSwapFree: 1048576 kB\n");
        machine.write("proc/self/status", "VmSize:\t 102400 kB\nVmData:\t 51200 kB\n");
        for (path, text) in files {
            machine.write(path, text);
        }
        machine
    }

    /// In a control group of version 2 of this path, with these files in its folder and those above.
    fn in_group(path: &str, files: &[(&str, &str)]) -> Self {
        let machine = Self::new(&[("proc/self/mountinfo", V2), ("proc/self/cgroup", &format!("0::{path}\n"))]);
        for (file, text) in files {
            machine.write(&format!("sys/fs/cgroup/{file}"), text);
        }
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path: PathBuf = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn least(&self, limits: [Option<u64>; 2]) -> (u64, String) {
        let bounds = bounds(self.0.path(), limits);
        let least = bounds.into_iter().min_by_key(|bound| bound.left).unwrap();
        (least.left, least.name)
    }

    fn left(&self) -> u64 {
        self.least([None; 2]).0
    }

    fn total(&self) -> u64 {
        let bounds = bounds(self.0.path(), [None; 2]);
        bounds.into_iter().map(|bound| bound.total).min().unwrap()
    }
}

#[test]
fn limits_count_for_servers_and_the_machine_does_not() {
    let free = Machine::new(&[]);
    assert_eq!(within_limits(free.0.path(), [None; 2]), None);
    let address_space = within_limits(free.0.path(), [Some(200 << 20), None]).unwrap();
    assert_eq!((address_space.kib, &*address_space.bound), (100 * MIB, "the limit of address space"));
    // Swap space saves nobody who is waited for.
    let files = [
        ("memory.max", "max\n"),
        ("memory.current", "1\n"),
        ("pod/memory.max", "67108864\n"),
        ("pod/memory.high", "8388608\n"),
        ("pod/memory.current", "4194304\n"),
        ("pod/me/memory.max", "max\n"),
        ("pod/me/memory.current", "1\n"),
    ];
    let group = within_limits(Machine::in_group("/pod/me", &files).0.path(), [None; 2]).unwrap();
    assert_eq!((group.kib, &*group.bound), (60 * MIB, "its control group"));
}

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "33 26 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

#[test]
fn meminfo_fields_are_read_in_kib() {
    let text = "MemTotal:       24679868 kB\nMemAvailable:   23999999 kB\n";
    assert_eq!(field_kib(text, "MemAvailable:"), Some(23_999_999));
    assert_eq!(field_kib(text, "SwapFree:"), None);
    assert_eq!(field_kib("MemTotal: lots", "MemTotal:"), None);
}

#[test]
fn machine_without_groups_has_what_is_available_and_its_swap() {
    let machine = Machine::new(&[]);
    assert_eq!(machine.least([None; 2]), (21 * GIB, "the machine".into()));
    assert_eq!(machine.total(), 24 * GIB);
}

#[test]
fn system_that_does_not_say_bounds_nothing() {
    let empty = tempfile::tempdir().unwrap();
    assert!(bounds(empty.path(), [None; 2]).is_empty());
}

#[test]
fn group_and_every_group_above_it_bound_memory() {
    for (own_max, above_max, left) in [
        ("268435456\n", "max\n", 256 * MIB),
        ("max\n", "134217728\n", 128 * MIB),
        ("268435456\n", "134217728\n", 128 * MIB),
        ("max\n", "max\n", 21 * GIB),
    ] {
        let machine = Machine::in_group(
            "/pod/box",
            &[
                ("pod/box/memory.max", own_max),
                ("pod/memory.max", above_max),
                ("pod/box/memory.current", "0\n"),
                ("pod/memory.current", "0\n"),
                ("pod/box/memory.swap.max", "0\n"),
                ("pod/memory.swap.max", "0\n"),
            ],
        );
        assert_eq!(machine.left(), left, "{own_max} {above_max}");
        let total = if left < GIB { left } else { 24 * GIB };
        assert_eq!(machine.total(), total);
    }
}

#[test]
fn what_a_group_uses_counts_and_its_page_cache_does_not() {
    let machine = Machine::in_group(
        "/",
        &[
            ("memory.max", "1073741824\n"),
            ("memory.current", "805306368\n"),
            ("memory.stat", "anon 1\nactive_file 1048576\ninactive_file 267386880\n"),
            ("memory.swap.max", "104857600\n"),
            ("memory.swap.current", "94371840\n"),
        ],
    );
    let (left, name) = machine.least([None; 2]);
    assert_eq!(left, (256 + 256 + 10) * MIB);
    assert_eq!(name, "its control group");
}

#[test]
fn file_in_memory_is_bounded_by_its_group_and_gets_no_swap() {
    let left = |machine: &Machine| {
        let bounds = bounds_with(machine.0.path(), [None; 2], Swap::Unused);
        least(bounds).unwrap()
    };
    let found = left(&Machine::new(&[]));
    assert_eq!((found.kib, &*found.bound), (20 * GIB, "the machine"));
    let found = left(&Machine::in_group("/", &[("memory.max", "1073741824\n"), ("memory.current", "268435456\n")]));
    assert_eq!((found.kib, &*found.bound), (768 * MIB, "its control group"));
}

#[test]
fn group_that_would_be_throttled_bounds_memory_as_well() {
    let machine = Machine::in_group(
        "/",
        &[
            ("memory.max", "max\n"),
            ("memory.high", "67108864\n"),
            ("memory.current", "0\n"),
            ("memory.swap.max", "0\n"),
        ],
    );
    assert_eq!(machine.left(), 64 * MIB);
}

#[test]
fn groups_of_version_1_bound_memory_with_and_without_swap() {
    let files = [
        ("proc/self/mountinfo", V1),
        ("proc/self/cgroup", "5:cpu:/other\n4:hugetlb,memory:/box\n0::/\n"),
        ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "268435456\n"),
        ("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "134217728\n"),
        ("sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file 67108864\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
    ];
    let machine = Machine::new(&files);
    assert_eq!(machine.left(), (128 + 64) * MIB + GIB);
    assert_eq!(machine.total(), 256 * MIB);
    machine.write("sys/fs/cgroup/memory/box/memory.memsw.limit_in_bytes", "268435456\n");
    machine.write("sys/fs/cgroup/memory/box/memory.memsw.usage_in_bytes", "134217728\n");
    assert_eq!(machine.left(), (128 + 64) * MIB);
}

/// In a container the path may be the host's, and the mount shows only the part below it.
#[test]
fn container_finds_its_own_group_at_the_mount() {
    for (mount_root, path) in
        [("/docker/abc", "/docker/abc"), ("/", "/"), ("/docker/abc", "/"), ("/", "/../../elsewhere")]
    {
        let mounts = V2.replace(" / /sys", &format!(" {mount_root} /sys"));
        let machine = Machine::new(&[
            ("proc/self/mountinfo", &mounts),
            ("proc/self/cgroup", &format!("0::{path}\n")),
            ("sys/fs/cgroup/memory.max", "268435456\n"),
            ("sys/fs/cgroup/memory.current", "0\n"),
            ("sys/fs/cgroup/memory.swap.max", "0\n"),
        ]);
        assert_eq!(machine.left(), 256 * MIB, "{mount_root} {path}");
    }
}

#[test]
fn limits_of_the_process_bound_memory() {
    let machine = Machine::new(&[]);
    let (left, name) = machine.least([Some(1 << 30), None]);
    assert_eq!((left, name.as_str()), (GIB - 100 * MIB, "the limit of address space"));
    let (left, name) = machine.least([None, Some(64 << 20)]);
    assert_eq!((left, name.as_str()), (14 * MIB, "the limit of data"));
    assert_eq!(machine.least([Some(1 << 20), None]).0, 0);
}

#[test]
fn this_machine_says_how_much_it_has() {
    let available = available().unwrap();
    assert!(available.kib > 0 && total_kib().unwrap() > 0, "{available:?}");
}
