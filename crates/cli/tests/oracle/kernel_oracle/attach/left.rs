//! Leftovers of servers for others: mounts of their devices, and devices of which nothing is known any more.

use super::Guest;

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    ask_of_mounts(guest);
    ask_of_orphans(guest);
}

fn ask_of_mounts(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "server keeps nothing mounted that nobody else has mounted any more",
        r#"
        # With the last program of a mount namespace its mounts go, though the server was started there.
        unshare -m sh -euc "cryptline attach --driver $driver ram:16M >/tmp/device
            mkfs.ext4 -q \$(cat /tmp/device)
            mount \$(cat /tmp/device) /mnt
            echo kept >/mnt/file"
        device=$(cat /tmp/device)
        mount $device /mnt
        [ "$(cat /mnt/file)" = kept ]
        # A server that is started later sees it mounted, but only once.
        other=$(attach ram:16M)
        umount /mnt
        limit 60 cryptline detach $device
        limit 60 cryptline detach $other
        nothing_left
        "#,
    );
}

fn ask_of_orphans(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "device of which nothing is known any more is listed and removed",
        r#"
        for target in ram:64M zoned:ram:32M,zone-size=4M; do
            device=$(attach $target)
            server=$(pid_of)
            rm -r /run/cryptline
            # It may be another program's as long as it is served.
            [ "$(cryptline devices)" = "" ]
            fails cryptline detach $device 2>/tmp/said
            grep -q 'no device of' /tmp/said
            kill -KILL $server
            wait_for_end $server
            for _ in $(seq 100); do [ "$(condition)" = orphaned ] && break; sleep 0.1; done
            cryptline devices >&2
            [ "$(condition)" = orphaned ]
            fails cryptline recover $device 2>/tmp/said
            grep -q 'not known any more' /tmp/said
            cryptline detach $device 2>/tmp/said
            grep -q 'had been killed' /tmp/said
            nothing_left
        done
        "#,
    );
}
