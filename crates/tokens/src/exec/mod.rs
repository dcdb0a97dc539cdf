//! Tokens of type `cryptline-exec`: a program of the operator's, the helper, unwraps the passphrase.
//!
//! ```text
//! token      the helper's name, what it needs to find its key, and the wrapped passphrase
//! operator   where the key is and who asks for it: never in the header, which others may have written
//! helper     one JSON object on its standard input, another on its standard output
//! ```
//!
//! The passphrase is the text of 64 random bytes in base64. It is bound to the volume: helpers get
//! `cryptline:UUID` as additional authenticated data.

mod bind;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use cryptline::luks::token::EXEC_TOKEN;
use cryptline::{Error, ErrorKind, SecretBuf, TokenProvider, TokenRefusal, TokenRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::in_base64;
pub use bind::{BindHelper, rotate};

/// Longest request and answer, in bytes.
const MESSAGE_MAX: usize = 64 << 10;
/// How long all helpers of one header together may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Random bytes of a passphrase.
const SECRET_LEN: usize = 64;
/// Fewest bytes of one that somebody else has chosen.
const STORED_MIN: usize = 32;
/// As of sysexits.h: a failure that may not last.
const TRY_LATER: i32 = 75;
/// Most that is shown of what a helper says, in characters.
const SHOWN_MAX: usize = 300;

/// Runs helpers.
pub trait Helpers: fmt::Debug + Send + Sync {
    /// Settings of the operator for the helper of this name: the text of a JSON object. `None` where it is not to be run.
    fn operator(&self, helper: &str) -> Option<&[u8]>;

    /// Runs a helper that is to be run.
    ///
    /// # Errors
    /// Why it cannot be run, in words that go on after its name; [`Problem::KeyMemory`](cryptline::Problem::KeyMemory) is the caller's to tell.
    fn run(&self, call: &HelperCall<'_>) -> Result<HelperAnswer, String>;
}

/// Request to a helper.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct HelperCall<'a> {
    /// Its name: 1 to 32 of `a` to `z`, `0` to `9` and `-`.
    pub helper: &'a str,
    /// Its argument: `wrap`, `unwrap` or `check`.
    pub action: &'static str,
    /// Its standard input, maybe a secret.
    pub request: &'a [u8],
    /// Most bytes of its standard output.
    pub limit: usize,
    /// Time that it may take.
    pub time: Duration,
}

impl<'a> HelperCall<'a> {
    /// Call of `helper` for `action`.
    #[must_use]
    pub fn new(helper: &'a str, action: &'static str, request: &'a [u8], limit: usize, time: Duration) -> Self {
        Self { helper, action, request, limit, time }
    }
}

impl fmt::Debug for HelperCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperCall").field("helper", &self.helper).field("action", &self.action).finish_non_exhaustive()
    }
}

/// Outcome of a call.
pub struct HelperAnswer {
    /// Its exit status; `None` where a signal has ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub output: SecretBuf,
}

/// A helper that yields nothing.
#[derive(Debug, thiserror::Error)]
#[error("the helper '{helper}' {why}")]
pub struct HelperFailure {
    helper: String,
    kind: ErrorKind,
    why: String,
}

impl HelperFailure {
    /// The same on what is called so.
    pub fn on(self, name: &str) -> Error {
        Error::from_keys(self.kind, self).on(name)
    }
}

impl From<HelperFailure> for TokenRefusal {
    fn from(failure: HelperFailure) -> Self {
        Self::Failed(failure.to_string())
    }
}

/// Tokens whose passphrase a helper unwraps. Without helpers they are passed over.
#[derive(Clone, Debug)]
pub struct ExecTokens(pub Option<Arc<dyn Helpers>>);

impl TokenProvider for ExecTokens {
    fn kind(&self) -> &str {
        EXEC_TOKEN
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn passphrase(&self, request: &TokenRequest<'_>) -> Result<SecretBuf, TokenRefusal> {
        let not_asked = || TokenRefusal::NotUsed("helpers run only where that is asked for".to_owned());
        let helpers = self.0.as_deref().ok_or_else(not_asked)?;
        let token = ExecToken::parse(&request.json())?;
        let exec = Exec::new(helpers, &token.helper, token.config, request.volume.uuid(), request.deadline())?;
        Ok(exec.unwrap(token.wrapped.as_deref())?)
    }
}

/// A helper, for one volume.
pub struct Exec<'a> {
    helpers: &'a dyn Helpers,
    helper: String,
    /// For the helper to find its key; from the header.
    config: Value,
    uuid: String,
    /// Until when it may run.
    deadline: Instant,
}

