# Boots systemd as the first process of a container, over a copy of this machine's files that is forgotten afterwards.
#
#   boot.sh FOLDER PROGRAM      FOLDER has units/, script and, afterwards, log
#
# Run in a mount namespace of its own. Exit code 77: this machine does not let us.
set -eu
folder=$1 program=$2
cannot() { echo "$1"; exit 77; }

if [ "${3-}" = inside ]; then
    mount -t tmpfs none "$folder/memory" && cd "$folder/memory" && mkdir changes work root
    mount -t overlay -o lowerdir=/,upperdir=changes,workdir=work none root || cannot "no overlay of /"
    cd root
    mount -t proc none proc
    mount -t sysfs none sys
    mount -t cgroup2 none sys/fs/cgroup
    for place in dev run tmp; do mount -t tmpfs -o mode=755 none $place; done
    mkdir dev/shm run/test
    mknod -m 666 dev/null c 1 3
    mknod -m 666 dev/zero c 1 5
    mknod -m 666 dev/random c 1 8
    mknod -m 666 dev/urandom c 1 9
    mknod -m 666 dev/full c 1 7
    mknod -m 666 dev/tty c 5 0
    mknod -m 666 dev/fuse c 10 229
    mount --bind "$folder" run/test
    rm -rf etc/systemd/system etc/cryptline
    mkdir -p etc/systemd/system
    strip -o usr/bin/cryptline "$program"
    cat >etc/systemd/system/test.service <<'UNIT'
[Unit]
DefaultDependencies=no
Requires=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'timeout 180 sh /run/test/script >/run/test/log 2>&1; systemctl exit --force $?'
UNIT
    # The first process of a whole machine does it by itself. Credentials are passed on by it.
    mount --make-rshared .
    exec chroot . env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
        /usr/lib/systemd/systemd --system --unit=test.service --show-status=no --log-target=journal
fi

mount --make-rprivate /
mkdir "$folder/memory" "$folder/groups"
mount -t cgroup2 none "$folder/groups" || cannot "no control groups of version 2"
group=$folder/groups/cryptline-test-$$
mkdir "$group" && echo $$ >"$group/cgroup.procs" || cannot "no control group of our own"
code=0
unshare --cgroup --pid --uts --ipc --net --mount --fork --kill-child sh "$0" "$folder" "$program" inside || code=$?
echo $$ >"$folder/groups/cgroup.procs"
find "$group" -depth -type d -exec rmdir {} + || :
exit $code
