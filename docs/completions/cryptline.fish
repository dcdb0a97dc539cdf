# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_cryptline_global_optspecs
    string join \n h/help V/version
end

function __fish_cryptline_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_cryptline_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_cryptline_using_subcommand
    set -l cmd (__fish_cryptline_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c cryptline -n "__fish_cryptline_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_needs_command" -s V -l version -d 'Print version'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "serve" -d 'Serve the decrypted disk over NBD'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "vhost-user" -d 'Serve the decrypted disk to virtual machines (vhost-user-blk)'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "mount" -d 'Mount the decrypted disk as a file (FUSE)'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "umount" -d 'Unmount a disk that was mounted as a file'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "attach" -d 'Make the decrypted disk a block device of this machine'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "detach" -d 'Remove a block device made by `attach`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "devices" -d 'List the block devices made by `attach`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "recover" -d 'Start a new server for a block device whose server was killed'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "info" -d 'Show a LUKS header (needs no passphrase)'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "open" -d 'Check whether a passphrase or key unlocks a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "create" -d 'Create a LUKS volume in a new file'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "copy" -d 'Copy a disk: encrypted to clear, clear to encrypted, or between volumes'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "encrypt" -d 'Make a LUKS volume of a disk in the clear'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "resize" -d 'Make a volume larger, or smaller'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "key" -d 'Manage the key slots of a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "token" -d 'Manage the tokens of a volume, which say where passphrases come from (LUKS2)'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "header" -d 'Back up, restore, repair and label LUKS headers'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "erase" -d 'Destroy all key slots of a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "table" -d 'Print the device-mapper table line of a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "btt" -d 'Manage block translation tables, which keep sectors from being torn'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "zones" -d 'List the zones of a zoned device'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "top" -d 'Show live statistics of a server'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "ctl" -d 'Control a running server: list, add, remove, flush and grow its exports'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "bench" -d 'Compare ways of encrypting, serving and storing a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "benchmark" -d 'Measure ciphers and key derivation functions'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "testing" -d 'Options for tests and measurements: failing and slow media (a page of help)'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "certs" -d 'Make certificates for TLS: an authority, a server and a client'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "completions" -d 'Print a shell completion script'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "man" -d 'Write the man pages into a folder'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksAddKey" -d '`key add`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksChangeKey" -d '`key change`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksRemoveKey" -d '`key remove`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksKillSlot" -d '`key kill`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksConvertKey" -d '`key convert`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksDump" -d '`info`, in cryptsetup\'s words'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksFormat" -d '`create` in a file or on a device that is there'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksOpen" -d '`open --check`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "isLuks" -d 'Whether there is a LUKS header'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksUUID" -d '`header uuid`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksHeaderBackup" -d '`header backup`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksHeaderRestore" -d '`header restore`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "luksErase" -d '`erase`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "repair" -d '`header repair`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "convert" -d '`header convert`'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "config" -d '`key priority` and `header label`'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s U -l unix -d 'Listen on this Unix socket; `-` creates a private temporary one. May be repeated' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s p -l port -d 'Listen on this TCP port; 0 lets the system choose one [default with --ip-addr: 10809]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s i -s b -l ip-addr -l bind -d 'Address or host name for TCP [default: 127.0.0.1]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s e -l export-name -d 'Name of the export; repeat it for each TARGET [default: "" for the first, then the file name]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l description -d 'Description of the export; repeat it for each TARGET' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l control -d 'Take commands on this Unix socket: exports can be added, removed, flushed and made to grow while the server runs (see `cryptline ctl`). Only this user and root may give them, whatever --socket-mode says' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l run -d 'Run COMMAND with `sh -c` and stop the server when it exits; $uri, $nbd, $unixsocket, $port, $exportname and $tls are set, and for QEMU, which knows no nbds URIs, $imageopts (for `--image-opts`) and $tlsobject (for `--object`; empty without TLS)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l max-connections -d 'Largest number of clients at a time; further clients are refused. Clients in the handshake, which must finish within 10 s, do not count' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls -d 'Use TLS' -r -f -a "off\t'Never'
on\t'If the client asks for it'
require\t'Always; refuse clients without TLS'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls-certificates -d 'Directory with server-cert.pem and server-key.pem, as for nbdkit and qemu-nbd; SIGHUP has them read again' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls-authz -d 'With --tls-verify-peer, accept only clients whose certificate has this subject, such as `CN=alice` or `CN=alice,O=Example`; may be repeated' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l socket-mode -d 'Permissions of the sockets that the server makes, in octal; 660 admits the socket\'s group' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s P -l pidfile -l pid-file -d 'Write the process ID to FILE once clients can connect' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l io -d 'I/O interface' -r -f -a "auto\t'io_uring if the kernel allows it, otherwise preadv/pwritev'
io_uring\t'io_uring, or fail'
preadv\t'preadv2/pwritev2 and poll'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l poll-us -d 'Look for the next request for this long before going to sleep, in microseconds, or auto' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l stats -d 'Publish statistics as JSON lines on this Unix socket (see `cryptline top`)' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l stats-interval -d 'Interval between statistics lines, in seconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l metrics -d 'Answer Prometheus at http://ADDRESS/metrics: ADDRESS:PORT, PORT alone for 127.0.0.1, or unix:PATH' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l log -d 'Form of the lines on standard error [default: lines without a time]' -r -f -a "text\t'lines with time (UTC) and level; in the journal of systemd, with its priorities'
json\t'one JSON object in each line'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l log-level -d 'How much to log: this and what is worse [default: warn; info for a verbose server]' -r -f -a "error\t'failures of the server'
warn\t'and clients that failed or were refused'
info\t'and all clients that come and go, key slots, certificates'
debug\t'and connections before any export'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l sandbox -d 'Drop the rights to open files, start programs and make connections, and all capabilities, before the first client is served' -r -f -a "auto\t'Whatever the kernel offers; the banner lists it'
on\t'Everything, or fail'
off\t'No restrictions, for debugging'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s u -l user -d 'Switch to this user (name or number) before serving the first client' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s g -l group -d 'Switch to this group [default with --user: the user\'s group]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l table -d 'Open what a device-mapper table describes, instead of a target: one or more lines `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`, `START LEN linear DEVICE OFFSET`, `START LEN zero` or `START LEN error`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the keys in it: `-` reads the table from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l reconnect -d 'For an NBD server below: connect again for up to SECONDS when the connection is lost, such as while the server is started anew. Each write is then durable before it is acknowledged, which costs time. Writes under way go out once more only where the server takes several connections and has ended. Leave this out behind a tunnel or a proxy that can end in its place. A server that stays silent without hanging up is waited for' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l partition -d 'Only this partition of the decrypted disk: a number, label or UUID of the partition table in it. A partition of the target itself is named by `TARGET?partition=N`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l cipher -d 'Cipher word, such as aes-xts-plain64' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l key-size -d 'Size of the volume key in bits, such as 512' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l hash -d 'Hash that makes the key from the passphrase, such as sha256 or sha512:32; `plain` for none. A key file on disk is the key itself and is not hashed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l offset -d 'Start of the data on the device, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l skip -d 'Number of the first sector for the IV, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l size -d 'Size of the volume, in 512-byte sectors [default: all of the device]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l sector-size -d 'Bytes in a cipher sector: 512, 1024, 2048 or 4096 [default: 512; ram: 4096]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l logical-block -d 'The smallest I/O in bytes, from 512 to the cipher sector. With XTS, a write of part of a cipher sector overwrites only that part; other modes read, change and write the whole sector, and a crash in between can damage its other blocks [default: the smallest that needs no rewriting: 512 with XTS where the medium has such blocks, else the cipher sector]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l subblock -d 'What has to wait while part of a cipher sector is being written [default: shared]' -r -f -a "shared\t'Only what touches the same cipher sector, and only where the mode has to rewrite it'
exclusive\t'Everything, as ext4 did before Linux 6.5; to measure against'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l zeroes -d 'What clients read where the medium holds only zeros. With `detect`, sparse images, discards and thin storage behave as on a plain disk; but whoever can write to the medium can make chosen places read as zeros. Zeroing a range writes such zeros only with --allow-discards; without it, encrypted zeros are written, which reveal nothing' -r -f -a "decrypt\t'Their decryption, which is noise, as dm-crypt does'
detect\t'Zeros: nothing was ever written there, or it was discarded'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l dispatch -d 'Who runs the cipher [default: auto, unless `--perf-...` options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l fault -d 'Make requests to the device below fail. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l delay -d 'Make the device below as slow as another medium. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s f -l foreground -d 'Accepted for scripts written for other servers; this one is always in the foreground'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls-verify-peer -d 'Accept only clients with a certificate signed by ca-cert.pem in that directory; needs --tls=require'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l exit-with-parent -d 'Exit when the parent process exits'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s v -l verbose -d 'Log more to standard error'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l sandbox-probe -d 'Try what the sandbox refuses and print the results, then serve'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l force -d 'Open a plain volume for writing even where a file system or another format is recognised'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l shared -d 'Open the target although other programs or hosts use it too, and refuse what could lose their writes'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-no_read_workqueue -d 'Decrypt reads inline (cryptsetup\'s option of this name)'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-no_write_workqueue -d 'Encrypt writes inline'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-same_cpu_crypt -d 'Queue only to the worker of the core that has the request'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-submit_from_crypt_cpus -d 'Queue, but let the workers submit writes as they come, unsorted'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-high_priority -d 'Queue to workers of the highest priority'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l socket-path -d 'Listen on this Unix socket; repeat it for each TARGET [default: a private temporary one]' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l fd -d 'Use this inherited socket, listening or connected; repeat it for each TARGET' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l num-queues -d 'Virtqueues of each disk; each has a thread of its own' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l queue-size -d 'Largest size of each virtqueue, a power of two; a guest\'s requests may have as many segments as fit, up to 254. Configure the same size in the virtual machine [default: any size, and segments for 128]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l serial -d 'Name that the guest sees, up to 20 bytes; repeat it for each TARGET [default: from the file name]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l blk-file -d 'The target, as vhost-user programs call it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l socket-mode -d 'Permissions of the sockets that the server makes, in octal; 660 admits the socket\'s group' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -s P -l pidfile -l pid-file -d 'Write the process ID to FILE once clients can connect' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l io -d 'I/O interface' -r -f -a "auto\t'io_uring if the kernel allows it, otherwise preadv/pwritev'
io_uring\t'io_uring, or fail'
preadv\t'preadv2/pwritev2 and poll'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l poll-us -d 'Look for the next request for this long before going to sleep, in microseconds, or auto' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l stats -d 'Publish statistics as JSON lines on this Unix socket (see `cryptline top`)' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l stats-interval -d 'Interval between statistics lines, in seconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l metrics -d 'Answer Prometheus at http://ADDRESS/metrics: ADDRESS:PORT, PORT alone for 127.0.0.1, or unix:PATH' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l log -d 'Form of the lines on standard error [default: lines without a time]' -r -f -a "text\t'lines with time (UTC) and level; in the journal of systemd, with its priorities'
json\t'one JSON object in each line'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l log-level -d 'How much to log: this and what is worse [default: warn; info for a verbose server]' -r -f -a "error\t'failures of the server'
warn\t'and clients that failed or were refused'
info\t'and all clients that come and go, key slots, certificates'
debug\t'and connections before any export'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l sandbox -d 'Drop the rights to open files, start programs and make connections, and all capabilities, before the first client is served' -r -f -a "auto\t'Whatever the kernel offers; the banner lists it'
on\t'Everything, or fail'
off\t'No restrictions, for debugging'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -s u -l user -d 'Switch to this user (name or number) before serving the first client' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -s g -l group -d 'Switch to this group [default with --user: the user\'s group]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l table -d 'Open what a device-mapper table describes, instead of a target: one or more lines `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`, `START LEN linear DEVICE OFFSET`, `START LEN zero` or `START LEN error`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the keys in it: `-` reads the table from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l reconnect -d 'For an NBD server below: connect again for up to SECONDS when the connection is lost, such as while the server is started anew. Each write is then durable before it is acknowledged, which costs time. Writes under way go out once more only where the server takes several connections and has ended. Leave this out behind a tunnel or a proxy that can end in its place. A server that stays silent without hanging up is waited for' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l partition -d 'Only this partition of the decrypted disk: a number, label or UUID of the partition table in it. A partition of the target itself is named by `TARGET?partition=N`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l cipher -d 'Cipher word, such as aes-xts-plain64' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l key-size -d 'Size of the volume key in bits, such as 512' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l hash -d 'Hash that makes the key from the passphrase, such as sha256 or sha512:32; `plain` for none. A key file on disk is the key itself and is not hashed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l offset -d 'Start of the data on the device, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l skip -d 'Number of the first sector for the IV, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l size -d 'Size of the volume, in 512-byte sectors [default: all of the device]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l sector-size -d 'Bytes in a cipher sector: 512, 1024, 2048 or 4096 [default: 512; ram: 4096]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l logical-block -d 'The smallest I/O in bytes, from 512 to the cipher sector. With XTS, a write of part of a cipher sector overwrites only that part; other modes read, change and write the whole sector, and a crash in between can damage its other blocks [default: the smallest that needs no rewriting: 512 with XTS where the medium has such blocks, else the cipher sector]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l subblock -d 'What has to wait while part of a cipher sector is being written [default: shared]' -r -f -a "shared\t'Only what touches the same cipher sector, and only where the mode has to rewrite it'
exclusive\t'Everything, as ext4 did before Linux 6.5; to measure against'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l zeroes -d 'What clients read where the medium holds only zeros. With `detect`, sparse images, discards and thin storage behave as on a plain disk; but whoever can write to the medium can make chosen places read as zeros. Zeroing a range writes such zeros only with --allow-discards; without it, encrypted zeros are written, which reveal nothing' -r -f -a "decrypt\t'Their decryption, which is noise, as dm-crypt does'
detect\t'Zeros: nothing was ever written there, or it was discarded'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l dispatch -d 'Who runs the cipher [default: auto, unless `--perf-...` options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l fault -d 'Make requests to the device below fail. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l delay -d 'Make the device below as slow as another medium. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l print-capabilities -d 'Print what this program can do as JSON, and exit'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l exit-with-parent -d 'Exit when the parent process exits'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -s v -l verbose -d 'Log more to standard error'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l sandbox-probe -d 'Try what the sandbox refuses and print the results, then serve'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l force -d 'Open a plain volume for writing even where a file system or another format is recognised'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l shared -d 'Open the target although other programs or hosts use it too, and refuse what could lose their writes'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l perf-no_read_workqueue -d 'Decrypt reads inline (cryptsetup\'s option of this name)'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l perf-no_write_workqueue -d 'Encrypt writes inline'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l perf-same_cpu_crypt -d 'Queue only to the worker of the core that has the request'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l perf-submit_from_crypt_cpus -d 'Queue, but let the workers submit writes as they come, unsorted'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -l perf-high_priority -d 'Queue to workers of the highest priority'
complete -c cryptline -n "__fish_cryptline_using_subcommand vhost-user" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l name -d 'Name of the file in the folder; repeat it for each TARGET [default: that of the target, or `disk` where it is no file]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l lanes -d 'Threads that serve requests [default: one for each core, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l ready-fd -d 'Where to say that the mount is there' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l socket-mode -d 'Permissions of the sockets that the server makes, in octal; 660 admits the socket\'s group' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s P -l pidfile -l pid-file -d 'Write the process ID to FILE once clients can connect' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l io -d 'I/O interface' -r -f -a "auto\t'io_uring if the kernel allows it, otherwise preadv/pwritev'
io_uring\t'io_uring, or fail'
preadv\t'preadv2/pwritev2 and poll'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l poll-us -d 'Look for the next request for this long before going to sleep, in microseconds, or auto' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l stats -d 'Publish statistics as JSON lines on this Unix socket (see `cryptline top`)' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l stats-interval -d 'Interval between statistics lines, in seconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l metrics -d 'Answer Prometheus at http://ADDRESS/metrics: ADDRESS:PORT, PORT alone for 127.0.0.1, or unix:PATH' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l log -d 'Form of the lines on standard error [default: lines without a time]' -r -f -a "text\t'lines with time (UTC) and level; in the journal of systemd, with its priorities'
json\t'one JSON object in each line'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l log-level -d 'How much to log: this and what is worse [default: warn; info for a verbose server]' -r -f -a "error\t'failures of the server'
warn\t'and clients that failed or were refused'
info\t'and all clients that come and go, key slots, certificates'
debug\t'and connections before any export'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l sandbox -d 'Drop the rights to open files, start programs and make connections, and all capabilities, before the first client is served' -r -f -a "auto\t'Whatever the kernel offers; the banner lists it'
on\t'Everything, or fail'
off\t'No restrictions, for debugging'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s u -l user -d 'Switch to this user (name or number) before serving the first client' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s g -l group -d 'Switch to this group [default with --user: the user\'s group]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l table -d 'Open what a device-mapper table describes, instead of a target: one or more lines `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`, `START LEN linear DEVICE OFFSET`, `START LEN zero` or `START LEN error`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the keys in it: `-` reads the table from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l reconnect -d 'For an NBD server below: connect again for up to SECONDS when the connection is lost, such as while the server is started anew. Each write is then durable before it is acknowledged, which costs time. Writes under way go out once more only where the server takes several connections and has ended. Leave this out behind a tunnel or a proxy that can end in its place. A server that stays silent without hanging up is waited for' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l partition -d 'Only this partition of the decrypted disk: a number, label or UUID of the partition table in it. A partition of the target itself is named by `TARGET?partition=N`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l cipher -d 'Cipher word, such as aes-xts-plain64' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l key-size -d 'Size of the volume key in bits, such as 512' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l hash -d 'Hash that makes the key from the passphrase, such as sha256 or sha512:32; `plain` for none. A key file on disk is the key itself and is not hashed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l offset -d 'Start of the data on the device, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l skip -d 'Number of the first sector for the IV, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l size -d 'Size of the volume, in 512-byte sectors [default: all of the device]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l sector-size -d 'Bytes in a cipher sector: 512, 1024, 2048 or 4096 [default: 512; ram: 4096]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l logical-block -d 'The smallest I/O in bytes, from 512 to the cipher sector. With XTS, a write of part of a cipher sector overwrites only that part; other modes read, change and write the whole sector, and a crash in between can damage its other blocks [default: the smallest that needs no rewriting: 512 with XTS where the medium has such blocks, else the cipher sector]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l subblock -d 'What has to wait while part of a cipher sector is being written [default: shared]' -r -f -a "shared\t'Only what touches the same cipher sector, and only where the mode has to rewrite it'
exclusive\t'Everything, as ext4 did before Linux 6.5; to measure against'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l zeroes -d 'What clients read where the medium holds only zeros. With `detect`, sparse images, discards and thin storage behave as on a plain disk; but whoever can write to the medium can make chosen places read as zeros. Zeroing a range writes such zeros only with --allow-discards; without it, encrypted zeros are written, which reveal nothing' -r -f -a "decrypt\t'Their decryption, which is noise, as dm-crypt does'
detect\t'Zeros: nothing was ever written there, or it was discarded'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l dispatch -d 'Who runs the cipher [default: auto, unless `--perf-...` options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l fault -d 'Make requests to the device below fail. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l delay -d 'Make the device below as slow as another medium. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s f -l foreground -d 'Stay in the foreground'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l allow-other -d 'Let other users, root among them, use the file; for a user who is not root, /etc/fuse.conf must have user_allow_other'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l cache -d 'Let the kernel cache the decrypted disk: faster for small and repeated reads; the clear text then stays in memory after the volume is closed, until it is needed for something else'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l fuse-uring -d 'Let the kernel pass requests through io_uring: less work for small ones, but few large ones at a time can be slower; up to 1 MiB of memory stays in use for each of up to 256 requests (with many lanes: one for each lane and processor); Linux 6.14 and, as root, echo 1 >/sys/module/fuse/parameters/enable_uring'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l exit-with-parent -d 'Exit when the parent process exits'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s v -l verbose -d 'Log more to standard error'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l sandbox-probe -d 'Try what the sandbox refuses and print the results, then serve'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l force -d 'Open a plain volume for writing even where a file system or another format is recognised'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l shared -d 'Open the target although other programs or hosts use it too, and refuse what could lose their writes'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l perf-no_read_workqueue -d 'Decrypt reads inline (cryptsetup\'s option of this name)'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l perf-no_write_workqueue -d 'Encrypt writes inline'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l perf-same_cpu_crypt -d 'Queue only to the worker of the core that has the request'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l perf-submit_from_crypt_cpus -d 'Queue, but let the workers submit writes as they come, unsorted'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -l perf-high_priority -d 'Queue to workers of the highest priority'
complete -c cryptline -n "__fish_cryptline_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand umount" -s l -l lazy -d 'Unmount now even if it is in use; programs that have the file open keep it until they close it'
complete -c cryptline -n "__fish_cryptline_using_subcommand umount" -l at-end-of-input -d 'Unmount the mount that standard input names, at its end, lazily if needed'
complete -c cryptline -n "__fish_cryptline_using_subcommand umount" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l driver -d 'The kernel\'s driver that makes the device' -r -f -a "auto\t'ublk where this kernel has it, otherwise nbd'
ublk\t'ublk: /dev/ublkbN; it takes io_uring, and survives its server (`recover`)'
nbd\t'The kernel\'s NBD client: /dev/nbdN'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l queues -d 'Hardware queues of the device; each has a thread of the server\'s' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l timeout -d 'Seconds that a request may take before an nbd device is given up, with errors [default: any time]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l io -d 'I/O interface' -r -f -a "auto\t'io_uring if the kernel allows it, otherwise preadv/pwritev'
io_uring\t'io_uring, or fail'
preadv\t'preadv2/pwritev2 and poll'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l stats -d 'Publish statistics as JSON lines on this Unix socket (see `cryptline top`)' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l stats-interval -d 'Interval between statistics lines, in seconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l metrics -d 'Answer Prometheus at http://ADDRESS/metrics: ADDRESS:PORT, PORT alone for 127.0.0.1, or unix:PATH' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l log -d 'Form of the lines on standard error [default: lines without a time]' -r -f -a "text\t'lines with time (UTC) and level; in the journal of systemd, with its priorities'
json\t'one JSON object in each line'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l log-level -d 'How much to log: this and what is worse [default: warn; info for a verbose server]' -r -f -a "error\t'failures of the server'
warn\t'and clients that failed or were refused'
info\t'and all clients that come and go, key slots, certificates'
debug\t'and connections before any export'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l recover-device -d 'The device is there already: `recover` has started us' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l table -d 'Open what a device-mapper table describes, instead of a target: one or more lines `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`, `START LEN linear DEVICE OFFSET`, `START LEN zero` or `START LEN error`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the keys in it: `-` reads the table from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l reconnect -d 'For an NBD server below: connect again for up to SECONDS when the connection is lost, such as while the server is started anew. Each write is then durable before it is acknowledged, which costs time. Writes under way go out once more only where the server takes several connections and has ended. Leave this out behind a tunnel or a proxy that can end in its place. A server that stays silent without hanging up is waited for' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l partition -d 'Only this partition of the decrypted disk: a number, label or UUID of the partition table in it. A partition of the target itself is named by `TARGET?partition=N`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l cipher -d 'Cipher word, such as aes-xts-plain64' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l key-size -d 'Size of the volume key in bits, such as 512' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l hash -d 'Hash that makes the key from the passphrase, such as sha256 or sha512:32; `plain` for none. A key file on disk is the key itself and is not hashed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l offset -d 'Start of the data on the device, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l skip -d 'Number of the first sector for the IV, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l size -d 'Size of the volume, in 512-byte sectors [default: all of the device]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l sector-size -d 'Bytes in a cipher sector: 512, 1024, 2048 or 4096 [default: 512; ram: 4096]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l logical-block -d 'The smallest I/O in bytes, from 512 to the cipher sector. With XTS, a write of part of a cipher sector overwrites only that part; other modes read, change and write the whole sector, and a crash in between can damage its other blocks [default: the smallest that needs no rewriting: 512 with XTS where the medium has such blocks, else the cipher sector]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l subblock -d 'What has to wait while part of a cipher sector is being written [default: shared]' -r -f -a "shared\t'Only what touches the same cipher sector, and only where the mode has to rewrite it'
exclusive\t'Everything, as ext4 did before Linux 6.5; to measure against'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l zeroes -d 'What clients read where the medium holds only zeros. With `detect`, sparse images, discards and thin storage behave as on a plain disk; but whoever can write to the medium can make chosen places read as zeros. Zeroing a range writes such zeros only with --allow-discards; without it, encrypted zeros are written, which reveal nothing' -r -f -a "decrypt\t'Their decryption, which is noise, as dm-crypt does'
detect\t'Zeros: nothing was ever written there, or it was discarded'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l dispatch -d 'Who runs the cipher [default: auto, unless `--perf-...` options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l fault -d 'Make requests to the device below fail. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l delay -d 'Make the device below as slow as another medium. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -s f -l foreground -d 'Stay in the foreground'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l detached-child -d 'We are the server that another process waits for'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l force -d 'Open a plain volume for writing even where a file system or another format is recognised'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l shared -d 'Open the target although other programs or hosts use it too, and refuse what could lose their writes'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l perf-no_read_workqueue -d 'Decrypt reads inline (cryptsetup\'s option of this name)'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l perf-no_write_workqueue -d 'Encrypt writes inline'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l perf-same_cpu_crypt -d 'Queue only to the worker of the core that has the request'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l perf-submit_from_crypt_cpus -d 'Queue, but let the workers submit writes as they come, unsorted'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -l perf-high_priority -d 'Queue to workers of the highest priority'
complete -c cryptline -n "__fish_cryptline_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand detach" -l after-server -d 'At the end of standard input, take away what is left of this process\'s nbd device' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand detach" -l force -d 'Even if it is mounted or in use by another device; programs that use it then get errors'
complete -c cryptline -n "__fish_cryptline_using_subcommand detach" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand devices" -l owner-of -d 'Print user and group, by number, of a ublk device or its own side that was made without privileges: for udev' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand devices" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand devices" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand recover" -l replace -d 'Also where it has a server: that one hands the device over while programs use it'
complete -c cryptline -n "__fish_cryptline_using_subcommand recover" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand info" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand info" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand info" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l header -d 'Read the LUKS header from FILE instead of the target' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l type -d 'Accept this version only' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'"
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l key-size -d 'As with cryptsetup, where the size of a volume key is said. It is known here' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l tries -d 'As with cryptsetup, where how often is asked is said' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l check -d 'Check the passphrase or key (the only thing `open` does)'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l allow-null-cipher -d 'Accept key slots with cipher_null, which protects nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l unbound -d 'The key slot may keep another key than that of the volume, as any that --key-slot names may'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l size -d 'Size of the file, such as 512M or 1G; KB, MB and GB are powers of 1000' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from -d 'Fill the volume with the contents of SRC: a raw file or block device, an encrypted volume, an NBD URI, dir:DIR for a file system with the files of a folder, or `-` for standard input' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l zeroes -d 'What an encrypted source has where its medium holds only zeros' -r -f -a "detect\t'Zeros, which stay holes: nothing was ever written there, or it was discarded'
decrypt\t'Their decryption, which is noise, as dm-crypt does'"
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l holes -d 'What becomes of holes and zeros in the source' -r -f -a "encrypt\t'They are written as encrypted zeros: every reader sees zeros, and nobody which blocks are unused'
keep\t'They stay holes of the new file, which shows which blocks are unused; cryptline reads zeros there with --zeroes detect, other programs read noise'"
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-key-file -d 'Take the passphrase of an encrypted source from FILE, as --key-file does' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-passphrase-fd -d 'Take the passphrase of an encrypted source from the open file descriptor N' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-volume-key-file -d 'Take the volume key of an encrypted source from FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-key-slot -d 'Try only this key slot of an encrypted source' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-token-id -d 'Of the tokens of an encrypted source, try only this one' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-token-type -d 'Of the tokens of an encrypted source, try only those of this type' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-pin-file -d 'Take the PIN of a token of an encrypted source from FILE, less a newline at its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-tpm-device -d 'The TPM of tokens of an encrypted source: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-header -d 'Read the LUKS header of an encrypted source from FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l type -d 'Header version' -r -f -a "luks1\t'LUKS1'
luks2\t'LUKS2'"
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l cipher -d 'Cipher for the data' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l key-size -d 'Size of the volume key in bits: 512 is AES-256 in XTS mode' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l hash -d 'Hash for the header digest and for PBKDF2' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l sector-size -d 'Cipher sector size: 512, 1024, 2048 or 4096 bytes [default: 4096 if the size allows it]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l integrity -d 'As with cryptsetup, to say that it is not made here' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l label -d 'Label of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l uuid -d 'UUID of the volume [default: random]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l seed-file -d 'Make the volume key, salts and UUID from the secret in FILE, at least 16 random bytes: the same seed, options, passphrase and source make the same image. Whoever has the seed has the volume key, so use it for one image only' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l header -d 'Write the header to the new file FILE; the target has only data, and is not touched unless it is filled' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l volume-key-file -d 'Take the volume key from FILE, as bytes, instead of a random one' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l key-slot -d 'Number of the key slot [default: 0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l subsystem -d 'Subsystem of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l luks2-metadata-size -d 'Size of one of the two copies of the header: 16K to 4M (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l luks2-keyslots-size -d 'Size of the place for key slots (LUKS2) [default: all up to the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l force -d 'Replace an existing file, or overwrite what the device holds'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-raw -d 'Take the source as it is, even if it has a LUKS header or is an image in another format'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l verify -d 'Then open the destination anew, read all of it and compare it with hashes of what was read of the source'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l json -d 'Print the result as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l resume -d 'Keep what was copied when it ends early, and go on from there when the same command is given again. Only into a new file, from a regular file or a volume in one'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l from-token-only -d 'Ask for no passphrase where no token unlocks an encrypted source'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l preallocate -d 'Allocate the disk space now'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l luks1 -d 'Same as --type luks1'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l zeroes -d 'What an encrypted source has where its medium holds only zeros' -r -f -a "detect\t'Zeros, which stay holes: nothing was ever written there, or it was discarded'
decrypt\t'Their decryption, which is noise, as dm-crypt does'"
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l header -d 'Read the LUKS header of the source from FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l holes -d 'What becomes of holes and zeros where the destination is encrypted; in a clear one they are always kept' -r -f -a "encrypt\t'They are written as encrypted zeros: every reader sees zeros, and nobody which blocks are unused'
keep\t'They stay holes of the new file, which shows which blocks are unused; cryptline reads zeros there with --zeroes detect, other programs read noise'"
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-key-file -d 'Take the passphrase of an encrypted destination from FILE, as --key-file does' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-passphrase-fd -d 'Take the passphrase of an encrypted destination from the open file descriptor N' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-volume-key-file -d 'Take the volume key of an encrypted destination from FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-key-slot -d 'Try only this key slot of an encrypted destination' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-token-id -d 'Of the tokens of an encrypted destination, try only this one' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-token-type -d 'Of the tokens of an encrypted destination, try only those of this type' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-pin-file -d 'Take the PIN of a token of an encrypted destination from FILE, less a newline at its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-tpm-device -d 'The TPM of tokens of an encrypted destination: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-header -d 'Read the LUKS header of an encrypted destination from FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l force -d 'Replace an existing file, or overwrite what the destination holds'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l from-raw -d 'Take the source as it is, even if it has a LUKS header or is an image in another format'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l verify -d 'Then open the destination anew, read all of it and compare it with hashes of what was read of the source'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l json -d 'Print the result as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l resume -d 'Keep what was copied if it ends early, even by kill -9 or a power cut, and go on from there with the same command'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l encrypt -d 'Make DST a new LUKS2 volume and encrypt the copy in it. --to-key-file and --to-passphrase-fd say where its passphrase comes from; without one it is asked for. `create DST --from SRC` has options for everything else'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -l to-token-only -d 'Ask for no passphrase where no token unlocks an encrypted destination'
complete -c cryptline -n "__fish_cryptline_using_subcommand copy" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l zeroes -d 'What an encrypted source has where its medium holds only zeros' -r -f -a "detect\t'Zeros, which stay holes: nothing was ever written there, or it was discarded'
decrypt\t'Their decryption, which is noise, as dm-crypt does'"
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l holes -d 'What becomes of holes and zeros' -r -f -a "encrypt\t'They are written as encrypted zeros: every reader sees zeros, and nobody which blocks are unused'
keep\t'They stay holes of the new file, which shows which blocks are unused; cryptline reads zeros there with --zeroes detect, other programs read noise'"
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l type -d 'Header version' -r -f -a "luks1\t'LUKS1'
luks2\t'LUKS2'"
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l cipher -d 'Cipher for the data' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l key-size -d 'Size of the volume key in bits: 512 is AES-256 in XTS mode' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l hash -d 'Hash for the header digest and for PBKDF2' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l sector-size -d 'Cipher sector size: 512, 1024, 2048 or 4096 bytes [default: 4096 if the size allows it]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l integrity -d 'As with cryptsetup, to say that it is not made here' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l label -d 'Label of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l uuid -d 'UUID of the volume [default: random]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l seed-file -d 'Make the volume key, salts and UUID from the secret in FILE, at least 16 random bytes: the same seed, options, passphrase and source make the same image. Whoever has the seed has the volume key, so use it for one image only' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l header -d 'Write the header to the new file FILE; the target has only data, and is not touched unless it is filled' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l volume-key-file -d 'Take the volume key from FILE, as bytes, instead of a random one' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l key-slot -d 'Number of the key slot [default: 0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l subsystem -d 'Subsystem of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l luks2-metadata-size -d 'Size of one of the two copies of the header: 16K to 4M (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l luks2-keyslots-size -d 'Size of the place for key slots (LUKS2) [default: all up to the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l force -d 'Replace DST if it exists, or overwrite what the device holds'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l from-raw -d 'Take the source as it is, even if it has a LUKS header or is an image in another format'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l verify -d 'Then open the destination anew, read all of it and compare it with hashes of what was read of the source'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l json -d 'Print the result as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l preallocate -d 'Allocate the disk space now'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l resume -d 'Keep what was copied when it ends early, and go on from there when the same command is given again'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -l luks1 -d 'Same as --type luks1'
complete -c cryptline -n "__fish_cryptline_using_subcommand encrypt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand resize" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand resize" -l shrink -d 'Make it smaller, if nothing was written behind its new end'
complete -c cryptline -n "__fish_cryptline_using_subcommand resize" -l force -d 'Lose what was written behind the new end, or where the volume grows to'
complete -c cryptline -n "__fish_cryptline_using_subcommand resize" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "add" -d 'Add a passphrase'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "change" -d 'Replace a passphrase with another one'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "remove" -d 'Remove the key slot that a passphrase opens'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "kill" -d 'Remove a key slot by its number'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "list" -d 'List the key slots'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "priority" -d 'Say when a key slot is tried (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and not __fish_seen_subcommand_from add change remove kill list priority convert" -f -a "convert" -d 'Give a key slot another key derivation function or cost, under the same passphrase'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l new-key-slot -d 'Number of the new key slot [default: the lowest that is free]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l key-size -d 'Size of that key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l new-key-file -d 'Take the new passphrase from FILE: all its bytes as they are; `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l new-keyfile-offset -d 'Skip this many bytes of the new key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l new-keyfile-size -d 'Take only this many bytes of the new key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l new-passphrase-fd -d 'Take the new passphrase from the open file descriptor N, less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l hash -d 'Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l recovery -d 'Add a random recovery key instead, print it, and mark it as systemd-cryptenroll does (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l unbound -d 'Keep another key than that of the volume in it: a random one, or that of --volume-key-file (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l new-key-file -d 'Take the new passphrase from FILE: all its bytes as they are; `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l new-keyfile-offset -d 'Skip this many bytes of the new key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l new-keyfile-size -d 'Take only this many bytes of the new key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l new-passphrase-fd -d 'Take the new passphrase from the open file descriptor N, less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l hash -d 'Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from change" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from kill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from list" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from priority" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from priority" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l hash -d 'Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand key; and __fish_seen_subcommand_from convert" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "list" -d 'List the tokens'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "add" -d 'Add a token that names a key in the kernel\'s keyring'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "bind" -d 'Add a key slot that opens by a tang server, some of several, or a TPM'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "import" -d 'Add a token from its JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "export" -d 'Print a token as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "remove" -d 'Remove a token'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and not __fish_seen_subcommand_from list add bind import export remove unassign" -f -a "unassign" -d 'Say that a token is not for a key slot any more'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from list" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -l key-description -d 'Description of the user key in the kernel\'s keyring that holds the passphrase' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -l token-id -d 'Number of the token [default: the lowest that is free]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -l key-slot -d 'Key slot that the passphrase opens [default: all]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -l token-replace -d 'Replace the token that has this number'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -l unbound -d 'Assign the token to no key slot yet'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l thumbprint -d 'tang: name of a key that the server must sign with; nothing is asked then' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l pcrs -d 'tpm2: registers that must keep their values, numbers with + between them; \'\' for none [default: 7]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l new-pin-file -d 'tpm2: take the new PIN from FILE, less a newline at its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l new-key-slot -d 'Number of the new key slot [default: the lowest that is free]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l with-pin -d 'tpm2: ask for a PIN as well, now and whenever it opens; after some wrong ones the TPM takes no more for a while'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from bind" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from import" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from import" -l json-file -d 'File with the token [default: standard input]' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from import" -l token-id -d 'Number of the token [default: the lowest that is free]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from import" -l key-slot -d 'Assign the token to this key slot, too' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from import" -l token-replace -d 'Replace the token that has this number'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from export" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from export" -l token-id -d 'Number of the token' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from export" -l json-file -d 'New file for it [default: standard output]' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from remove" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from remove" -l token-id -d 'Number of the token' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from unassign" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from unassign" -l token-id -d 'Number of the token' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from unassign" -l key-slot -d 'Number of the key slot' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand token; and __fish_seen_subcommand_from unassign" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -f -a "backup" -d 'Save the header with its key slots in a new file'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -f -a "restore" -d 'Write a saved header back'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -f -a "uuid" -d 'Show the UUID of a volume, or change it'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -f -a "label" -d 'Show label and subsystem of a volume, or change them (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -f -a "convert" -d 'Make a LUKS1 header one of LUKS2, or the other way'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and not __fish_seen_subcommand_from backup restore uuid label convert repair" -f -a "repair" -d 'Write a damaged copy of the header anew from the good one (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from backup" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from backup" -l file -d 'The new file' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from backup" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from restore" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from restore" -l file -d 'The backup' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from restore" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from restore" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from uuid" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from uuid" -l uuid -d 'The new UUID' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from uuid" -l random -d 'Give it a new random UUID'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from uuid" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from uuid" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from label" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from label" -l label -d 'The new label, up to 47 bytes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from label" -l subsystem -d 'The new subsystem, up to 47 bytes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from label" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from convert" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from convert" -l to -d 'The new version' -r -f -a "luks1\t'LUKS1'
luks2\t'LUKS2'"
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from convert" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from convert" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from repair" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from repair" -l wipe-unused -d 'Overwrite the space that no key slot uses: a crash may have left a replaced key slot there'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from repair" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand header; and __fish_seen_subcommand_from repair" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand erase" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand erase" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand erase" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l table -d 'Open what a device-mapper table describes, instead of a target: one or more lines `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`, `START LEN linear DEVICE OFFSET`, `START LEN zero` or `START LEN error`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the keys in it: `-` reads the table from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l reconnect -d 'For an NBD server below: connect again for up to SECONDS when the connection is lost, such as while the server is started anew. Each write is then durable before it is acknowledged, which costs time. Writes under way go out once more only where the server takes several connections and has ended. Leave this out behind a tunnel or a proxy that can end in its place. A server that stays silent without hanging up is waited for' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l partition -d 'Only this partition of the decrypted disk: a number, label or UUID of the partition table in it. A partition of the target itself is named by `TARGET?partition=N`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l cipher -d 'Cipher word, such as aes-xts-plain64' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l key-size -d 'Size of the volume key in bits, such as 512' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l hash -d 'Hash that makes the key from the passphrase, such as sha256 or sha512:32; `plain` for none. A key file on disk is the key itself and is not hashed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l offset -d 'Start of the data on the device, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l skip -d 'Number of the first sector for the IV, in 512-byte sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l size -d 'Size of the volume, in 512-byte sectors [default: all of the device]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l sector-size -d 'Bytes in a cipher sector: 512, 1024, 2048 or 4096 [default: 512; ram: 4096]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l logical-block -d 'The smallest I/O in bytes, from 512 to the cipher sector. With XTS, a write of part of a cipher sector overwrites only that part; other modes read, change and write the whole sector, and a crash in between can damage its other blocks [default: the smallest that needs no rewriting: 512 with XTS where the medium has such blocks, else the cipher sector]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l subblock -d 'What has to wait while part of a cipher sector is being written [default: shared]' -r -f -a "shared\t'Only what touches the same cipher sector, and only where the mode has to rewrite it'
exclusive\t'Everything, as ext4 did before Linux 6.5; to measure against'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l zeroes -d 'What clients read where the medium holds only zeros. With `detect`, sparse images, discards and thin storage behave as on a plain disk; but whoever can write to the medium can make chosen places read as zeros. Zeroing a range writes such zeros only with --allow-discards; without it, encrypted zeros are written, which reveal nothing' -r -f -a "decrypt\t'Their decryption, which is noise, as dm-crypt does'
detect\t'Zeros: nothing was ever written there, or it was discarded'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l dispatch -d 'Who runs the cipher [default: auto, unless `--perf-...` options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l fault -d 'Make requests to the device below fail. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l delay -d 'Make the device below as slow as another medium. The page `cryptline help testing` has it' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l show-keys -d 'Print the volume key; whoever sees the line can decrypt the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l force -d 'Open a plain volume for writing even where a file system or another format is recognised'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l shared -d 'Open the target although other programs or hosts use it too, and refuse what could lose their writes'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l perf-no_read_workqueue -d 'Decrypt reads inline (cryptsetup\'s option of this name)'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l perf-no_write_workqueue -d 'Encrypt writes inline'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l perf-same_cpu_crypt -d 'Queue only to the worker of the core that has the request'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l perf-submit_from_crypt_cpus -d 'Queue, but let the workers submit writes as they come, unsorted'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l perf-high_priority -d 'Queue to workers of the highest priority'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and not __fish_seen_subcommand_from create check info" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and not __fish_seen_subcommand_from create check info" -f -a "create" -d 'Create a table in a new file, or over the contents of a file or device'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and not __fish_seen_subcommand_from create check info" -f -a "check" -d 'Check a table, and repair it where only one answer can be right'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and not __fish_seen_subcommand_from create check info" -f -a "info" -d 'Show the geometry of a table'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from create" -l size -d 'Size of the new file, table included, such as 512M or 1G; KB, MB and GB are powers of 1000' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from create" -l sector-size -d 'Bytes in a sector: 512 or 4096' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from create" -l uuid -d 'UUID of the table [default: random]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from create" -l force -d 'Replace the file if it exists; without --size, lose what the file or device holds'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from check" -l repair -d 'Repair what has one right answer'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from check" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from info" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from info" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand zones" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand zones" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -l sort -d 'Order of the exports on the terminal' -r -f -a "server\t'As the servers have them'
name\t'By name'
iops\t'Most operations a second first'
bandwidth\t'Most bytes a second first'
latency\t'Longest p99 first'"
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -l once -d 'Show one sample of each server and exit'
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -l json -d 'Print the server\'s JSON lines unchanged (see docs/stats.md)'
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "list" -d 'List the exports'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "stats" -d 'Show what the exports did since the server started (see also `cryptline top`)'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "flush" -d 'Make everything that was written durable'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "resize" -d 'Notice that files have grown; clients see it when they connect again'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "reload" -d 'Read the certificates of TLS again, as SIGHUP does; clients that connect from then on are greeted with them'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "remove" -d 'Remove an export: new clients do not get it, and it is closed when its last client has left'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and not __fish_seen_subcommand_from list stats flush resize reload remove add" -a "add" -d 'Open a LUKS volume in a file and export it'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from list" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from stats" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from stats" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from flush" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from flush" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from resize" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from resize" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from reload" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from reload" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l force -d 'Make its clients leave: they get the answers to the requests that the server has taken, for up to 5 s'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from remove" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -s n -l name -l export-name -d 'Name of the export [default: the file name]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l description -d 'Description of the export' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -l json -d 'Print what the server answers as JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand ctl; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "inline" -d 'Compare inline encryption with work queues, as in the 2020 dm-devel thread'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "sweep" -d 'Measure every block size, queue depth and dispatch mode'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "subblock" -d 'Compare concurrent and exclusive writes of partial cipher sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "peers" -d 'Compare cryptline with other servers of encrypted disks, over NBD'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "doors" -d 'Compare the fronts with each other and with those of qemu-storage-daemon'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "media" -d 'Measure the overhead of a request on RAM, persistent memory and BTT'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "zoned" -d 'Measure ordered writes to encrypted zones'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "images" -d 'Compare the encrypting and decrypting of whole images with other programs'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers doors media zoned images rbd" -f -a "rbd" -d 'Compare encryption of Ceph images with librbd\'s own'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l size -d 'Size of the volume' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l cipher -d 'The cipher beside the null cipher' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l helpers -d 'Threads that help large requests, for `auto` [default: one less than there are processors]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l front -d 'How requests reach the volume' -r -f -a "in-process\t'By the library\'s calls, in this process'
nbd\t'By NBD, from a server in this process over a Unix socket'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l seconds -d 'How long each of those takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l block-sizes -d 'Bytes in a request' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l depths -d 'Requests that each stream has in flight' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l directions -d 'read, write' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l streams -d 'Threads with requests of their own' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l dispatch -d 'Who runs the cipher: inline, queue, auto' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l cipher -d 'Ciphers' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l pattern -d 'Order of the offsets' -r -f -a "sequential\t'One after the other'
random\t'Anywhere'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l medium -d 'What the volumes lie on: `ram`, `delay:SPEC` (RAM that is as slow as SPEC says, such as delay:read=100us,write=20us..40us), or a folder or new file, which is overwritten and gone afterwards' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l size -d 'Size of the medium' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l helpers -d 'Threads that help large requests, for `auto` [default: one less than there are processors]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l hog -d 'Threads that use up processor time in the loaded part; 0 leaves it out [default: one for each processor]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l rounds -d 'How often everything is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l seconds -d 'How long each measurement takes, after a warm-up of 0.2 s' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l size -d 'Size of the volume' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l write -d 'How long a write takes on the slow medium' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l block -d 'Bytes in a write: 512, 1024 or 2048' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l jobs -d 'Threads' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l depth -d 'Writes that each thread has in flight' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l seconds -d 'How long each of those takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l size -d 'Size of the clear disk' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l dir -d 'Folder for the images and sockets; they are removed at the end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l rounds -d 'How often each server has its turn at each load' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l seconds -d 'How long each turn takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l jobs -d 'Loads' -r -f -a "4k-randread-qd32\t'Random reads of 4 KiB, 32 in flight'
4k-randwrite-qd32\t'Random writes of 4 KiB, 32 in flight'
1m-read-qd4\t'Reads of 1 MiB in order, 4 in flight'
1m-write-qd4\t'Writes of 1 MiB in order, 4 in flight'
4k-randread-qd1\t'Random reads of 4 KiB, one at a time'
128k-randread-qd16\t'Random reads of 128 KiB, 16 in flight'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l servers -d 'Servers' -r -f -a "cryptline\t'cryptline, LUKS1'
cryptline-asleep\t'cryptline, LUKS1, without looking for requests before it waits'
cryptline-plain\t'cryptline, the null cipher over the plain image'
qemu-nbd\t'qemu-nbd, LUKS1'
qemu-nbd-plain\t'qemu-nbd, raw'
qsd\t'qemu-storage-daemon, LUKS1'
qsd-plain\t'qemu-storage-daemon, raw'
nbdkit\t'nbdkit, luks filter over the file plugin'
nbdkit-plain\t'nbdkit, file plugin'
cryptline-over-nbd\t'cryptline, LUKS1, over nbdkit\'s file plugin'
nbdkit-over-nbd\t'nbdkit, luks filter over the nbd plugin, over nbdkit\'s file plugin'
null\t'Answers at once, in this process: the limit of the generators'
nbdkit-null\t'nbdkit, null plugin'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l generators -d 'Load generators' -r -f -a "fio\t'fio with its nbd engine, one connection'
lean\t'The client of this program, one connection'
lean-many\t'The same, with several connections, each with a thread and requests of its own'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l connections -d 'Connections of the generator `lean-many`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l dispatch -d 'Who runs the cipher in cryptline; see `cryptline serve` [default: as serve]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l keep -d 'Keep the images, and say where they are'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l no-pin -d 'Let servers and generators run on any processor, not each on one of its own'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l size -d 'Size of the clear disk' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l dir -d 'Folder for the images, sockets and mounts; they are removed at the end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l rounds -d 'How often each server has its turn at each load' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l seconds -d 'How long each turn takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l fronts -d 'Fronts' -r -f -a "vhost-user\t'Virtqueues in shared memory, as a virtual machine has them'
nbd\t'A Unix socket'
fuse\t'The file of a mount'
fuse-uring\t'The same, whose requests come through io_uring'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l no-pin -d 'Let servers and clients run on any processor, not each on one of its own'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from doors" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l size -d 'Size of each medium; take more than the caches hold' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l on -d 'Folder for the files that are mapped [default: /dev/shm, or else that of temporary files]' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l warm -d 'Time what has been touched a moment before: the copy is fast, and what is around it shows'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l zone-size -d 'Size of a zone, a power of two' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l slow -d 'How slow the slow medium is, as for `serve --delay`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l cipher -d 'The cipher' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l pool -d 'Threads of the pool [default: one more than there are helpers]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l helpers -d 'Threads that help large requests, for `auto` [default: one less than there are processors]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l seconds -d 'How long each of those takes at most; less where the zones are full before' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -l size -d 'Size of the clear disk' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -l dir -d 'Folder for the images; they are removed at the end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -l rounds -d 'How often each way has its turn' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from images" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l size -d 'Size of each clear disk' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l conf -d 'Configuration of a cluster to measure with, as client.admin [default: a cluster of its own]' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l pool -d 'Pool for the images; they are removed at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l rounds -d 'How often each way has its turn at each load' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l seconds -d 'How long each turn takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from rbd" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l cipher -d 'Cipher to measure; may be repeated [default: all]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l key-size -d 'Key length in bits [default: the shortest and the longest]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l kdf -d 'Key derivation function to measure: argon2id, argon2i, pbkdf2 or pbkdf2-HASH; may be repeated [default: all]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l seconds -d 'Total time for the ciphers and PBKDF2; each Argon2 measurement adds about 1.5 times --iter-time' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l iter-time -d 'Target time for Argon2, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l pbkdf-memory -d 'Largest amount of memory for Argon2, in KiB' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l no-cipher -d 'Skip the ciphers'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l no-kdf -d 'Skip the key derivation functions'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l compare-cryptsetup -d 'Compare unlocking a new LUKS2 header (Argon2id, 4 iterations, 1 GiB, 4 lanes) with cryptsetup, which must be installed'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l goals -d 'Say which figures reach the goals of this project, for its developers; the JSON always does'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand testing" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand certs" -l host -d 'Name or address by which clients reach the server; may be repeated [default: localhost, 127.0.0.1, ::1]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand certs" -l client -d 'Name of the client, for `serve --tls-authz CN=NAME`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand certs" -l days -d 'Days until the certificates expire' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand certs" -l to-server -d 'We are the process that reads them for a server in a sandbox'
complete -c cryptline -n "__fish_cryptline_using_subcommand certs" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand completions" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand man" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l new-key-slot -d 'Number of the new key slot [default: the lowest that is free]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l key-size -d 'Size of that key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l new-key-file -d 'Take the new passphrase from FILE: all its bytes as they are; `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l new-keyfile-offset -d 'Skip this many bytes of the new key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l new-keyfile-size -d 'Take only this many bytes of the new key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l new-passphrase-fd -d 'Take the new passphrase from the open file descriptor N, less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l hash -d 'Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l recovery -d 'Add a random recovery key instead, print it, and mark it as systemd-cryptenroll does (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l unbound -d 'Keep another key than that of the volume in it: a random one, or that of --volume-key-file (LUKS2)'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksAddKey" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l new-key-file -d 'Take the new passphrase from FILE: all its bytes as they are; `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l new-keyfile-offset -d 'Skip this many bytes of the new key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l new-keyfile-size -d 'Take only this many bytes of the new key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l new-passphrase-fd -d 'Take the new passphrase from the open file descriptor N, less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l hash -d 'Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksChangeKey" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksRemoveKey" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksKillSlot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l hash -d 'Hash for PBKDF2 and the key slot (LUKS2) [default: sha256]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksConvertKey" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l volume-key-file -d 'Where the key goes' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l key-slot -d 'By which key slot' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l json -d 'As `info --json`'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l dump-json-metadata -d 'The JSON of a LUKS2 header as it is'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l dump-volume-key -d 'The volume key; into --volume-key-file, where that is given'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -l unbound -d 'The key of a slot that keeps another one'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksDump" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l offset -d 'Where the data begins, in sectors' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l align-payload -d 'It begins at a multiple of so many' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l type -d 'Header version' -r -f -a "luks1\t'LUKS1'
luks2\t'LUKS2'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l cipher -d 'Cipher for the data' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l key-size -d 'Size of the volume key in bits: 512 is AES-256 in XTS mode' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l hash -d 'Hash for the header digest and for PBKDF2' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l sector-size -d 'Cipher sector size: 512, 1024, 2048 or 4096 bytes [default: 4096 if the size allows it]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l pbkdf -d 'Key derivation function [default: argon2id; LUKS1: pbkdf2]' -r -f -a "pbkdf2\t'PBKDF2, which GPUs attack cheaply'
argon2i\t'Argon2i'
argon2id\t'Argon2id'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l iter-time -d 'Time that unlocking should take on this machine, in milliseconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l pbkdf-force-iterations -d 'Number of PBKDF2 iterations or Argon2 passes, instead of measuring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l pbkdf-memory -d 'Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l pbkdf-parallel -d 'Argon2 lanes [default: one per processor, at most 4]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l integrity -d 'As with cryptsetup, to say that it is not made here' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l label -d 'Label of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l uuid -d 'UUID of the volume [default: random]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l seed-file -d 'Make the volume key, salts and UUID from the secret in FILE, at least 16 random bytes: the same seed, options, passphrase and source make the same image. Whoever has the seed has the volume key, so use it for one image only' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l header -d 'Write the header to the new file FILE; the target has only data, and is not touched unless it is filled' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l volume-key-file -d 'Take the volume key from FILE, as bytes, instead of a random one' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l key-slot -d 'Number of the key slot [default: 0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l subsystem -d 'Subsystem of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l luks2-metadata-size -d 'Size of one of the two copies of the header: 16K to 4M (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l luks2-keyslots-size -d 'Size of the place for key slots (LUKS2) [default: all up to the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l keyslot-cipher -d 'Cipher of the key slot (LUKS2) [default: as the data]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l keyslot-key-size -d 'Size of that cipher\'s key in bits' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -s q -l batch-mode -d 'Overwrite what is there'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l use-random -d 'Where random bytes come from, which is not asked here'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l use-urandom -d 'The same'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -l luks1 -d 'Same as --type luks1'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksFormat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l header -d 'Read the LUKS header from FILE instead of the target' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l type -d 'Accept this version only' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l key-size -d 'As with cryptsetup, where the size of a volume key is said. It is known here' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l tries -d 'As with cryptsetup, where how often is asked is said' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l key-file-newline -d 'What a newline at the end of the key file is' -r -f -a "keep\t'Part of the passphrase, as with cryptsetup'
strip\t'The end of a line of text'"
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l token-id -d 'Of the header\'s tokens, try only this one, whatever the priority of its key slots (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l token-type -d 'Of the header\'s tokens, try only those of this type, such as luks2-keyring' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l pin-file -d 'Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where --token-id, --token-type or --token-only is given' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l tpm-device -d 'The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l check -d 'Check the passphrase or key (the only thing `open` does)'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l allow-null-cipher -d 'Accept key slots with cipher_null, which protects nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l unbound -d 'The key slot may keep another key than that of the volume, as any that --key-slot names may'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -l token-only -d 'Ask for no passphrase where no token unlocks the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksOpen" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand isLuks" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand isLuks" -l type -d 'This version only' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'"
complete -c cryptline -n "__fish_cryptline_using_subcommand isLuks" -l disable-locks -d 'As with cryptsetup. Nothing is locked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand isLuks" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksUUID" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksUUID" -l uuid -d 'The new UUID' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand luksUUID" -l random -d 'Give it a new random UUID'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksUUID" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksUUID" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderBackup" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderBackup" -l file -d 'The new file' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderBackup" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderRestore" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderRestore" -l file -d 'The backup' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderRestore" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksHeaderRestore" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksErase" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand luksErase" -s q -l batch-mode -d 'Ask nothing: do it'
complete -c cryptline -n "__fish_cryptline_using_subcommand luksErase" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand repair" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand repair" -l wipe-unused -d 'Overwrite the space that no key slot uses: a crash may have left a replaced key slot there'
complete -c cryptline -n "__fish_cryptline_using_subcommand repair" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand repair" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand convert" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand convert" -l to -d 'The new version' -r -f -a "luks1\t'LUKS1'
luks2\t'LUKS2'"
complete -c cryptline -n "__fish_cryptline_using_subcommand convert" -s q -l batch-mode -d 'As with cryptsetup: nothing is asked here in any case'
complete -c cryptline -n "__fish_cryptline_using_subcommand convert" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand config" -l header -d 'Change the LUKS header in FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand config" -l priority -d 'When the key slot is tried' -r -f -a "prefer\t'Before the others'
normal\t'As usual'
ignore\t'Only when it is named'"
complete -c cryptline -n "__fish_cryptline_using_subcommand config" -l key-slot -d 'Number of the key slot' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand config" -l label -d 'The new label' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand config" -l subsystem -d 'The new subsystem' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand config" -s h -l help -d 'Print help (see more with \'--help\')'
