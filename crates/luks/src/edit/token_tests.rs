//! Tokens: what is written, what stays, and what is refused.

use serde_json::{Value, json};

use super::{Edit, HeaderChange, TokenPlace, TokenSlots};
use crate::format::LuksVersion;
use crate::testing::{Image, PASSPHRASE};
use crate::{Error, ErrorKind, UnlockOptions, recovery};

const TOKEN: &str = r#"{"type":"other","keyslots":["0"],"strange":{"b":[1,-2,null],"a":"ä\n"}}"#;

fn edited(image: &mut Image, change: impl FnOnce(&Edit) -> Result<HeaderChange<'_>, Error>) {
    assert!(image.change(change).unwrap().warnings().is_empty());
}

fn set(image: &Image, token: &str, place: TokenPlace) -> Result<u32, Error> {
    Ok(image.load()?.set_token(token, place, TokenSlots::AsGiven)?.1)
}

fn at(id: u32, replace: bool) -> TokenPlace {
    TokenPlace { id: Some(id), replace }
}

#[test]
fn token_is_written_as_it_was_given_and_nothing_else_changes() {
    let mut image = Image::luks2();
    image.edit(|json| json["tokens"]["1"] = json!({"type": "one", "keyslots": [], "x": 1}));
    let before = image.json();
    edited(&mut image, |edit| {
        let set = edit.set_token(TOKEN, TokenPlace::default(), TokenSlots::AsGiven);
        let (change, id) = set?;
        assert_eq!(id, 0);
        Ok(change)
    });
    assert_eq!(image.read().unwrap().token_json(0).unwrap(), TOKEN);
    edited(&mut image, |edit| edit.remove_token(0));
    assert_eq!(image.json(), before);
}

#[test]
fn tokens_are_assigned_to_one_slot_or_all() {
    let mut image = Image::luks2();
    image.edit(|json| {
        let slot = json["keyslots"]["0"].clone();
        json["keyslots"]["5"] = slot;
        json["keyslots"]["5"]["area"]["offset"] = json!("360448");
        json["digests"]["0"]["keyslots"] = json!(["0", "5"]);
    });
    let mut keyslots = |slots| {
        edited(&mut image, |edit| {
            let set = edit.set_keyring_token("a:b", at(3, true), slots);
            Ok(set?.0)
        });
        let token = image.json()["tokens"]["3"].clone();
        assert_eq!(token.as_object().unwrap().len(), 3);
        assert_eq!(token["key_description"], "a:b");
        assert_eq!(token["type"], "luks2-keyring");
        token["keyslots"].clone()
    };
    assert_eq!(keyslots(TokenSlots::AsGiven), json!([]));
    assert_eq!(keyslots(TokenSlots::One(5)), json!(["5"]));
    assert_eq!(keyslots(TokenSlots::All), json!(["0", "5"]));
    edited(&mut image, |edit| edit.unassign_token(3, 0));
    assert_eq!(image.json()["tokens"]["3"]["keyslots"], json!(["5"]));
    let edit = image.load().unwrap();
    for refused in [edit.unassign_token(3, 0), edit.unassign_token(3, 7), edit.unassign_token(4, 0)] {
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::Parameters);
    }
    let none = edit.set_keyring_token("a", TokenPlace::default(), TokenSlots::One(7));
    assert!(matches!(none, Err(Error::SlotNotInUse(7))));
}

