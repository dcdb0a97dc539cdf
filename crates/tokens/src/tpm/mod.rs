//! Tokens of type `systemd-tpm2`, whose passphrase a TPM 2.0 gives while the machine is in the state that it was in, or
//! while somebody knows the PIN.
//!
//! ```text
//! token    the secret, encrypted by a key that never leaves the TPM; a policy: which registers must have which values
//! TPM      the key, made anew from its seed; loads the secret, and compares the policy with what a session has shown
//! here     a session that only we can read along with  ──►  the secret; in base64 it is the passphrase
//! ```
//!
//! No library of the TPM's makers is needed: these are eleven commands ([`chip`]) over a device or a socket ([`device`]).
//!
//! Such libraries are either C, or wire formats without the sessions that keep a secret from being read on the bus.
//! Nothing is left in the TPM unless it does not answer any more.

mod chip;
mod code;
mod device;
mod pcrs;
mod provider;
mod session;
mod token;
mod wire;

use std::time::{Duration, Instant};

use cryptline::{NewToken, SecretBuf, TokenRefusal, Warning};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::in_base64;
use chip::{LoadedObject, PcrSelection, PrimaryKind, Tpm, TpmFailure};
use device::OpenTpm;
pub use device::TpmDevice;
pub(crate) use device::TpmLink;
pub use pcrs::Pcrs;
pub use provider::{BindTpm, TpmTokens};
use session::{SessionUse, TpmSession};
use token::TpmToken;
use wire::ALG_SHA256;

/// How long a TPM may take for all tokens of a header: some make an RSA key for half a minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often registers may change while a session is used.
const ATTEMPTS: usize = 3;
/// Bytes of a sealed secret.
const SECRET: usize = 32;
/// Rounds of PBKDF2 that systemd gives to a PIN.
const ROUNDS: u32 = 10_000;

/// A token, and the TPM that may open it.
struct Enrolled {
    token: TpmToken,
    tpm: OpenTpm,
}

impl Enrolled {
    /// The token of this JSON, and the TPM there.
    pub fn new(token: &str, device: &TpmDevice, deadline: Instant) -> Result<Self, TokenRefusal> {
        let token: Value = serde_json::from_str(token).map_err(|_| "it is no JSON")?;
        Ok(Self { token: TpmToken::parse(&token)?, tpm: device.open(deadline)? })
    }

    /// Tells if it opens for somebody only who knows a PIN.
    pub fn has_pin(&self) -> bool {
        self.token.has_pin
    }

    /// Tells if a failure counts against the TPM's lockout.
    pub fn may_count(&self) -> bool {
        self.token.has_pin || self.token.parent.is_some()
    }

    /// The passphrase.
    pub fn passphrase(mut self, pin: Option<&SecretBuf>, deadline: Instant) -> Result<SecretBuf, TokenRefusal> {
        let salt = self.token.salt.as_deref();
        let auth = pin.map(|pin| auth_of(pin, salt)).transpose()?;
        open(&self.token, &mut self.tpm, deadline, auth.as_ref())
    }
}

/// The same with a TPM that is open.
fn open(
    token: &TpmToken,
    line: &mut dyn TpmLink,
    deadline: Instant,
    auth: Option<&SecretBuf>,
) -> Result<SecretBuf, TokenRefusal> {
    let mut tpm = Tpm::new(line, deadline);
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match unseal(&mut tpm, token, auth) {
            Err(Denied::Tpm(TpmFailure::Code(code))) if code.is_pcr_changed() && attempts > 0 => {
                tpm.flush_all();
            }
            Err(denied) => return Err(refusal(&denied, token)),
            Ok(secret) => return Ok(in_base64(&secret)?),
        }
    }
}

/// Processes a token with a TPM that says what it likes.
#[cfg(feature = "fuzzing")]
pub(crate) fn opened_by(token: &str, line: &mut dyn TpmLink, pin: Option<&SecretBuf>) {
    let token: Value = serde_json::from_str(token).unwrap_or_default();
    if let Ok(token) = TpmToken::parse(&token) {
        let auth = pin.and_then(|pin| auth_of(pin, token.salt.as_deref()).ok());
        assert!(open(&token, line, Instant::now() + PATIENCE, auth.as_ref()).is_err());
    }
}

