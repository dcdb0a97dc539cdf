//! Servers of devices that are stopped and go on, as by job control or a debugger that attaches: a socket with a timeout
//! then says that it was interrupted, without any handler (signal(7)). The kernel notices as little as any other client.

use super::Guest;

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "device is attached, written, read and detached while its server is stopped and goes on",
        r#"
        # Every ten milliseconds, until it has ended.
        nudge() {
            set +x
            for _ in $(seq 10000); do
                kill -STOP $1 2>/dev/null || return 0
                sleep 0.005
                kill -CONT $1 2>/dev/null
                echo >>/tmp/stops
                sleep 0.005
            done
        }
        format $volume
        noise /tmp/noise 8388608
        cryptline attach --driver $driver $volume --key-file $key >/tmp/device &
        attaching=$!
        nudge $attaching &
        wait $attaching
        device=$(cat /tmp/device)
        server=$(pid_of)
        : >/tmp/stops
        nudge $server &
        dd if=/tmp/noise of=$device bs=256k oflag=direct conv=fsync
        dd if=$device of=/tmp/read bs=256k count=32 iflag=direct
        cmp /tmp/noise /tmp/read
        while [ "$(wc -l </tmp/stops)" -lt 5 ]; do dd if=$device of=/dev/null bs=256k count=32 iflag=direct; done
        limit 100 cryptline detach $device
        wait_for_end $server
        nothing_left
        cryptsetup open --key-file $key $volume v
        dd if=/dev/mapper/v of=/tmp/read bs=256k count=32
        cmp /tmp/noise /tmp/read
        cryptsetup close v
        "#,
    );
}
