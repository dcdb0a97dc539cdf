//! `attach`, `detach` and `devices` on a real kernel, in the oracle's guest.
//!
//! ```text
//! dd, mkfs.ext4, fio, blkdiscard ─► /dev/nbdN ─► cryptline, in the guest ─► $volume
//!                                                       the kernel's dm-crypt ─┘ finds the same bytes
//! ```

pub(super) mod callers;
mod keys;
mod left;
mod memory;
pub(super) mod newest;
mod steady;
mod stopped;
mod udev;
mod users;
mod zones;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptline_testkit::oracle::{Case, Oracle};
use cryptline_testkit::peer;

use super::Check;
use super::bench::Bench;

/// Bytes of the volumes' images.
const IMAGE: usize = 48 << 20;
const TIMEOUT: Duration = Duration::from_secs(240);

/// Lines that all scripts begin with.
const PRELUDE: &str = r#"
    chmod 600 $key
    # A `!` by itself would not end the script.
    fails() { ! "$@"; }
    limit() { timeout -s KILL "$@"; }
    attach() { cryptline attach --driver $driver "$@"; }
    format() { cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file $key "$@"; }
    pid_of() { cryptline devices --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
    condition() { cryptline devices --json | sed -n 's/.*"condition": "\(.*\)".*/\1/p'; }
    wait_for_end() { for _ in $(seq 300); do [ -d /proc/$1 ] || return 0; sleep 0.1; done; return 1; }
    noise() { head -c $2 /dev/urandom >$1; }
    nothing_left() {
        [ "$(cryptline devices)" = "" ]
        [ -z "$(ls /run/cryptline 2>/dev/null)" ]
        case $driver in
            nbd) [ "$(cat /sys/block/nbd0/size)" = 0 ] ;;
            ublk) [ -z "$(ls /sys/class/ublk-char)" ] && [ ! -e /dev/ublkb0 ] ;;
        esac
    }
    # Of a case that has failed.
    cryptline devices | while read -r left _; do cryptline detach --force $left || :; done
    set -x
"#;

/// The program that is distributed, where it was made of this source, and else the one of the tests.
fn program() -> PathBuf {
    let ours = Path::new(env!("CARGO_BIN_EXE_cryptline"));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let portable = workspace.map(|it| it.join("target/static/cryptline"));
    let made = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    let is_of_now = |path: &PathBuf| {
        let (portable, ours) = (made(path), made(ours));
        portable.is_some() && (peer::in_ci() || portable > ours)
    };
    portable.filter(is_of_now).unwrap_or_else(|| ours.to_owned())
}

/// A machine with what is wanted there, and the cases about one driver that it was asked so far.
struct Guest<'a, 'o> {
    bench: &'a Bench,
    oracle: &'o mut Oracle,
    driver: &'static str,
    checks: Vec<Check<'a>>,
}

impl<'a, 'o> Guest<'a, 'o> {
    fn new(bench: &'a Bench, oracle: &'o mut Oracle, driver: &'static str) -> Option<Self> {
        let tools = peer::require_all(["fio", "blkdiscard", "blkzone", "sfdisk", "e2fsck", "mkfs.btrfs", "btrfs"])?;
        oracle.stripped(&program(), "cryptline", bench.folder());
        for tool in &tools {
            oracle.program(tool);
        }
        // Of the package that has blkzone.
        oracle.program_at(Path::new("/usr/bin/setpriv"));
        Some(Self { bench, oracle, driver, checks: Vec::new() })
    }

    /// A case without a disk.
    fn case(&mut self, name: &str) -> &mut Case {
        self.checks.push(Check::passes(name));
        self.oracle.case(name)
    }

    /// A case whose `$volume` is an image of its own.
    fn ask(&mut self, name: &str, script: &str) -> &mut Case {
        let (image, driver) = (self.bench.image(name, IMAGE), self.driver);
        self.case(name)
            .disk("volume", &image)
            .file("key", b"a secret")
            .script(&format!("driver={driver}{PRELUDE}{script}"))
            .timeout(TIMEOUT)
    }
}

