//! Against a server that does what the test wants: an honest one, and those that lie.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use p521::ecdsa::SigningKey;
use p521::ecdsa::signature::Signer;

use super::*;
use crate::clevis::passphrase;
use crate::clevis::pins::Pin;

/// The keys of a server.
struct Keys {
    signing: SigningKey,
    exchange: SecretNumber,
}

impl Keys {
    fn new() -> Self {
        let random = SecretBuf::random(66).unwrap();
        let mut bytes = random.to_vec();
        bytes[0] = 0;
        Self { signing: SigningKey::from_slice(&bytes).unwrap(), exchange: SecretNumber::random().unwrap() }
    }

    fn set(&self) -> Value {
        let point = self.signing.verifying_key().to_sec1_point(false);
        let (x, y) = point.as_bytes()[1..].split_at(66);
        let mut exchange = self.exchange.point().to_jwk(Some("ECMR"));
        exchange["key_ops"] = json!(["deriveKey"]);
        json!({"keys": [
            {"kty": "RSA", "key_ops": ["verify"], "n": "AA", "e": "AQAB"},
            exchange,
            {"alg": "ES512", "kty": "EC", "crv": "P-521", "key_ops": ["verify"],
             "x": Base64UrlUnpadded::encode_string(x), "y": Base64UrlUnpadded::encode_string(y)},
        ]})
    }

    fn signed(&self) -> Value {
        let encode = |value: Value| Base64UrlUnpadded::encode_string(value.to_string().as_bytes());
        let payload = encode(self.set());
        let protected = encode(json!({"alg": "ES512", "cty": "jwk-set+json"}));
        let signature: Signature = self.signing.sign(format!("{protected}.{payload}").as_bytes());
        let signature = Base64UrlUnpadded::encode_string(&signature.to_bytes());
        json!({"payload": payload, "protected": protected, "signature": signature})
    }

    fn recovered(&self, asked: &Value) -> Value {
        let asked = CurvePoint::of_jwk(asked).unwrap();
        self.exchange.times(&asked).unwrap().to_jwk(Some("ECMR"))
    }
}

/// Answers as many requests as there are answers; where it is.
fn serve(answers: Vec<Box<dyn FnOnce(Value) -> Value + Send>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(found) = line.strip_prefix("Content-Length: ") {
                    length = found.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let asked = serde_json::from_slice(&body).unwrap_or_default();
            let said = answer(asked).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", said.len());
            let _ = stream.write_all((head + &said).as_bytes());
        }
    });
    url
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn why(refused: Result<SecretBuf, TokenRefusal>) -> String {
    refused.err().expect("it should be refused").why()
}

#[test]
fn secret_that_was_bound_comes_back_and_no_lie_is_believed() {
    let keys = std::sync::Arc::new(Keys::new());
    let other = Keys::new();
    let beside = || {
        let mut jwk = Keys::new().exchange.point().to_jwk(None);
        jwk["y"] = Base64UrlUnpadded::encode_string(&[1; 66]).into();
        jwk
    };
    let all = [(); 4].map(|()| keys.clone());
    let [a, b, c, d] = all;
    let url = serve(vec![
        Box::new(move |_| a.signed()),
        Box::new(move |asked| b.recovered(&asked)),
        Box::new(move |asked| c.recovered(&asked)),
        Box::new(move |_| beside()),
        Box::new(move |asked| other.recovered(&asked)),
        Box::new(move |_| d.exchange.point().to_jwk(None)["x"].clone()),
    ]);
    let told = TangKeys::ask(&url).unwrap();
    let thumbprint = told.thumbprints().remove(0);
    assert!(told.is_known_as(&thumbprint) && !told.is_known_as("AA"));
    let secret = SecretBuf::copy_of(b"pass phrase").unwrap();
    let jwe = told.seal(&secret).unwrap().to_json();
    let token = json!({"type": "clevis", "keyslots": ["1"], "jwe": jwe}).to_string();
    assert!(passphrase(&token, soon()).ok().unwrap()[..] == secret[..]);
    let said = why(passphrase(&token, soon()));
    assert!(said.contains("no point of the curve"), "{said}");
    let said = why(passphrase(&token, soon()));
    assert!(said.contains("does not open"), "{said}");
    let said = why(passphrase(&token, soon()));
    assert!(said.contains("not of the curve"), "{said}");
    let said = why(passphrase(&token, soon()));
    assert!(said.contains(&url), "{said}");
}

#[test]
fn keys_that_others_have_signed_are_refused() {
    let (keys, other) = (Keys::new(), Keys::new());
    let mut unsigned = keys.signed();
    unsigned["signature"] = other.signed()["signature"].clone();
    let mut swapped = keys.signed();
    swapped["payload"] = other.signed()["payload"].clone();
    for signed in [unsigned, swapped, json!({}), json!({"payload": ""}), json!([])] {
        let url = Url::parse("h").unwrap();
        assert!(TangKeys::of("h", url, signed.to_string().as_bytes()).is_err(), "{signed}");
    }
    let mut several = json!({"payload": keys.signed()["payload"]});
    several["signatures"] = json!([other.signed(), keys.signed()]);
    let url = Url::parse("h").unwrap();
    TangKeys::of("h", url, several.to_string().as_bytes()).unwrap();
}

#[test]
fn tokens_that_make_no_sense_are_refused_without_asking_anybody() {
    let jwe = |header: Value| {
        let key = SecretBuf::copy_of(&[1; 66]).unwrap();
        let jwe = Jwe::seal(header, &key, &key).unwrap().to_json();
        json!({"type": "clevis", "keyslots": ["1"], "jwe": jwe}).to_string()
    };
    let header = |url: &str, pin: &str| {
        let set = Keys::new().set();
        json!({"alg": "ECDH-ES", "enc": "A256GCM", "kid": "a\r\nb",
               "clevis": {"pin": pin, "tang": {"url": url, "adv": set}}})
    };
    for (token, expected) in [
        ("{}".to_owned(), "damaged"),
        ("[".to_owned(), "no JSON"),
        (jwe(header("http://h", "tpm2")), "pin 'tpm2'"),
        (jwe(header("http://h", "sss")), "how many of its pins"),
        (jwe(header("http://h\r\nx: y", "tang")), "that is no URL"),
        (jwe(header("http://h", "tang")), "none of the keys"),
    ] {
        let said = why(passphrase(&token, soon()));
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn server_that_does_not_answer_leaves_time_for_one_that_does() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (format!("http://{}", silent.local_addr().unwrap()), silent);
    let keys = Keys::new();
    let signed = keys.signed().to_string();
    let live = serve(vec![Box::new(move |asked| keys.recovered(&asked))]);
    let pins = [&silent.0, &live].map(|url| {
        let kept = TangKeys::kept(url, signed.as_bytes());
        Pin::Tang(Box::new(kept.unwrap()))
    });
    let pin = Pin::Sss { needed: 1, pins: pins.into() };
    let secret = SecretBuf::copy_of(b"pass phrase").unwrap();
    let jwe = pin.seal(&secret).unwrap().to_json();
    let token = json!({"type": "clevis", "keyslots": ["1"], "jwe": jwe}).to_string();
    assert!((passphrase(&token, Instant::now() + Duration::from_secs(6))).ok().unwrap()[..] == secret[..]);
}
