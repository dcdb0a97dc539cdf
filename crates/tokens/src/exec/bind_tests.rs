//! Key slots of helpers: rotations that are cut at each write and call, answers and tokens that make no sense.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use base64ct::{Base64, Encoding};
use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind};
use cryptline::{Create, Open, SecretBuf, Tokens};
use cryptline_testkit::volatile_medium;
use serde_json::json;

use super::*;
use crate::exec::{HelperAnswer, HelperCall};

const PASSPHRASE: &str = "first";

/// Keeps what it was to wrap, under the volume's name.
#[derive(Debug, Default)]
struct Store {
    kept: Mutex<BTreeMap<String, (String, String)>>,
    calls: Mutex<usize>,
    /// The call that fails, and all after it.
    fails_at: Option<usize>,
}

impl Store {
    fn failing(&self, fails_at: usize) -> Self {
        Self { kept: Mutex::new(self.kept.lock().unwrap().clone()), fails_at: Some(fails_at), ..Self::default() }
    }
}

impl Helpers for Store {
    fn operator(&self, helper: &str) -> Option<&[u8]> {
        (helper == "store").then_some(b"{\"address\": \"here\"}")
    }

    fn run(&self, call: &HelperCall<'_>) -> std::result::Result<HelperAnswer, String> {
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        if self.fails_at.is_some_and(|at| *calls > at) {
            return Err("cannot be run".to_owned());
        }
        let request: Value = serde_json::from_slice(call.request).unwrap();
        assert_eq!(request["operator"], json!({"address": "here"}));
        assert_eq!(request["header"], json!({"key": "disk"}));
        let aad = request["aad"].as_str().unwrap().to_owned();
        assert_eq!(aad, format!("cryptline:{}", request["uuid"].as_str().unwrap()));
        let mut kept = self.kept.lock().unwrap();
        let said = match call.action {
            "wrap" => {
                let name = Base64::encode_string(format!("{}", kept.len()).as_bytes());
                kept.insert(name.clone(), (aad, request["secret"].as_str().unwrap().to_owned()));
                json!({"version": 1, "wrapped": name, "key_version": 7})
            }
            "unwrap" => match kept.get(request["wrapped"].as_str().unwrap()) {
                Some((bound, secret)) if *bound == aad => json!({"version": 1, "secret": secret}),
                _ => {
                    let error = json!({"error": {"code": "denied", "message": "no such \"secret\""}});
                    return Ok(answer(Some(1), &error.to_string()));
                }
            },
            _ => json!({"version": 1}),
        };
        Ok(answer(Some(0), &said.to_string()))
    }
}

fn answer(status: Option<i32>, output: &str) -> HelperAnswer {
    HelperAnswer { status, output: SecretBuf::copy_of(output.as_bytes()).unwrap() }
}

volatile_medium!(Failing, cryptline::Medium);

