//! No key and no passphrase is left in memory that can be swapped out or dumped, nor anywhere at all
//! when the volume is closed: all memory of the program is looked through.
//!
//! Expanded keys have the key itself in them, so a server must keep it; what it keeps must lie in
//! memory that is locked and left out of core dumps.

use crate::server;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::server::{cryptline, noise, text, value};
use cryptline_testkit::memory::{Scan, Secrets, Traced, scan, status_kib};
use cryptline_testkit::peer;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Clear text of the volumes, in bytes.
const SIZE: usize = 1 << 20;
/// Bytes of a LUKS2 header as `create` makes it.
const HEADER: usize = 16 << 20;
/// Every cipher, and how many bits its key has.
const CIPHERS: [(&str, &str); 3] =
    [("aes-xts-plain64", "512"), ("aes-cbc-essiv:sha256", "256"), ("xchacha12,aes-adiantum-plain64", "256")];
const DISPATCHES: [&str; 3] = ["auto", "inline", "queue"];

/// Tells if memory of processes that protect themselves can be read here.
fn may_look() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        peer::skip("only root may read the memory of a process that holds keys");
    }
    may
}

/// A volume, what opens it, and what no memory may hold.
struct Volume {
    folder: TempDir,
    /// Arguments that name and open it.
    arguments: Vec<String>,
    /// Data for standard input.
    input: Vec<u8>,
    secrets: Secrets,
}

/// Printable, and different each time.
fn passphrase() -> Vec<u8> {
    let random = fs::read("/proc/sys/kernel/random/uuid").expect("a UUID");
    [b"phrase:", random.trim_ascii(), b":of", random.trim_ascii()].concat()
}

fn strings<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    arguments.into_iter().map(str::to_owned).collect()
}

