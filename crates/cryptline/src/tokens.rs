//! Unlocking by tokens of a LUKS2 header: the passphrase comes from where a token says.
//!
//! ```text
//! luks2-keyring      the payload of a user key in the session's or the user's keyring
//! clevis             a tang server helps to recover it
//! systemd-recovery   somebody types it, so it is not for here
//! others             other programs know what they mean
//! ```
//!
//! A token that yields nothing is passed over: the next one may, or a passphrase.

use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use cryptline_luks::token::{CLEVIS_TOKEN, KEYRING_TOKEN, RECOVERY_TOKEN, TokenFilter, TokenToTry};
use cryptline_luks::{Error as LuksError, Header, KdfLimits, UnlockOptions, Unlocked};
use cryptline_sys::SecretBuf;
use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier};

use crate::clevis::{self, Refusal};
use crate::error::Problem;
use crate::{Result, Warning};

/// Longest payload of a user key, in bytes.
const PAYLOAD_MAX: usize = 32767;

/// How long all servers of one header together may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which tokens of a LUKS2 header may unlock it: all, where nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// Only this one, whatever the priority of its key slots.
    pub id: Option<u32>,
    /// Only those of this type.
    pub kind: Option<String>,
    /// Nothing else unlocks it: where no token does, opening fails.
    pub only: bool,
}

/// What tokens came to.
pub(crate) struct Tried {
    /// The volume key, and the key slot and passphrase that gave it.
    pub found: Option<(SecretBuf, u32, SecretBuf)>,
    /// What the user should know of those that did not unlock it.
    pub notes: Vec<Warning>,
}

/// Tries tokens, in their order, until one unlocks the volume called `name`.
///
/// # Errors
/// A device that fails; and where nothing else may unlock the volume, why no token did.
pub(crate) fn unlock(
    tokens: &Tokens,
    header: &Header,
    mut device: impl Read + Seek,
    name: &str,
    options: &UnlockOptions,
) -> Result<Tried> {
    let filter = TokenFilter {
        id: tokens.id,
        kind: tokens.kind.as_deref(),
        slot: options.slot,
    };
    let mut limits = options.limits;
    let (mut notes, mut reasons) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    for token in header.tokens_to_try(filter) {
        let skipped = match secret_of(&token, header, deadline) {
            Ok(passphrase) => {
                let header = header.with_slots(&token.slots);
                let options = UnlockOptions {
                    slot: None,
                    unbound: false,
                    limits,
                    ..options.clone()
                };
                // All tokens together have the time that the caller allows.
                limits = KdfLimits {
                    time: limits.time.saturating_sub(header.unlock_time(&options)),
                };
                match header.unlock(&mut device, &passphrase, &options) {
                    Ok(Unlocked { key, slot }) => {
                        let found = Some((key, slot, passphrase));
                        return Ok(Tried { found, notes });
                    }
                    Err(error @ (LuksError::Io { .. } | LuksError::Truncated { .. })) => {
                        return Err(Problem::Luks(error).on(name));
                    }
                    Err(LuksError::NoKey) => {
                        Skipped::Wrong("its passphrase opens none of its key slots".to_owned())
                    }
                    Err(error) => Skipped::Wrong(error.to_string()),
                }
            }
            Err(skipped) => skipped,
        };
        if let Skipped::Wrong(why) = &skipped {
            notes.push(Warning::Token {
                id: token.id,
                why: why.clone(),
            });
        }
        reasons.push((token, skipped));
    }
    if tokens.only {
        return Err(why_not(&reasons, header, filter).on(name));
    }
    Ok(Tried { found: None, notes })
}

/// Why a token was passed over.
enum Skipped {
    /// It yields no passphrase, which is usual: it is for another user or machine.
    Nothing(String),
    /// It should have worked.
    Wrong(String),
}

/// The passphrase that a token yields.
fn secret_of(
    token: &TokenToTry,
    header: &Header,
    deadline: Instant,
) -> std::result::Result<SecretBuf, Skipped> {
    match (token.kind.as_str(), &token.key_description) {
        (KEYRING_TOKEN, Some(description)) => from_keyring(description),
        (KEYRING_TOKEN, None) => Err(Skipped::Wrong("it names no key".to_owned())),
        (CLEVIS_TOKEN, _) => {
            let json = header.token_json(token.id).unwrap_or_default();
            clevis::passphrase(&json, deadline).map_err(|refusal| match refusal {
                Refusal::NotUsed(why) => Skipped::Nothing(why),
                Refusal::Failed(why) => Skipped::Wrong(why),
            })
        }
        (RECOVERY_TOKEN, _) => Err(Skipped::Nothing(
            "its recovery key is given like a passphrase".to_owned(),
        )),
        (kind, _) => Err(Skipped::Nothing(format!(
            "tokens of type '{}' are not used here",
            kind.escape_debug()
        ))),
    }
}

/// The payload of the user key with this description.
fn from_keyring(description: &str) -> std::result::Result<SecretBuf, Skipped> {
    let shown = description.escape_debug();
    let mut failed = Skipped::Nothing(format!("there is no user key '{shown}' in the keyring"));
    for ring in [KeyRingIdentifier::Session, KeyRingIdentifier::User] {
        // Containers often forbid keyrings.
        let Ok(ring) = KeyRing::from_special_id(ring, false) else {
            continue;
        };
        match ring.search(description).and_then(payload_of) {
            Ok(payload) => return Ok(payload),
            Err(KeyError::KeyDoesNotExist) => {}
            Err(error) => {
                let why = match error {
                    KeyError::KeyExpired => "it has expired".to_owned(),
                    KeyError::KeyRevoked => "it was revoked".to_owned(),
                    KeyError::AccessDenied | KeyError::PermissionDenied => {
                        "permission denied".to_owned()
                    }
                    other => other.to_string(),
                };
                failed = Skipped::Wrong(format!("the user key '{shown}' cannot be read: {why}"));
            }
        }
    }
    Err(failed)
}

/// Straight into key memory.
fn payload_of(key: Key) -> std::result::Result<SecretBuf, KeyError> {
    let no_memory = |_| KeyError::OutOfMemory;
    let mut payload = SecretBuf::zeroed(PAYLOAD_MAX).map_err(no_memory)?;
    let len = key.read(&mut &mut payload[..])?;
    let payload = payload.get(..len).ok_or(KeyError::InvalidArguments)?;
    SecretBuf::copy_of(payload).map_err(no_memory)
}

fn why_not(reasons: &[(TokenToTry, Skipped)], header: &Header, filter: TokenFilter<'_>) -> Problem {
    if reasons.is_empty() {
        let id = filter.id.filter(|&id| header.token_json(id).is_none());
        return Problem::NoSuchToken(match id {
            Some(id) => format!("there is no token {id}"),
            None => "the header has no such token for the key of its data".to_owned(),
        });
    }
    let reasons = reasons.iter().map(|(token, skipped)| {
        let (Skipped::Nothing(why) | Skipped::Wrong(why)) = skipped;
        format!("token {}: {why}", token.id)
    });
    let mut reasons: Vec<_> = reasons.collect();
    // A token may have been tried twice, for preferred key slots and others.
    reasons.sort();
    reasons.dedup();
    Problem::NoToken(reasons.join("; "))
}