/// The cases that hold for every driver.
fn ask_of_files(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "file system survives and dm-crypt reads it",
        r#"
        format --sector-size 4096 $volume
        device=$(attach $volume --key-file $key)
        [ -b $device ]
        [ "$(blockdev --getss $device)" = 4096 ]
        mkfs.ext4 -q $device
        mount $device /mnt
        noise /mnt/noise 6000000
        sum=$(sha256sum </mnt/noise)
        fails cryptline detach $device 2>/tmp/said
        grep -q 'in use' /tmp/said
        umount /mnt
        cryptline detach $device
        nothing_left
        cryptsetup open --key-file $key $volume v
        e2fsck -fn /dev/mapper/v
        mount -r /dev/mapper/v /mnt
        [ "$(sha256sum </mnt/noise)" = "$sum" ]
        umount /mnt
        cryptsetup close v
        # As a disk has them whose partition table was made elsewhere.
        device=$(attach $volume --key-file $key --logical-block 512)
        [ "$(blockdev --getss $device)" = 512 ]
        # The kernel's nbd driver knows no others.
        [ $driver = nbd ] || [ "$(cat /sys/block/${device##*/}/queue/physical_block_size)" = 4096 ]
        dd if=/dev/urandom of=$device bs=512 count=1 seek=3 oflag=direct
        cryptline detach $device
        nothing_left
        "#,
    );
}

/// How a device ends that was written to.
fn ask_of_cached_writes(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "what the kernel has cached is written before the device goes",
        r#"
        format $volume
        noise /tmp/noise 8388608
        for way in detach twice term; do
            device=$(attach $volume --key-file $key)
            dd if=/tmp/noise of=$device bs=64k
            server=$(pid_of)
            case $way in
                detach) cryptline detach $device ;;
                twice)
                    cryptline detach $device & first=$!
                    # It may come too late, and find nothing.
                    cryptline detach $device || :
                    wait $first || :
                    ;;
                term) kill -TERM $server ;;
            esac
            wait_for_end $server
            nothing_left
            cryptsetup open -r --key-file $key $volume v
            head -c 8388608 /dev/mapper/v | cmp - /tmp/noise
            cryptsetup close v
            noise /tmp/noise 8388608
        done
        "#,
    );
}

/// How a device ends.
fn ask_of_ends(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "what a mounted file system has not written is written when the server is stopped",
        r#"
        format $volume
        attach $volume --key-file $key --foreground >/tmp/device 2>/tmp/said &
        server=$!
        for _ in $(seq 300); do [ -s /tmp/device ] && break; sleep 0.1; done
        device=$(cat /tmp/device)
        mkfs.ext4 -q $device
        mount $device /mnt
        noise /mnt/noise 6000000
        sum=$(sha256sum </mnt/noise)
        kill -TERM $(pid_of)
        status=0
        wait $server || status=$?
        [ $status = 4 ]
        grep -q 'still in use' /tmp/said
        [ "$(condition)" = failed ]
        umount /mnt || umount -l /mnt
        status=0
        cryptline detach $device 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'still in use' /tmp/said
        nothing_left
        cryptsetup open --key-file $key $volume v
        mount /dev/mapper/v /mnt
        [ "$(sha256sum </mnt/noise)" = "$sum" ]
        umount /mnt
        cryptsetup close v
        "#,
    );
    guest.ask(
        "device that is taken away under load ends with errors and no hang",
        r#"
        device=$(attach ram:64M)
        server=$(pid_of)
        for _ in 1 2 3; do
            ( while dd if=$device of=/dev/null bs=64k iflag=direct; do :; done 2>/dev/null; echo over >>/tmp/over ) &
        done
        sleep 2
        limit 100 cryptline detach --force $device
        wait_for_end $server
        for _ in $(seq 200); do [ "$(wc -l </tmp/over)" = 3 ] && break; sleep 0.1; done
        [ "$(wc -l </tmp/over)" = 3 ]
        nothing_left
        "#,
    );
}

