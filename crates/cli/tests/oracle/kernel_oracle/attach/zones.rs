//! Zoned volumes as zoned devices, which only ublk can make.

use super::Guest;

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    ask_of_bytes(guest);
    ask_of_fio(guest);
    ask_of_refusals(guest);
}

pub(super) fn ask_of_bytes(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "zones of a volume are those of its device and dm-crypt reads what they hold",
        r#"
        conditions() { blkzone report "$@" $device | sed -n 's/.*zcond: *[0-9]*(\(..\)).*/\1/p' | tr '\n' ' '; }
        direct() { dd bs=64k "$@" 2>/dev/null; }
        truncate -s 48M /tmp/image
        format /tmp/image
        device=$(attach zoned:/tmp/image,zone-size=4M,conventional=4,max-open=3 --key-file $key --queues 2)
        queue=/sys/block/${device##*/}/queue
        [ "$(cat $queue/zoned)" = host-managed ]
        [ "$(cat $queue/nr_zones) $(cat $queue/chunk_sectors) $(cat $queue/max_open_zones)" = "8 8192 3" ]
        [ "$(blockdev --getss $device)" = 4096 ]
        [ "$(conditions)" = "em em em em em em em em " ]
        noise /tmp/noise 4194304
        direct if=/tmp/noise of=$device oflag=direct
        direct if=/tmp/noise of=$device oflag=direct seek=64 count=3
        [ "$(conditions)" = "fu oi em em em em em em " ]
        [ "$(conditions -o 8192 -c 2)" = "oi em " ]
        # Not where the zone goes on.
        fails direct if=/tmp/noise of=$device oflag=direct seek=70 count=1
        blkzone close -o 8192 -c 1 $device
        blkzone open -o 16384 -c 1 $device
        blkzone finish -o 24576 -c 1 $device
        [ "$(conditions)" = "fu cl oe fu em em em em " ]
        direct if=/tmp/noise of=$device oflag=direct seek=67 skip=3 count=61
        for zone in 0 1; do
            direct if=$device iflag=direct skip=$((zone * 64)) count=64 | cmp - /tmp/noise
        done
        blkzone reset -o 0 -c 1 $device
        blkzone reset -o 16384 -c 2 $device
        [ "$(conditions)" = "em fu em em em em em em " ]
        noise /tmp/other 4194304
        direct if=/tmp/other of=$device oflag=direct count=50
        cryptline detach $device
        nothing_left
        cryptsetup open -r --key-file $key /tmp/image v
        head -c 3276800 /tmp/other | cmp -n 3276800 - /dev/mapper/v
        dd if=/dev/mapper/v bs=64k skip=64 count=64 | cmp - /tmp/noise
        cryptsetup close v
        # The pointers are where they were, and a reset of all zones is one.
        device=$(attach zoned:/tmp/image --key-file $key)
        [ "$(conditions)" = "cl fu em em em em em em " ]
        direct if=/tmp/other of=$device oflag=direct seek=50 skip=50 count=14
        direct if=$device iflag=direct count=64 | cmp - /tmp/other
        blkzone reset $device
        [ "$(conditions)" = "em em em em em em em em " ]
        cryptline detach $device
        nothing_left
        "#,
    );
}

fn ask_of_fio(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "fio fills zones in order on two queues and verifies them",
        r#"
        device=$(attach zoned:ram:48M,zone-size=4M,conventional=4,zone-capacity=3M --queues 2)
        for how in "write --bs=64k" "randwrite --bs=4k"; do
            limit 100 fio --name=zones --filename=$device --ioengine=libaio --direct=1 --zonemode=zbd \
                --offset=16M --size=32M --io_size=24M --max_open_zones=4 --iodepth=8 --rw=$how \
                --verify=crc32c --verify_fatal=1 >/tmp/fio 2>&1 || { cat /tmp/fio >&2; false; }
            grep -q WRITE: /tmp/fio
            grep -q READ: /tmp/fio
            fails grep verify: /tmp/fio
            blkzone reset -o 32768 $device
        done
        # Conventional zones are written anywhere.
        noise /tmp/noise 1048576
        for half in 1 0; do
            dd if=/tmp/noise of=$device bs=512k oflag=direct seek=$half skip=$half count=1
        done
        head -c 1048576 $device | cmp - /tmp/noise
        cryptline detach $device
        nothing_left
        "#,
    );
}

/// A file system that writes zones in order itself, and appends.
pub(super) fn ask_of_btrfs(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "btrfs keeps its files in zones",
        r#"
        truncate -s 256M /tmp/image
        format /tmp/image
        # The LUKS header is in the conventional zones, so that the superblocks are a log.
        device=$(attach zoned:/tmp/image,zone-size=4M,conventional=4 --key-file $key --queues 2)
        mkfs.btrfs -q -O zoned -d single -m single $device
        modprobe btrfs
        mount -t btrfs $device /mnt
        noise /tmp/noise 6000000
        for name in a b c; do cp /tmp/noise /mnt/$name; done
        rm /mnt/b
        sync
        umount /mnt
        cryptline detach $device
        nothing_left
        device=$(attach zoned:/tmp/image --key-file $key)
        btrfs check --readonly $device
        mount -t btrfs $device /mnt
        btrfs scrub start -B -r /mnt >/tmp/scrub
        grep -q 'no errors found' /tmp/scrub
        for name in a c; do cmp /mnt/$name /tmp/noise; done
        umount /mnt
        cryptline detach $device
        nothing_left
        "#,
    );
}

fn ask_of_refusals(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "device with zones goes with its server and others refuse zones",
        r#"
        device=$(attach zoned:ram:32M,zone-size=4M)
        server=$(pid_of)
        kill -KILL $server
        wait_for_end $server
        status=0
        cryptline recover $device 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'written in order' /tmp/said
        limit 60 cryptline detach $device
        nothing_left
        status=0
        cryptline attach --driver nbd zoned:ram:32M,zone-size=4M 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'driver ublk' /tmp/said
        status=0
        cryptline serve zoned:ram:32M,zone-size=4M 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'cryptline attach' /tmp/said
        nothing_left
        "#,
    );
}
