//! Features that only later kernels have: a server's place taken while its device is used, devices that grow, commands for
//! many requests.

use cryptline_testkit::oracle::Oracle;

use super::{Bench, Check, Guest, ask_of_files, ask_of_recovery, steady, users, zones};

/// Devices of the ublk driver change servers and grow while they are used, and take few commands.
pub(in super::super) fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let Some(mut guest) = loaded(bench, oracle) else {
        return Vec::new();
    };
    steady::ask(&mut guest);
    ask_of_files(&mut guest);
    ask_of_commands(&mut guest, "-le $((requests / 4))");
    ask_of_successors(&mut guest);
    ask_of_failed_successors(&mut guest);
    ask_of_haste(&mut guest);
    ask_of_losses(&mut guest);
    ask_of_growth(&mut guest);
    zones::ask_of_bytes(&mut guest);
    zones::ask_of_btrfs(&mut guest);
    guest.checks
}

/// Cases about killed servers and about users, of which 6.12 is asked at each landing.
pub(in super::super) fn ask_again<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let Some(mut guest) = loaded(bench, oracle) else {
        return Vec::new();
    };
    ask_of_recovery(&mut guest);
    users::ask_of_use(&mut guest);
    guest.checks
}

fn loaded<'a, 'o>(bench: &'a Bench, oracle: &'o mut Oracle) -> Option<Guest<'a, 'o>> {
    let mut guest = Guest::new(bench, oracle, "ublk")?;
    guest.case("load").script("modprobe ublk_drv");
    Some(guest)
}

