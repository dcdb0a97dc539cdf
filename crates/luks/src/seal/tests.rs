//! Vectors of docs/header-seal.md, which other programs check themselves against; seals that are no seals; and each member
//! of many headers changed.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::luks2::binary::HeaderCopy;
use crate::luks2::metadata::Metadata;
use crate::testing::{Image, paths};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const V1: &str = r#"{"config":{"flags":[],"json_size":"12288","keyslots_size":"16744448","requirements":[]},"digests":{"0":{"digest":"QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=","hash":"sha256","iterations":1000,"salt":"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=","segments":["0"],"type":"pbkdf2"}},"luks":2,"segments":{"0":{"encryption":"aes-xts-plain64","iv_tweak":"0","offset":"16777216","sector_size":4096,"size":"dynamic","type":"crypt"}},"uuid":"01234567-89ab-cdef-0123-456789abcdef"}"#;
const V1_MEASURE: &str = "b7704e1d5b00224ae12a8b9b4e2386a16f5daad4214f887c4383c06acd5c9441";
const V1_MAC: &str = "XCcU2441Nc2KjbwSiluGecaqKQFepFXyLKRI3nvSBxM=";
const KEYSLOTS: Covers = Covers { keyslots: true, tokens: false };
const ALL: Covers = Covers { keyslots: true, tokens: true };

fn key() -> Vec<u8> {
    (0..64).collect()
}

fn slot() -> Value {
    let salt = Base64::encode_string(&(0..32).collect::<Vec<u8>>());
    json!({
        "type": "luks2", "key_size": 64,
        "af": {"type": "luks1", "stripes": 4000, "hash": "sha256"},
        "area": {"type": "raw", "offset": "32768", "size": "258048", "encryption": "aes-xts-plain64", "key_size": 64},
        "kdf": {"type": "pbkdf2", "hash": "sha256", "iterations": 1000, "salt": salt},
    })
}

/// The header of V1, with this JSON changed.
fn header(change: impl FnOnce(&mut Value)) -> LuksHeader {
    let mut json: Value = serde_json::from_str(V1).unwrap();
    json["keyslots"] = json!({"0": slot()});
    json["tokens"] = json!({});
    json["digests"]["0"]["keyslots"] = json!(["0"]);
    json["config"] = json!({"json_size": "12288", "keyslots_size": "16744448"});
    for member in ["luks", "uuid"] {
        json.as_object_mut().unwrap().shift_remove(member);
    }
    change(&mut json);
    with_json(json).unwrap()
}

fn with_json(json: Value) -> Result<LuksHeader, String> {
    static READ: OnceLock<LuksHeader> = OnceLock::new();
    let read = READ.get_or_init(|| Image::luks2().read().unwrap());
    let LuksHeader::V2(mut header) = read.clone() else { panic!("LUKS2") };
    header.binary.uuid = UUID.to_owned();
    header.metadata = Metadata::parse(json)?;
    Ok(LuksHeader::V2(header))
}

fn v2() -> LuksHeader {
    header(|json| {
        let mut text: Value = json!({"config": null, "tokens": null, "digests": null});
        for (name, value) in json.as_object().unwrap().iter().rev() {
            text[name] = value.clone();
        }
        *json = text;
        json["keyslots"]["1"] = slot();
        json["digests"]["0"]["keyslots"] = json!(["0", "1"]);
        json["config"]["flags"] = json!(["no-read-workqueue"]);
        json["tokens"]["0"] =
            json!({"key_description": "caf\u{e9}\n\"/\u{7f}", "type": "luks2-keyring", "keyslots": ["1"]});
    })
}

fn check(name: &str, header: &LuksHeader, covers: Covers, counter: u64, measure: &str, mac: &str) {
    let subject = header.subject(covers).unwrap();
    assert_eq!(base16ct::lower::encode_string(&subject.measure(MeasureHash::Sha256)), measure, "{name}");
    let seal = Seal::new(&key(), SealKind::VolumeKey, &subject, covers, counter).unwrap();
    assert_eq!(seal.to_json()["mac"], mac, "{name}");
    assert_eq!(seal.key_id, "68908cb29252f0475f6ca3135ebc719a", "{name}");
    seal.verify(header, &key()).unwrap();
    assert_eq!(Seal::parse(&seal.to_json()).unwrap(), seal, "{name}");
}

