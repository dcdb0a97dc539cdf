#!/bin/busybox sh
# The guest's first and only process: prepares the machine, runs the cases in order, reports, powers off.
#
# The report goes to the second serial line, read by report.rs:
#   ready
#   begin INDEX
#   end INDEX STATUS BEGAN ENDED STDOUT-BYTES STDERR-BYTES KERNEL-LOG-BYTES   followed by those bytes
#   bye

export PATH=/sbin:/bin HOME=/ LC_ALL=C DM_DISABLE_UDEV=1
/bin/busybox --install -s /bin
# Where the kernel looks when it wants a cipher that is a module.
ln -s /bin/busybox /sbin/modprobe
mkdir -p /proc /sys /dev /tmp /run /disk /mnt
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ln -s /proc/self/fd /dev/fd

exec 3<>/dev/ttyS1
stty raw -echo <&3

for module in $(cat /modules.first); do
    modprobe "$module" || { echo "cannot load $module"; dmesg | tail -n 20; poweroff -f; }
done

mkdir -p /dev/mapper
if [ ! -e /dev/mapper/control ]; then
    mknod /dev/mapper/control c 10 "$(sed -n 's/ device-mapper$//p' /proc/misc)"
fi
for disk in /sys/block/vd*; do
    [ -e "$disk" ] && ln -s "/dev/${disk##*/}" "/disk/$(cat "$disk/serial")"
done

# Nothing of one case is left for the next.
clean_up() {
    cd /
    sort -r /proc/mounts | while read -r _ place _; do
        case $place in /mnt* | /tmp*) umount "$place" ;; esac
    done
    # A program that has nothing to do takes its time, too.
    for _ in 1 2 3 4; do
        for map in /sys/block/dm-*; do
            [ -e "$map" ] && dmsetup remove_all --force && break
        done
    done
    for loop in /sys/block/loop*/loop; do
        [ -e "$loop" ] && loop=${loop%/loop} && losetup -d "/dev/${loop##*/}"
    done
    rm -rf /mnt/* /tmp/*
} >/dev/null 2>&1

run_case() {
    cd "$1" || return
    . ./variables
    exec timeout -s KILL "$(cat timeout)" sh -eu ./script
}

limit=4194304
bytes_of() {
    size=$(stat -c %s "$1")
    [ "$size" -gt $limit ] && size=$limit
    echo "$size"
}

dmesg -c >/dev/null
echo ready >&3
for folder in /case/*; do
    index=${folder##*/}
    echo "begin $index" >&3
    read -r started _ </proc/uptime
    (run_case "$folder") </dev/null >"$folder/stdout" 2>"$folder/stderr" 3>&-
    status=$?
    clean_up
    dmesg -c >"$folder/kernel"
    read -r ended _ </proc/uptime
    echo "end $index $status $started $ended $(bytes_of "$folder/stdout") $(bytes_of "$folder/stderr")" \
        "$(bytes_of "$folder/kernel")" >&3
    for part in stdout stderr kernel; do
        head -c $limit "$folder/$part" >&3
    done
done
sync
echo bye >&3
# Closing waits until the last byte is on the line.
exec 3>&-
poweroff -f
