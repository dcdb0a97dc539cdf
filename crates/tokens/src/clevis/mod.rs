//! Tokens of type `clevis`, whose passphrase tang servers help to recover without ever learning it.
//!
//! ```text
//! token    a JWE: the passphrase under a key K, and C = c·G, with c forgotten since
//! server   has s, and tells everybody S = s·G
//! here     X = C + e·G  ──►  server  ──►  Y = s·X       K = Y - e·S = s·C = c·S
//! ```
//!
//! Since e is random, the server sees nothing that it could recognise, and a listener nothing that helps. What a server
//! says is checked before it is used, and what it can make us do is bounded ([`http`]).

mod bind;
mod curve;
mod http;
mod jwe;
mod line;
mod pins;
mod sss;
mod tang;

use std::time::{Duration, Instant};

use cryptline::luks::token::CLEVIS_TOKEN;
use cryptline::{SecretBuf, TokenProvider, TokenRefusal, TokenRequest};
use serde_json::Value;

pub use bind::BindClevis;
pub(crate) use http::{connect, left};
use jwe::Jwe;
pub use tang::TangKeys;

/// Servers that one token may have asked, and how deep its pins may lie in one another.
const SERVERS_MAX: usize = 16;
const DEPTH_MAX: usize = 4;
/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all servers of one header together may take.
const PATIENCE_OF_ALL: Duration = Duration::from_secs(20);

/// Tokens of clevis whose pins are tang and sss.
#[derive(Clone, Copy, Debug)]
pub struct ClevisTokens;

impl TokenProvider for ClevisTokens {
    fn kind(&self) -> &str {
        CLEVIS_TOKEN
    }

    fn patience(&self) -> Duration {
        PATIENCE_OF_ALL
    }

    fn passphrase(&self, request: &TokenRequest<'_>) -> Result<SecretBuf, TokenRefusal> {
        passphrase(&request.json(), request.deadline())
    }
}

/// The passphrase that a token of this JSON yields; its server has time until `deadline`.
fn passphrase(token: &str, deadline: Instant) -> Result<SecretBuf, TokenRefusal> {
    let token: Value = serde_json::from_str(token).map_err(|_| "it is no JSON")?;
    let jwe = Jwe::parse(&token["jwe"])?;
    let mut left = SERVERS_MAX;
    open(&jwe, deadline, DEPTH_MAX, &mut left)
}

/// Processes an answer, with the keys in it.
#[cfg(feature = "fuzzing")]
pub(crate) fn advertised(answer: &[u8]) {
    if let Ok(signed) = http::body_of(answer)
        && let Ok(url) = http::Url::parse("tang")
    {
        let _ = TangKeys::of("tang", url, &signed);
    }
}

/// Processes a token whose servers all give this.
#[cfg(feature = "fuzzing")]
pub(crate) fn opened_with(token: &str, given: &SecretBuf) {
    let token: Value = serde_json::from_str(token).unwrap_or_default();
    if let Ok(jwe) = Jwe::parse(&token["jwe"]) {
        let _ = sss::key_of(&jwe.header, |pin, _| Ok(pin.open(given)?));
        let _ = sss::key_of(&jwe.header, |_, _| Ok(SecretBuf::copy_of(given)?));
        let _ = tang::key_of(&jwe.header, Instant::now());
        let _ = jwe.open(given);
    }
}

/// Opens a JWE, which may hold what opens others. So many servers may still be asked.
fn open(jwe: &Jwe, deadline: Instant, depth: usize, servers: &mut usize) -> Result<SecretBuf, TokenRefusal> {
    match jwe.header["clevis"]["pin"].as_str() {
        Some("tang") => {
            *servers = servers.checked_sub(1).ok_or("it names too many servers")?;
            let deadline = deadline.min(Instant::now() + PATIENCE);
            let key = tang::key_of(&jwe.header, deadline)?;
            Ok(jwe.open(&key)?)
        }
        Some("sss") => {
            let depth = depth.checked_sub(1).ok_or("its pins lie too deep")?;
            let key = sss::key_of(&jwe.header, |pin, left| open(pin, share_of(deadline, left), depth, servers))?;
            Ok(jwe.open(&key)?)
        }
        Some(pin) => {
            let pin = pin.escape_debug();
            Err(TokenRefusal::NotUsed(format!("tokens of clevis with the pin '{pin}' are not used here")))
        }
        None => Err("it names no pin".into()),
    }
}

/// Until when one of `left` pins may be tried, so that one that does not answer leaves time for those behind it.
fn share_of(deadline: Instant, left: usize) -> Instant {
    let now = Instant::now();
    let pins = u32::try_from(left).unwrap_or(u32::MAX).max(1);
    now + deadline.saturating_duration_since(now) / pins
}
