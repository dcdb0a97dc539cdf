//! Key slots that open with the help of servers, as `clevis luks bind` makes them.

use cryptline::luks::recovery;
use cryptline::luks::token::CLEVIS_TOKEN;
use cryptline::{NewToken, Problem, Result, TokenMaker, TokenVolume};
use serde_json::json;

use super::pins::Pin;
use super::tang::TangKeys;

/// A key slot for a new random passphrase that tang servers help to recover.
///
/// `trust` is told the names of the keys of each server of which nothing else says that it is the right one; an error from
/// it leaves everything as it is.
#[derive(Debug)]
pub struct BindClevis<'a, T> {
    config: PinConfig<'a>,
    trust: T,
}

/// Text that says which servers.
#[derive(Clone, Copy, Debug)]
enum PinConfig<'a> {
    Tang(&'a str),
    Sss(&'a str),
}

impl<'a, T: FnMut(&TangKeys) -> Result<()> + Send> BindClevis<'a, T> {
    /// By the server at `url`.
    pub fn tang(url: &'a str, trust: T) -> Self {
        Self { config: PinConfig::Tang(url), trust }
    }

    /// By several servers, of which so many are needed: `config` is the JSON of clevis's pin sss, with the pins tang and
    /// sss in it.
    pub fn sss(config: &'a str, trust: T) -> Self {
        Self { config: PinConfig::Sss(config), trust }
    }
}

impl<T: FnMut(&TangKeys) -> Result<()> + Send> TokenMaker for BindClevis<'_, T> {
    type Prepared = Pin;

    fn prepare(&mut self, volume: &TokenVolume<'_>) -> Result<Pin> {
        let pin = match self.config {
            PinConfig::Tang(url) => Pin::tang(url, &mut self.trust),
            PinConfig::Sss(config) => Pin::sss(config, &mut self.trust),
        };
        pin.map_err(|error| error.on(volume.name))
    }

    fn make(&self, volume: &TokenVolume<'_>, pin: Pin) -> Result<NewToken> {
        let secret = recovery::new_key().map_err(|error| Problem::Luks(error).on(volume.name))?;
        let jwe = pin.seal(&secret).map_err(|why| Problem::Tang(why).on(volume.name))?.to_json();
        Ok(NewToken { secret, json: json!({"type": CLEVIS_TOKEN, "keyslots": [], "jwe": jwe}), warning: None })
    }
}
