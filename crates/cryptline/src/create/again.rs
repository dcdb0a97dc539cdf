//! A volume that is filled, and whose filling goes on later.
//!
//! ```text
//! header ─► first record ─► data, under its key, and records of how far it is ─► its name
//! ```
//!
//! The unfinished file has another name, so its header comes first: the next run takes the volume key from it. Nothing
//! tells of a header that was not made durable, since the first record comes behind it.

use std::path::Path;

use cryptline_cipher::CipherSpec;
use cryptline_luks::format::{FormatOptions, KdfKind, LuksVersion};
use cryptline_luks::{DataSegment, KdfLimits, SegmentPolicy, UnlockOptions};
use cryptline_sys::SecretBuf;

use super::making::{Making, Site};
use super::prepared::Prepared;
use super::{Create, Draft};
use crate::Result;
use crate::copy::{Copy, ResumeError};
use crate::error::Problem;
use crate::keys::with_keys;

impl Create {
    /// In a new file, going on where an earlier run has ended.
    pub(super) fn in_file_again<'a>(&'a self, path: &Path, copy: &'a Copy, how: &str) -> Result<Making<'a>> {
        // Another header would be another volume.
        let how = format!("{how} {} {}", copy.holes, self.choices());
        let (draft, mut resumed) = copy.find(path, self.replace, &how)?;
        let name = path.display().to_string();
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        let prepared = match resumed.last {
            Some(_) => self.begun(&draft, &name, passphrase)?,
            None => {
                self.prepare(&name, passphrase, Self::size_with(resumed.size.next_multiple_of(512)), &self.format)?
            }
        };
        resumed.reserves = self.preallocate;
        let size = self.file_size(&prepared, Some(resumed.size), &name)?;
        let site = Site::New { draft, size, grows: false };
        Ok(self.making(name, site, prepared, Some(copy), Some(resumed)))
    }

    /// Returns what was asked for, as a text that stays the same from one version of this program to the next: another
    /// text is another copy, and what was begun is of no use then.
    fn choices(&self) -> String {
        // A field that is new must be looked at here.
        let FormatOptions {
            version,
            cipher,
            key_len,
            sector_size,
            hash,
            kdf,
            cost,
            uuid,
            label,
            subsystem,
            data_offset,
            detached,
            slot,
            slot_cipher,
            metadata_size,
            keyslots_size,
            sparse,
            allow_null_cipher,
            // The cipher is named above.
            accepted_ciphers: _,
            seed: _,
        } = &self.format;
        let version = match version {
            LuksVersion::Luks1 => "1",
            LuksVersion::Luks2 => "2",
        };
        let kdf = kdf.map_or("", |kdf| match kdf {
            KdfKind::Pbkdf2 => "pbkdf2",
            KdfKind::Argon2i => "argon2i",
            KdfKind::Argon2id => "argon2id",
        });
        let slot_cipher = slot_cipher.as_ref();
        let fields = [
            ("size", number(self.size)),
            ("version", version.to_owned()),
            ("cipher", cipher.clone()),
            ("key", key_len.to_string()),
            ("sector", number(*sector_size)),
            ("hash", hash.clone()),
            ("kdf", kdf.to_owned()),
            ("milliseconds", cost.target.as_millis().to_string()),
            ("iterations", number(cost.iterations)),
            ("memory", number(cost.memory_kib)),
            ("cpus", number(cost.cpus)),
            ("uuid", uuid.clone().unwrap_or_default()),
            ("label", label.clone()),
            ("subsystem", subsystem.clone()),
            ("offset", number(*data_offset)),
            ("detached", number(Some(u8::from(*detached)))),
            ("slot", slot.to_string()),
            ("slot cipher", slot_cipher.map_or_else(String::new, |it| it.0.clone())),
            ("slot key", number(slot_cipher.map(|it| it.1))),
            ("metadata", number(*metadata_size)),
            ("keyslots", number(*keyslots_size)),
            ("sparse", number(Some(u8::from(*sparse)))),
            ("null", number(Some(u8::from(*allow_null_cipher)))),
            // Of the seed, without telling it.
            ("seed", self.format.seeded_uuid("copy").unwrap_or_default()),
        ];
        // The length keeps texts apart that have each other's names in them.
        let field = |(name, value): &(&str, String)| format!("{name}={}:{value};", value.len());
        fields.iter().map(field).collect()
    }

