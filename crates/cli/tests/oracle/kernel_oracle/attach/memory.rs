//! Memory is freed by writing to the device, whose server needs some for that.

use super::Guest;

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "file system is written while memory is tight and its server is not what is killed",
        r#"
        format $volume
        device=$(attach $volume --key-file $key --queues 2)
        server=$(pid_of)
        mkfs.ext4 -q $device
        mount $device /mnt
        grep -E 'VmLck|VmRSS' /proc/$server/status >&2
        [ "$(cat /proc/$server/oom_score_adj)" = -1000 ]
        available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
        mkdir /tmp/full
        mount -t tmpfs -o size=2G none /tmp/full
        dd if=/dev/zero of=/tmp/full/all bs=1M count=$((available / 1024 - 64)) 2>/dev/null
        grep MemAvailable /proc/meminfo >&2
        sum=$(head -c 25165824 /dev/urandom | tee /mnt/file | sha256sum)
        limit 100 sync
        echo 3 >/proc/sys/vm/drop_caches
        [ "$(sha256sum </mnt/file)" = "$sum" ]
        [ -d /proc/$server ]
        umount /tmp/full
        umount /mnt
        cryptline detach $device
        nothing_left
        "#,
    );
}