impl Volume {
    fn image(file_size: usize) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let file = fs::File::create(&image).expect("an image");
        file.set_len(file_size as u64).expect("room");
        fs::write(folder.path().join("clear"), noise(SIZE)).expect("a clear text");
        (folder, image)
    }

    /// The volume key, by `table --show-keys`.
    fn key(arguments: &[String], input: &[u8]) -> Vec<u8> {
        let arguments = ["table", "--show-keys"].into_iter().chain(arguments.iter().map(String::as_str));
        let limit = Duration::from_secs(60);
        let line = peer::run_with_input(&mut cryptline(arguments), limit, input).success();
        let digits = line.stdout_text();
        let digits = digits.split(' ').nth(4).expect("a key");
        base16ct::mixed::decode_vec(digits).unwrap()
    }

    fn with_passphrase(folder: TempDir, arguments: Vec<String>, phrase: Vec<u8>) -> Self {
        let key = Self::key(&arguments, &phrase);
        let mut secrets = Secrets::default();
        secrets.add_with_digits("the volume key", &key);
        secrets.add("the passphrase", &phrase);
        Self { folder, arguments, input: phrase, secrets }
    }

    /// A LUKS volume that standard input opens.
    fn luks(format: &[&str], (cipher, bits): (&str, &str)) -> Self {
        let (folder, image) = Self::image(0);
        let (image, phrase) = (text(&image), passphrase());
        let size = (HEADER + SIZE).to_string();
        let options = [
            "create",
            &image,
            "--force",
            "--size",
            &size,
            "--cipher",
            cipher,
            "--key-size",
            bits,
            "--sector-size",
            "4096",
            "--key-file",
            "-",
        ];
        // LUKS1 knows no other sectors than those of 512 bytes.
        let options =
            options.into_iter().filter(|word| !format.contains(&"luks1") || !["--sector-size", "4096"].contains(word));
        let mut command = cryptline(options.chain(format.iter().copied()));
        peer::run_with_input(&mut command, Duration::from_secs(60), &phrase).success();
        Self::with_passphrase(folder, strings([&*image, "--key-file", "-"]), phrase)
    }

    /// A plain volume that standard input opens.
    fn plain((cipher, bits): (&str, &str)) -> Self {
        let (folder, image) = Self::image(SIZE);
        let arguments = strings([
            &text(&image),
            "--type",
            "plain",
            "--cipher",
            cipher,
            "--key-size",
            bits,
            "--hash",
            "sha256",
            "--passphrase-fd",
            "0",
        ]);
        Self::with_passphrase(folder, arguments, passphrase())
    }

    /// A plain volume that the output of a command opens.
    fn plain_by_command((cipher, bits): (&str, &str)) -> Self {
        let (folder, image) = Self::image(SIZE);
        let (path, phrase) = (folder.path().join("key"), passphrase());
        fs::write(&path, &phrase).expect("room for a passphrase");
        let command = format!("cat '{}'; echo", text(&path));
        let arguments = [&*text(&image), "--type", "plain", "--cipher", cipher, "--key-size", bits, "--hash", "sha256"];
        let arguments = arguments.into_iter().chain(["--passphrase-command", &command]);
        Self { input: Vec::new(), ..Self::with_passphrase(folder, strings(arguments), phrase) }
    }

    /// A LUKS2 volume that a helper opens.
    fn by_helper((cipher, bits): (&str, &str)) -> Self {
        let (folder, image) = Self::image(0);
        let (image, kept, helper) =
            (text(&image), folder.path().join("kept"), folder.path().join("cryptline-key-keeper"));
        let kept_text = text(&kept);
        let script = format!(
            "#!/bin/sh\ncase $1 in\nwrap) sed 's/.*\"secret\":\"\\([^\"]*\\)\".*/\\1/' > '{kept_text}'; echo '{{\"version\":1,\"wrapped\":\"QQ==\"}}' ;;\n\
             unwrap) printf '{{\"version\":1,\"secret\":\"%s\"}}' \"$(cat '{kept_text}')\" ;;\n*) echo '{{\"version\":1}}' ;;\nesac\n"
        );
        fs::write(&helper, script).expect("room for a helper");
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let (phrase, size) = (passphrase(), (HEADER + SIZE).to_string());
        let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000", "--key-file", "-"];
        let format = ["create", &image, "--force", "--size", &size, "--cipher", cipher, "--key-size", bits];
        let helpers = strings(["--token-helper", "keeper", "--helper-dir", &text(folder.path())]);
        let bind = strings(["token", "bind", &image, "exec", "--key-file", "-"]);
        for line in [strings(format.into_iter().chain(cheap)), [bind, helpers.clone()].concat()] {
            let mut command = cryptline(line.iter().map(String::as_str));
            peer::run_with_input(&mut command, Duration::from_secs(60), &phrase).success();
        }
        let arguments = [strings([&*image, "--token-only"]), helpers].concat();
        let secret = fs::read(&kept).expect("it was wrapped");
        Self { input: Vec::new(), ..Self::with_passphrase(folder, arguments, secret.trim_ascii().to_vec()) }
    }

    /// A plain volume whose key is a file.
    fn plain_by_file((cipher, bits): (&str, &str)) -> Self {
        let (folder, image) = Self::image(SIZE);
        let (key, path) = (random(bits), folder.path().join("key"));
        fs::write(&path, &key).expect("room for a key");
        let arguments = strings([
            &*text(&image),
            "--type",
            "plain",
            "--cipher",
            cipher,
            "--key-size",
            bits,
            "--key-file",
            &text(&path),
        ]);
        Self::with_key(folder, arguments, &key, Vec::new())
    }

    fn with_key(folder: TempDir, arguments: Vec<String>, key: &[u8], input: Vec<u8>) -> Self {
        let mut secrets = Secrets::default();
        secrets.add_with_digits("the volume key", key);
        Self { folder, arguments, input, secrets }
    }

    /// A table line, as an argument or from standard input.
    fn table((cipher, bits): (&str, &str), is_argument: bool) -> Self {
        let (folder, image) = Self::image(SIZE);
        let key = random(bits);
        let digits = base16ct::lower::encode_string(&key);
        let line = format!("0 {} crypt {cipher} {digits} 0 {} 0", SIZE / 512, text(&image));
        if is_argument {
            Self::with_key(folder, vec!["--table".to_owned(), line], &key, Vec::new())
        } else {
            Self::with_key(folder, strings(["--table", "-"]), &key, line.into())
        }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(String::as_str)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn random(bits: &str) -> Vec<u8> {
    let mut key = vec![0; bits.parse::<usize>().expect("bits") / 8];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).expect("random bytes");
    key
}

/// A running server that did not print to a terminal.
struct Server {
    child: Child,
    uri: String,
}

