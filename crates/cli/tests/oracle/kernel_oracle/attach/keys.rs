//! Descriptors that servers are given for their keys alone: no companion and no later program finds a key there.

use super::Guest;

pub(super) fn ask(guest: &mut Guest<'_, '_>) {
    guest.ask(
        "descriptor that a key came from is open nowhere once the device is there",
        r#"
        open_keys() { ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c -e "-> $(readlink -f $key)\$" || :; }
        format $volume
        for given in '--passphrase-fd 5' '--key-file /proc/self/fd/5'; do
            exec 5<$key
            [ "$(open_keys)" != 0 ]
            device=$(attach $volume $given)
            exec 5<&-
            [ "$(open_keys)" = 0 ]
            cryptline detach $device
            nothing_left
        done
        "#,
    );
}
