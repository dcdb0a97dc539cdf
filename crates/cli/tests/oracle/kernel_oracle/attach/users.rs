//! Devices of users without privileges. A loop does here what the rules say; `udev.rs` has the real udev do it.

use super::Guest;

/// Two users, and somebody who gives nodes to those who have made them, by the program that the rules name.
pub(super) const USERS: &str = r#"
    as() {
        local user=$1
        shift
        /sbin/setpriv --reuid $user --regid $user --clear-groups env XDG_RUNTIME_DIR=/run/user/$user "$@"
    }
    for user in 1000 1001; do
        mkdir -p /run/user/$user
        chown $user:$user /run/user/$user
        chmod 700 /run/user/$user
    done
    user_pid() { as 1000 cryptline devices --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }
    chmod 755 /tmp
    truncate -s 48M /tmp/image
    format /tmp/image
    cp $key /tmp/key
    chown 1000:1000 /tmp/image /tmp/key
    owner_of=$(sed -n 's|.*PROGRAM=="/usr/bin/\(.*\) %k".*|\1|p' $rules)
    [ -n "$owner_of" ]
    give_nodes() {
        set +x
        while :; do
            for node in /dev/ublkc? /dev/ublkb?; do
                [ -e $node ] && [ "$(stat -c %u $node)" = 0 ] || continue
                owner=$($owner_of ${node##*/}) || continue
                chown ${owner% *}:${owner#* } $node
            done
            sleep 0.1
        done
    }
"#;

pub(super) const RULES: &str = include_str!("../../../../../../udev/90-cryptline-ublk.rules");

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    ask_of_use(guest);
    ask_of_removal(guest);
    ask_of_rules(guest);
}

fn ask_as(guest: &mut Guest<'_, '_>, name: &str, script: &str) {
    let case = guest.ask(name, &format!("{USERS}{script}"));
    case.file("rules", RULES);
}

pub(super) fn ask_of_use(guest: &mut Guest<'_, '_>) {
    ask_as(
        guest,
        "user without privileges makes a device that nobody else can use or take away",
        r#"
        chmod 666 /dev/ublk-control
        give_nodes 2>/dev/null &
        giver=$!
        trap "kill $giver" EXIT
        device=$(as 1000 cryptline attach /tmp/image --key-file /tmp/key)
        [ $device = /dev/ublkb0 ]
        [ "$(stat -c '%u %a' $device)" = "1000 600" ]
        noise /tmp/noise 4194304
        as 1000 dd if=/tmp/noise of=$device bs=64k seek=64 conv=fsync
        as 1000 dd if=$device bs=64k skip=64 count=64 iflag=direct | cmp - /tmp/noise
        as 1000 mkfs.ext4 -q $device
        mount $device /mnt
        cp /tmp/noise /mnt/noise
        umount /mnt
        # Not even where its node would let them.
        chmod 666 $device
        fails as 1001 dd if=$device of=/dev/null bs=4k count=1
        fails as 1001 cryptline detach $device 2>/tmp/said
        grep -q 'no device of' /tmp/said
        mkdir /run/user/1001/cryptline
        cp /run/user/1000/cryptline/* /run/user/1001/cryptline
        chown -R 1001:1001 /run/user/1001
        fails as 1001 cryptline detach $device 2>/tmp/said
        grep -q 'cannot stop process' /tmp/said
        server=$(user_pid)
        [ "$(as 1000 cryptline devices | cut -d ' ' -f 5)" = serving ]
        as 1000 cryptline detach $device
        wait_for_end $server
        rm -r /run/user/1001/cryptline
        [ -z "$(as 1000 cryptline devices)" ]
        nothing_left
        cryptsetup open -r --key-file $key /tmp/image v
        e2fsck -fn /dev/mapper/v
        mount -r /dev/mapper/v /mnt
        cmp /mnt/noise /tmp/noise
        umount /mnt
        cryptsetup close v
        # A device that root has made stays root's.
        device=$(attach ram:16M)
        sleep 1
        [ "$(stat -c %u $device)" = 0 ]
        fails $owner_of ${device##*/}
        cryptline detach $device
        nothing_left
        "#,
    );
}

fn ask_of_removal(guest: &mut Guest<'_, '_>) {
    ask_as(
        guest,
        "device of a user whose server was killed is that user's to remove",
        r#"
        chmod 666 /dev/ublk-control
        give_nodes 2>/dev/null &
        giver=$!
        trap "kill $giver" EXIT
        device=$(as 1000 cryptline attach /tmp/image --key-file /tmp/key)
        server=$(user_pid)
        kill -KILL $server
        wait_for_end $server
        status=0
        as 1000 cryptline recover $device 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'without privileges' /tmp/said
        mkdir /run/user/1001/cryptline
        cp /run/user/1000/cryptline/* /run/user/1001/cryptline
        chown -R 1001:1001 /run/user/1001
        fails as 1001 cryptline detach $device 2>/tmp/said
        grep -q 'cannot remove' /tmp/said
        rm -r /run/user/1001/cryptline
        as 1000 timeout -s KILL 60 cryptline detach $device 2>/tmp/said
        grep -q 'had been killed' /tmp/said
        nothing_left
        "#,
    );
}

fn ask_of_rules(guest: &mut Guest<'_, '_>) {
    ask_as(
        guest,
        "user is told what the administrator has to install",
        r#"
        chmod 600 /dev/ublk-control
        status=0
        as 1000 cryptline attach /tmp/image --key-file /tmp/key 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'udev rules' /tmp/said
        nothing_left
        # Half of the rules.
        chmod 666 /dev/ublk-control
        status=0
        as 1000 cryptline attach /tmp/image --key-file /tmp/key 2>/tmp/said || status=$?
        [ $status = 4 ]
        grep -q 'was not given.*udev rules.*modprobe -r' /tmp/said
        [ -z "$(as 1000 cryptline devices)" ]
        modprobe -r ublk_drv
        modprobe ublk_drv
        nothing_left
        "#,
    );
}