fn sealed_v1() -> Seal {
    let subject = header(|_| ()).subject(Covers::default()).unwrap();
    Seal::new(&key(), SealKind::VolumeKey, &subject, Covers::default(), 1).unwrap()
}

#[test]
fn vectors_are_as_documented() {
    let v1 = header(|_| ());
    assert_eq!(v1.subject(Covers::default()).unwrap().canonical(), V1);
    check("V1", &v1, Covers::default(), 1, V1_MEASURE, V1_MAC);
    let sha384 = v1.subject(Covers::default()).unwrap().measure(MeasureHash::Sha384);
    let expected = "cc31466d62bad87dd99eb7e14478ce4855be1fa83bafdd36aaf71a9e8b5f497e14414f896be6385fcd712d9d202cff8e";
    assert_eq!(base16ct::lower::encode_string(&sha384), expected);
    let mac_key = derived(&key(), b"mac").unwrap();
    let expected = "3d6615aaf5f21dbaf77663e4f887b3e35eaba6ec60b8d59430e58e269a10b4c0";
    assert_eq!(base16ct::lower::encode_string(&mac_key), expected);

    check("V2", &v2(), Covers::default(), 1, V1_MEASURE, V1_MAC);
    let measure = "79d7f30dff9baf59fd1c51caa27e8e5272e85df75bcf17da56212fd826ca6b6c";
    check("V3", &v1, KEYSLOTS, 2, measure, "/JWSvtc8mjRr9guX8wpkDdEL7Tg5OObvFGzEpecGVpE=");
    let discards = header(|json| json["config"]["flags"] = json!(["allow-discards"]));
    let measure = "ec05666051f1f0d6b4d6e71749a86e322e2f4409effe433e926d4a13e6a9f032";
    check("V5", &discards, Covers::default(), 1, measure, "GMeBaO+IENVYkAU5sLR601lPBEFAQrgyXZwIwk5U9aU=");
    let measure = "1669ec8324b2519e9f57324cde7ddc2042f43013c9453d809f8176cab33a570a";
    check("V4", &v2(), ALL, 3, measure, "W2YtQMHd7+YXHHwg9i196+bRVBN2ebVZ4p99aK4WUZ8=");
}

#[test]
fn another_cipher_and_another_key_are_told_apart() {
    let broken = header(|json| json["segments"]["0"]["encryption"] = json!("aes-xts-null"));
    let measure = broken.subject(Covers::default()).unwrap().measure(MeasureHash::Sha256);
    let expected = "a6bec5daab4d66145a1724b3143249894e5bf887e53725392398f40367cea99b";
    assert_eq!(base16ct::lower::encode_string(&measure), expected);
    let seal = sealed_v1();
    assert!(matches!(seal.verify(&broken, &key()), Err(Error::Seal(SealError::Changed))));
    let other = [0x0b; 32];
    assert!(matches!(seal.verify(&header(|_| ()), &other), Err(Error::Seal(SealError::OtherKey(..)))));

    let v1 = header(|_| ());
    let subject = v1.subject(Covers::default()).unwrap();
    let seal = Seal::new(&other, SealKind::File, &subject, Covers::default(), 1).unwrap();
    assert_eq!(seal.key_id, "9c06c43c101b4eebb43304bec21abbec");
    assert_eq!(seal.to_json()["mac"], "ICOYl01u5XSZoyc5/RUagM2OTUSxJlzyNfldD4OE21Y=");
    seal.verify(&v1, &other).unwrap();
}