/// A volume that the store opens as well.
fn volume(helpers: &Arc<dyn Helpers>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    let format =
        FormatOptions { kdf: Some(KdfKind::Pbkdf2), cost, data_offset: Some(3 << 20), ..FormatOptions::default() };
    Create::new(&path).size(4 << 20).format(format).passphrase(PASSPHRASE).create().unwrap();
    let header = Header::new(&path).passphrase(PASSPHRASE);
    let maker = BindHelper::new(&**helpers, "store", r#"{"key": "disk"}"#, false).unwrap();
    let edited = header.bind(maker, None).unwrap();
    assert_eq!((edited.slot, edited.token), (Some(1), Some(0)));
    std::fs::read(&path).unwrap()
}

/// The volume key, by a token alone, and the tokens.
fn opened(disk: &[u8], helpers: &Arc<dyn Helpers>) -> (Option<Vec<u8>>, Vec<ExecToken>) {
    let header = cryptline::luks::read(&mut io::Cursor::new(disk), disk.len() as u64).unwrap();
    let provider = ExecTokens(Some(Arc::clone(helpers)));
    let tokens = Tokens { only: true, providers: vec![Arc::new(provider)], ..Tokens::default() };
    let key = match Open::medium(Failing::new(disk, 0)).tokens(tokens).unlock() {
        Ok(unlocked) => Some(unlocked.key.to_vec()),
        Err(error) => {
            assert!(matches!(error.problem(), Problem::NoToken(_)), "{error}");
            None
        }
    };
    let ids = header.info().tokens.into_iter().map(|token| token.id);
    let all = ids.map(|id| ExecToken::parse(&header.token_json(id).unwrap()).unwrap());
    (key, all.collect())
}

/// A run over what a cut has left ends with the new key slot alone.
fn goes_on(left: &[u8], helpers: &Arc<dyn Helpers>, key: &[u8], old: &ExecToken, what: &str) {
    let (before, _) = opened(left, helpers);
    assert_eq!(before.as_deref(), Some(key), "{what}: what is left does not open");
    let medium = Failing::new(left, usize::MAX);
    rotate(Header::medium(Arc::clone(&medium)), helpers, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    let [after, ..] = &*medium.0.survivors() else { panic!("no disk") };
    let (found, tokens) = opened(after, helpers);
    assert_eq!(found.as_deref(), Some(key), "{what}");
    let [new] = &*tokens else { panic!("{what}: {tokens:?}") };
    assert_eq!(new.replaces, None, "{what}");
    assert_ne!(new.wrapped, old.wrapped, "{what}");
}

#[test]
fn rotation_that_is_cut_at_any_write_opens_and_goes_on() {
    let store = Arc::new(Store::default());
    let helpers: Arc<dyn Helpers> = Arc::clone(&store) as _;
    let disk = volume(&helpers);
    let (key, tokens) = opened(&disk, &helpers);
    let key = key.expect("a token opens it");
    for left in 0.. {
        let medium = Failing::new(&disk, left);
        let done = rotate(Header::medium(Arc::clone(&medium)), &helpers, None);
        for (number, bytes) in medium.0.survivors().iter().enumerate() {
            if done.is_err() {
                goes_on(bytes, &helpers, &key, &tokens[0], &format!("cut at step {left}, survivor {number}"));
            }
        }
        if done.is_ok() {
            assert!(left > 4, "hardly anything was written");
            return;
        }
    }
}

#[test]
fn rotation_that_is_cut_at_any_call_of_the_helper_opens_and_goes_on() {
    let store = Arc::new(Store::default());
    let helpers: Arc<dyn Helpers> = Arc::clone(&store) as _;
    let disk = volume(&helpers);
    let (key, tokens) = opened(&disk, &helpers);
    let key = key.expect("a token opens it");
    for calls in 0.. {
        let failing = Arc::new(store.failing(calls));
        let medium = Failing::new(&disk, usize::MAX);
        let done = rotate(Header::medium(Arc::clone(&medium)), &(Arc::clone(&failing) as _), None);
        // The store works again, with all that it has kept.
        let again: Arc<dyn Helpers> =
            Arc::new(Store { kept: Mutex::new(failing.kept.lock().unwrap().clone()), ..Store::default() });
        let [bytes, ..] = &*medium.0.survivors() else { panic!("no disk") };
        if calls < 3 {
            assert!(*bytes == disk, "something was written before the new secret was proved");
        }
        if done.is_ok() {
            assert_eq!(calls, 4, "old unwrapped; new wrapped, unwrapped, and unwrapped from what the medium holds");
            return;
        }
        goes_on(bytes, &again, &key, &tokens[0], &format!("cut at call {calls}"));
    }
}

#[test]
fn answers_that_are_none_change_nothing() {
    #[derive(Debug)]
    struct Says(Option<i32>, &'static str);
    impl Helpers for Says {
        fn operator(&self, _: &str) -> Option<&[u8]> {
            Some(b"{}")
        }

        fn run(&self, _: &HelperCall<'_>) -> std::result::Result<HelperAnswer, String> {
            Ok(answer(self.0, self.1))
        }
    }
    let store: Arc<dyn Helpers> = Arc::new(Store::default());
    let disk = volume(&store);
    for (status, output, why) in [
        (Some(0), "", "has not answered as it should"),
        (Some(0), "junk", "has not answered as it should"),
        (Some(0), "{}", "has not answered as it should"),
        (Some(0), r#"{"version":1,"version":1}"#, "has not answered as it should"),
        (Some(0), r#"{"version":1,"secret":"QQ\u003d\u003d"}"#, "has not answered as it should"),
        (Some(0), r#"{"version":2,"secret":"QQ=="}"#, "version of the protocol"),
        (Some(0), r#"{"version":1}"#, "without a wrapped secret"),
        (Some(0), r#"{"version":1,"wrapped":"?"}"#, "without a wrapped secret"),
        (Some(0), r#"{"version":1,"wrapped":"QQ==","secret":"QQ=="}"#, "does not unwrap what it has wrapped"),
        (Some(0), r#"{"version":1,"wrapped":"QQ==","secret":"?"}"#, "not in base64"),
        (Some(3), "", "exit status 3"),
        (Some(75), "", "try again later"),
        (
            Some(1),
            r#"{"error":{"code":"unavailable","message":"it \"sleeps\""}}"#,
            "says: it \"sleeps\"; try again later",
        ),
        (Some(1), r#"{"error":{"code":"denied","message":"no"}}"#, "says: no"),
        (None, "", "signal"),
    ] {
        let says: Arc<dyn Helpers> = Arc::new(Says(status, output));
        let medium = Failing::new(&disk, 0);
        let header = Header::medium(medium).passphrase(PASSPHRASE);
        let maker = BindHelper::new(&*says, "store", "{}", false).unwrap();
        let error = header.bind(maker, None).unwrap_err().to_string();
        assert!(error.contains(why), "{output}: {error}");
        let (key, _) = opened(&disk, &says);
        assert_eq!(key, None, "{output}");
    }
}

#[test]
fn tokens_that_are_damaged_run_nothing() {
    let good =
        json!({"type": EXEC_TOKEN, "version": 1, "keyslots": ["1"], "helper": "a", "config": {}, "wrapped": "QQ=="});
    assert!(ExecToken::parse(&good.to_string()).is_ok());
    for (member, value) in [
        ("type", json!("other")),
        ("version", json!(2)),
        ("helper", json!("../a")),
        ("helper", json!("A")),
        ("helper", json!("")),
        ("helper", json!("a".repeat(33))),
        ("helper", json!(null)),
        ("config", json!("text")),
        ("wrapped", json!("?")),
        ("wrapped", json!(1)),
        ("replaces", json!(0)),
        ("replaces", json!("x")),
    ] {
        let mut token = good.clone();
        token[member] = value;
        assert!(ExecToken::parse(&token.to_string()).is_err(), "{token}");
    }
}