impl Server {
    #[track_caller]
    fn start(volume: &Volume, options: &[&str]) -> Self {
        let arguments = ["serve"].into_iter().chain(volume.words());
        let mut command = cryptline(arguments.chain(options.iter().copied()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        feed(&mut child, &volume.input);
        let mut report = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        while !report.contains("ready:") {
            assert_ne!(lines.read_line(&mut report).expect("a report"), 0, "{report}");
        }
        let uri = value(&report, "uri");
        Self { child, uri }
    }

    /// Looks through its memory while it stands still.
    #[track_caller]
    fn look(&self, volume: &Volume) -> Scan {
        self.signal(Signal::STOP);
        server::wait_until("it stands still", || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
            status.expect("a status").contains("State:\tT")
        });
        let seen = scan(self.child.id(), &volume.secrets).expect("root may look");
        self.signal(Signal::CONT);
        seen
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Ends it, and looks before it is gone.
    #[track_caller]
    fn end(self, volume: &Volume) -> Scan {
        let process = Pid::from_child(&self.child);
        let traced = Traced::attach(self.child).expect("root may trace");
        kill_process(process, Signal::TERM).expect("it lives");
        let ended = traced.at_the_end(|process| scan(process, &volume.secrets));
        let (code, seen) = ended.expect("it ends");
        assert_eq!(code, 0);
        seen.expect("root may look")
    }
}

fn feed(child: &mut Child, input: &[u8]) {
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(input).expect("it reads");
}

/// Findings of all the searches of a case, told when it is over: a leak in one does not hide others.
#[derive(Default)]
struct Verdict {
    searches: usize,
    leaks: Vec<String>,
}

impl Verdict {
    fn add(&mut self, what: &str, seen: &Scan) {
        self.searches += 1;
        assert!(seen.bytes > 1 << 16, "{what}: hardly any memory was looked at");
        if !seen.leaked.is_empty() {
            self.leaks.push(format!("{what}: {:?}", seen.leaked));
        }
    }

    /// While the volume is open its keys are somewhere, unless they are hashed first.
    fn add_open(&mut self, what: &str, seen: &Scan) {
        self.add(what, seen);
        if seen.guarded.is_empty() {
            self.leaks.push(format!("{what}: no key in guarded memory, so the search is blind"));
        }
    }

    fn add_closed(&mut self, what: &str, seen: &Scan) {
        self.add(what, seen);
        if !seen.guarded.is_empty() {
            self.leaks.push(format!("{what}, guarded: {:?}", seen.guarded));
        }
    }

    #[track_caller]
    fn tell(self) {
        eprintln!("{} searches, {} with leaks", self.searches, self.leaks.len());
        assert!(self.leaks.is_empty(), "{}", self.leaks.join("\n"));
    }
}

/// Serves the volume and looks when it is idle, busy, idle again and at its end.
#[track_caller]
fn serve_and_look(verdict: &mut Verdict, nbdcopy: &peer::Peer, volume: &Volume, options: &[&str]) {
    let name = format!("{:?} {options:?}", volume.arguments);
    let server = Server::start(volume, options);
    verdict.add_open(&format!("{name} before clients"), &server.look(volume));
    let locked = status_kib(server.child.id(), "VmLck").expect("a status");
    if locked == 0 {
        verdict.leaks.push(format!("{name}: nothing is locked"));
    }
    let (clear, uri) = (text(&volume.path("clear")), server.uri.clone());
    nbdcopy.run(["--flush", &clear, &uri]).success();
    nbdcopy.run([&uri, "null:"]).success();
    verdict.add_open(&format!("{name} after clients"), &server.look(volume));
    let mut client = nbdcopy.command();
    client.args(["--requests=8", &clear, &uri]).stderr(Stdio::null());
    let mut client = client.spawn().expect("a client");
    verdict.add_open(&format!("{name} with a client"), &server.look(volume));
    client.wait().expect("a client");
    verdict.add_closed(&format!("{name} at the end"), &server.end(volume));
}

type Cipher = (&'static str, &'static str);
type Kind = fn(Cipher) -> Volume;

/// Each cipher with another dispatch. `turn` is another number for each kind of volume, so that any two of kind, cipher and
/// dispatch meet in some test.
#[track_caller]
fn serve_pairs(turn: usize, make: Kind) {
    let dispatches = DISPATCHES.into_iter().cycle().skip(turn);
    serve_each(make, CIPHERS.into_iter().zip(dispatches));
}

#[track_caller]
fn serve_each(make: Kind, ways: impl Iterator<Item = (Cipher, &'static str)>) {
    let Some(nbdcopy) = peer::require("nbdcopy").filter(|_| may_look()) else {
        return;
    };
    let mut verdict = Verdict::default();
    for (cipher, dispatch) in ways {
        serve_and_look(&mut verdict, &nbdcopy, &make(cipher), &["--dispatch", dispatch]);
    }
    verdict.tell();
}

macro_rules! servers {
    ($($test:ident $turn:literal $make:expr;)+) => {
        $(
            #[test]
            fn $test() {
                serve_pairs($turn, $make);
            }
        )+

        /// Every cipher with every dispatch.
        mod nightly {
            use super::{CIPHERS, DISPATCHES, Volume, serve_each};

            $(
                #[test]
                fn $test() {
                    let ways = CIPHERS.into_iter().flat_map(|cipher| DISPATCHES.map(|dispatch| (cipher, dispatch)));
                    serve_each($make, ways);
                }
            )+
        }
    };
}

servers! {
    servers_of_luks2_with_argon2id_hold_keys_in_guarded_memory_only 0 |cipher| {
        Volume::luks(&["--pbkdf-force-iterations=4", "--pbkdf-memory=1024", "--pbkdf-parallel=4"], cipher)
    };
    servers_of_luks2_with_pbkdf2_hold_keys_in_guarded_memory_only 1 |cipher| {
        Volume::luks(&["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"], cipher)
    };
    servers_of_luks1_hold_keys_in_guarded_memory_only 2 |cipher| {
        Volume::luks(&["--type", "luks1", "--pbkdf-force-iterations=1000"], cipher)
    };
    servers_of_plain_volumes_hold_keys_in_guarded_memory_only 0 Volume::plain;
    servers_of_plain_volumes_with_key_files_hold_keys_in_guarded_memory_only 1 Volume::plain_by_file;
    servers_of_volumes_opened_by_commands_hold_keys_in_guarded_memory_only 2 Volume::plain_by_command;
    servers_of_volumes_opened_by_helpers_hold_keys_in_guarded_memory_only 1 Volume::by_helper;
    servers_of_tables_as_arguments_hold_keys_in_guarded_memory_only 2 |cipher| Volume::table(cipher, true);
    servers_of_tables_from_standard_input_hold_keys_in_guarded_memory_only 0 |cipher| Volume::table(cipher, false);
}

/// Runs a verb to its end with the passphrase on standard input, and looks before it is gone.
#[track_caller]
fn run_and_look(arguments: &[&str], input: &[u8], secrets: &Secrets) -> Scan {
    let mut command = cryptline(arguments.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().expect("the program starts");
    let mut traced = Traced::attach(child).expect("root may trace");
    feed(traced.child(), input);
    let ended = traced.at_the_end(|process| scan(process, secrets));
    let (code, seen) = ended.expect("it ends");
    assert_eq!(code, 0);
    seen.expect("root may look")
}

#[test]
fn programs_that_tried_a_passphrase_leave_nothing_when_they_end() {
    if !may_look() {
        return;
    }
    let mut verdict = Verdict::default();
    let argon2 = &["--pbkdf-force-iterations=4", "--pbkdf-memory=1024", "--pbkdf-parallel=4"][..];
    let luks1 = &["--type", "luks1", "--pbkdf-force-iterations=1000"][..];
    for format in [argon2, luks1] {
        for cipher in CIPHERS {
            let volume = Volume::luks(format, cipher);
            let arguments: Vec<&str> = ["open", "--check"].into_iter().chain(volume.words()).collect();
            let seen = run_and_look(&arguments, &volume.input, &volume.secrets);
            verdict.add_closed(&format!("{arguments:?}"), &seen);
        }
    }
    verdict.tell();
}

#[test]
fn create_leaves_no_passphrase_when_it_ends() {
    if !may_look() {
        return;
    }
    let mut verdict = Verdict::default();
    for kind in ["luks1", "luks2"] {
        let (_folder, image) = Volume::image(0);
        let (image, phrase) = (text(&image), passphrase());
        let mut secrets = Secrets::default();
        secrets.add("the passphrase", &phrase);
        let arguments = [
            "create",
            &image,
            "--force",
            "--size",
            "32M",
            "--type",
            kind,
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "--key-file",
            "-",
        ];
        verdict.add_closed(kind, &run_and_look(&arguments, &phrase, &secrets));
    }
    verdict.tell();
}

/// The search itself: what lies in ordinary memory is found, and found to be there.
#[test]
fn a_key_that_was_left_behind_is_found() {
    let planted = passphrase();
    let mut secrets = Secrets::default();
    secrets.add("planted", &planted);
    let seen = scan(std::process::id(), &secrets).expect("one may look at oneself");
    assert!(!seen.leaked.is_empty());
    let guarded = cryptline_sys::SecretBuf::copy_of(&planted).expect("memory");
    let seen = scan(std::process::id(), &secrets).expect("one may look at oneself");
    assert!(seen.guarded.len() >= guarded.len() / 8, "{:?}", seen.guarded);
}