#[test]
fn luks1_is_sealed_as_documented() {
    let LuksHeader::V1(mut luks1) = Image::luks1().read().unwrap() else { panic!("LUKS1") };
    luks1.cipher_name = "aes".into();
    luks1.cipher_mode = "xts-plain64".into();
    luks1.hash = "sha256".into();
    luks1.payload_sector = 4096;
    luks1.key_len = 64;
    luks1.digest = std::array::from_fn(|at| u8::try_from(at).unwrap());
    luks1.digest_salt = std::array::from_fn(|at| u8::try_from(at).unwrap());
    luks1.digest_iterations = 1000;
    luks1.uuid = UUID.into();
    let v8 = LuksHeader::V1(luks1);
    let measure = "6b7d3e8169f99fd6ce231c76f697750711ed49fde341affc4b6192b8989b176f";
    check("V8", &v8, Covers::default(), 1, measure, "uVopTNtsLxjHvnxEFspEeqLM5OVhYSiG0sUbCBnXTfY=");
    assert!(v8.subject(KEYSLOTS).unwrap().canonical().contains(r#""keyslots":{"0":{"iterations":1000,"salt":""#));
    v8.subject(ALL).unwrap_err();
}

#[test]
fn what_is_no_seal_is_none() {
    let good = sealed_v1().to_json();
    Seal::parse(&good).unwrap();
    let wrong = [
        ("type", json!("other")),
        ("version", json!(2)),
        ("version", json!(1.0)),
        ("alg", json!("hmac-md5")),
        ("key", json!("tpm")),
        ("key_id", json!("68908CB29252F0475F6CA3135EBC719A")),
        ("key_id", json!("00")),
        ("keyslots", json!(["0"])),
        ("covers", json!(["tokens", "keyslots"])),
        ("covers", json!(["keyslots", "keyslots"])),
        ("covers", json!(["label"])),
        ("covers", json!("keyslots")),
        ("counter", json!(1)),
        ("counter", json!("01")),
        ("counter", json!("-1")),
        ("counter", json!("18446744073709551616")),
        ("mac", json!("AAAA")),
        ("mac", json!(null)),
        ("more", json!(1)),
    ];
    for (member, value) in wrong {
        let mut seal = good.clone();
        seal[member] = value.clone();
        assert!(matches!(Seal::parse(&seal), Err(SealError::Malformed(_))), "{member}: {value}");
    }
    for member in MEMBERS {
        let mut seal = good.clone();
        seal.as_object_mut().unwrap().shift_remove(member);
        Seal::parse(&seal).unwrap_err();
    }
    let text = good.to_string().replacen('{', "{\"counter\":\"2\",", 1);
    assert!(matches!(Seal::parse_text(text.as_bytes()), Err(SealError::Malformed(_))));
}

#[test]
fn every_member_of_the_head_is_under_the_mac() {
    let v1 = header(|_| ());
    for (member, value) in [("counter", json!("2")), ("covers", json!(["keyslots"])), ("key", json!("file"))] {
        let mut seal = sealed_v1().to_json();
        seal[member] = value;
        let seal = Seal::parse(&seal).unwrap();
        assert!(matches!(seal.verify(&v1, &key()), Err(Error::Seal(SealError::Changed))), "{member}");
    }
}

#[test]
fn header_has_one_seal_or_none() {
    let seal = sealed_v1().to_json();
    assert_eq!(header(|_| ()).seal(), Err(SealError::Missing));
    assert_eq!(header(|json| json["tokens"]["3"] = seal.clone()).seal().unwrap(), sealed_v1());
    let twice = header(|json| json["tokens"] = json!({"3": seal.clone(), "4": seal.clone()}));
    assert_eq!(twice.seal(), Err(SealError::Several(2)));
    let odd = header(|json| json["tokens"]["3"] = json!({"type": SEAL_TOKEN, "keyslots": 7}));
    assert!(matches!(odd.seal(), Err(SealError::Malformed(_))));
    assert_eq!(Image::luks1().read().unwrap().seal(), Err(SealError::Missing));
}

#[test]
fn json_that_programs_read_differently_is_not_sealed() {
    for (find, replace) in [
        ("\"sector_size\":4096", "\"sector_size\":4096,\"x\":1.5"),
        ("\"sector_size\":4096", "\"sector_size\":4096,\"x\":90071992547409930"),
        ("\"sector_size\":4096", "\"sector_size\":4096,\"\u{e9}\":1"),
        ("\"sector_size\":4096", "\"sector_size\":512,\"sector_size\":4096"),
    ] {
        let mut image = Image::luks2();
        let json = image.json().to_string();
        assert!(json.contains(find), "{json}");
        image.set_json(json.replacen(find, replace, 1).as_bytes());
        let covers = Covers::default();
        let refused = image.read().unwrap().subject(covers);
        assert!(matches!(refused, Err(SealError::NoCanonicalForm(_))), "{replace}");
    }
    let float_in_a_token = header(|json| json["tokens"]["0"] = json!({"type": "x", "keyslots": [], "x": 1.5}));
    float_in_a_token.subject(KEYSLOTS).unwrap();
    float_in_a_token.subject(ALL).unwrap_err();
}

#[test]
fn volume_that_is_being_reencrypted_has_no_subject() {
    for change in [
        (|json| json["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]})) as fn(&mut Value),
        |json| json["segments"]["0"]["flags"] = json!(["in-reencryption"]),
        |json| json["segments"]["0"]["flags"] = json!(["backup-final"]),
    ] {
        assert_eq!(header(change).subject(Covers::default()), Err(SealError::Reencryption));
    }
}

#[test]
fn both_copies_are_read_alike() {
    let mut image = Image::luks2();
    image.edit_binary(HeaderCopy::Primary, |binary| binary.uuid = UUID.to_owned());
    image.edit_binary(HeaderCopy::Secondary, |binary| binary.uuid = UUID.to_owned());
    let subject = image.read().unwrap().subject(ALL).unwrap();
    image.bytes[..512].fill(0);
    let header = crate::look(&mut image.device(), image.size()).unwrap();
    assert_eq!(header.subject(ALL).unwrap(), subject);
}

/// The flags of those that headers are made with here that change nothing.
const UNFELT: [&str; 2] = ["no-read-workqueue", "same-cpu-crypt"];

/// Tells if what lies at `path` of a JSON area is in the subject: by its place alone.
fn is_covered(path: &str, covers: Covers, before: &Value, after: &Value) -> bool {
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match *parts.as_slice() {
        ["segments", ..] => true,
        ["keyslots", ..] => covers.keyslots,
        ["tokens", id, ..] => {
            let is_other = |json: &Value| json["tokens"][id].is_object() && json["tokens"][id]["type"] != SEAL_TOKEN;
            covers.tokens && (is_other(before) || is_other(after))
        }
        ["tokens"] => covers.tokens,
        ["digests", _, "keyslots", ..] if !covers.keyslots => false,
        ["digests", id, ..] => {
            let of_data = |json: &Value| json["digests"][id]["segments"].get(0).is_some();
            of_data(before) || of_data(after)
        }
        ["config", "flags", _] => {
            let flag = |json: &Value| json.pointer(path)?.as_str().map(str::to_owned);
            let is_felt = |json: &Value| flag(json).is_some_and(|flag| !UNFELT.contains(&&*flag));
            let is_gone = before["config"]["flags"].as_array().unwrap().len()
                > after["config"]["flags"].as_array().unwrap().len();
            is_felt(before) || !is_gone && is_felt(after)
        }
        ["config", "flags"] => true,
        ["config", "requirements"] => false,
        ["config", "requirements", other, ..] => other == "mandatory",
        ["config", ..] | ["digests"] => true,
        _ => false,
    }
}

/// Another value in the place of `value`, as like it as can be.
fn altered(value: &Value, salt: u64) -> Value {
    match value {
        Value::String(text) if text.parse::<u64>().is_ok() => {
            let other = (salt % 31 * 4096 + 8192).to_string();
            if other == *text { json!("4096") } else { json!(other) }
        }
        Value::String(text) => json!(format!("{text}{}", salt % 10)),
        Value::Number(number) => json!(number.as_u64().unwrap_or(0) + 1 + salt % 7),
        Value::Bool(yes) => json!(!yes),
        Value::Null => json!(salt),
        Value::Array(items) => {
            let mut items = items.clone();
            items.push(json!(format!("x{salt}")));
            Value::Array(items)
        }
        Value::Object(members) => {
            let mut members = members.clone();
            members.insert(format!("x{salt}"), json!(salt));
            Value::Object(members)
        }
    }
}

prop_compose! {
    /// A header as programs make them, with more of everything.
    fn any_header()(
        slots in 1u32..5,
        unbound in any::<bool>(),
        tokens in 0u32..4,
        flags in proptest::sample::subsequence(
            vec!["allow-discards", "no-read-workqueue", "same-cpu-crypt", "unknown"], 0..4),
        has_requirements in any::<bool>(),
        segments in 1u32..4,
        extra in any::<u16>(),
        kept in any::<bool>(),
    ) -> Value {
        let mut json: Value = serde_json::from_str(V1).unwrap();
        let root = json.as_object_mut().unwrap();
        root.shift_remove("luks");
        root.shift_remove("uuid");
        json["config"] = json!({"json_size": "12288", "keyslots_size": "16744448", "flags": flags});
        if has_requirements {
            json["config"]["requirements"] = json!({"mandatory": ["inline-hw-tags"], "other": [extra]});
        }
        let names: Vec<_> = (0..slots).map(|number| number.to_string()).collect();
        json["keyslots"] = json!({});
        names.iter().for_each(|name| json["keyslots"][name] = slot());
        json["digests"]["0"]["keyslots"] = json!(names);
        json["digests"]["0"]["segments"] = json!((0..segments).map(|number| number.to_string()).collect::<Vec<_>>());
        for number in 0..segments {
            json["segments"][number.to_string()] = json!({
                "type": "crypt", "offset": (u64::from(number + 1) << 24).to_string(),
                "size": if number + 1 == segments { "dynamic".to_owned() } else { (1 << 24).to_string() },
                "iv_tweak": (u64::from(number) << 15).to_string(),
                "encryption": "aes-xts-plain64", "sector_size": 512, "x": extra,
            });
        }
        if unbound {
            json["digests"]["1"] = json["digests"]["0"].clone();
            json["digests"]["1"]["segments"] = json!([]);
        }
        json["tokens"] = json!({});
        for number in 0..tokens {
            json["tokens"][number.to_string()] = json!({"type": "x", "keyslots": ["0"], "value": extra, "flag": kept});
        }
        json
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn seal_fails_exactly_if_its_subject_has_changed(
        json in any_header(),
        covers in proptest::sample::select(vec![Covers::default(), KEYSLOTS, ALL]),
        salt in any::<u64>(),
    ) {
        let mut before = json;
        let subject = with_json(before.clone()).unwrap().subject(covers).unwrap();
        let seal = Seal::new(&key(), SealKind::VolumeKey, &subject, covers, 1).unwrap();
        before["tokens"]["9"] = seal.to_json();
        let found = paths(&before);
        let mut judged = 0;
        for (path, removes) in found.iter().flat_map(|path| [(path, false), (path, true)]) {
            let mut after = before.clone();
            if removes {
                let (parent, name) = path.rsplit_once('/').unwrap();
                match after.pointer_mut(parent).unwrap() {
                    Value::Object(members) => _ = members.shift_remove(name),
                    Value::Array(items) => _ = items.remove(name.parse().unwrap()),
                    _ => unreachable!(),
                }
            } else {
                let value = after.pointer_mut(path).unwrap();
                *value = altered(value, salt);
            }
            // What cannot be read is opened by nobody. An absent list is as good as an empty one.
            let Ok(header) = with_json(after.clone()) else { continue };
            let flags = |json: &Value| json["config"]["flags"].as_array().cloned().unwrap_or_default();
            let is_same_flags = path == "/config/flags" && removes && {
                flags(&before).iter().all(|flag| flag.as_str().is_some_and(|flag| UNFELT.contains(&flag)))
            };
            let is_same_requirements = path == "/config/requirements" && !removes;
            let drops_requirements = path == "/config/requirements" && removes;
            let changed = !is_same_flags && !is_same_requirements
                && (drops_requirements || is_covered(path, covers, &before, &after));
            let verified = seal.verify(&header, &key());
            prop_assert_eq!(verified.is_err(), changed, "{} {} {:?}", path, removes, covers);
            judged += 1;
        }
        prop_assert!(judged > 40, "{}", judged);
    }
}
