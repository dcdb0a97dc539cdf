//! The rules that users' devices need, by the real udev.

use cryptline_testkit::peer;

use super::Guest;
use super::users::{RULES, USERS};

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    let Some(udevadm) = peer::require("udevadm") else {
        return;
    };
    guest.oracle.program(&udevadm);
    let script = r#"
        mkdir -p /etc/udev/rules.d /run/udev /usr/bin
        cp $rules /etc/udev/rules.d/90-cryptline-ublk.rules
        ln -sf /sbin/cryptline /usr/bin/cryptline
        # By this name it is the daemon.
        ln -sf /sbin/udevadm /sbin/systemd-udevd
        chmod 600 /dev/ublk-control
        udevadm test --action=add /sys/class/misc/ublk-control >/tmp/udev 2>&1
        cat /tmp/udev >&2
        grep -q '90-cryptline-ublk.rules' /tmp/udev
        # It names the line of what it does not understand.
        fails grep 'cryptline-ublk.rules:[0-9]*.*\(nvalid\|nknown\|gnor\|ailed\)' /tmp/udev
        systemd-udevd --daemon
        trap "udevadm control --exit" EXIT
        udevadm trigger --action=add --sysname-match=ublk-control
        udevadm settle
        [ "$(stat -c %a /dev/ublk-control)" = 666 ]
        device=$(as 1000 cryptline attach /tmp/image --key-file /tmp/key)
        udevadm settle
        [ "$(stat -c '%u %g %a' $device)" = "1000 1000 600" ]
        [ "$(stat -c '%u %g %a' /dev/ublkc0)" = "1000 1000 600" ]
        noise /tmp/noise 1048576
        as 1000 dd if=/tmp/noise of=$device bs=64k conv=fsync
        as 1000 dd if=$device bs=64k count=16 iflag=direct | cmp - /tmp/noise
        fails as 1001 dd if=$device of=/dev/null bs=4k count=1
        as 1000 cryptline detach $device
        nothing_left
        # A device that root has made stays root's.
        device=$(attach ram:16M)
        udevadm settle
        [ "$(stat -c %u $device)" = 0 ]
        cryptline detach $device
        udevadm settle
        nothing_left
        chmod 600 /dev/ublk-control
        "#;
    let case = guest.ask("udev gives users their devices by the rules", &format!("{USERS}{script}"));
    case.file("rules", RULES);
}
