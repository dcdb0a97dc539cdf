//! Seals and measurements hold for the header that a volume is opened by, whatever its medium answers the next time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use cryptline::luks::edit::{LastSlot, NewSlot, Priority, TokenPlace, TokenSlots};
use cryptline::luks::format::{FormatOptions, LuksVersion};
use cryptline::luks::seal::{Covers, MeasureHash};
use cryptline::{
    Create, Header, HeaderRules, Key, KeyRequest, Medium, Open, Problem, ResizeOptions, SealOptions, SecretBuf, Signed,
    Warning,
};
use tempfile::TempDir;

use crate::common::{PHRASE, cheap, edit, make};
use crate::nbd::Server;

const SIZE: u64 = 20 << 20;
/// Both copies of a header.
const HEADER: u64 = 32 << 10;

struct Disk {
    folder: TempDir,
    path: PathBuf,
}

impl Disk {
    fn sealed(covers: Covers) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("disk");
        make(&path, SIZE);
        Header::new(&path).passphrase(PHRASE).sign(&SealOptions { covers, ..SealOptions::default() }).unwrap();
        Self { folder, path }
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    /// The same after somebody has made its sectors smaller, which its slots and digests do not show.
    fn changed(&self) -> Vec<u8> {
        let path = self.folder.path().join("changed");
        fs::copy(&self.path, &path).unwrap();
        edit(&path, |json| json.replace("\"sector_size\":4096", "\"sector_size\":512"));
        let changed = fs::read(path).unwrap();
        assert!(changed != self.bytes());
        changed
    }

    fn measure(&self) -> Vec<u8> {
        let header = Open::new(&self.path).inspect().unwrap().header;
        header.subject(Covers::default()).unwrap().measure(MeasureHash::Sha256)
    }
}

fn signed() -> HeaderRules {
    HeaderRules { signed: Some(Signed::Any), ..HeaderRules::default() }
}

/// A server that answers with one header for so many reads, and with another one after that.
struct TwoFaced {
    first: Vec<u8>,
    then: Vec<u8>,
    reads: AtomicUsize,
    turn: usize,
}

impl TwoFaced {
    fn new(first: &[u8], then: &[u8], turn: usize) -> Arc<Self> {
        Arc::new(Self { first: first.to_vec(), then: then.to_vec(), reads: AtomicUsize::new(0), turn })
    }
}

