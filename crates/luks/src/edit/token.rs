//! Tokens: put there, removed, assigned to key slots. Only the JSON changes, and of it only what is meant.

use serde_json::{Value, json};

use super::text::says_the_same;
use super::{Edit, HeaderChange, LastSlot, NewSlot};
use crate::cost::{KdfCost, KdfKind};
use crate::error::{Error, quote};
use crate::luks2::Luks2Header;
use crate::luks2::metadata::{OBJECTS_MAX, parse_token};
use crate::luks2::node::JsonNode;
use crate::options::parameters;
use crate::token::{KEYRING_TOKEN, RECOVERY_TOKEN};

/// Types that begin so belong to the format itself.
const RESERVED: &str = "luks2-";
/// json-c reads nothing that lies in more containers than these, so cryptsetup and systemd would find no header.
const NESTING_MAX: usize = 31;
/// Longest description of a key that the kernel takes.
const DESCRIPTION_LEN_MAX: usize = 4095;

/// Which number a token gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenPlace {
    /// The number; `None`: the lowest that is free.
    pub id: Option<u32>,
    /// A token that has this number may be replaced.
    pub replace: bool,
}

/// The key slots that a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSlots {
    /// Those that its JSON names.
    AsGiven,
    /// This one as well.
    One(u32),
    /// All that there are.
    All,
}

impl Edit {
    /// Puts a token there, and returns its number. What is not known of it is kept as it is.
    ///
    /// # Errors
    /// [`Error::InvalidToken`], [`Error::TokenInUse`], [`Error::TokenNotInUse`], [`Error::NoFreeToken`],
    /// [`Error::SlotNotInUse`], [`Error::MetadataFull`]; [`Error::Parameters`] for LUKS1; why the header must be left
    /// alone.
    pub fn set_token(
        &self,
        token: &str,
        place: TokenPlace,
        slots: TokenSlots,
    ) -> Result<(HeaderChange<'_>, u32), Error> {
        self.check_usable()?;
        let header = self.luks2("tokens")?;
        let mut token = parsed(token, header)?;
        let id = number(header, place)?;
        assign(header, &mut token, slots)?;
        let mut json = header.metadata.json.clone();
        json["tokens"][id.to_string()] = token;
        if nesting(&json) > NESTING_MAX {
            let why = "it is nested deeper than cryptsetup can read, which would find no header";
            return Err(Error::InvalidToken(why.to_owned()));
        }
        let change = header.rewrite(self, &json).map_err(|error| match error {
            // The rest of the header has been read already.
            Error::Invalid(why) => Error::InvalidToken(why),
            error => error,
        });
        Ok((change?, id))
    }

    /// Puts a token there that says: the passphrase is the key of this description in the kernel's keyring.
    ///
    /// # Errors
    /// As [`set_token`](Self::set_token).
    pub fn set_keyring_token(
        &self,
        description: &str,
        place: TokenPlace,
        slots: TokenSlots,
    ) -> Result<(HeaderChange<'_>, u32), Error> {
        let fits = (1..=DESCRIPTION_LEN_MAX).contains(&description.len());
        if !fits || description.contains('\0') {
            let most = DESCRIPTION_LEN_MAX;
            return Err(parameters(format!("the description of a key has 1 to {most} bytes, none of them zero")));
        }
        let token = json!({"type": KEYRING_TOKEN, "keyslots": [], "key_description": description});
        self.set_token(&token.to_string(), place, slots)
    }

