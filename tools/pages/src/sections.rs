//! Sections that help texts have no place for: ENVIRONMENT, FILES and SEE ALSO.

use clap::Command;

/// Paragraph on the pages of some verbs, and of those that have one of some options; its subject, and its text.
type Entry = (&'static [&'static str], &'static str, &'static str);

const ENVIRONMENT: &[Entry] = &[
    (
        &["cryptline", "key_file", "benchmark"],
        "CRYPTLINE_CPU",
        "Implementation of AES-XTS to use in place of the fastest that the processor has; a wrong one is an error that lists them",
    ),
    (
        &["unix", "socket_path"],
        "XDG_RUNTIME_DIR, TMPDIR",
        "Where the private socket of a server without an address of its own is made",
    ),
    (
        &["unix"],
        "LISTEN_FDS, LISTEN_PID",
        "Sockets that systemd or another program passes; the server then prints nothing",
    ),
    (&["unix", "socket_path", "cryptline-mount"], "NOTIFY_SOCKET", "Where the server says that clients can connect"),
    (
        &["cryptline-attach", "cryptline-detach", "cryptline-devices", "cryptline-recover"],
        "XDG_RUNTIME_DIR",
        "For users other than root: where it is kept what is known of their devices",
    ),
    (&["tpm_device"], "SYSTEMD_TPM2_DEVICE", "The TPM, where --tpm-device does not say which"),
    (&["cryptline-key-add"], "LC_ALL, LC_CTYPE, LANG, TERM", "Whether a recovery key is also drawn as a QR code"),
];

const FILES: &[Entry] = &[
    (
        &["cryptline-attach", "cryptline-detach", "cryptline-devices", "cryptline-recover"],
        "/run/cryptline, $XDG_RUNTIME_DIR/cryptline",
        "What is known of the devices of root and of a user; never a key",
    ),
    (
        &["cryptline-key", "cryptline-token", "cryptline-header", "cryptline-erase", "cryptline-resize"],
        "/run/cryptsetup",
        "Locks of headers on block devices, shared with cryptsetup",
    ),
    (
        &["cryptline-serve", "cryptline-mount"],
        "/etc/cryptline/NAME.conf, /etc/cryptline/NAME.cred",
        "Settings and key of the systemd units cryptline@NAME and cryptline-mount@NAME",
    ),
    (&["cryptline-mount"], "/etc/fuse.conf", "user_allow_other lets users other than root use --allow-other"),
    (
        &["cryptline", "key_file"],
        "/etc/ceph/ceph.conf",
        "The cluster of targets rbd:POOL/IMAGE, unless ?conf=PATH names another",
    ),
];

/// Other programs' pages, by verb.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cryptline", "cryptsetup(8), dmsetup(8), nbd(4)"),
    (
        "cryptline-serve",
        "cryptline-vhost-user(1), cryptline-mount(1), cryptline-top(1), nbdinfo(1), nbdcopy(1), qemu-nbd(8), nbdkit(1)",
    ),
    ("cryptline-vhost-user", "cryptline-serve(1), cryptline-top(1), qemu-system(1)"),
    ("cryptline-mount", "cryptline-umount(1), fusermount3(1), fuse2fs(1)"),
    ("cryptline-umount", "cryptline-mount(1)"),
    ("cryptline-attach", "cryptline-detach(1), cryptline-devices(1), cryptline-recover(1), mount(8)"),
    ("cryptline-detach", "cryptline-attach(1)"),
    ("cryptline-devices", "cryptline-attach(1)"),
    ("cryptline-recover", "cryptline-attach(1)"),
    ("cryptline-create", "cryptline-copy(1), cryptline-encrypt(1), cryptsetup-luksFormat(8), mke2fs(8)"),
    ("cryptline-copy", "cryptline-create(1), cryptline-encrypt(1), nbdcopy(1), qemu-img(1)"),
    ("cryptline-encrypt", "cryptline-create(1), cryptline-copy(1), cryptsetup-reencrypt(8)"),
    ("cryptline-key", "cryptline-token(1), cryptsetup-luksAddKey(8)"),
    ("cryptline-token", "cryptline-key(1), cryptsetup-token(8), systemd-cryptenroll(1), clevis(1)"),
    ("cryptline-header", "cryptsetup-luksHeaderBackup(8), cryptsetup-convert(8), cryptsetup-repair(8)"),
    ("cryptline-table", "dmsetup(8)"),
    ("cryptline-resize", "resize2fs(8)"),
    ("cryptline-zones", "blkzone(8)"),
    ("cryptline-top", "cryptline-serve(1)"),
    ("cryptline-certs", "cryptline-serve(1), certtool(1)"),
    ("cryptline-testing", "cryptline-serve(1), cryptline-benchmark(1)"),
];

/// The sections of the page called `name`.
pub fn of(name: &str, command: &Command) -> String {
    let concerns = |entry: &&Entry| {
        let has = |of: &&str| {
            let is_option = || command.get_arguments().any(|arg| arg.get_id() == of);
            is_of_verb(name, of) || is_option()
        };
        entry.0.iter().any(has)
    };
    list("ENVIRONMENT", &ENVIRONMENT.iter().filter(concerns).collect::<Vec<_>>())
        + &list("FILES", &FILES.iter().filter(concerns).collect::<Vec<_>>())
        + &see_also(name, command)
}

/// Tells if the page is that of `parent`, or of one of its verbs. The program's own is not meant by that.
fn is_of_verb(name: &str, parent: &str) -> bool {
    let rest = name.strip_prefix("cryptline-").unwrap_or(name);
    let parent = parent.strip_prefix("cryptline-").unwrap_or(parent);
    rest.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn list(title: &str, entries: &[&Entry]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let one = |entry: &&Entry| {
        let (name, text) = (escaped(entry.1), escaped(entry.2));
        format!(".TP\n\\fB{name}\\fR\n{text}\n")
    };
    let all: String = entries.iter().map(one).collect();
    format!(".SH {title}\n{all}")
}

/// The pages around it, and those of other programs.
fn see_also(name: &str, command: &Command) -> String {
    let mut pages = Vec::new();
    let own = format!("-{}", command.get_name());
    pages.extend(name.strip_suffix(&own).map(|parent| format!("{parent}(1)")));
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    pages.extend(verbs.map(|verb| format!("{name}-{}(1)", verb.get_name())));
    let others = ELSEWHERE.iter().find(|(of, _)| *of == name);
    pages.extend(others.map(|(_, pages)| (*pages).to_owned()));
    format!(".SH \"SEE ALSO\"\n{}\n", escaped(&pages.join(", ")))
}

fn escaped(text: &str) -> String {
    text.replace('-', "\\-")
}
