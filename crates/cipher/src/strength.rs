//! Classes of cipher words: what a header may be believed about, and what it may not.
//!
//! | class | words, of any block cipher |
//! |---|---|
//! | sound | `xts-plain64`, `xts-plain` while its 32 bits count all sectors, `adiantum-plain64` |
//! | legacy | `cbc-essiv`, `cbc-plain`, `cbc-plain64`, `xts-essiv`, `xts-benbi`, `lrw-benbi`, `adiantum-plain`, longer `xts-plain` |
//! | broken | everything else: equal sectors that encrypt alike, streams, and what no LUKS tool writes |

use std::fmt;

use crate::spec::{CipherSpec, IvMode};

/// Sectors of 512 bytes that an IV of 32 bits counts: 2 TiB.
const SECTORS_OF_PLAIN: u64 = 1 << 32;

/// How well data is kept by a cipher, mode and IV, whatever the key. Whoever can write to a disk can see old and new
/// versions of its sectors and exchange them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// As good as encryption without a place for tags can be.
    Sound,
    /// Weaker, and found on real volumes.
    Legacy,
    /// Hides next to nothing from whoever writes to the disk; no LUKS tool makes it unless it is told to.
    Broken,
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sound => "sound",
            Self::Legacy => "legacy",
            Self::Broken => "broken",
        })
    }
}

impl CipherSpec {
    /// The class of this word for data whose last IV is below `sectors`, in sectors of 512 bytes.
    #[must_use]
    pub fn strength(&self, sectors: u64) -> Strength {
        use IvMode::{Benbi, Essiv, Plain, Plain64};
        if self.is_null() || self.key_count() != 1 {
            return Strength::Broken;
        }
        match (self.chain_mode(), self.iv_mode()) {
            ("xts" | "adiantum", Plain64) => Strength::Sound,
            ("xts", Plain) if !self.wraps(sectors) => Strength::Sound,
            ("xts", Plain | Essiv(_) | Benbi)
            | ("cbc", Essiv(_) | Plain | Plain64)
            | ("lrw", Benbi)
            | ("adiantum", Plain) => Strength::Legacy,
            _ => Strength::Broken,
        }
    }

    /// Tells if two of so many sectors of 512 bytes have one IV, since its number is cut to 32 bits.
    #[must_use]
    pub fn wraps(&self, sectors: u64) -> bool {
        *self.iv_mode() == IvMode::Plain && sectors > SECTORS_OF_PLAIN
    }

    /// Tells if both encrypt the first 2 TiB alike, however they are written: `plain` is `plain64` there.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        let of = |spec: &Self| {
            let iv_mode = match spec.iv_mode() {
                IvMode::Plain => IvMode::Plain64,
                iv_mode => iv_mode.clone(),
            };
            (spec.cipher_name().to_owned(), spec.chain_mode().to_owned(), iv_mode, spec.key_count())
        };
        of(self) == of(other)
    }

    /// The same in the form that every program reads, `cipher-chainmode-ivmode`; `None` for what is broken.
    #[must_use]
    pub fn in_usual_form(&self) -> Option<String> {
        let iv_mode = match self.iv_mode() {
            _ if self.strength(0) == Strength::Broken => return None,
            IvMode::Essiv(hash) => &format!("essiv:{hash}"),
            IvMode::Plain => "plain",
            IvMode::Plain64 => "plain64",
            IvMode::Benbi => "benbi",
            _ => return None,
        };
        Some(format!("{}-{}-{iv_mode}", self.cipher_name(), self.chain_mode()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = (1 << 40) / 512;

    fn spec(word: &str) -> CipherSpec {
        CipherSpec::parse(word).unwrap_or_else(|error| panic!("{word}: {error}"))
    }

    #[test]
    fn words_have_their_classes_in_any_form() {
        for (class, words) in [
            (
                Strength::Sound,
                "aes-xts-plain64 serpent-xts-plain64 aes-xts-plain capi:xts(aes)-plain64 aes-xts-plain64:x \
                 xchacha12,aes-adiantum-plain64 capi:adiantum(xchacha20,aes)-plain64",
            ),
            (
                Strength::Legacy,
                "aes aes-plain aes-cbc-plain aes-cbc-plain64 aes-cbc-essiv:sha256 capi:essiv(cbc(aes),sha256)-plain64 \
                 twofish-xts-essiv:sha256 aes-xts-benbi aes-lrw-benbi xchacha20,aes-adiantum-plain",
            ),
            (
                Strength::Broken,
                "aes-ecb aes-xts-null aes-cbc-null capi:xts(aes)-null aes:2-ctr-null aes:4-ecb aes:2-xts-plain64 \
                 aes-ctr-plain64 aes-xts-plain64be aes-cbc-plain64be aes-lrw-plain64 aes-lrw-plain64be aes:64-cbc-lmk \
                 capi:cbc(aes)-lmk aes-cbc-tcw aes-cbc-eboiv aes-cbc-elephant aes-xts-spdk aes-cbc-benbi \
                 cipher_null-ecb xchacha12,aes-adiantum-null xchacha12,aes-adiantum-plain64be",
            ),
        ] {
            for word in words.split_whitespace() {
                assert_eq!(spec(word).strength(TIB), class, "{word}");
            }
        }
    }

    #[test]
    fn plain_is_weaker_where_its_numbers_come_again() {
        let plain = spec("aes-xts-plain");
        assert_eq!((plain.strength(2 * TIB), plain.wraps(2 * TIB)), (Strength::Sound, false));
        assert_eq!((plain.strength(2 * TIB + 1), plain.wraps(2 * TIB + 1)), (Strength::Legacy, true));
        assert_eq!(spec("aes-xts-plain64").strength(u64::MAX), Strength::Sound);
        assert!(spec("aes-cbc-plain").wraps(3 * TIB) && !spec("aes-cbc-plain64").wraps(u64::MAX));
    }

    #[test]
    fn words_are_alike_where_they_encrypt_alike() {
        for (one, other, alike) in [
            ("aes-xts-plain64", "capi:xts(aes)-plain64", true),
            ("aes-xts-plain", "aes-xts-plain64", true),
            ("aes", "aes-cbc-plain64", true),
            ("capi:essiv(cbc(aes),sha256)-plain64", "aes-cbc-essiv:sha256", true),
            ("aes-cbc-essiv:sha256", "aes-cbc-essiv:md5", false),
            ("aes-xts-plain64", "aes-xts-null", false),
            ("aes-xts-plain64", "serpent-xts-plain64", false),
            ("aes-ecb", "aes:4-ecb", false),
            ("aes-xts-plain64", "aes-xts-plain64be", false),
        ] {
            assert_eq!(spec(one).is_alike(&spec(other)), alike, "{one} and {other}");
        }
    }

    #[test]
    fn usual_form_is_the_same_cipher() {
        for (word, usual) in [
            ("capi:xts(aes)-plain64", Some("aes-xts-plain64")),
            ("aes-xts-plain64:x", Some("aes-xts-plain64")),
            ("aes", Some("aes-cbc-plain")),
            ("capi:essiv(cbc(aes),sha256)-plain64", Some("aes-cbc-essiv:sha256")),
            ("aes-lrw-benbi", Some("aes-lrw-benbi")),
            ("aes-ecb", None),
            ("aes:2-xts-plain64", None),
        ] {
            let found = spec(word).in_usual_form();
            assert_eq!(found.as_deref(), usual, "{word}");
            if let Some(found) = found {
                assert!(spec(&found).is_alike(&spec(word)), "{word}");
            }
        }
    }
}
