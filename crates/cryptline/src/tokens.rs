//! Unlocking by tokens of a LUKS2 header: the passphrase comes from where a token says.
//!
//! ```text
//! luks2-keyring      the payload of a user key in the session's or the user's keyring
//! systemd-recovery   somebody types it, so it is not for here
//! others             a provider gets it, where the caller has one; or other programs know what they mean
//! ```
//!
//! A token that yields nothing is passed over: the next one may, or a passphrase.
//!
//! A passphrase of a token is tried on a copy of the header that has that token's key slots only. A token that yields
//! nothing is passed over in silence, since it may be for another machine; one that yields something wrong, with a
//! warning. Recovery keys are typed like passphrases: what can be one is normalised and tried first on the slots marked
//! so, which cost little.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek};
use std::sync::Arc;

use cryptline_luks::token::{KEYRING_TOKEN, RECOVERY_TOKEN, TokenFilter, TokenToTry};
use cryptline_luks::{Error as LuksError, KdfLimits, LuksHeader, UnlockOptions, UnlockedSlot};
use cryptline_sys::SecretBuf;
use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier};

use crate::error::Problem;
use crate::provider::{TokenBudget, TokenProvider, TokenRefusal, TokenVolume};
use crate::{Result, Warning};

/// Longest payload of a user key, in bytes.
const PAYLOAD_MAX: usize = 32767;

/// Which tokens of a LUKS2 header may unlock it: all, where nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// Only this one, whatever the priority of its key slots.
    pub id: Option<u32>,
    /// Only those of this type.
    pub kind: Option<String>,
    /// Nothing else unlocks it: where no token does, opening fails.
    pub only: bool,
    /// Providers of types other than `luks2-keyring`, such as those of the crate `cryptline-tokens`.
    pub providers: Vec<Arc<dyn TokenProvider>>,
    /// Party that knows the PIN of a token that has one. Without it, such tokens are passed over.
    pub pin: Option<AskPin>,
}

/// Asks somebody for the PIN of a token.
#[derive(Clone)]
pub struct AskPin(Arc<Ask>);

type Ask = dyn Fn(&PinRequest<'_>) -> Result<SecretBuf> + Send + Sync;

/// Purpose of a PIN.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PinRequest<'a> {
    /// The volume, for a question.
    pub name: &'a str,
    /// The number of the token; `None` where it is for one that is being made: better asked for twice.
    pub token: Option<u32>,
}

impl AskPin {
    /// By a call, on a thread whose stack is wiped. Its error, such as one of
    /// [`Error::from_keys`](crate::Error::from_keys), ends the opening; [`Problem::NoPin`] passes the token over.
    pub fn new(ask: impl Fn(&PinRequest<'_>) -> Result<SecretBuf> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Asks for the PIN of a token of the volume `name`; see [`PinRequest`].
    ///
    /// # Errors
    /// As the call that it was made of.
    pub fn ask(&self, name: &str, token: Option<u32>) -> Result<SecretBuf> {
        (self.0)(&PinRequest { name, token })
    }
}

impl fmt::Debug for AskPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskPin")
    }
}

/// Outcome of the tokens.
pub(crate) struct TokensTried {
    /// The volume key, and the key slot and passphrase that gave it.
    pub found: Option<(SecretBuf, u32, SecretBuf)>,
    /// The token that gave the passphrase.
    pub token: Option<u32>,
    /// Facts about those that did not unlock it that the user should know.
    pub notes: Vec<Warning>,
}