    /// Takes a token out of the header. Key slots stay.
    ///
    /// # Errors
    /// [`Error::TokenNotInUse`]; [`Error::Parameters`] for LUKS1; why the header must be left alone.
    pub fn remove_token(&self, id: u32) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        let header = self.luks2("tokens")?;
        let mut json = header.metadata.json.clone();
        let tokens = json["tokens"].as_object_mut();
        let removed = tokens.and_then(|tokens| tokens.shift_remove(&id.to_string()));
        if removed.is_none() {
            return Err(Error::TokenNotInUse(id));
        }
        header.rewrite(self, &json)
    }

    /// Says that a token is not for this key slot any more.
    ///
    /// # Errors
    /// [`Error::TokenNotInUse`]; [`Error::Parameters`] where it was not, and for LUKS1; why the header must be left
    /// alone.
    pub fn unassign_token(&self, id: u32, slot: u32) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        let header = self.luks2("tokens")?;
        let token = header.metadata.tokens.get(&id);
        if !token.ok_or(Error::TokenNotInUse(id))?.keyslots.contains(&slot) {
            return Err(parameters(format!("token {id} is not for key slot {slot}")));
        }
        let mut json = header.metadata.json.clone();
        if let Some(slots) = json["tokens"][id.to_string()]["keyslots"].as_array_mut() {
            let name = slot.to_string();
            slots.retain(|known| *known != name);
        }
        header.rewrite(self, &json)
    }

    /// A new key slot in which a recovery key opens `key`, the volume key, and the token that says so; and the
    /// numbers of both. The key is random, so nothing is spent on making it expensive to guess.
    ///
    /// # Errors
    /// As [`add`](Self::add) and [`set_token`](Self::set_token).
    pub fn add_recovery(
        &self,
        key: &[u8],
        recovery_key: &[u8],
        slot: Option<u32>,
    ) -> Result<(HeaderChange<'_>, u32, u32), Error> {
        self.luks2("recovery keys")?;
        self.add_bound(key, recovery_key, slot, json!({"type": RECOVERY_TOKEN}))
    }

    /// A new key slot in which `secret` opens `key`, the volume key, and the token that yields it, for no key slot so
    /// far; and the numbers of both. The secret is random, as a recovery key is.
    ///
    /// # Errors
    /// As [`add_recovery`](Self::add_recovery).
    pub fn add_bound(
        &self,
        key: &[u8],
        secret: &[u8],
        slot: Option<u32>,
        mut token: Value,
    ) -> Result<(HeaderChange<'_>, u32, u32), Error> {
        let header = self.luks2("tokens")?;
        let id = number(header, TokenPlace::default())?;
        let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
        let new = NewSlot { slot, kdf: Some(KdfKind::Pbkdf2), hash: Some("sha512".to_owned()), cost, cipher: None };
        let (change, slot) = self.add(key, secret, &new)?;
        token["keyslots"] = json!([slot.to_string()]);
        let change = change.and(|json| json["tokens"][id.to_string()] = token)?;
        Ok((change, slot, id))
    }

    /// Takes a token with its only key slot out of the header, in favour of another one, whose member `replaces` goes as
    /// well: one write ends what [`add_bound`](Self::add_bound) has begun.
    ///
    /// # Errors
    /// [`Error::TokenNotInUse`]; [`Error::Parameters`] where the old token has not one key slot of its own; as
    /// [`remove`](Self::remove).
    pub fn end_replacement(&self, old: u32, new: u32) -> Result<HeaderChange<'_>, Error> {
        let tokens = &self.luks2("tokens")?.metadata.tokens;
        let slots = |id| tokens.get(&id).map(|token| &*token.keyslots).ok_or(Error::TokenNotInUse(id));
        let [slot] = slots(old)? else {
            return Err(parameters(format!("token {old} is not for one key slot")));
        };
        if slots(new)?.contains(slot) {
            return Err(parameters(format!("tokens {old} and {new} are for the same key slot")));
        }
        self.remove(*slot, LastSlot::Keep)?.and(|json| {
            if let Some(tokens) = json["tokens"].as_object_mut() {
                tokens.shift_remove(&old.to_string());
                if let Some(new) = tokens.get_mut(&new.to_string()).and_then(Value::as_object_mut) {
                    new.shift_remove("replaces");
                }
            }
        })
    }
}

/// The token in `text`, if it is one.
fn parsed(text: &str, header: &Luks2Header) -> Result<Value, Error> {
    let wrong = |why: String| Error::InvalidToken(why);
    let token: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if !says_the_same(text, &token.to_string()) {
        return Err(wrong("it has numbers or repeated names that could not be kept as they are".to_owned()));
    }
    if has_nul(&token) {
        // cryptsetup's parser ends names and texts there, and takes the header for none.
        return Err(wrong("it has a character U+0000".to_owned()));
    }
    let has_slot = |slot| header.metadata.keyslots.contains_key(&slot);
    let known = parse_token(&JsonNode::root(&token), has_slot).map_err(wrong)?;
    if known.kind == KEYRING_TOKEN {
        let members = token.as_object().map_or(0, serde_json::Map::len);
        if members != 3 || known.key_description.is_none() {
            return Err(wrong(format!(
                "one of type {KEYRING_TOKEN} has exactly type, keyslots and key_description, a text"
            )));
        }
    } else if known.kind.starts_with(RESERVED) {
        let kind = quote(&known.kind);
        return Err(wrong(format!(
            "types that begin with {RESERVED} belong to the format, and {kind} is none of those"
        )));
    }
    Ok(token)
}

/// How many containers what is nested deepest lies in.
fn nesting(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(values) => values.iter().map(nesting).max(),
        Value::Object(members) => members.values().map(nesting).max(),
        _ => None,
    };
    deepest.map_or(0, |inside| inside + 1)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

fn number(header: &Luks2Header, place: TokenPlace) -> Result<u32, Error> {
    let tokens = &header.metadata.tokens;
    match place.id {
        Some(id) if id >= OBJECTS_MAX => {
            Err(parameters(format!("there is no token {id}; LUKS2 has 0 to {}", OBJECTS_MAX - 1)))
        }
        Some(id) if tokens.contains_key(&id) && !place.replace => Err(Error::TokenInUse(id)),
        Some(id) => Ok(id),
        None => {
            let free = (0..OBJECTS_MAX).find(|id| !tokens.contains_key(id));
            free.ok_or(Error::NoFreeToken(OBJECTS_MAX))
        }
    }
}

fn assign(header: &Luks2Header, token: &mut Value, slots: TokenSlots) -> Result<(), Error> {
    let known = &header.metadata.keyslots;
    let new: Vec<u32> = match slots {
        TokenSlots::AsGiven => Vec::new(),
        TokenSlots::One(slot) if !known.contains_key(&slot) => {
            return Err(Error::SlotNotInUse(slot));
        }
        TokenSlots::One(slot) => vec![slot],
        TokenSlots::All => known.keys().copied().collect(),
    };
    if let Some(list) = token["keyslots"].as_array_mut() {
        for slot in new {
            let name = Value::from(slot.to_string());
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
    Ok(())
}