/// The same, about what a block device can do.
fn ask_of_blocks(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "read-only device takes no write",
        r#"
        format $volume
        device=$(attach $volume --key-file $key --read-only)
        [ "$(blockdev --getro $device)" = 1 ]
        fails dd if=/dev/zero of=$device bs=4096 count=1 conv=fsync
        cryptline detach $device
        nothing_left
        "#,
    );
    guest.ask(
        "blocks can be discarded and zeroed and partitions are found",
        r#"
        device=$(attach ram:64M)
        name=${device##*/}
        queue=/sys/block/$name/queue
        [ "$(cat $queue/write_cache)" = "write back" ]
        [ "$(cat $queue/fua)" = 1 ]
        [ "$(cat $queue/discard_max_bytes)" -gt 0 ]
        noise /tmp/noise 4194304
        dd if=/tmp/noise of=$device bs=64k conv=fsync
        /sbin/blkdiscard -o 1048576 -l 1048576 $device
        /sbin/blkdiscard -z -o 2097152 -l 65536 $device
        blockdev --flushbufs $device
        dd if=/dev/zero of=/tmp/noise bs=64k seek=32 count=1 conv=notrunc
        head -c 1048576 $device >/tmp/front
        head -c 1048576 /tmp/noise | cmp - /tmp/front
        tail -c +2097153 /tmp/noise >/tmp/rest
        head -c 4194304 $device | tail -c +2097153 | cmp - /tmp/rest
        printf ',16M\n,16M\n' | sfdisk -q $device
        blockdev --rereadpt $device
        ls $device?1 || ls ${device}p1
        cryptline detach $device
        nothing_left
        "#,
    );
    guest.ask(
        "random work of several jobs on two queues is read back as it was written",
        r#"
        format $volume
        device=$(attach $volume --key-file $key --queues 2 --stats /tmp/stats --stats-interval 0.2)
        [ "$(ls -d /sys/block/${device##*/}/mq/* | wc -l)" = 2 ]
        fio --name=w --filename=$device --rw=randwrite --bsrange=4k-256k --bs_unaligned=0 --size=24M \
            --ioengine=psync --direct=1 --fsync=32 --verify=crc32c --do_verify=1 --verify_fatal=1 \
            --numjobs=1 --minimal >/tmp/fio 2>&1 || { cat /tmp/fio >&2; false; }
        fio --name=v --filename=$device --rw=randrw --bs=4k --size=8M --ioengine=libaio --iodepth=32 \
            --direct=1 --verify=crc32c --verify_fatal=1 --minimal >/tmp/fio 2>&1 || { cat /tmp/fio >&2; false; }
        # One job on each processor, and so on each queue.
        fio --filename=$device --rw=randrw --bs=4k --size=4M --ioengine=libaio --iodepth=8 --direct=1 \
            --verify=crc32c --verify_fatal=1 --minimal --name=a --cpus_allowed=0 --name=b --offset=4M \
            --cpus_allowed=1 >/tmp/fio 2>&1 || { cat /tmp/fio >&2; false; }
        served=0
        for lane in /proc/$(pid_of)/task/*; do
            case $(cat $lane/comm) in nbd-? | ublk-?) ;; *) continue ;; esac
            # It serves a disk, and the kernel knows it: PF_MEMALLOC_NOIO.
            [ $(($(cut -d ' ' -f 9 $lane/stat) & 0x80000)) != 0 ]
            waits=$(sed -n 's/^voluntary_ctxt_switches:[^0-9]*//p' $lane/status)
            [ $waits -gt 50 ]
            served=$((served + 1))
        done
        [ $served = 2 ]
        cryptline top --once --json /tmp/stats | tee /tmp/top >&2
        grep -q '"connections":2' /tmp/top
        fails grep '"write":{"requests":0' /tmp/top
        cryptline detach $device
        [ ! -e /tmp/stats ]
        nothing_left
        "#,
    );
}

/// Devices of the nbd driver are disks like any other.
pub(super) fn ask_of_nbd<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let Some(mut guest) = Guest::new(bench, oracle, "nbd") else {
        return Vec::new();
    };
    ask_without_driver(&mut guest, "modprobe nbd", "modprobe nbd nbds_max=2");
    ask_of_files(&mut guest);
    ask_of_cached_writes(&mut guest);
    ask_of_ends(&mut guest);
    keys::ask(&mut guest);
    ask_of_blocks(&mut guest);
    ask_of_silence(&mut guest);
    stopped::ask(&mut guest);
    guest.checks
}

