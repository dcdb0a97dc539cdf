# Under a booted systemd: what docs/systemd.md promises. Each function is a promise, and prints PASS or FAIL.

conf=/etc/cryptline
fails() { ! "$@"; }
limit() { timeout -s KILL 60 "$@"; }
until_true() { for _ in $(seq 100); do "$@" && return 0; sleep 0.1; done; return 1; }
uri() { echo "nbd+unix:///?socket=/run/cryptline/$1.sock"; }
size() { limit nbdinfo --size "$(uri $1)"; }
value() { systemctl show --value -p $2 $1; }
pid() { value cryptline@$1.service MainPID; }
is() { [ "$(value cryptline@$1.service $2)" = "$3" ]; }

# What `systemctl status` says that a unit lacks.
names() {
    said=$(systemctl status --no-pager --full $1) || :
    echo "$said" | grep -q "AssertPathExists=$2 was not met"
}

settings() {
    mkdir -p $conf
    install -m 644 /run/test/units/* /etc/systemd/system/
    head -c 16 /dev/urandom >/srv/key
    chmod 600 /srv/key
    # Not in /tmp: the server has its own.
    cryptline create /var/disk.img --size 20M --key-file /srv/key --pbkdf pbkdf2 --pbkdf-force-iterations 1000
    for name in one group tls nothing wrong; do
        cp --reflink=auto --sparse=always /var/disk.img /var/$name.img
        echo "CRYPTLINE_TARGET=/var/$name.img" >$conf/$name.conf
        [ $name = nothing ] || systemd-creds encrypt --name=key /srv/key $conf/$name.cred
    done
    systemctl daemon-reload
}

first_client_starts_the_server_with_a_credential_of_this_machine() {
    systemctl start cryptline@one.socket
    is one ActiveState inactive
    [ "$(size one)" = 4194304 ]
    is one ActiveState active
    # Without capabilities, and not able to open anything any more.
    grep -q '^CapBnd:.0000000000000000' /proc/$(pid one)/status
    grep -q '^Seccomp:.2' /proc/$(pid one)/status
}

reload_without_certificates_changes_nothing() {
    server=$(pid one)
    systemctl reload cryptline@one
    [ "$(size one)" = 4194304 ]
    [ "$(pid one)" = $server ]
}

program_that_is_replaced_goes_on_and_restart_picks_up_the_new_one() {
    server=$(pid one)
    cp /usr/bin/cryptline /usr/bin/cryptline.new
    mv /usr/bin/cryptline.new /usr/bin/cryptline
    [ "$(size one)" = 4194304 ]
    [ "$(pid one)" = $server ]
    fails [ /proc/$server/exe -ef /usr/bin/cryptline ]
    systemctl restart cryptline@one
    [ "$(size one)" = 4194304 ]
    [ /proc/$(pid one)/exe -ef /usr/bin/cryptline ]
}

server_that_is_killed_is_started_anew() {
    server=$(pid one)
    kill -KILL $server
    until_true fails is one MainPID $server
    [ "$(size one)" = 4194304 ]
}

stop_flushes_and_the_socket_is_gone_with_its_unit() {
    head -c 4194304 /dev/urandom >/srv/noise
    limit nbdcopy /srv/noise "$(uri one)"
    systemctl stop cryptline@one.service cryptline@one.socket
    is one Result success
    [ ! -e /run/cryptline/one.sock ]
    cryptline copy /var/one.img /srv/flushed --key-file /srv/key
    cmp /srv/flushed /srv/noise
}

group_of_a_drop_in_may_connect_and_nobody_else() {
    mkdir -p /etc/systemd/system/cryptline@group.socket.d
    printf '[Socket]\nSocketMode=0660\nSocketGroup=users\n' >/etc/systemd/system/cryptline@group.socket.d/override.conf
    systemctl daemon-reload
    systemctl start cryptline@group.socket
    as() { limit setpriv --reuid 65534 --regid 65534 "$@"; }
    fails as --clear-groups nbdinfo --size "$(uri group)"
    [ "$(as --groups "$(getent group users | cut -d: -f3)" nbdinfo --size "$(uri group)")" = 4194304 ]
    systemctl stop cryptline@group.service cryptline@group.socket
}

key_may_be_in_a_file_by_a_drop_in() {
    cp /srv/key $conf/file.key
    echo CRYPTLINE_TARGET=/var/one.img >$conf/file.conf
    mkdir -p /etc/systemd/system/cryptline@file.service.d
    # As docs/systemd.md has it.
    cat >/etc/systemd/system/cryptline@file.service.d/override.conf <<'UNIT'
[Unit]
AssertPathExists=
[Service]
LoadCredentialEncrypted=
LoadCredential=key:/etc/cryptline/file.key
UNIT
    systemctl daemon-reload
    systemctl start cryptline@file.socket
    [ "$(size file)" = 4194304 ]
    systemctl stop cryptline@file.service cryptline@file.socket
}

reload_reads_certificates_again() {
    for name in old new; do cryptline certs /srv/$name --host localhost; done
    cp -r /srv/old $conf/pki
    echo "CRYPTLINE_OPTIONS=--tls=require --tls-certificates $conf/pki --log-level info" >>$conf/tls.conf
    # Unlike libnbd, QEMU verifies the server's certificate on Unix sockets, too.
    tls() {
        limit qemu-img info --object tls-creds-x509,id=tls0,dir=/srv/$1,endpoint=client --image-opts \
            driver=nbd,server.type=unix,server.path=/run/cryptline/tls.sock,tls-creds=tls0,tls-hostname=localhost
    }
    systemctl start cryptline@tls.socket
    tls old
    fails tls new
    cp /srv/new/server-* $conf/pki/
    systemctl reload cryptline@tls
    until_true tls new
    fails tls old
    journalctl --sync
    journalctl -u cryptline@tls.service | grep -q 'certificates read again'
    # What cannot be used leaves the others in use, and is named.
    echo nonsense >$conf/pki/server-cert.pem
    systemctl reload cryptline@tls
    named() { journalctl --sync; journalctl -p warning -u cryptline@tls.service | grep -q server-cert.pem; }
    until_true named
    tls new
    systemctl stop cryptline@tls.service cryptline@tls.socket
}

unit_without_a_credential_does_not_start_and_says_which_file() {
    systemctl start cryptline@nothing.socket
    fails size nothing
    names cryptline@nothing.service $conf/nothing.cred
    # As `systemctl enable` does it for a target that starts it.
    systemctl add-wants test.service cryptline-mount@nothing.service
    fails systemctl start cryptline-mount@nothing.service
    names cryptline-mount@nothing.service $conf/nothing.cred
    # The next client starts it once the file is there.
    cp $conf/one.cred $conf/nothing.cred
    [ "$(size nothing)" = 4194304 ]
}

unit_without_settings_does_not_start_and_says_which_file() {
    systemctl stop cryptline@nothing.service cryptline@nothing.socket
    rm $conf/nothing.conf
    systemctl start cryptline@nothing.socket
    fails size nothing
    names cryptline@nothing.service $conf/nothing.conf
}

wrong_key_is_tried_once_for_each_client() {
    echo another >/srv/wrong
    systemd-creds encrypt --name=key /srv/wrong $conf/wrong.cred
    systemctl start cryptline@wrong.socket
    for _ in 1 2; do
        fails size wrong
        until_true is wrong ActiveState failed
        is wrong ExecMainStatus 2
    done
    is wrong NRestarts 0
    systemctl stop cryptline@wrong.socket
}

mount_is_there_when_its_unit_has_started_and_gone_when_it_has_stopped() {
    systemctl start cryptline-mount@one.service
    [ "$(stat -c %s /run/cryptline/one/one.img)" = 4194304 ]
    head -c 4096 /dev/urandom >/srv/noise
    dd if=/srv/noise of=/run/cryptline/one/one.img conv=notrunc,fsync
    systemctl stop cryptline-mount@one.service
    [ "$(value cryptline-mount@one.service Result)" = success ]
    [ ! -e /run/cryptline/one ]
    cryptline copy /var/one.img /srv/clear --key-file /srv/key
    head -c 4096 /srv/clear | cmp - /srv/noise
}

package_has_systemd_read_changed_units() {
    systemctl start cryptline@one.socket
    touch -d tomorrow /etc/systemd/system/cryptline@.socket
    [ "$(value cryptline@one.socket NeedDaemonReload)" = yes ]
    sh /run/test/postinst configure
    [ "$(value cryptline@one.socket NeedDaemonReload)" = no ]
}

set -x
(set -e; settings) || exit 1
for promise in $(sed -n 's/^\([a-z_]*_[a-z_]*_[a-z_]*\)() {$/\1/p' "$0"); do
    echo "== $(date +%T) $promise"
    (set -e; $promise)
    # Behind `if` or `||`, the shell would go on after a failure.
    [ $? = 0 ] && echo "PASS $promise" || { echo "FAIL $promise"; journalctl --sync; journalctl -n 40; }
done 2>&1
