//! Tokens, recovery keys and key files of targets, as a program that uses the library has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cryptline::luks::edit::{NewSlot, TokenPlace, TokenSlots};
use cryptline::luks::format::{FormatOptions, LuksVersion};
use cryptline::{
    AskPin, Create, Error, ErrorKind, Header, NewToken, Open, Problem, SecretBuf, TokenMaker, TokenProvider,
    TokenRefusal, TokenRequest, TokenVolume, Tokens,
};
use serde_json::json;

use crate::common::cheap;

/// Time of a provider that has time, and one that it takes.
const HOUR: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_millis(20);

const TOKEN: &str = r#"{"type":"of-others","keyslots":["0"],"x":[]}"#;

/// A volume that "secret" opens.
fn volume(folder: &Path, version: LuksVersion) -> PathBuf {
    let path = folder.join("disk");
    let create = Create::new(&path).size(20 << 20).format(FormatOptions { version, ..cheap() });
    create.passphrase("secret").create().unwrap();
    path
}

#[test]
fn token_that_is_of_no_use_here_leaves_it_to_the_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let (place, slots) = (TokenPlace::default(), TokenSlots::AsGiven);
    let edited = Header::new(&disk).set_token(TOKEN, place, slots).unwrap();
    assert_eq!((edited.token, edited.slot), (Some(0), None));
    let open = |only| {
        let tokens = Tokens { only, ..Tokens::default() };
        Open::new(&disk).passphrase("secret").tokens(tokens)
    };
    let volume = open(false).open().unwrap();
    assert!(volume.warnings().is_empty(), "{:?}", volume.warnings());
    drop(volume);
    let error = open(true).open().err().unwrap();
    assert!(matches!(error.problem(), Problem::NoToken(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::NoKey);
    assert!(!error.to_string().contains("--"), "{error}");
    Header::new(&disk).remove_token(0).unwrap();
    let error = open(true).open().err().unwrap();
    assert!(matches!(error.problem(), Problem::NoSuchToken(_)));
    assert_eq!(error.kind(), ErrorKind::Parameters);
}

#[test]
fn recovery_key_opens_the_volume_however_it_is_typed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let header = Header::new(&disk).passphrase("secret");
    let (edited, key) = header.add_recovery_key(Some(3)).unwrap();
    assert_eq!((edited.slot, edited.token), (Some(3), Some(0)));
    for typed in [key.to_ascii_uppercase(), key.to_vec()] {
        let unlocked = Open::new(&disk).passphrase(&typed).unlock().unwrap();
        assert_eq!(unlocked.slot, Some(3));
    }
    let new = NewSlot { kdf: cheap().kdf, cost: cheap().cost, ..NewSlot::default() };
    let header = Header::new(&disk).passphrase(key.to_ascii_uppercase());
    header.new_passphrase("new").add_key(&new).unwrap();
    assert!(Open::new(&disk).passphrase("new").unlock().is_ok());
    let wrong = Header::new(&disk).passphrase("wrong");
    assert_eq!(wrong.add_recovery_key(None).err().unwrap().kind(), ErrorKind::NoKey);
}

#[test]
fn luks1_has_neither_tokens_nor_recovery_keys() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks1);
    let before = fs::read(&disk).unwrap();
    let header = || Header::new(&disk).passphrase("secret");
    let set = header().set_token(TOKEN, TokenPlace::default(), TokenSlots::All);
    let added = header().add_recovery_key(None).map(|(edited, _)| edited);
    for refused in [set, added] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Parameters);
    }
    assert!(Open::new(&disk).passphrase("secret").tokens(Tokens::default()).unlock().is_ok());
    assert!(fs::read(&disk).unwrap() == before);
}

#[test]
fn key_file_of_a_target_opens_it_unless_another_key_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let key = folder.path().join("key");
    fs::write(&key, "secret").unwrap();
    let target = format!("{}?key-file={}", disk.display(), key.display());
    let volume = Open::new(&target).open().unwrap();
    assert_eq!(volume.info().source, disk.to_str().unwrap());
    drop(volume);
    let parsed = target.parse().unwrap();
    assert!(Open::target(parsed).unlock().is_ok());
    let other = Open::new(&target).passphrase("wrong").unlock();
    assert_eq!(other.err().unwrap().kind(), ErrorKind::NoKey);
    assert!(Open::new("ram:1M?key-file=k").open().is_err());
}

/// Refuses each token, and notes which it was, if it may count, and how much time is left.
#[derive(Debug)]
struct Refusing {
    kind: &'static str,
    asked: Mutex<Vec<(u32, bool, Duration)>>,
}

impl Refusing {
    fn new(kind: &'static str) -> Arc<Self> {
        Arc::new(Self { kind, asked: Mutex::default() })
    }
}

impl TokenProvider for Refusing {
    fn kind(&self) -> &str {
        self.kind
    }

    fn patience(&self) -> Duration {
        HOUR
    }

