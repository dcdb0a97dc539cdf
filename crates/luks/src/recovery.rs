//! Recovery keys as systemd has them: 256 random bits in letters that are at the same place on most keyboards.
//!
//! ```text
//! cuuenful-bknhdtjd-lfkvgihu-jhlhthfv-dvvjnuer-inveljfr-dthjvgvn-rtflfnjv
//! ```
//!
//! Such a text, in small letters and with its dashes, is the passphrase of the key slot.

use cryptline_sys::SecretBuf;

use crate::LuksHeader;
use crate::error::Error;
use crate::token::{RECOVERY_TOKEN, TokenFilter};

/// The letters, each 4 bits.
const ALPHABET: [u8; 16] = *b"cbdefghijklnrtuv";
const KEY_LEN: usize = 32;
const LETTERS: usize = 2 * KEY_LEN;
/// Letters between two dashes.
const GROUP: usize = 8;
/// Bytes of a recovery key as text.
pub const RECOVERY_KEY_LEN: usize = LETTERS + LETTERS / GROUP - 1;

/// A new recovery key as text.
///
/// # Errors
/// [`Error::KeyMemory`].
pub fn new_key() -> Result<SecretBuf, Error> {
    let key = SecretBuf::random(KEY_LEN).map_err(Error::KeyMemory)?;
    text_of(&key)
}

fn text_of(key: &[u8]) -> Result<SecretBuf, Error> {
    let mut text = SecretBuf::zeroed(RECOVERY_KEY_LEN).map_err(Error::KeyMemory)?;
    let halves = key.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    for (place, half) in halves.enumerate() {
        text[place + place / GROUP] = ALPHABET[usize::from(half)];
    }
    text.iter_mut().skip(GROUP).step_by(GROUP + 1).for_each(|dash| *dash = b'-');
    Ok(text)
}

/// Returns the recovery key that `typed` means, whatever its case, dashes and white space; `None` where it is none.
///
/// # Errors
/// [`Error::KeyMemory`].
pub fn normalised(typed: &[u8]) -> Result<Option<SecretBuf>, Error> {
    let mut text = SecretBuf::zeroed(RECOVERY_KEY_LEN).map_err(Error::KeyMemory)?;
    let mut place = 0;
    for byte in typed {
        let letter = byte.to_ascii_lowercase();
        match letter {
            b'-' => {}
            space if space.is_ascii_whitespace() => {}
            letter if place < LETTERS && ALPHABET.contains(&letter) => {
                text[place + place / GROUP] = letter;
                place += 1;
            }
            _ => return Ok(None),
        }
    }
    text.iter_mut().skip(GROUP).step_by(GROUP + 1).for_each(|dash| *dash = b'-');
    Ok((place == LETTERS).then_some(text))
}

impl LuksHeader {
    /// Key slots of recovery keys; only `slot`, where that is named.
    #[must_use]
    pub fn recovery_slots(&self, slot: Option<u32>) -> Vec<u32> {
        let filter = TokenFilter { kind: Some(RECOVERY_TOKEN), slot, ..TokenFilter::default() };
        self.tokens_to_try(filter).into_iter().flat_map(|token| token.slots).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"cbdefghi-jklnrtuv-cbdefghi-jklnrtuv-vvvvvvvv-cccccccc-bbbbbbbb-cvcvcvcv";

    #[test]
    fn key_is_written_in_eight_groups_of_the_sixteen_letters() {
        let mut key = Vec::new();
        for _ in 0..2 {
            key.extend([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        }
        key.extend([0xff; 4]);
        key.extend([0; 4]);
        key.extend([0x11; 4]);
        key.extend([0x0f; 4]);
        assert_eq!(&*text_of(&key).unwrap(), TEXT);
        let new = new_key().unwrap();
        assert_eq!(new.len(), 71);
        assert_eq!(*normalised(&new).unwrap().unwrap(), *new);
        assert_ne!(*new_key().unwrap(), *new);
    }

    #[test]
    fn case_dashes_and_spaces_do_not_matter() {
        let text = std::str::from_utf8(TEXT).unwrap();
        for typed in
            [text.to_owned(), text.to_uppercase(), text.replace('-', ""), text.replace('-', " "), format!("{text}\n")]
        {
            let normal = normalised(typed.as_bytes()).unwrap().unwrap();
            assert_eq!(&*normal, TEXT, "{typed}");
        }
    }

    #[test]
    fn other_texts_are_no_recovery_keys() {
        let text = std::str::from_utf8(TEXT).unwrap();
        for typed in
            ["", "passphrase", &text[1..], &format!("{text}c"), &text.replace('v', "a"), &text.replace('v', "é")]
        {
            assert!(normalised(typed.as_bytes()).unwrap().is_none(), "{typed}");
        }
    }
}