/// Of the operations by which a busy queue takes requests and answers them: the kernel counts those that it is given.
fn ask_of_commands(guest: &mut Guest<'_, '_>, expected: &str) {
    guest.ask(
        "requests that come together take as many commands as the driver needs",
        &format!(
            r#"
        trace=/sys/kernel/tracing
        event=$trace/events/io_uring/io_uring_submit_req
        reads() {{ set -- $(cat /sys/block/${{device##*/}}/stat); echo $1; }}
        mount -t tracefs tracefs $trace
        device=$(attach ram:64M)
        # Commands to drivers.
        echo 'opcode == 46' >$event/filter
        before=$(reads)
        echo 1 >$event/enable
        fio --name=r --filename=$device --rw=randread --bs=4k --size=8M --ioengine=libaio --direct=1 \
            --iodepth=32 --iodepth_batch_submit=32 --iodepth_batch_complete_min=32 --minimal >/dev/null
        echo 0 >$event/enable
        requests=$(($(reads) - before))
        commands=$(grep -c 'io_uring_submit_req:' $trace/trace)
        echo "$requests requests took $commands commands" >&2
        [ $requests -ge 1024 ]
        [ $commands {expected} ]
        cryptline detach $device
        umount $trace
        nothing_left
        "#
        ),
    );
}

fn ask_of_successors(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "servers are replaced under load and no request is lost",
        r#"
        format $volume
        device=$(attach $volume --key-file $key --queues 2)
        # More than a queue has tags.
        ( fio --name=v --filename=$device --rw=randwrite --bsrange=4k-64k --size=16M --loops=4 \
            --ioengine=libaio --iodepth=96 --direct=1 --verify=crc32c --verify_fatal=1 --minimal \
            >/tmp/fio 2>&1; echo $? >/tmp/over ) &
        for _ in 1 2 3 4; do
            sleep 1
            server=$(pid_of)
            status=0
            cryptline recover $device 2>/tmp/said || status=$?
            [ $status = 5 ]
            grep -q 'replace' /tmp/said
            [ "$(limit 60 cryptline recover --replace $device)" = $device ]
            [ ! -d /proc/$server ]
            [ "$(pid_of)" != $server ]
            [ "$(condition)" = serving ]
        done
        for _ in $(seq 1500); do [ -e /tmp/over ] && break; sleep 0.1; done
        [ "$(cat /tmp/over)" = 0 ] || { cat /tmp/fio >&2; false; }
        cryptline detach $device
        nothing_left
        "#,
    );
    guest.ask(
        "mounted file system goes from server to server",
        r#"
        format $volume
        device=$(attach $volume --key-file $key)
        mkfs.ext4 -q $device
        mount $device /mnt
        noise /tmp/noise 4194304
        for turn in 1 2 3; do
            cp /tmp/noise /mnt/noise$turn
            limit 60 cryptline recover --replace $device
        done
        umount /mnt
        cryptline detach $device
        nothing_left
        cryptsetup open --key-file $key $volume v
        e2fsck -fn /dev/mapper/v
        mount -r /dev/mapper/v /mnt
        for turn in 1 2 3; do cmp /mnt/noise$turn /tmp/noise; done
        "#,
    );
}

/// Of servers that cannot be replaced, or not by the first who tries.
fn ask_of_failed_successors(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "what cannot be handed over keeps its server",
        r#"
        for target in ram:16M zoned:ram:32M,zone-size=4M; do
            device=$(attach $target)
            server=$(pid_of)
            status=0
            cryptline recover --replace $device 2>/tmp/said || status=$?
            [ $status = 4 ]
            grep -q 'cryptline detach' /tmp/said
            [ "$(pid_of)" = $server ]
            [ "$(condition)" = serving ]
            dd if=$device of=/dev/null bs=64k count=1 iflag=direct
            cryptline detach $device
            nothing_left
        done
        "#,
    );
    guest.ask(
        "device whose successor cannot unlock it waits for the next",
        r#"
        format $volume
        cp $key /tmp/key
        device=$(attach $volume --key-file /tmp/key)
        noise /tmp/noise 1048576
        dd if=/tmp/noise of=$device bs=64k conv=fsync
        echo wrong >/tmp/key
        status=0
        cryptline recover --replace $device 2>/tmp/said || status=$?
        [ $status = 2 ]
        grep -q 'waits' /tmp/said
        [ "$(condition)" = orphaned ]
        cp $key /tmp/key
        cryptline recover --replace $device
        dd if=$device bs=64k count=16 iflag=direct | cmp - /tmp/noise
        cryptline detach $device
        nothing_left
        "#,
    );
}

/// Of those that are asked for too early, or twice.
fn ask_of_haste(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "server that is replaced while it makes its device makes it and leaves it",
        r#"
        format $volume
        # The kernel looks for partitions before the device is there.
        ( attach $volume --key-file $key --delay read=300ms >/tmp/device; echo $? >/tmp/over ) &
        for _ in $(seq 1500); do [ -e /run/cryptline/attach-ublkb0.json ] && break; sleep 0.02; done
        server=$(pid_of)
        limit 100 cryptline recover --replace /dev/ublkb0
        for _ in $(seq 300); do [ -e /tmp/over ] && break; sleep 0.1; done
        [ "$(cat /tmp/over)" = 0 ]
        [ "$(cat /tmp/device)" = /dev/ublkb0 ]
        [ "$(pid_of)" != $server ]
        [ "$(condition)" = serving ]
        cryptline detach /dev/ublkb0
        nothing_left
        "#,
    );
    guest.ask(
        "of two who replace a server at once one does and no other says that there is none",
        r#"
        format $volume
        device=$(attach $volume --key-file $key)
        for turn in 1 2; do
            ( status=0
            cryptline recover --replace $device 2>/tmp/said$turn || status=$?
            echo $status >/tmp/over$turn ) &
        done
        for _ in $(seq 600); do [ -e /tmp/over1 ] && [ -e /tmp/over2 ] && break; sleep 0.1; done
        cat /tmp/said1 /tmp/said2 >&2
        case "$(cat /tmp/over1) $(cat /tmp/over2)" in "0 0" | "0 5" | "5 0") ;; *) false ;; esac
        [ "$(condition)" = serving ]
        dd if=$device of=/dev/null bs=64k count=1 iflag=direct
        cryptline detach $device
        nothing_left
        "#,
    );
}