#[test]
fn what_is_no_token_is_refused() {
    let image = Image::luks2();
    let deep = format!(r#"{{"type":"a","keyslots":[],"x":{}{}}}"#, "[".repeat(60), "]".repeat(60));
    for (token, why) in [
        ("", "EOF"),
        ("x", "expected value"),
        ("[]", "not an object"),
        (r#"{"type":"a","keyslots":[]} x"#, "trailing"),
        (r#"{"keyslots":[]}"#, "no \"type\""),
        (r#"{"type":"","keyslots":[]}"#, "empty"),
        (r#"{"type":7,"keyslots":[]}"#, "not a string"),
        (r#"{"type":"a"}"#, "no \"keyslots\""),
        (r#"{"type":"a","keyslots":{}}"#, "not an array"),
        (r#"{"type":"a","keyslots":[0]}"#, "array of strings"),
        (r#"{"type":"a","keyslots":["7"]}"#, "'7' does not exist"),
        (r#"{"type":"a","keyslots":["00"]}"#, "'00' does not exist"),
        (r#"{"type":"luks2-new","keyslots":[]}"#, "'luks2-new'"),
        (r#"{"type":"luks2-keyring","keyslots":[]}"#, "exactly"),
        (r#"{"type":"luks2-keyring","keyslots":[],"key_description":""}"#, "exactly"),
        (r#"{"type":"luks2-keyring","keyslots":[],"key_description":"a","x":1}"#, "exactly"),
        (r#"{"type":"a","keyslots":[],"x":1.50}"#, "kept as they are"),
        (r#"{"type":"a","keyslots":[],"x":1,"x":2}"#, "kept as they are"),
        (&deep, "deeper"),
    ] {
        let error = set(&image, token, TokenPlace::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parameters, "{token}: {error}");
        assert!(error.to_string().contains(why), "{token}: {error}");
    }
    let large = json!({"type": "a", "keyslots": [], "x": "x".repeat(20_000)}).to_string();
    let error = set(&image, &large, TokenPlace::default()).unwrap_err();
    assert!(matches!(error, Error::MetadataFull { .. }), "{error}");
    let edit = image.load().unwrap();
    for description in ["", "a\0b", &"x".repeat(4096)] {
        let set = edit.set_keyring_token(description, TokenPlace::default(), TokenSlots::All);
        let error = set.err().unwrap();
        assert!(error.to_string().contains("1 to 4095"), "{error}");
    }
}

/// json-c counts those that hold something: what lies in 32 is not read. The header and its tokens are three of them.
#[test]
fn token_is_nested_as_deep_as_cryptsetup_reads_and_no_deeper() {
    let image = Image::luks2();
    let token = |arrays: usize, inside: &str| {
        let (open, close) = ("[".repeat(arrays), "]".repeat(arrays));
        format!(r#"{{"type":"a","keyslots":[],"x":{open}{inside}{close}}}"#)
    };
    for fits in [token(28, "1"), token(29, "")] {
        assert_eq!(set(&image, &fits, TokenPlace::default()).unwrap(), 0);
    }
    let error = set(&image, &token(29, "1"), TokenPlace::default()).unwrap_err();
    assert!(matches!(error, Error::InvalidToken(_)), "{error}");
    assert!(error.to_string().contains("deeper"), "{error}");
}

#[test]
fn numbers_are_taken_from_the_lowest_until_all_are_in_use() {
    let mut image = Image::luks2();
    assert_eq!(set(&image, TOKEN, at(31, false)).unwrap(), 31);
    let error = set(&image, TOKEN, at(32, true)).unwrap_err();
    assert!(error.to_string().contains("0 to 31"), "{error}");
    for id in 0..32 {
        edited(&mut image, |edit| {
            let set = edit.set_keyring_token("a", TokenPlace::default(), TokenSlots::AsGiven);
            let (change, given) = set?;
            assert_eq!(given, id);
            Ok(change)
        });
    }
    let error = set(&image, TOKEN, TokenPlace::default()).unwrap_err();
    assert!(matches!(error, Error::NoFreeToken(32)), "{error}");
    let error = set(&image, TOKEN, at(7, false)).unwrap_err();
    assert!(matches!(error, Error::TokenInUse(7)), "{error}");
    assert_eq!(set(&image, TOKEN, at(7, true)).unwrap(), 7);
    let edit = image.load().unwrap();
    let error = edit.remove_token(32).err().unwrap();
    assert!(matches!(error, Error::TokenNotInUse(32)), "{error}");
}

#[test]
fn recovery_key_has_a_slot_that_costs_little_and_a_token() {
    let mut image = Image::luks2();
    let key = image.key();
    let recovery_key = recovery::new_key().unwrap();
    edited(&mut image, |edit| {
        let (change, slot, token) = edit.add_recovery(&key, &recovery_key, None)?;
        assert_eq!((slot, token), (1, 0));
        Ok(change)
    });
    let json = image.json();
    assert_eq!(json["tokens"]["0"], json!({"type": "systemd-recovery", "keyslots": ["1"]}));
    let kdf = &json["keyslots"]["1"]["kdf"];
    let kdf: Vec<_> = ["type", "hash", "iterations"].map(|member| &kdf[member]).into();
    assert_eq!(kdf, [&json!("pbkdf2"), &json!("sha512"), &json!(1000)]);
    assert_eq!(json["keyslots"]["1"]["af"]["hash"], "sha512");
    let header = image.read().unwrap();
    assert_eq!(header.recovery_slots(None), [1]);
    assert_eq!(header.recovery_slots(Some(0)), [0; 0]);
    let mut device = image.device();
    let unlock = |passphrase: &[u8], device: &mut _| {
        let unlocked = header.unlock(device, passphrase, &UnlockOptions::default());
        unlocked.map(|unlocked| unlocked.slot).ok()
    };
    assert_eq!(unlock(&recovery_key, &mut device), Some(1));
    assert_eq!(unlock(PASSPHRASE, &mut device), Some(0));
}

#[test]
fn luks1_and_headers_that_must_be_left_alone_take_no_tokens() {
    let mut changing = Image::luks2();
    changing.edit(|json: &mut Value| {
        json["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
    });
    let luks1 = Image::luks1();
    for (image, kind, version) in
        [(changing, ErrorKind::Device, LuksVersion::Luks2), (luks1, ErrorKind::Parameters, LuksVersion::Luks1)]
    {
        let edit = image.load().unwrap();
        let place = TokenPlace::default();
        let key = [0; 64];
        for error in [
            edit.set_token(TOKEN, place, TokenSlots::AsGiven).err(),
            edit.set_keyring_token("a", place, TokenSlots::All).err(),
            edit.remove_token(0).err(),
            edit.unassign_token(0, 0).err(),
            edit.add_recovery(&key, b"key", None).err(),
        ] {
            let error = error.unwrap();
            assert_eq!(error.kind(), kind, "{version:?}: {error}");
        }
    }
}