    /// The header that an earlier run has made.
    fn begun(&self, draft: &Draft, name: &str, passphrase: SecretBuf) -> Result<Prepared> {
        let part = draft.path().to_owned();
        let damaged = |error| Problem::Luks(error).on(part.display());
        let image = draft.image(true)?;
        with_keys(move || {
            let mut file = image.file();
            let header = cryptline_luks::read(&mut file, image.size()).map_err(damaged)?;
            let options = UnlockOptions {
                // The costs are those that were asked for.
                limits: KdfLimits::NONE,
                allow_null_cipher: self.format.allow_null_cipher,
                ..UnlockOptions::default()
            };
            let key = match header.unlock(&mut file, &passphrase, &options) {
                Ok(unlocked) => unlocked.key,
                Err(cryptline_luks::Error::NoKey) => {
                    let part = draft.path().to_owned();
                    return Err(Problem::Resume(ResumeError::OtherKey { part }).on(name));
                }
                Err(error) => return Err(damaged(error)),
            };
            let policy = SegmentPolicy { allow_null_cipher: self.format.allow_null_cipher, detached: false };
            let segments = header.segments(policy).map_err(damaged)?;
            for segment in &segments {
                self.check_cipher(segment).map_err(|found| {
                    Problem::Resume(ResumeError::OtherCipher { part: draft.path().to_owned(), found }).on(name)
                })?;
            }
            let (start, sector) = (segments[0].offset, segments[0].sector_size);
            Ok(Prepared {
                // It is on disk.
                bytes: Vec::new(),
                slots: 0,
                start,
                header,
                segments,
                key,
                passphrase,
                sector: sector.into(),
                is_apart: false,
            })
        })
    }

    /// Tells which cipher a segment has, where it is not the one that was asked for: whoever could write to the file
    /// meanwhile may have put a weaker one there.
    fn check_cipher(&self, segment: &DataSegment) -> std::result::Result<(), String> {
        let asked = CipherSpec::parse(&self.format.cipher).ok();
        match (&segment.cipher, asked) {
            (Some(found), Some(asked)) if found.is_alike(&asked) && found.wraps(u64::MAX) == asked.wraps(u64::MAX) => {
                Ok(())
            }
            (found, _) => Err(found.as_ref().map_or_else(|| "nothing".to_owned(), |spec| spec.as_str().to_owned())),
        }
    }
}

/// A number that may be none.
fn number(number: Option<impl Into<u64>>) -> String {
    number.map_or_else(String::new, |number| number.into().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy begun by one version of this program is finished by the next.
    #[test]
    fn choices_are_the_same_text_in_every_version() {
        let text = Create::new("disk").size(1 << 30).choices();
        let expected = "size=10:1073741824;version=1:2;cipher=15:aes-xts-plain64;key=2:64;sector=0:;\
            hash=6:sha256;kdf=0:;milliseconds=4:2000;iterations=0:;memory=0:;cpus=0:;uuid=0:;label=0:;\
            subsystem=0:;offset=0:;detached=1:0;slot=1:0;slot cipher=0:;slot key=0:;metadata=0:;\
            keyslots=0:;sparse=1:0;null=1:0;seed=0:;";
        assert_eq!(text, expected);
    }

    #[test]
    fn other_choices_are_another_text() {
        let of = |change: fn(&mut FormatOptions)| {
            let mut format = FormatOptions::default();
            change(&mut format);
            Create::new("disk").format(format).choices()
        };
        let seed = |byte| Some(cryptline_luks::Seed::new(SecretBuf::copy_of(&[byte; 16]).unwrap()).unwrap());
        let texts = [
            of(|_| ()),
            of(|it| it.label = "a".into()),
            of(|it| it.subsystem = "a".into()),
            of(|it| it.label = ";subsystem=1:a".into()),
            of(|it| it.kdf = Some(KdfKind::Pbkdf2)),
            of(|it| it.version = LuksVersion::Luks1),
        ];
        let seeded = [1, 2].map(|byte| {
            let format = FormatOptions { seed: seed(byte), ..FormatOptions::default() };
            Create::new("disk").format(format).choices()
        });
        let all: std::collections::BTreeSet<_> = texts.iter().chain(&seeded).collect();
        assert_eq!(all.len(), texts.len() + seeded.len());
    }
}