    fn passphrase(&self, request: &TokenRequest<'_>) -> Result<SecretBuf, TokenRefusal> {
        assert!(request.json().contains(self.kind));
        let deadline = request.deadline();
        let left = deadline.saturating_duration_since(Instant::now());
        self.asked.lock().unwrap().push((request.id, request.may_count, left));
        let pin = request.ask_pin()?;
        assert_eq!(pin.as_deref(), Some(&b"1234"[..]));
        assert!(request.deadline() >= deadline + PAUSE, "the time in which somebody types counts");
        sleep(PAUSE);
        Err(TokenRefusal::Counted("of no use".to_owned()))
    }
}

#[test]
fn tokens_of_a_provider_share_its_time_but_for_what_somebody_types_and_one_failure_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    for kind in ["a", "a", "b"] {
        let token = json!({"type": kind, "keyslots": ["0"]}).to_string();
        Header::new(&disk).set_token(&token, TokenPlace::default(), TokenSlots::AsGiven).unwrap();
    }
    let (a, b) = (Refusing::new("a"), Refusing::new("b"));
    let pin = AskPin::new(|request| {
        assert!(request.token.is_some());
        sleep(PAUSE);
        Ok(SecretBuf::copy_of(b"1234").unwrap())
    });
    let providers: Vec<Arc<dyn TokenProvider>> = vec![a.clone(), b.clone()];
    let tokens = Tokens { providers, pin: Some(pin), ..Tokens::default() };
    let begun = Instant::now();
    let unlocked = Open::new(&disk).passphrase("secret").tokens(tokens).unlock().unwrap();
    let taken = begun.elapsed();
    assert_eq!(unlocked.token, None);
    let said: Vec<_> =
        unlocked.warnings.iter().map(ToString::to_string).filter(|it| it.contains("of no use")).collect();
    assert_eq!(said, [0, 1, 2].map(|id| format!("skipping token {id}: of no use")));
    let [(0, true, first), (1, false, second)] = a.asked.lock().unwrap()[..] else { panic!("{a:?}") };
    assert!(first <= HOUR && second <= HOUR - PAUSE, "{a:?}");
    assert!(second >= HOUR + PAUSE - taken, "{a:?}");
    assert!(matches!(b.asked.lock().unwrap()[..], [(2, true, left)] if left <= HOUR), "{b:?}");
}

/// Makes tokens whose passphrase is in them.
#[derive(Debug, Default)]
struct Telling {
    /// Steps so far.
    done: Arc<Mutex<Vec<&'static str>>>,
}

impl TokenMaker for Telling {
    type Prepared = u8;

    fn prepare(&mut self, volume: &TokenVolume<'_>) -> cryptline::Result<u8> {
        assert_eq!(volume.uuid(), Some(volume.header.uuid()));
        self.done.lock().unwrap().push("prepared");
        Ok(7)
    }

    fn make(&self, _: &TokenVolume<'_>, prepared: u8) -> cryptline::Result<NewToken> {
        self.done.lock().unwrap().push("made");
        let json = json!({"type": "telling", "keyslots": [], "says": format!("told {prepared}")});
        Ok(NewToken { secret: SecretBuf::copy_of(b"told 7").unwrap(), json, warning: None })
    }
}

impl TokenProvider for Telling {
    fn kind(&self) -> &str {
        "telling"
    }

    fn passphrase(&self, request: &TokenRequest<'_>) -> Result<SecretBuf, TokenRefusal> {
        let json: serde_json::Value = serde_json::from_str(&request.json()).unwrap();
        let Some(says) = json["says"].as_str() else {
            return Err(Error::from_keys(ErrorKind::Busy, "it says nothing").into());
        };
        Ok(SecretBuf::copy_of(says.as_bytes())?)
    }
}

#[test]
fn token_that_was_bound_opens_the_volume_and_what_ends_the_opening_leaves_nothing_to_the_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let disk = volume(folder.path(), LuksVersion::Luks2);
    let before = fs::read(&disk).unwrap();
    let maker = Telling::default();
    let done = Arc::clone(&maker.done);
    let wrong = Header::new(&disk).passphrase("wrong").bind(maker, None);
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::NoKey);
    assert_eq!(*done.lock().unwrap(), ["prepared"]);
    assert!(fs::read(&disk).unwrap() == before);
    let edited = Header::new(&disk).passphrase("secret").bind(Telling::default(), Some(3)).unwrap();
    assert_eq!((edited.slot, edited.token), (Some(3), Some(0)));
    let tokens = || Tokens { providers: vec![Arc::new(Telling::default())], ..Tokens::default() };
    let unlocked = Open::new(&disk).tokens(tokens()).unlock().unwrap();
    assert_eq!((unlocked.slot, unlocked.token), (Some(3), Some(0)));
    let place = TokenPlace { id: Some(0), replace: true };
    let silent = r#"{"type":"telling","keyslots":["3"]}"#;
    Header::new(&disk).set_token(silent, place, TokenSlots::AsGiven).unwrap();
    let error = Open::new(&disk).passphrase("secret").tokens(tokens()).unlock().err().unwrap();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Busy, "it says nothing".to_owned()));
}