/// Of a guest whose driver is not loaded, and then is.
fn ask_without_driver(guest: &mut Guest<'_, '_>, advice: &str, load: &str) {
    guest.ask(
        "missing driver is named with what to do",
        &format!(
            r#"
        status=0
        attach ram:16M 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q '{advice}' /tmp/said
        "#
        ),
    );
    guest.case("load").script(load);
}

/// Servers of nbd devices that answer no more.
fn ask_of_silence(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "requests under way get errors when the server is killed and it can be cleaned up",
        r#"
        for queues in 1 2; do
            rm -f /tmp/over
            device=$(attach ram:64M --queues $queues)
            server=$(pid_of)
            # By the first, the partition table is read.
            dd if=$device of=/dev/null bs=64k count=1 iflag=direct
            # What is asked of a stopped server is under way when it is killed.
            kill -STOP $server
            for processor in 0 1; do
                ( taskset -c $processor dd if=$device of=/dev/null bs=64k count=1 iflag=direct 2>/tmp/dd ||
                    echo failed >>/tmp/over ) &
            done
            for _ in $(seq 100); do [ "$(tr -s ' ' </sys/block/nbd0/inflight)" = " 2 0" ] && break; sleep 0.1; done
            [ "$(tr -s ' ' </sys/block/nbd0/inflight)" = " 2 0" ]
            [ ! -e /tmp/over ]
            kill -KILL $server
            wait_for_end $server
            for _ in $(seq 200); do [ "$(cat /tmp/over 2>/dev/null | wc -l)" = 2 ] && break; sleep 0.1; done
            [ "$(wc -l </tmp/over)" = 2 ]
            [ "$(condition)" = orphaned ]
            [ "$(cat /sys/block/nbd0/size)" = 0 ]
            limit 60 cryptline detach $device 2>/tmp/said
            grep -q 'had been killed' /tmp/said
            nothing_left
        done
        device=$(attach ram:64M)
        limit 60 dd if=$device of=/dev/null bs=1M count=8
        cryptline detach $device
        nothing_left
        "#,
    );
    guest.ask(
        "server that does not answer in time is given up with errors",
        r#"
        fails attach ram:64M --timeout 2 --queues 2 2>/tmp/said
        grep -q 'queues 1' /tmp/said
        device=$(attach ram:64M --timeout 5)
        server=$(pid_of)
        kill -STOP $server
        fails limit 60 dd if=$device of=/dev/null bs=64k count=1 iflag=direct 2>/tmp/said
        grep -q 'Input/output error' /tmp/said
        kill -CONT $server
        wait_for_end $server
        cryptline devices >&2
        status=0
        limit 60 cryptline detach $device || status=$?
        [ $status = 4 ]
        nothing_left
        "#,
    );
}

/// Devices of the ublk driver are disks that outlive their servers.
pub(super) fn ask_of_ublk<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let Some(mut guest) = Guest::new(bench, oracle, "ublk") else {
        return Vec::new();
    };
    ask_without_driver(&mut guest, "modprobe ublk_drv", "modprobe nbd nbds_max=2; modprobe ublk_drv");
    steady::ask(&mut guest);
    zones::ask(&mut guest);
    ask_of_files(&mut guest);
    ask_of_cached_writes(&mut guest);
    ask_of_ends(&mut guest);
    keys::ask(&mut guest);
    left::ask(&mut guest);
    stopped::ask(&mut guest);
    ask_of_blocks(&mut guest);
    ask_of_large_sectors(&mut guest);
    ask_of_recovery(&mut guest);
    ask_of_refusals(&mut guest);
    newest::ask_of_older(&mut guest);
    ask_of_both(&mut guest);
    memory::ask(&mut guest);
    users::ask(&mut guest);
    udev::ask(&mut guest);
    guest.checks
}

/// No device is attached for it: the guest has a disk of such sectors, and so a kernel that reads its table.
fn ask_of_large_sectors(guest: &mut Guest<'_, '_>) {
    let image = guest.bench.image("large sectors", IMAGE);
    guest
        .case("partition of a disk with large sectors is where the kernel sees it")
        .disk_with_block_size("volume", &image, 4096)
        .file("key", b"a secret")
        .script(
            r#"
            chmod 600 $key
            disk=$(readlink -f $volume)
            [ "$(blockdev --getss $disk)" = 4096 ]
            printf 'label: dos\nstart=512, size=2048\nstart=2560, size=6144\n' | sfdisk -q $disk
            cryptline create "$disk?partition=2" --key-file $key --force \
                --pbkdf pbkdf2 --pbkdf-force-iterations 1000
            cryptsetup open --test-passphrase --key-file $key ${disk}2
            cryptline info "$disk?partition=2" >/dev/null
            head -c 8388608 /dev/urandom >/tmp/noise
            cryptline copy --from-raw --force /tmp/noise "$disk?partition=1"
            cmp /tmp/noise ${disk}1
            "#,
        );
}

