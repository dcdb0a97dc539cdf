//! A key that is asked for once and needed twice.

use std::sync::{Arc, Mutex};

use cryptline::{Key, KeyRequest, Keys, Problem};
use cryptline_sys::{SecretBuf, lock};

use super::KeyArgs;

/// Keys that were given, for whoever asks again.
pub struct Remembered {
    keys: KeyArgs,
    last: Mutex<Option<Key>>,
}

impl Remembered {
    /// Nothing is asked for yet.
    pub fn new(keys: KeyArgs) -> Arc<Self> {
        let last = Mutex::new(None);
        Arc::new(Self { keys, last })
    }

    /// For one of those who need it.
    pub fn keys(self: &Arc<Self>) -> impl Keys + 'static {
        let this = Arc::clone(self);
        move |request: &KeyRequest<'_>| this.key(request)
    }

    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, cryptline::Error> {
        let mut last = lock(&self.last);
        if last.is_none() || request.failed > 0 {
            *last = self.keys.key(request)?;
        }
        last.as_ref().map(copy_of).transpose()
    }
}

fn copy_of(key: &Key) -> Result<Key, cryptline::Error> {
    let copy = |secret: &SecretBuf| SecretBuf::copy_of(secret).map_err(Problem::KeyMemory);
    Ok(match key {
        Key::Passphrase(secret) => Key::Passphrase(copy(secret)?),
        Key::Volume(secret) => Key::Volume(copy(secret)?),
    })
}

#[cfg(test)]
mod tests {
    use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind};
    use cryptline::{Create, Open};

    use super::*;
    use crate::args::PassphraseSource;

    #[test]
    fn key_is_asked_for_once_and_again_where_it_was_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let volume = |name: &str, passphrase: &str| {
            let path = folder.path().join(name);
            let format = FormatOptions {
                kdf: Some(KdfKind::Pbkdf2),
                cost: KdfCost { iterations: Some(1000), ..KdfCost::default() },
                ..FormatOptions::default()
            };
            let create = Create::new(&path).size(20 << 20).format(format);
            create.passphrase(passphrase).create().unwrap();
            path
        };
        let (disk, other) = (volume("disk", "secret"), volume("other", "else"));
        let file = folder.path().join("key");
        std::fs::write(&file, "secret").unwrap();
        let remembered = Remembered::new(KeyArgs {
            passphrase: PassphraseSource::of(Some(file.clone()), None),
            ..KeyArgs::default()
        });
        let opens = |path| Open::new(path).keys(remembered.keys()).unlock().is_ok();
        assert!(opens(&disk));
        std::fs::remove_file(&file).unwrap();
        assert!(opens(&disk), "it was asked for again");
        std::fs::write(&file, "else").unwrap();
        assert!(!opens(&other), "a key file is not asked twice");
    }
}
