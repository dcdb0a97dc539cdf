//! Tokens: what says where the passphrase of a key slot may come from.
//!
//! A token of a known type yields a passphrase, which the caller gets from where the token says. Here is
//! only which tokens there are, and in which order they are tried.

use crate::LuksHeader;
use crate::luks2::metadata::{Priority, Token};

/// Type of the tokens whose passphrase is a key in the kernel's keyring.
pub const KEYRING_TOKEN: &str = "luks2-keyring";
/// Type of the tokens that mark the key slot of a recovery key.
pub const RECOVERY_TOKEN: &str = "systemd-recovery";

/// Type of the tokens whose passphrase clevis keeps, such as with the help of a tang server.
pub const CLEVIS_TOKEN: &str = "clevis";

/// Type of the tokens whose passphrase a TPM 2.0 keeps.
pub const TPM_TOKEN: &str = "systemd-tpm2";

/// Type of the tokens whose passphrase a FIDO2 security key makes.
pub const FIDO2_TOKEN: &str = "systemd-fido2";

/// Type of the tokens whose passphrase a program of the operator's unwraps.
pub const EXEC_TOKEN: &str = "cryptline-exec";

/// Which tokens are asked for; all, where nothing is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenFilter<'a> {
    /// Only this one, whatever the priority of its key slots.
    pub id: Option<u32>,
    /// Only those of this type.
    pub kind: Option<&'a str>,
    /// Only for this key slot, whatever its priority.
    pub slot: Option<u32>,
}

/// A token, and the key slots to try its passphrase on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenToTry {
    /// Its number.
    pub id: u32,
    /// Its type.
    pub kind: String,
    /// The key in the kernel's keyring that is the passphrase; only for [`KEYRING_TOKEN`].
    pub key_description: Option<String>,
    /// Key slots that keep the volume key, at least one.
    pub slots: Vec<u32>,
}

impl LuksHeader {
    /// Tokens in the order in which they are tried: first those with preferred key slots, then the others, lowest
    /// number first. LUKS1 has none.
    #[must_use]
    pub fn tokens_to_try(&self, filter: TokenFilter<'_>) -> Vec<TokenToTry> {
        let found = self.luks2().and_then(|header| Some((header, header.data_digest().ok()?.1)));
        let Some((header, digest)) = found else {
            return Vec::new();
        };
        let tokens = header.metadata.tokens.iter().filter(|(id, token)| {
            filter.id.is_none_or(|wanted| wanted == **id) && filter.kind.is_none_or(|kind| kind == token.kind)
        });
        let tokens: Vec<_> = tokens.collect();
        let with = |wanted: &dyn Fn(Priority) -> bool| {
            let slots = |token: &Token| {
                let slots = token.keyslots.iter().copied().filter(|slot| {
                    let found = header.metadata.keyslots.get(slot);
                    filter.slot.is_none_or(|wanted| wanted == *slot)
                        && digest.keyslots.contains(slot)
                        && found.is_some_and(|found| wanted(found.priority))
                });
                slots.collect::<Vec<_>>()
            };
            let to_try = tokens.iter().map(|&(&id, token)| TokenToTry {
                id,
                kind: token.kind.clone(),
                key_description: token.key_description.clone(),
                slots: slots(token),
            });
            to_try.filter(|token| !token.slots.is_empty()).collect::<Vec<_>>()
        };
        if filter.id.is_some() || filter.slot.is_some() {
            return with(&|_| true);
        }
        let mut tokens = with(&|priority| priority == Priority::Prefer);
        tokens.extend(with(&|priority| priority == Priority::Normal));
        tokens
    }

