//! A key that is asked for once and needed twice.

use std::sync::{Arc, Mutex};

use cryptline::{Key, KeyRequest, Keys, Problem};
use cryptline_sys::{SecretBuf, lock};

use super::KeyArgs;

/// What the keys have given, for whoever asks again.
pub struct Remembered {
    keys: KeyArgs,
    last: Mutex<Option<Key>>,
}

impl Remembered {
    /// Nothing is asked for yet.
    #[must_use]
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
