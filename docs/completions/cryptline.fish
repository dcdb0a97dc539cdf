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
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "info" -d 'Show a LUKS header (needs no passphrase)'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "open" -d 'Check whether a passphrase or key unlocks a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "create" -d 'Create a LUKS volume in a new file'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "table" -d 'Print the device-mapper table line of a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "btt" -d 'Manage block translation tables, which keep sectors from being torn'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "zones" -d 'List the zones of a zoned device'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "top" -d 'Show live statistics of a server'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "bench" -d 'Compare ways of encrypting, serving and storing a volume'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "benchmark" -d 'Measure ciphers and key derivation functions'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "completions" -d 'Print a shell completion script'
complete -c cryptline -n "__fish_cryptline_needs_command" -f -a "man" -d 'Write the man pages into a folder'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s U -l unix -d 'Listen on this Unix socket; `-` creates a private temporary one. May be repeated' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l socket-mode -d 'Permissions of the --unix and --stats sockets, in octal; 660 admits the socket\'s group' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s p -l port -d 'Listen on this TCP port; 0 lets the system choose one [default with --ip-addr: 10809]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s i -s b -l ip-addr -l bind -d 'Address or host name for TCP [default: 127.0.0.1]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s e -l export-name -d 'Name of the export; repeat it for each TARGET [default: "" for the first, then the file name]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l description -d 'Description of the export; repeat it for each TARGET' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l run -d 'Run COMMAND with `sh -c` and stop the server when it exits; $uri, $nbd, $unixsocket, $port, $exportname and $tls are set' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s P -l pidfile -l pid-file -d 'Write the process ID to FILE once clients can connect' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l io -d 'I/O interface' -r -f -a "auto\t'io_uring if the kernel allows it, otherwise preadv/pwritev'
io_uring\t'io_uring, or fail'
preadv\t'preadv2/pwritev2 and poll'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l max-connections -d 'Largest number of clients at a time; further clients are refused. Clients in the handshake, which must finish within 10 s, do not count' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l stats -d 'Publish statistics as JSON lines on this Unix socket (see `cryptline top`)' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l stats-interval -d 'Interval between statistics lines, in seconds' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls -d 'Use TLS' -r -f -a "off\t'Never'
on\t'If the client asks for it'
require\t'Always; refuse clients without TLS'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls-certificates -d 'Directory with server-cert.pem and server-key.pem, as for nbdkit and qemu-nbd' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls-authz -d 'With --tls-verify-peer, accept only clients whose certificate has this subject, such as `CN=alice` or `CN=alice,O=Example`; may be repeated' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l sandbox -d 'Drop the rights to open files, start programs and make connections, and all capabilities, before the first client is served' -r -f -a "auto\t'Whatever the kernel offers; the banner lists it'
on\t'Everything, or fail'
off\t'No restrictions, for debugging'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s u -l user -d 'Switch to this user (name or number) before serving the first client' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s g -l group -d 'Switch to this group [default with --user: the user\'s group]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l table -d 'Open what a device-mapper crypt line describes, instead of a target: `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the key in it: `-` reads the line from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
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
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l dispatch -d 'Who runs the cipher [default: auto, unless --perf options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l fault -d 'For testing: make requests to the device below fail, such as `read:nth=3` or `write:after=10:error=ENOSPC`; may be repeated' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l delay -d 'For measuring: make the device below as slow as another medium, such as `read=100us,write=20us..40us,flush=1ms,parallel=32` for an SSD or `seek=2ms..12ms,rate=150M,parallel=1` for a hard disk. `A..B` is uniform, `MEAN~DEVIATION` normal; the keys are read, write, flush, discard, seek, parallel, rate and seed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l exit-with-parent -d 'Exit when the parent process exits'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s v -l verbose -d 'Log more to standard error'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s f -l foreground -d 'Accepted for scripts written for other servers; this one is always in the foreground'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l tls-verify-peer -d 'Accept only clients with a certificate signed by ca-cert.pem in that directory; needs --tls=require'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l sandbox-probe -d 'Try what the sandbox refuses and print the results, then serve'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l shared -d 'Open the target although other programs or hosts use it too, and refuse what could lose their writes'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-no_read_workqueue -d 'Decrypt reads inline (cryptsetup\'s option of this name)'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-no_write_workqueue -d 'Encrypt writes inline'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-same_cpu_crypt -d 'Queue only to the worker of the core that has the request'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-submit_from_crypt_cpus -d 'Queue, but let the workers submit writes as they come, unsorted'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -l perf-high_priority -d 'Queue to workers of the highest priority'
complete -c cryptline -n "__fish_cryptline_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand info" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand info" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand info" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l header -d 'Read the LUKS header from FILE instead of the target' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l type -d 'Accept this version only' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l check -d 'Check the passphrase or key (the only thing `open` does)'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -l allow-null-cipher -d 'Accept key slots with cipher_null, which protects nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand open" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l size -d 'Size of the file, such as 512M or 1G (powers of 1024)' -r
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
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l label -d 'Label of the volume (LUKS2)' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l uuid -d 'UUID of the volume [default: random]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l force -d 'Replace an existing file, or overwrite what the device holds'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l preallocate -d 'Allocate the disk space now'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -l luks1 -d 'Same as --type luks1'
complete -c cryptline -n "__fish_cryptline_using_subcommand create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l table -d 'Open what a device-mapper crypt line describes, instead of a target: `START LEN crypt CIPHER KEY IVOFFSET DEVICE OFFSET [OPTS]`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the key in it: `-` reads the line from standard input, `@FILE` from a file' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l header -d 'Read the LUKS header from FILE; the target holds only data' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l direct -d 'Bypass the page cache (O_DIRECT)' -r -f -a "auto\t'Where the file system supports it'
on\t'Always, or fail'
off\t'Never: use the page cache'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l type -d 'What the target is [default: luks]' -r -f -a "luks\t'LUKS1 or LUKS2, as the header says'
luks1\t'LUKS1 only'
luks2\t'LUKS2 only'
plain\t'No header: the key comes straight from the passphrase'"
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
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l dispatch -d 'Who runs the cipher [default: auto, unless --perf options, table or header say otherwise]' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l read-dispatch -d 'The same for reads only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l write-dispatch -d 'The same for writes only' -r -f -a "inline\t'The thread that has the request, alone'
queue\t'Worker threads, and a writer that sorts, as dm-crypt does'
auto\t'The thread that has the request; idle cores help with large ones'"
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l helpers -d 'Threads that help with large requests under `auto`, shared by all volumes, at most one for each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l fault -d 'For testing: make requests to the device below fail, such as `read:nth=3` or `write:after=10:error=ENOSPC`; may be repeated' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l delay -d 'For measuring: make the device below as slow as another medium, such as `read=100us,write=20us..40us,flush=1ms,parallel=32` for an SSD or `seek=2ms..12ms,rate=150M,parallel=1` for a hard disk. `A..B` is uniform, `MEAN~DEVIATION` normal; the keys are read, write, flush, discard, seek, parallel, rate and seed' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l key-file -d 'Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as cryptsetup does); `-` reads standard input to its end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l keyfile-offset -d 'Skip this many bytes of the key file first' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l keyfile-size -d 'Take only this many bytes of the key file [default: all, at most 8M]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l passphrase-fd -d 'Take the passphrase from the open file descriptor N (0 is standard input), less one newline at the end' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l volume-key-file -d 'Take the volume key itself from FILE, as bytes; it is checked against the header' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l key-slot -d 'Try only this key slot, whatever its priority' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l kdf-time-limit -d 'Spend at most SECONDS of this machine\'s time on trying all key slots together; a slot that would take longer is refused, since a header can ask for anything [default: 300]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l show-keys -d 'Print the volume key; whoever sees the line can decrypt the volume'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -s r -l read-only -d 'Open for reading only'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l allow-discards -d 'Pass discards (TRIM) down; this reveals which blocks are unused'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l allow-null-cipher -d 'Accept a header with cipher_null, which encrypts nothing'
complete -c cryptline -n "__fish_cryptline_using_subcommand table" -l iv-large-sectors -d 'Count IVs in cipher sectors instead of 512-byte sectors'
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
complete -c cryptline -n "__fish_cryptline_using_subcommand btt; and __fish_seen_subcommand_from create" -l size -d 'Size of the new file, table included, such as 512M or 1G (powers of 1024)' -r
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
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -l once -d 'Show one sample and exit'
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -l json -d 'Print the server\'s JSON lines unchanged (see docs/stats.md)'
complete -c cryptline -n "__fish_cryptline_using_subcommand top" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -f -a "inline" -d 'Compare inline encryption with work queues, as in the 2020 dm-devel thread'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -f -a "sweep" -d 'Measure every block size, queue depth and dispatch mode'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -f -a "subblock" -d 'Compare concurrent and exclusive writes of partial cipher sectors'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -f -a "peers" -d 'Compare cryptline with other servers of encrypted disks, over NBD'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -f -a "media" -d 'Measure the overhead of a request on RAM, persistent memory and BTT'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and not __fish_seen_subcommand_from inline sweep subblock peers media zoned" -f -a "zoned" -d 'Measure ordered writes to encrypted zones'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l size -d 'Size of the volume' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l cipher -d 'The cipher beside the null cipher' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l helpers -d 'Threads that help large requests, for `auto` [default: one less than there are processors]' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l front -d 'How requests reach the volume' -r -f -a "in-process\t'By the library\'s calls, in this process'
nbd\t'By NBD, from a server in this process over a Unix socket'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l seconds -d 'How long each of those takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from inline" -l html -d 'Write one self-contained page with plots to FILE' -r -F
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
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from subblock" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l size -d 'Size of the clear disk' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l dir -d 'Folder for the images and sockets; they are removed at the end' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l rounds -d 'How often each server has its turn at each load' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l seconds -d 'How long each turn takes' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l jobs -d 'Loads' -r -f -a "4k-randread-qd32\t'Random reads of 4 KiB, 32 in flight'
4k-randwrite-qd32\t'Random writes of 4 KiB, 32 in flight'
1m-read-qd4\t'Reads of 1 MiB in order, 4 in flight'
1m-write-qd4\t'Writes of 1 MiB in order, 4 in flight'
4k-randread-qd1\t'Random reads of 4 KiB, one at a time'"
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -l servers -d 'Servers' -r -f -a "cryptline\t'cryptline, LUKS1'
cryptline-plain\t'cryptline, the null cipher over the plain image'
qemu-nbd\t'qemu-nbd, LUKS1'
qemu-nbd-plain\t'qemu-nbd, raw'
qsd\t'qemu-storage-daemon, LUKS1'
qsd-plain\t'qemu-storage-daemon, raw'
nbdkit\t'nbdkit, luks filter over the file plugin'
nbdkit-plain\t'nbdkit, file plugin'
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
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from peers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l size -d 'Size of each medium; take more than the caches hold' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l on -d 'Folder for the files that are mapped [default: /dev/shm, or else that of temporary files]' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -l warm -d 'Time what has been touched a moment before: the copy is fast, and what is around it shows'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from media" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l zone-size -d 'Size of a zone, a power of two' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l slow -d 'How slow the slow medium is, as for `serve --delay`' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l cipher -d 'The cipher' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l pool -d 'Threads of the pool' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l runs -d 'How often each way is measured' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l seconds -d 'How long each of those takes at most; less where the zones are full before' -r
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l json -d 'Write JSON to FILE; `-` for standard output, and then the table goes to standard error' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -l html -d 'Write one self-contained page with plots to FILE' -r -F
complete -c cryptline -n "__fish_cryptline_using_subcommand bench; and __fish_seen_subcommand_from zoned" -s h -l help -d 'Print help'
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
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -l json -d 'Print JSON'
complete -c cryptline -n "__fish_cryptline_using_subcommand benchmark" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand completions" -s h -l help -d 'Print help'
complete -c cryptline -n "__fish_cryptline_using_subcommand man" -s h -l help -d 'Print help'