/// Tries tokens, in their order, until one unlocks the volume called `name`.
///
/// # Errors
/// A device that fails; and where nothing else may unlock the volume, why no token did.
pub(crate) fn unlock(
    tokens: &Tokens,
    header: &LuksHeader,
    mut device: impl Read + Seek,
    name: &str,
    options: &UnlockOptions,
) -> Result<TokensTried> {
    let filter = TokenFilter { id: tokens.id, kind: tokens.kind.as_deref(), slot: options.slot };
    let mut limits = options.limits;
    let (mut notes, mut reasons) = (Vec::new(), Vec::new());
    let mut budgets = BTreeMap::new();
    // A token of preferred key slots and others comes twice; it is asked once.
    let mut yielded = BTreeMap::new();
    for token in header.tokens_to_try(filter) {
        let passphrase = match yielded.remove(&token.id) {
            Some(None) => continue,
            Some(Some(passphrase)) => Ok(passphrase),
            None => secret_of(&token, TokenVolume::new(name, header), tokens, &mut budgets),
        };
        let skipped = match passphrase {
            Ok(passphrase) => {
                let header = header.with_slots(&token.slots);
                let options = UnlockOptions { slot: None, unbound: false, limits, ..options.clone() };
                // All tokens together have the time that the caller allows.
                limits = KdfLimits { time: limits.time.saturating_sub(header.unlock_time(&options)) };
                match header.unlock(&mut device, &passphrase, &options) {
                    Ok(UnlockedSlot { key, slot }) => {
                        let found = Some((key, slot, passphrase));
                        return Ok(TokensTried { found, token: Some(token.id), notes });
                    }
                    Err(error) => {
                        yielded.insert(token.id, Some(passphrase));
                        opens_nothing(error).map_err(|problem| problem.on(name))?
                    }
                }
            }
            Err(TokenRefusal::Ends(error)) => return Err(error),
            Err(skipped) => {
                yielded.insert(token.id, None);
                skipped
            }
        };
        if let TokenRefusal::Failed(why) | TokenRefusal::Counted(why) = &skipped {
            notes.push(Warning::Token { id: token.id, why: why.clone() });
        }
        reasons.push((token.id, skipped.why()));
    }
    if tokens.only {
        return Err(why_not(&reasons, header, filter).on(name));
    }
    Ok(TokensTried { found: None, token: None, notes })
}

/// Returns what it means that a token's passphrase does not unlock the volume; a device that fails ends the opening.
fn opens_nothing(error: LuksError) -> std::result::Result<TokenRefusal, Problem> {
    Ok(TokenRefusal::Failed(match error {
        LuksError::Io { .. } | LuksError::Truncated { .. } => return Err(Problem::Luks(error)),
        LuksError::NoKey => "its passphrase opens none of its key slots".to_owned(),
        error => error.to_string(),
    }))
}

/// The passphrase that a token yields. There is a budget for each type that has a provider.
fn secret_of<'a>(
    token: &TokenToTry,
    volume: TokenVolume<'_>,
    tokens: &'a Tokens,
    budgets: &mut BTreeMap<&'a str, TokenBudget>,
) -> std::result::Result<SecretBuf, TokenRefusal> {
    if let Some(provider) = tokens.providers.iter().find(|provider| provider.kind() == token.kind) {
        let budget = budgets.entry(provider.kind()).or_insert_with(|| TokenBudget::of(&**provider));
        return budget.spend(&**provider, volume, token.id, tokens.pin.as_ref());
    }
    match (token.kind.as_str(), &token.key_description) {
        (KEYRING_TOKEN, Some(description)) => from_keyring(description),
        (KEYRING_TOKEN, None) => Err(TokenRefusal::Failed("it names no key".to_owned())),
        (RECOVERY_TOKEN, _) => Err(TokenRefusal::NotUsed("its recovery key is given like a passphrase".to_owned())),
        (kind, _) => Err(TokenRefusal::NotUsed(format!("tokens of type '{}' are not used here", kind.escape_debug()))),
    }
}

/// The payload of the user key with this description.
fn from_keyring(description: &str) -> std::result::Result<SecretBuf, TokenRefusal> {
    let shown = description.escape_debug();
    let mut failed = TokenRefusal::NotUsed(format!("there is no user key '{shown}' in the keyring"));
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
                    KeyError::AccessDenied | KeyError::PermissionDenied => "permission denied".to_owned(),
                    other => other.to_string(),
                };
                failed = TokenRefusal::Failed(format!("the user key '{shown}' cannot be read: {why}"));
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

fn why_not(reasons: &[(u32, String)], header: &LuksHeader, filter: TokenFilter<'_>) -> Problem {
    if reasons.is_empty() {
        let id = filter.id.filter(|&id| header.token_json(id).is_none());
        return Problem::NoSuchToken(match id {
            Some(id) => format!("there is no token {id}"),
            None => "no token in this header can unlock the volume".to_owned(),
        });
    }
    let mut reasons: Vec<_> = reasons.iter().map(|(id, why)| format!("token {id}: {why}")).collect();
    // A token may have been tried twice, for preferred key slots and others.
    reasons.sort();
    reasons.dedup();
    Problem::NoToken(reasons.join("; "))
}