/// The same of what is to be sealed.
#[cfg(feature = "fuzzing")]
pub(crate) fn sealed_by(line: &mut dyn TpmLink) {
    if let Ok(secret) = SecretBuf::random(SECRET) {
        let mut tpm = Tpm::new(line, Instant::now() + PATIENCE);
        assert!(seal_with(&mut tpm, &secret, Pcrs::default(), Some(&secret)).is_err());
    }
}

/// Why there is no secret.
enum Denied {
    Tpm(TpmFailure),
    /// Does not load the token's data.
    Foreign,
    /// Registers are not as they were.
    Policy,
    /// The PIN is another; it counts.
    Pin,
    /// The key that the secret lies under has a password; that may count.
    Password(TpmFailure),
}

impl From<TpmFailure> for Denied {
    fn from(failure: TpmFailure) -> Self {
        Self::Tpm(failure)
    }
}

fn unseal(tpm: &mut Tpm<'_>, token: &TpmToken, auth: Option<&SecretBuf>) -> Result<SecretBuf, Denied> {
    let parent = parent(tpm, token)?;
    let loaded = tpm.load(&parent, &token.private, &token.public);
    let sealed = loaded.map_err(|failure| match failure {
        TpmFailure::Code(code) if code.is_foreign() => Denied::Foreign,
        TpmFailure::Code(code) if code.is_wrong_auth() => Denied::Password(failure),
        failure => Denied::Tpm(failure),
    })?;
    let session = session(tpm, SessionUse::Policy, &parent)?;
    if token.parent.is_none() {
        tpm.flush(parent.handle)?;
    }
    show_policy(tpm, &session, token.bank, token.pcrs, auth.is_some())?;
    if tpm.policy_digest(&session)? != token.policy {
        return Err(Denied::Policy);
    }
    let unsealed = tpm.unseal(&sealed, &session, auth.map(|auth| &auth[..]));
    let secret = unsealed.map_err(|failure| match failure {
        TpmFailure::Code(code) if code.is_wrong_auth() && auth.is_some() => Denied::Pin,
        failure => Denied::Tpm(failure),
    })?;
    tpm.flush(sealed.handle)?;
    Ok(secret)
}

/// The key that the secret lies under.
fn parent(tpm: &mut Tpm<'_>, token: &TpmToken) -> Result<LoadedObject, Denied> {
    let Some(known) = &token.parent else {
        return Ok(tpm.create_primary(token.algorithm)?);
    };
    let parent = tpm.read_public(known.handle).map_err(|failure| match failure {
        TpmFailure::Code(code) if code.is_foreign() => Denied::Foreign,
        failure => Denied::Tpm(failure),
    })?;
    if parent.public.name() == known.name { Ok(parent) } else { Err(Denied::Foreign) }
}

/// A session salted to `parent`, or to a key that is fit for that.
fn session(tpm: &mut Tpm<'_>, kind: SessionUse, parent: &LoadedObject) -> Result<TpmSession, TpmFailure> {
    if parent.public.point().is_some() {
        return tpm.start_session(kind, parent);
    }
    let key = tpm.create_primary(PrimaryKind::Ecc)?;
    let session = tpm.start_session(kind, &key)?;
    tpm.flush(key.handle)?;
    Ok(session)
}

/// In the order in which systemd does.
fn show_policy(
    tpm: &mut Tpm<'_>,
    session: &TpmSession,
    bank: u16,
    pcrs: Pcrs,
    has_pin: bool,
) -> Result<(), TpmFailure> {
    if pcrs != Pcrs::NONE {
        tpm.policy_pcr(session, bank, pcrs.mask())?;
    }
    if has_pin {
        tpm.policy_auth_value(session)?;
    }
    Ok(())
}

/// A token that yields a new passphrase under a policy that holds now, and with this PIN.
fn seal(device: &TpmDevice, pcrs: Pcrs, pin: Option<&SecretBuf>) -> Result<NewToken, TokenRefusal> {
    let secret = SecretBuf::random(SECRET)?;
    let deadline = Instant::now() + PATIENCE;
    let mut line = device.open(deadline)?;
    let auth = pin.map(|pin| auth_of(pin, None)).transpose()?;
    let auth = auth.as_ref();
    let mut tpm = Tpm::new(&mut line, deadline);
    let sealed = seal_with(&mut tpm, &secret, pcrs, auth);
    let (token, registers) = sealed.map_err(|failure| format!("the TPM: {failure}"))?;
    drop(tpm);
    // What does not open is not written into a header.
    let opened = open(&token, &mut line, deadline, auth)?;
    if opened[..] != in_base64(&secret)?[..] {
        return Err("the TPM gives back another secret than it was given".into());
    }
    Ok(NewToken { secret: opened, json: token.to_json(), warning: weakness(pcrs, registers, pin.is_some()) })
}

