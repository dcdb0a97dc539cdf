//! Lines of cryptsetup's callers that are about mappings, asked of cryptsetup with the kernel's dm-crypt and of us, one
//! after the other.

use cryptline_testkit::oracle::Oracle;

use super::{Bench, Check, Guest};

/// Both programs: `both CODE LINE...` expects the code of each, and leaves what they say in files.
const BOTH: &str = r#"
    # Links, as a driver's container has ours: a function's trace would be in what is said.
    mkdir -p /tmp/ours
    ln -sf "$(command -v cryptline)" /tmp/ours/cryptsetup
    ours=/tmp/ours/cryptsetup
    printf wrong >/tmp/wrong
    [ -e /dev/stdin ] || ln -s /proc/self/fd/0 /dev/stdin
    code_of() { set +e; "$@" >/tmp/out 2>/tmp/err; code=$?; set -e; }
    both() {
        expected=$1; shift
        code_of cryptsetup "$@"; [ $code = $expected ] || told_wrongly; mv /tmp/out /tmp/out.theirs; mv /tmp/err /tmp/err.theirs
        code_of $ours "$@"; [ $code = $expected ] || told_wrongly
    }
    only_ours() { expected=$1; shift; code_of $ours "$@"; [ $code = $expected ] || told_wrongly; }
    told_wrongly() { cat /tmp/out /tmp/err; exit 1; }
    # What callers read of it: where the key is kept differs.
    told() { grep -v 'key location' $1; }
"#;

/// One after the other, on one disk.
const LINES: &str = r#"
        # Nothing is there.
        for line in 'status v' 'status /dev/mapper/v'; do
            both 4 $line; cmp /tmp/out /tmp/out.theirs; [ ! -s /tmp/err ]
        done
        for line in 'luksClose v' 'close v' 'remove v' 'resize v'; do
            both 4 $line; cmp /tmp/err /tmp/err.theirs
        done
        for options in '--type luks2' '--type luks1'; do
            format $options $volume
            noise /tmp/noise 1048576
            # Ours first: dm-crypt reads what was written through the link.
            only_ours 0 luksOpen $volume v -d /dev/stdin <$key
            [ -b /dev/mapper/v ] && [ -L /dev/mapper/v ]
            only_ours 5 luksOpen $volume v -d $key
            grep -qx 'Device v already exists.' /tmp/err
            # The disk is in use, whatever the name.
            only_ours 5 luksOpen $volume w -d $key
            [ ! -e /dev/mapper/w ]
            only_ours 0 status v; mv /tmp/out /tmp/out.ours; [ ! -s /tmp/err ]
            dd if=/tmp/noise of=/dev/mapper/v bs=64k conv=fsync
            only_ours 0 resize v <$key
            only_ours 0 close v
            [ ! -e /dev/mapper/v ] && [ ! -L /dev/mapper/v ]
            nothing_left
            cryptsetup luksOpen $volume v -d $key
            cmp -n 1048576 /tmp/noise /dev/mapper/v
            cryptsetup status v >/tmp/out.theirs
            told /tmp/out.theirs >/tmp/a; told /tmp/out.ours >/tmp/b; diff /tmp/a /tmp/b
            # A name of device-mapper's is not ours to take or to give up.
            only_ours 5 luksOpen $volume v -d $key
            only_ours 4 close v
            [ -b /dev/mapper/v ]
            cryptsetup close v
            # A mounted file system keeps it.
            for program in cryptsetup $ours; do
                $program -v --batch-mode luksOpen $volume v <$key
                mkfs.ext4 -q -F /dev/mapper/v
                mount /dev/mapper/v /mnt
                $program status v | grep -qx '/dev/mapper/v is active and is in use.'
                code_of $program luksClose v; [ $code = 5 ]; cat /tmp/err
                grep -qx 'Device v is still in use.' /tmp/err
                umount /mnt
                $program luksClose v
            done
            # Read only, and by other words.
            for program in cryptsetup $ours; do
                $program open --readonly --disable-keyring $volume v -d - <$key
                [ "$(blockdev --getro /dev/mapper/v)" = 1 ]
                $program status v | grep -q 'mode: *readonly'
                $program remove v
            done
            # A wrong key makes nothing, and the name is free again.
            both 2 luksOpen $volume v -d /tmp/wrong
            grep -q 'No key available with this passphrase.' /tmp/err
            [ ! -e /dev/mapper/v ]
            nothing_left
        done
        # A server that was killed: inactive or without a device, and closed all the same.
        only_ours 0 luksOpen $volume v -d $key
        server=$(pid_of)
        kill -KILL $server
        wait_for_end $server
        code_of $ours status v
        [ $code = 4 ] || grep -q 'device: *(null)' /tmp/out
        code_of $ours close v
        [ ! -L /dev/mapper/v ]
        nothing_left
        # Plain, as both have it.
        plain="--type plain --cipher aes-xts-plain64 --key-size 512 --hash plain"
        head -c 64 /dev/urandom >/tmp/plain
        noise /tmp/noise 1048576
        for first in cryptsetup $ours; do
            [ $first = $ours ] && second=cryptsetup || second=$ours
            $first open $plain --offset 8 $volume v -d /tmp/plain
            dd if=/tmp/noise of=/dev/mapper/v bs=64k conv=fsync
            $first close v
            $second open $plain --offset 8 $volume v -d /tmp/plain
            cmp -n 1048576 /tmp/noise /dev/mapper/v
            $second close v
        done
        nothing_left
        # What is said to have grown has: a file below a volume without a header, and one whose header is elsewhere.
        truncate -s 16M /tmp/header
        cryptsetup -q luksFormat --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --header /tmp/header /tmp/header $key
        for options in "$plain -d /tmp/plain" "--header /tmp/header -d $key"; do
            rm -f /tmp/grows; truncate -s 4M /tmp/grows
            only_ours 0 open $options /tmp/grows v
            only_ours 0 resize v
            small=$(blockdev --getsz /dev/mapper/v)
            truncate -s 6M /tmp/grows
            code_of $ours resize v
            has=$(blockdev --getsz /dev/mapper/v)
            if [ $code = 0 ]; then [ $has = $((small + 4096)) ]; else [ $code = 1 ] && [ $has = $small ]; fi
            mv /tmp/grows /tmp/gone
            only_ours 4 resize v
            mv /tmp/gone /tmp/grows
            only_ours 0 close v
        done
        nothing_left
        "#;

/// Where nbd makes devices.
pub(in super::super) fn ask_of_nbd<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    ask(bench, oracle, "nbd", "modprobe nbd nbds_max=2 || :")
}

/// Where ublk does.
pub(in super::super) fn ask_of_ublk<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    ask(bench, oracle, "ublk", "modprobe ublk_drv || :")
}

fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle, driver: &'static str, load: &str) -> Vec<Check<'a>> {
    let Some(mut guest) = Guest::new(bench, oracle, driver) else { return Vec::new() };
    guest.ask("callers of cryptsetup are answered as by dm-crypt", &format!("{load}\n{BOTH}{LINES}"));
    guest.checks
}