/// A successful answer. Secrets are borrowed: nothing here copies them out of key memory.
#[derive(Deserialize)]
struct Success<'a> {
    version: u32,
    secret: Option<&'a str>,
    wrapped: Option<&'a str>,
    key_version: Option<Value>,
}

/// An answer of one that has failed; what else is in it is passed over unread.
#[derive(Deserialize)]
struct HelperRefusal {
    error: FailureText,
}

#[derive(Deserialize)]
struct FailureText {
    code: String,
    message: String,
}

/// A token of this type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExecToken {
    pub helper: String,
    pub config: Value,
    /// Not there where the helper keeps the passphrase itself.
    pub wrapped: Option<String>,
    /// The token whose place it takes.
    pub replaces: Option<u32>,
}

impl ExecToken {
    /// The token of this JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let token: Value = serde_json::from_str(json).unwrap_or_default();
        if token["type"] != EXEC_TOKEN {
            return Err(format!("it is not of type {EXEC_TOKEN}"));
        }
        if token["version"] != 1 {
            return Err("it is of a version that is not known here".to_owned());
        }
        let helper = token["helper"].as_str().filter(|name| is_helper_name(name));
        let config = token.get("config").cloned().unwrap_or_else(|| json!({}));
        let wrapped = token.get("wrapped").map(|text| text.as_str().filter(|text| Base64::decode_vec(text).is_ok()));
        let replaces = token.get("replaces").map(|number| number.as_str().and_then(|number| number.parse().ok()));
        let (Some(helper), true, false, false) =
            (helper, config.is_object(), wrapped == Some(None), replaces == Some(None))
        else {
            return Err("it is damaged".to_owned());
        };
        let wrapped = wrapped.flatten().map(str::to_owned);
        Ok(Self { helper: helper.to_owned(), config, wrapped, replaces: replaces.flatten() })
    }
}

/// Tells if a helper may be called so: nothing that could lead out of a folder.
#[must_use]
pub fn is_helper_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

impl<'a> Exec<'a> {
    /// The helper of this name, if it is to be run.
    pub fn new(
        helpers: &'a dyn Helpers,
        helper: &str,
        config: Value,
        uuid: Option<&str>,
        deadline: Instant,
    ) -> Result<Self, TokenRefusal> {
        if helpers.operator(helper).is_none() {
            return Err(TokenRefusal::NotUsed(format!("its helper '{helper}' runs only where that is asked for")));
        }
        let uuid = uuid.ok_or("the UUID of the header is malformed, so nothing can be bound to it")?.to_owned();
        Ok(Self { helpers, helper: helper.to_owned(), config, uuid, deadline })
    }

    /// Asks if it can be used at all.
    pub fn check(&self) -> Result<(), HelperFailure> {
        let output = self.call("check", None)?;
        self.success(&output).map(drop)
    }

    /// The passphrase in a token.
    pub fn unwrap(&self, wrapped: Option<&str>) -> Result<SecretBuf, HelperFailure> {
        let wrapped = wrapped.map(|wrapped| ("wrapped", wrapped.as_bytes()));
        let output = self.call("unwrap", wrapped)?;
        let secret = self.success(&output)?.secret.filter(|secret| !secret.is_empty());
        let secret = secret.ok_or_else(|| self.corrupt("has answered without a secret"))?;
        let mut decoded = SecretBuf::zeroed(secret.len()).map_err(|error| self.no_memory(&error))?;
        if Base64::decode(secret, &mut decoded).is_err() {
            return Err(self.corrupt("has answered with a secret that is not in base64"));
        }
        SecretBuf::copy_of(secret.as_bytes()).map_err(|error| self.no_memory(&error))
    }

    /// A new passphrase, and its token for no key slot so far. The helper has wrapped it, and unwrapped it again.
    pub fn new_token(&self, replaces: Option<u32>) -> Result<(SecretBuf, Value), HelperFailure> {
        let random = SecretBuf::random(SECRET_LEN).map_err(|error| self.no_memory(&error))?;
        let secret = in_base64(&random).map_err(|error| self.no_memory(&error))?;
        let output = self.call("wrap", Some(("secret", &secret)))?;
        let answer = self.success(&output)?;
        let wrapped = answer.wrapped.filter(|wrapped| Base64::decode_vec(wrapped).is_ok_and(|bytes| !bytes.is_empty()));
        let wrapped = wrapped.ok_or_else(|| self.corrupt("has answered without a wrapped secret in base64"))?;
        if *self.unwrap(Some(wrapped))? != *secret {
            return Err(self.corrupt("does not unwrap what it has wrapped"));
        }
        let mut token = self.token();
        token["wrapped"] = wrapped.into();
        if let Some(version) = answer.key_version {
            token["key_version"] = version;
        }
        if let Some(replaces) = replaces {
            token["replaces"] = replaces.to_string().into();
        }
        Ok((secret, token))
    }

