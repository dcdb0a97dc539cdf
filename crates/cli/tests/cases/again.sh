# A command of QEMU's that makes a LUKS disk, until it does: QEMU times its key derivation first, and gives up when the clock did
# not move meanwhile.
for turn in $(seq 200); do
    "$@" 2>said && exit
    grep -q 'accurate CPU usage' said || break
    sleep 0.0$((turn % 10))
done
cat said >&2
exit 1