impl Medium for TwoFaced {
    fn size(&self) -> u64 {
        self.first.len() as u64
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        let is_first = offset >= HEADER || self.reads.fetch_add(1, Ordering::Relaxed) < self.turn;
        let bytes = if is_first { &self.first } else { &self.then };
        let at = usize::try_from(offset).unwrap();
        target.copy_from_slice(&bytes[at..at + target.len()]);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn header_that_was_checked_is_the_one_that_is_used() {
    let disk = Disk::sealed(Covers::default());
    let (good, bad, measure) = (disk.bytes(), disk.changed(), disk.measure());
    let measured = HeaderRules { measure: Some(measure), ..HeaderRules::default() };
    let mut outcomes = [0; 2];
    for rules in [signed(), measured] {
        for turn in 0..40 {
            for (first, then) in [(&good, &bad), (&bad, &good)] {
                let open = || {
                    let medium = TwoFaced::new(first, then, turn);
                    Open::medium(medium).passphrase(PHRASE).header_rules(rules.clone())
                };
                let volume = open().open();
                outcomes[usize::from(volume.is_ok())] += 1;
                if let Ok(volume) = volume {
                    assert_eq!(volume.info().sector_size, 4096, "after {turn} reads");
                }
                if let Ok(table) = open().table(true) {
                    assert!(table.line.contains("sector_size:4096"), "after {turn} reads: {}", *table.line);
                }
            }
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

/// Reads of the header are counted in a file; after so many, they are of another header.
const LYING: &str = r#"n=$(cat "$dir/count"); file="$dir/disk"
if [ "$4" -lt 32768 ]; then echo $((n + 1)) >"$dir/count"; [ "$n" -lt "$turn" ] || file="$dir/changed"; fi
dd if="$file" bs=64k iflag=skip_bytes,count_bytes,fullblock skip="$4" count="$3" status=none"#;

#[test]
fn nbd_server_that_answers_differently_the_second_time_gets_nowhere() {
    let disk = Disk::sealed(Covers::default());
    disk.changed();
    let mut opened = 0;
    for turn in 0..8 {
        let (socket, folder) = (disk.folder.path().join(format!("s{turn}")), disk.folder.path().display());
        fs::write(disk.folder.path().join("count"), "0\n").unwrap();
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--read-only", "--threads=1", "--unix"]).arg(&socket).arg("eval");
        let pread = format!("pread=dir='{folder}' turn={turn}\n{LYING}");
        nbdkit.arg(format!("get_size=echo {SIZE}")).arg(pread);
        let Some(_server) = Server::start(&mut nbdkit, &socket) else { return };
        let uri = format!("nbd+unix:///?socket={}&require-signed-header", socket.display());
        if let Ok(volume) = Open::new(uri).passphrase(PHRASE).read_only(true).open() {
            assert_eq!(volume.info().sector_size, 4096, "after {turn} reads");
            opened += 1;
        }
    }
    assert!((1..8).contains(&opened), "{opened}");
}

fn new_slot() -> NewSlot {
    NewSlot { kdf: cheap().kdf, cost: cheap().cost, ..NewSlot::default() }
}

type Verb = (&'static str, fn(Header) -> cryptline::Result<()>);

const VERBS: [Verb; 12] = [
    ("add", |header| header.new_passphrase("new").add_key(&new_slot()).map(drop)),
    ("change", |header| header.new_passphrase("new").change_key(&new_slot()).map(drop)),
    ("convert", |header| header.convert_key(&new_slot()).map(drop)),
    ("recovery", |header| header.add_recovery_key(None).map(drop)),
    ("remove", |header| header.remove_key(LastSlot::Remove).map(drop)),
    ("kill", |header| header.kill_slot(0, LastSlot::Remove).map(drop)),
    ("priority", |header| header.set_priority(0, Priority::Prefer).map(drop)),
    ("uuid", |header| header.set_uuid(None).map(drop)),
    ("label", |header| header.set_label(Some("x"), None).map(drop)),
    ("token", |header| header.set_keyring_token("x", TokenPlace::default(), TokenSlots::All).map(drop)),
    ("wipe", |header| header.wipe_unused().map(drop)),
    ("resize", |header| {
        let options = ResizeOptions { size: Some(SIZE + (1 << 20)), ..ResizeOptions::default() };
        header.resize(&options).map(drop)
    }),
];

/// Whoever has changed the header gets no seal for it, by any verb.
#[test]
fn no_verb_seals_what_somebody_has_changed() {
    let covers = Covers { keyslots: true, tokens: true };
    for (name, verb) in VERBS {
        let disk = Disk::sealed(covers);
        let changed = disk.changed();
        fs::write(&disk.path, &changed).unwrap();
        let header = || Header::new(&disk.path).passphrase(PHRASE);
        let demanding = [
            signed(),
            HeaderRules { not_older_than: Some(1), ..HeaderRules::default() },
            HeaderRules { state: Some(disk.folder.path().join("state")), ..HeaderRules::default() },
        ];
        for rules in demanding {
            verb(header().header_rules(rules)).unwrap_err();
            assert!(disk.bytes() == changed, "{name}");
        }
        assert!(!disk.folder.path().join("state").exists());
        verb(header()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let still = ["new", PHRASE].map(|phrase| Header::new(&disk.path).passphrase(phrase).verify());
        assert!(still.iter().all(Result::is_err), "{name}");
    }
}

/// With the key at hand, what a verb changes is sealed in the same write; once more, and not by one that changes nothing.
#[test]
fn verb_renews_a_seal_that_holds() {
    let covers = Covers { keyslots: true, tokens: true };
    for (name, verb) in VERBS {
        let disk = Disk::sealed(covers);
        verb(Header::new(&disk.path).passphrase(PHRASE).header_rules(signed())).unwrap();
        let sealed = ["new", PHRASE].map(|phrase| Header::new(&disk.path).passphrase(phrase).verify());
        let sealed = sealed.into_iter().find_map(Result::ok);
        let unchanged = ["label", "wipe", "resize"].contains(&name);
        match sealed {
            Some(sealed) => assert_eq!(sealed.seal.counter, if unchanged { 1 } else { 2 }, "{name}"),
            // No passphrase is left to open it by.
            None => assert!(["remove", "kill"].contains(&name), "{name}"),
        }
    }
}

/// The header that a verb has replaced is old at once.
#[test]
fn header_from_before_a_verb_that_notes_its_seal_is_refused() {
    let disk = Disk::sealed(Covers { keyslots: true, tokens: false });
    let (before, state) = (disk.bytes(), disk.folder.path().join("state"));
    let rules = || HeaderRules { state: Some(state.clone()), ..HeaderRules::default() };
    let open = || Open::new(&disk.path).passphrase(PHRASE).header_rules(rules()).open();
    let header = || Header::new(&disk.path).passphrase(PHRASE).header_rules(rules());
    header().new_passphrase("new").add_key(&new_slot()).unwrap();
    open().unwrap();
    let renewed = disk.bytes();
    fs::write(&disk.path, &before).unwrap();
    assert!(open().err().unwrap().to_string().contains("older than one that was seen"));
    fs::write(&disk.path, &renewed).unwrap();
    header().sign(&SealOptions::default()).unwrap();
    let signed = disk.bytes();
    fs::write(&disk.path, &renewed).unwrap();
    open().err().unwrap();
    fs::write(&disk.path, &signed).unwrap();
    open().unwrap();
}

#[test]
fn rules_of_a_target_are_its_own() {
    let disk = Disk::sealed(Covers::default());
    let target = |more: &str| format!("{}?{more}", disk.path.display());
    for (more, opens) in [
        ("require-signed-header", true),
        ("require-signed-header=volume-key&header-not-older-than=1", true),
        ("require-signed-header=file", false),
        ("header-not-older-than=2", false),
        ("seal-key=/none", false),
        ("header-policy=/none", false),
        (&format!("expect-measure={}", cryptline::hex(&disk.measure())), true),
    ] {
        assert_eq!(Open::new(target(more)).passphrase(PHRASE).open().is_ok(), opens, "{more}");
    }
    for more in ["require-signed-header=tpm", "seal-key=", "expect-measure=00", "header-not-older-than=x"] {
        let error = Open::new(target(more)).passphrase(PHRASE).open().err().unwrap();
        assert_eq!(error.kind(), cryptline::ErrorKind::Parameters, "{more}: {error}");
    }
    let made = Create::new(format!("{}new?require-signed-header", disk.path.display())).size(SIZE).passphrase(PHRASE);
    assert!(made.create().err().unwrap().to_string().contains("has no use for rules"));
}

/// A header that is put back must keep the rules, whatever is there.
#[test]
fn backup_is_restored_only_if_it_keeps_the_rules() {
    let disk = Disk::sealed(Covers::default());
    let (backup, bad) = (disk.folder.path().join("backup"), disk.folder.path().join("bad"));
    let measured = HeaderRules { measure: Some(disk.measure()), ..HeaderRules::default() };
    Header::new(&disk.path).header_rules(measured.clone()).backup(&backup).unwrap();
    let changed = disk.changed();
    fs::write(&disk.path, &changed).unwrap();
    Header::new(&disk.path).header_rules(measured.clone()).backup(&bad).unwrap_err();
    Header::new(&disk.path).backup(&bad).unwrap();
    Header::new(&disk.path).header_rules(measured.clone()).restore(&bad, |_| Ok(())).unwrap_err();
    assert!(disk.bytes() == changed);
    Header::new(&disk.path).header_rules(measured.clone()).restore(&backup, |_| Ok(())).unwrap();
    Open::new(&disk.path).passphrase(PHRASE).header_rules(measured).open().unwrap();
}

/// Whatever its counter is to be.
#[test]
fn seal_in_a_file_takes_the_place_of_another_seal_and_of_nothing_else() {
    let disk = Disk::sealed(Covers::default());
    let sign = |file: &Path, counter| {
        let options = SealOptions { counter, file: Some(file.to_owned()), ..SealOptions::default() };
        Header::new(&disk.path).passphrase(PHRASE).sign(&options).map(|sealed| sealed.seal.counter)
    };
    let [seal, key] = ["seal", "key"].map(|name| disk.folder.path().join(name));
    for (counter, expected) in [(None, 1), (Some(7), 7), (None, 8)] {
        assert_eq!(sign(&seal, counter).unwrap(), expected);
    }
    fs::write(&key, "precious").unwrap();
    for file in [&disk.path, &key] {
        let before = fs::read(file).unwrap();
        for counter in [None, Some(3)] {
            let refused = sign(file, counter).unwrap_err();
            assert_eq!(refused.kind(), cryptline::ErrorKind::Device, "{refused}");
            assert!(fs::read(file).unwrap() == before, "{file:?} {counter:?}");
        }
    }
    assert!(sign(disk.folder.path(), Some(3)).is_err());
}

fn state_at(path: &Path) -> HeaderRules {
    HeaderRules { state: Some(path.to_owned()), ..HeaderRules::default() }
}

/// A state file that knows the seal of `disk`, beside which there is no place for the next one: root can make none either.
fn last_state(disk: &Disk) -> PathBuf {
    /// A name in a folder as deep can still have so many bytes, and that of a temporary file has more.
    const FOLDER_LEN: usize = 4085;
    let first = disk.folder.path().join("state");
    Open::new(&disk.path).passphrase(PHRASE).header_rules(state_at(&first)).open().unwrap();
    let mut folder = disk.folder.path().to_owned();
    while folder.as_os_str().len() < FOLDER_LEN {
        let left = FOLDER_LEN - folder.as_os_str().len() - 1;
        folder.push("x".repeat(if left > 250 { 200 } else { left }));
    }
    fs::create_dir_all(&folder).unwrap();
    let last = folder.join("state");
    fs::copy(first, &last).unwrap();
    last
}

/// A recovery key would be seen by nobody otherwise.
#[test]
fn change_whose_counter_cannot_be_noted_is_no_error() {
    let is_told = |warnings: &[Warning]| warnings.iter().any(|it| matches!(it, Warning::CounterNotNoted { .. }));
    let disk = || {
        let disk = Disk::sealed(Covers { keyslots: true, tokens: true });
        let rules = state_at(&last_state(&disk));
        (Header::new(&disk.path).passphrase(PHRASE).header_rules(rules), disk)
    };
    let (header, _disk) = disk();
    assert!(is_told(&header.new_passphrase("new").add_key(&new_slot()).unwrap().warnings));
    let (header, disk_of_two) = disk();
    let (edited, recovery) = header.add_recovery_key(None).unwrap();
    assert!(is_told(&edited.warnings));
    Open::new(&disk_of_two.path).passphrase(&*recovery).open().unwrap();
    let (header, _disk) = disk();
    assert!(is_told(&header.sign(&SealOptions::default()).unwrap().warnings));
}

#[test]
fn seal_that_is_older_than_one_that_was_seen_is_not_made() {
    let disk = Disk::sealed(Covers::default());
    let rules = state_at(&disk.folder.path().join("state"));
    let sign = |counter| {
        let header = Header::new(&disk.path).passphrase(PHRASE).header_rules(rules.clone());
        header.sign(&SealOptions { counter: Some(counter), ..SealOptions::default() })
    };
    sign(5).unwrap();
    let before = disk.bytes();
    assert!(sign(4).unwrap_err().to_string().contains("older than one that was seen"));
    assert!(disk.bytes() == before);
    sign(6).unwrap();
}

/// A disk that is sealed by a key file, the rules by that and a state file, and backups under the first two counters.
fn sealed_by_a_file() -> (Disk, HeaderRules, [PathBuf; 2]) {
    let disk = Disk::sealed(Covers::default());
    let path = |name: &str| disk.folder.path().join(name);
    fs::write(path("key"), [7; 32]).unwrap();
    let backups = ["one", "two"].map(|name| {
        let header = Header::new(&disk.path).passphrase(PHRASE);
        header.sign(&SealOptions { key: Some(path("key")), ..SealOptions::default() }).unwrap();
        Header::new(&disk.path).backup(path(name)).unwrap();
        path(name)
    });
    let rules = HeaderRules { seal_key: Some(path("key")), ..state_at(&path("state")) };
    (disk, rules, backups)
}

#[test]
fn backup_that_is_declined_leaves_the_state_file_as_it_is() {
    let (disk, rules, [first, second]) = sealed_by_a_file();
    Header::new(&disk.path).restore(&first, |_| Ok(())).unwrap();
    let header = || Header::new(&disk.path).header_rules(rules.clone());
    let state = || fs::read_to_string(rules.state.as_ref().unwrap()).unwrap();
    Open::new(&disk.path).passphrase(PHRASE).header_rules(rules.clone()).open().unwrap();
    let before = (disk.bytes(), state());
    header().restore(&second, |_| Err(Problem::NoKey.into())).unwrap_err();
    assert!((disk.bytes(), state()) == before);
    // Nor is it changed where somebody else has changed the header meanwhile.
    let meanwhile = |_: &[String]| Header::new(&disk.path).set_uuid(None).map(drop);
    header().restore(&second, meanwhile).unwrap_err();
    assert_eq!(state(), before.1);
    header().restore(&second, |_| Ok(())).unwrap();
    assert!(state() != before.1);
    // What is refused for its age asks nobody.
    let asked = |_: &[String]| -> cryptline::Result<()> { panic!("it is refused") };
    let error = header().restore(&first, asked).unwrap_err();
    assert!(error.to_string().contains("older than one that was seen"), "{error}");
}

/// Its stack is wiped.
#[test]
fn every_verb_asks_for_keys_on_a_thread_of_their_own() {
    let here = thread::current().id();
    let check = |name: &str, verb: &dyn Fn(Header, &Path) -> cryptline::Result<()>| {
        let disk = Disk::sealed(Covers::default());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let threads = Arc::clone(&asked);
        let keys = move |_: &KeyRequest<'_>| {
            threads.lock().unwrap().push(thread::current().id());
            Ok(Some(Key::Passphrase(SecretBuf::copy_of(PHRASE.as_bytes()).unwrap())))
        };
        // Some cannot be done, which is not known before.
        let _ = verb(Header::new(&disk.path).keys(keys).header_rules(signed()), disk.folder.path());
        let asked = asked.lock().unwrap();
        assert!(!asked.is_empty() && !asked.contains(&here), "{name}");
    };
    for (name, verb) in VERBS {
        check(name, &|header, _| verb(header));
    }
    check("repair", &|header, _| header.repair(false).map(drop));
    check("convert", &|header, _| header.convert(LuksVersion::Luks1).map(drop));
    check("backup", &|header, folder| header.backup(folder.join("backup")).map(drop));
}

/// A LUKS1 disk of two passphrases with a seal in a file, by which it is changed.
fn luks1_sealed_beside() -> (Disk, HeaderRules) {
    let folder = TempDir::new().unwrap();
    let (path, seal) = (folder.path().join("disk"), folder.path().join("seal"));
    let format = FormatOptions { version: LuksVersion::Luks1, key_len: 32, ..cheap() };
    Create::new(&path).size(SIZE).format(format).passphrase(PHRASE).create().unwrap();
    let header = || Header::new(&path).passphrase(PHRASE);
    header().new_passphrase("new").add_key(&new_slot()).unwrap();
    let covers = Covers { keyslots: true, tokens: false };
    header().sign(&SealOptions { covers, file: Some(seal.clone()), ..SealOptions::default() }).unwrap();
    (Disk { folder, path }, HeaderRules { seal_file: Some(seal), ..HeaderRules::default() })
}

/// The passphrase is that of the other one, and the seal is of both.
#[test]
fn key_slot_that_a_seal_covers_is_killed_by_the_passphrase_of_another_one() {
    let (disk, rules) = luks1_sealed_beside();
    let kill = |passphrase: &str, slot| {
        let header = Header::new(&disk.path).passphrase(passphrase).header_rules(rules.clone());
        header.kill_slot(slot, LastSlot::Keep)
    };
    let before = disk.bytes();
    assert!(matches!(kill("new", 1).unwrap_err().problem(), Problem::Luks(cryptline::luks::Error::NoKey)));
    assert!(disk.bytes() == before);
    assert!(kill(PHRASE, 1).unwrap().warnings.contains(&Warning::SealVoid));
    assert!(Open::new(&disk.path).passphrase("new").open().is_err());
}

/// Where a key slot was that had to move, there is a hole.
#[test]
fn conversion_says_that_a_seal_in_a_file_is_void_and_leaves_no_old_key_material() {
    let (disk, rules) = luks1_sealed_beside();
    let header = Header::new(&disk.path).passphrase(PHRASE).header_rules(rules);
    assert!(header.convert(LuksVersion::Luks2).unwrap().warnings.contains(&Warning::SealVoid));
    let (header, end) = (32 << 10, 4096 + 128_000);
    assert!(disk.bytes()[header..end].iter().all(|&byte| byte == 0));
    for passphrase in [PHRASE, "new"] {
        Open::new(&disk.path).passphrase(passphrase).open().unwrap();
    }
}