fn ask_of_recovery(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "device is recovered and no request is lost",
        r#"
        format $volume
        device=$(attach $volume --key-file $key)
        ( fio --name=v --filename=$device --rw=randwrite --bsrange=4k-64k --size=16M --loops=4 \
            --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 --minimal \
            >/tmp/fio 2>&1; echo $? >/tmp/over ) &
        for _ in 1 2 3; do
            sleep 2
            server=$(pid_of)
            kill -KILL $server
            wait_for_end $server
            [ "$(condition)" = orphaned ]
            [ "$(cryptline recover $device)" = $device ]
            [ "$(condition)" = serving ]
        done
        status=0
        cryptline recover $device || status=$?
        [ $status = 5 ]
        for _ in $(seq 1500); do [ -e /tmp/over ] && break; sleep 0.1; done
        [ "$(cat /tmp/over)" = 0 ] || { cat /tmp/fio >&2; false; }
        cryptline detach $device
        nothing_left
        "#,
    );
}

/// Tries what cannot be recovered.
fn ask_of_refusals(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "device of another volume is not recovered",
        r#"
        truncate -s 32M /tmp/image
        format /tmp/image
        device=$(attach /tmp/image --key-file $key)
        server=$(pid_of)
        kill -KILL $server
        wait_for_end $server
        truncate -s 40M /tmp/image
        fails cryptline recover $device 2>/tmp/said
        grep -q 'size and blocks' /tmp/said
        truncate -s 32M /tmp/image
        mv /tmp/image /tmp/kept
        truncate -s 32M /tmp/image
        format /tmp/image
        for _ in other copy; do
            status=0
            cryptline recover $device 2>/tmp/said || status=$?
            [ $status = 4 ]
            grep -q 'another volume' /tmp/said
            [ "$(condition)" = orphaned ]
            cp /tmp/kept /tmp/image
        done
        mv /tmp/kept /tmp/image
        cryptline recover $device
        cryptline detach $device
        nothing_left
        device=$(attach ram:32M)
        server=$(pid_of)
        kill -KILL $server
        wait_for_end $server
        fails cryptline recover $device 2>/tmp/said
        grep -q 'LUKS header' /tmp/said
        cryptline detach $device
        nothing_left
        "#,
    );
    guest.ask(
        "device whose server was killed is removed and what waits for it gets errors",
        r#"
        device=$(attach ram:64M)
        ( while dd if=$device of=/dev/null bs=64k iflag=direct; do :; done 2>/dev/null; echo over >/tmp/over ) &
        sleep 1
        server=$(pid_of)
        kill -KILL $server
        wait_for_end $server
        [ ! -e /tmp/over ]
        limit 60 cryptline detach --force $device 2>/tmp/said
        grep -q 'had been killed' /tmp/said
        for _ in $(seq 200); do [ -e /tmp/over ] && break; sleep 0.1; done
        [ -e /tmp/over ]
        nothing_left
        "#,
    );
}

fn ask_of_both(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "ublk is taken where there are both",
        r#"
        device=$(cryptline attach ram:16M)
        case $device in /dev/ublkb*) ;; *) false ;; esac
        other=$(cryptline attach --driver nbd ram:16M --io preadv)
        [ "$(cryptline devices | wc -l)" = 2 ]
        noise /tmp/noise 1048576
        dd if=/tmp/noise of=$other bs=64k conv=fsync
        /sbin/blkdiscard -z -o 65536 -l 65536 $other
        dd if=/dev/zero of=/tmp/noise bs=64k seek=1 count=1 conv=notrunc
        head -c 1048576 $other | cmp - /tmp/noise
        cryptline detach $other
        cryptline detach $device
        nothing_left
        "#,
    );
}