    /// The passphrase that the helper keeps itself, and a token that says so.
    pub fn stored_token(&self) -> Result<(SecretBuf, Value), HelperFailure> {
        let secret = self.unwrap(None)?;
        // Little is spent on making it expensive to guess.
        let len = secret.trim_ascii_end().len() / 4 * 3;
        if len < STORED_MIN {
            return Err(self.corrupt(&format!("keeps a secret of fewer than {STORED_MIN} bytes; store a random one")));
        }
        Ok((secret, self.token()))
    }

    fn token(&self) -> Value {
        json!({"type": EXEC_TOKEN, "version": 1, "keyslots": [], "helper": self.helper, "config": self.config})
    }

    /// Output of the helper.
    fn call(&self, action: &'static str, more: Option<(&str, &[u8])>) -> Result<SecretBuf, HelperFailure> {
        let request = self.request(more)?;
        let time = self.deadline.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(self.unavailable("was not run: the time for helpers is over"));
        }
        let call = HelperCall::new(&self.helper, action, &request, MESSAGE_MAX, time);
        let answer = self.helpers.run(&call).map_err(|why| self.denied(&why))?;
        match answer.status {
            Some(0) => Ok(answer.output),
            Some(status) => Err(self.failed(status, &answer.output)),
            None => Err(self.unavailable("was ended by a signal")),
        }
    }

    /// The request; `more` is a member whose value is text in base64.
    fn request(&self, more: Option<(&str, &[u8])>) -> Result<SecretBuf, HelperFailure> {
        let aad = format!("cryptline:{}", self.uuid);
        let head = json!({"version": 1, "uuid": self.uuid, "aad": aad, "header": self.config}).to_string();
        let (name, value) = more.unwrap_or_default();
        let member = if more.is_some() { format!(",\"{name}\":\"") } else { String::new() };
        let end: &[u8] = if more.is_some() { b"\"}" } else { b"}" };
        let operator = self.helpers.operator(&self.helper).unwrap_or(b"{}");
        let open = head.strip_suffix('}').unwrap_or(&head).as_bytes();
        let parts = [open, b",\"operator\":", operator, member.as_bytes(), value, end];
        let len = parts.iter().map(|part| part.len()).sum();
        if len > MESSAGE_MAX {
            return Err(
                self.denied(&format!("would be asked with more than {MESSAGE_MAX} bytes; shorten its settings"))
            );
        }
        let mut request = SecretBuf::zeroed(len).map_err(|error| self.no_memory(&error))?;
        let mut at = 0;
        for part in parts {
            request[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(request)
    }

    fn success<'b>(&self, output: &'b [u8]) -> Result<Success<'b>, HelperFailure> {
        // Text with an escape would be copied, to where nobody wipes it.
        let parsed = if output.contains(&b'\\') { None } else { serde_json::from_slice::<Success<'_>>(output).ok() };
        match parsed {
            Some(answer) if answer.version == 1 => Ok(answer),
            Some(_) => Err(self.corrupt("speaks a version of the protocol that is not known here")),
            None => Err(self.corrupt("has not answered as it should")),
        }
    }

    fn failed(&self, status: i32, output: &[u8]) -> HelperFailure {
        let told = serde_json::from_slice::<HelperRefusal>(output).ok().map(|failure| failure.error);
        let message = told.as_ref().map(|told| told.message.chars().take(SHOWN_MAX).collect::<String>());
        let said =
            message.map_or_else(|| format!("has failed with exit status {status}"), |said| format!("says: {said}"));
        match told.as_ref().map(|told| told.code.as_str()) {
            _ if status == TRY_LATER => self.unavailable(&format!("{said}; try again later")),
            Some("unavailable") => self.unavailable(&format!("{said}; try again later")),
            Some("corrupt") => self.corrupt(&said),
            _ => self.denied(&said),
        }
    }

    fn denied(&self, why: &str) -> HelperFailure {
        self.failure(ErrorKind::NoKey, why)
    }

    fn unavailable(&self, why: &str) -> HelperFailure {
        self.failure(ErrorKind::Device, why)
    }

    fn corrupt(&self, why: &str) -> HelperFailure {
        self.failure(ErrorKind::Device, why)
    }

    fn no_memory(&self, error: &std::io::Error) -> HelperFailure {
        self.failure(ErrorKind::Memory, &format!("has no memory for a key: {error}"))
    }

    fn failure(&self, kind: ErrorKind, why: &str) -> HelperFailure {
        HelperFailure { helper: self.helper.clone(), kind, why: why.to_owned() }
    }
}