/// Returns what a policy leaves open.
fn weakness(pcrs: Pcrs, registers: PcrSelection, has_pin: bool) -> Option<Warning> {
    let unused = pcrs.without(registers.measured);
    let why = if pcrs == Pcrs::NONE && !has_pin {
        "whoever has this machine can open the volume: no register and no PIN keeps them from it".to_owned()
    } else if unused != Pcrs::NONE {
        format!("nothing was measured into PCR {unused} of this TPM, so its value does not tell what has booted")
    } else {
        return None;
    };
    Some(Warning::WeakToken(why))
}

fn seal_with(
    tpm: &mut Tpm<'_>,
    secret: &SecretBuf,
    pcrs: Pcrs,
    auth: Option<&SecretBuf>,
) -> Result<(TpmToken, PcrSelection), TpmFailure> {
    let registers = registers(tpm, pcrs)?;
    let parent = tpm.create_primary(PrimaryKind::Ecc)?;
    let policy = tpm.start_session(SessionUse::Policy, &parent)?;
    show_policy(tpm, &policy, ALG_SHA256, pcrs, auth.is_some())?;
    let digest = tpm.policy_digest(&policy)?;
    tpm.flush(policy.handle)?;
    let session = tpm.start_session(SessionUse::Hmac, &parent)?;
    let bytes = auth.map_or(&[][..], |auth| &auth[..]);
    let (private, public) = tpm.seal(&parent, &session, (secret, bytes), &digest)?;
    tpm.flush(parent.handle)?;
    let token = TpmToken {
        private,
        public,
        pcrs,
        bank: ALG_SHA256,
        algorithm: PrimaryKind::Ecc,
        policy: digest,
        has_pin: auth.is_some(),
        salt: None,
        parent: None,
    };
    Ok((token, registers))
}

/// Returns what the TPM says of the registers of a policy, which it would silently leave out where it does not have
/// them.
fn registers(tpm: &mut Tpm<'_>, pcrs: Pcrs) -> Result<PcrSelection, TpmFailure> {
    let registers = match pcrs {
        Pcrs::NONE => PcrSelection::default(),
        _ => tpm.registers(ALG_SHA256, pcrs.mask())?,
    };
    let missing = pcrs.without(registers.there);
    if missing == Pcrs::NONE {
        return Ok(registers);
    }
    Err(format!(
        "it has no PCR {missing} in the bank sha256; switch that bank on in the firmware's setup, or bind to no register"
    )
    .into())
}

fn refusal(denied: &Denied, token: &TpmToken) -> TokenRefusal {
    let why = match denied {
        Denied::Pin => return TokenRefusal::Counted("the PIN is wrong".to_owned()),
        Denied::Password(failure) => return TokenRefusal::Counted(format!("the TPM: {failure}")),
        Denied::Foreign => "it was enrolled with another TPM, or this one was cleared".to_owned(),
        Denied::Policy => {
            format!("the TPM's registers (PCR {}) have other values than when it was enrolled", token.pcrs)
        }
        Denied::Tpm(failure) => format!("the TPM: {failure}"),
    };
    TokenRefusal::Failed(why)
}

/// Returns what the TPM takes for the PIN.
fn auth_of(pin: &[u8], salt: Option<&[u8]>) -> Result<SecretBuf, std::io::Error> {
    let mut auth = SecretBuf::zeroed(SECRET)?;
    match salt {
        None => auth.copy_from_slice(&Sha256::digest(pin)),
        Some(salt) => {
            let rounds = ROUNDS.try_into().unwrap_or(std::num::NonZeroU32::MIN);
            let hash = ring::pbkdf2::PBKDF2_HMAC_SHA256;
            ring::pbkdf2::derive(hash, rounds, salt, pin, &mut auth);
            let text = in_base64(&auth)?;
            auth.copy_from_slice(&Sha256::digest(&text[..]));
        }
    }
    // TPMs do not keep zeros at the end.
    let len = auth.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    SecretBuf::copy_of(&auth[..len])
}

#[cfg(test)]
mod tests;