/// Of what a server could not write, and the next one knows nothing of.
fn ask_of_losses(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "loss that a server finds or has found fails what is flushed by all later ones",
        r#"
        heal() { sed -i 's/,"--fault","flush:after=0"//' /run/cryptline/attach-*; fails grep fault /run/cryptline/attach-*; }
        kill_server() { local server=$(pid_of); kill -KILL $server; wait_for_end $server; }
        noise /tmp/noise 65536
        format $volume
        for way in last earlier; do
            device=$(attach $volume --key-file $key --fault flush:after=0)
            dd if=/tmp/noise of=$device bs=64k oflag=direct
            case $way in
                last)
                    status=0
                    cryptline recover --replace $device 2>/tmp/said || status=$?
                    [ $status = 4 ]
                    grep -q 'last flush failed.*may be lost' /tmp/said
                    [ "$(condition)" = failed ]
                    ;;
                earlier)
                    fails dd if=/tmp/noise of=$device bs=64k conv=fsync
                    for _ in $(seq 300); do cryptline devices --json | grep -q '"lost": true' && break; sleep 0.1; done
                    kill_server
                    [ "$(condition)" = orphaned ]
                    ;;
            esac
            # By now the medium would take everything.
            heal
            for _ in 1 2; do
                cryptline recover $device 2>/tmp/said
                grep -q 'no flush of it succeeds' /tmp/said
                dd if=/tmp/noise of=$device bs=64k oflag=direct
                fails dd if=/tmp/noise of=$device bs=64k conv=fsync
                kill_server
            done
            cryptline recover $device
            status=0
            cryptline detach $device || status=$?
            [ $status = 4 ]
            nothing_left
        done
        "#,
    );
}

fn ask_of_growth(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "mounted device grows with its file",
        r#"
        size_is() { for _ in $(seq 300); do [ "$(blockdev --getsize64 $device)" = $1 ] && return 0; sleep 0.1; done; return 1; }
        known_size() { cryptline devices --json | sed -n 's/.*"size": \([0-9]*\).*/\1/p'; }
        truncate -s 32M /tmp/image
        format /tmp/image
        device=$(attach /tmp/image --key-file $key)
        before=$(blockdev --getsize64 $device)
        mkfs.ext4 -q $device
        mount $device /mnt
        noise /mnt/noise 2000000
        truncate -s 40M /tmp/image
        size_is $((before + 8388608))
        [ "$(known_size)" = $((before + 8388608)) ]
        # What is new can be used at once.
        noise /tmp/noise 65536
        dd if=/tmp/noise of=$device bs=64k seek=$(((before + 8388608) / 65536 - 1)) conv=fsync,notrunc
        sum=$(sha256sum </mnt/noise)
        # It grows while nobody serves it, too.
        server=$(pid_of)
        kill -KILL $server
        wait_for_end $server
        truncate -s 48M /tmp/image
        cryptline recover $device
        size_is $((before + 16777216))
        umount /mnt
        cryptline detach $device
        nothing_left
        cryptsetup open -r --key-file $key /tmp/image v
        [ "$(blockdev --getsize64 /dev/mapper/v)" = $((before + 16777216)) ]
        dd if=/dev/mapper/v bs=64k skip=$(((before + 8388608) / 65536 - 1)) count=1 | cmp - /tmp/noise
        mount -r /dev/mapper/v /mnt
        [ "$(sha256sum </mnt/noise)" = "$sum" ]
        umount /mnt
        cryptsetup close v
        "#,
    );
}

/// Of a kernel that has none of this.
pub(super) fn ask_of_older(guest: &mut Guest<'_, '_>) {
    ask_of_commands(guest, "-ge $((requests / 2))");
    guest.ask(
        "older kernel does not take a device from its server or let it grow and is named",
        r#"
        truncate -s 32M /tmp/image
        format /tmp/image
        attach /tmp/image --key-file $key --foreground >/tmp/device 2>/tmp/said &
        for _ in $(seq 300); do [ -s /tmp/device ] && break; sleep 0.1; done
        device=$(cat /tmp/device)
        before=$(blockdev --getsize64 $device)
        server=$(pid_of)
        status=0
        cryptline recover --replace $device 2>/tmp/refused || status=$?
        [ $status = 4 ]
        grep -q "6.16 or later, and this is $(uname -r)" /tmp/refused
        [ "$(pid_of)" = $server ]
        truncate -s 40M /tmp/image
        for _ in $(seq 300); do grep -q 'cannot grow' /tmp/said && break; sleep 0.1; done
        grep -q '6.16 or later' /tmp/said
        [ "$(blockdev --getsize64 $device)" = $before ]
        cryptline detach $device
        nothing_left
        "#,
    );
}