    /// A token's JSON as the header has it.
    #[must_use]
    pub fn token_json(&self, id: u32) -> Option<String> {
        Some(self.luks2()?.metadata.json.get("tokens")?.get(id.to_string())?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Image, PASSPHRASE};
    use crate::{Error, UnlockOptions};

    /// Key slots 0 to 3, all with the same area but for their numbers, and these tokens.
    fn header(tokens: &[(u32, &str, &[&str])]) -> LuksHeader {
        let LuksHeader::V2(mut header) = Image::luks2().read().unwrap() else {
            panic!("LUKS2");
        };
        let slot = header.metadata.keyslots[&0].clone();
        let priorities = [Priority::Normal, Priority::Prefer, Priority::Ignore, Priority::Normal];
        for (number, priority) in (0..).zip(priorities) {
            let slot = crate::luks2::metadata::Keyslot { priority, ..slot.clone() };
            header.metadata.keyslots.insert(number, slot);
        }
        let digest = header.metadata.digests.get_mut(&0).unwrap();
        // Slot 3 keeps another key.
        digest.keyslots = vec![0, 1, 2];
        for &(id, kind, slots) in tokens {
            let token = Token {
                kind: kind.to_owned(),
                keyslots: slots.iter().map(|slot| slot.parse().unwrap()).collect(),
                key_description: None,
            };
            header.metadata.tokens.insert(id, token);
        }
        LuksHeader::V2(header)
    }

    fn order(header: &LuksHeader, filter: TokenFilter<'_>) -> Vec<(u32, Vec<u32>)> {
        let tokens = header.tokens_to_try(filter).into_iter();
        tokens.map(|token| (token.id, token.slots)).collect()
    }

    #[test]
    fn preferred_slots_come_first_and_ignored_ones_only_when_named() {
        let header =
            header(&[(0, "a", &["0"]), (1, "b", &["0", "1", "2"]), (2, "b", &["2"]), (3, "b", &["3"]), (4, "b", &[])]);
        let all = TokenFilter::default();
        let expected = [(1, vec![1]), (0, vec![0]), (1, vec![0])];
        assert_eq!(order(&header, all), expected);
        let kind = TokenFilter { kind: Some("a"), ..all };
        assert_eq!(order(&header, kind), [(0, vec![0])]);
        let id = TokenFilter { id: Some(2), ..all };
        assert_eq!(order(&header, id), [(2, vec![2])]);
        let slot = TokenFilter { slot: Some(2), ..all };
        assert_eq!(order(&header, slot), [(1, vec![2]), (2, vec![2])]);
        let other = TokenFilter { id: Some(3), ..all };
        assert!(order(&header, other).is_empty());
    }

    #[test]
    fn passphrase_is_tried_on_the_named_slots_only() {
        let image = Image::luks2();
        let header = image.read().unwrap();
        let mut device = std::io::Cursor::new(&image.bytes);
        let options = UnlockOptions::default();
        let mut unlock = |slots: &[u32]| {
            let header = header.with_slots(slots);
            header.unlock(&mut device, PASSPHRASE, &options)
        };
        assert_eq!(unlock(&[0]).unwrap().slot, 0);
        assert!(matches!(unlock(&[1]), Err(Error::NoKeySlot)));
        let luks1 = Image::luks1();
        let header = luks1.read().unwrap();
        assert_eq!(header.with_slots(&[0]).info().keyslots.len(), 1);
        assert!(header.with_slots(&[1]).info().keyslots.is_empty());
        assert!(header.tokens_to_try(TokenFilter::default()).is_empty());
        assert_eq!(header.token_json(0), None);
    }

    #[test]
    fn token_is_shown_as_it_is_and_its_key_description_read() {
        let mut image = Image::luks2();
        let keyring = json!({"type": KEYRING_TOKEN, "keyslots": ["0"], "key_description": "a:b"});
        image.edit(|json| {
            json["tokens"] = json!({
                "3": keyring.clone(),
                "4": {"type": "other", "keyslots": ["0", "0"], "key_description": "a:b"},
                "5": {"type": KEYRING_TOKEN, "keyslots": ["0"], "key_description": 7},
            });
        });
        let header = image.read().unwrap();
        assert_eq!(header.token_json(3), Some(keyring.to_string()));
        assert_eq!(header.token_json(0), None);
        let tokens = header.tokens_to_try(TokenFilter::default());
        let descriptions: Vec<_> =
            tokens.iter().map(|token| (token.id, token.key_description.as_deref(), &*token.slots)).collect();
        let expected = [(3, Some("a:b"), &[0][..]), (4, None, &[0]), (5, None, &[0])];
        assert_eq!(descriptions, expected);
    }
}
