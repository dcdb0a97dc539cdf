//! Settings that opening a volume and making one share: its place, its keys, and what is accepted of it.

use std::ffi::OsStr;
use std::sync::Arc;

use cryptline_luks::KdfLimits;

use crate::Result;
use crate::base::BaseSource;
use crate::error::{Error, Problem};
use crate::keys::{Key, KeyFile, KeyRequest, Keys};
use crate::rules::HeaderRules;
use crate::target::Target;
use crate::tokens::Tokens;

/// Input that was given. The first thing that was wrong with it is told when the place is asked for.
pub(crate) struct Given {
    /// Not there once it was taken.
    source: Option<Result<BaseSource>>,
    keys: Option<Arc<dyn Keys>>,
    accepted_ciphers: Vec<String>,
    rules: HeaderRules,
    /// The only key slot that is tried.
    pub slot: Option<u32>,
    pub tokens: Option<Tokens>,
    pub limits: KdfLimits,
}

impl From<BaseSource> for Given {
    fn from(source: BaseSource) -> Self {
        match source {
            BaseSource::Target(Target::Keyed(keyed)) => {
                let keys = match (keyed.key_file, keyed.passphrase_command) {
                    (Some(path), _) => Some(Arc::new(KeyFile::new(path)) as Arc<dyn Keys>),
                    // Whoever names a target must not thereby run a program.
                    (None, Some(_)) => Some(Arc::new(refused) as Arc<dyn Keys>),
                    (None, None) => None,
                };
                let given = Self::of(Ok(BaseSource::Target(keyed.of)));
                Self { keys, accepted_ciphers: keyed.accepted_ciphers, rules: keyed.rules, ..given }
            }
            source => Self::of(Ok(source)),
        }
    }
}

fn refused(request: &KeyRequest<'_>) -> Result<Option<Key>> {
    let why = "its passphrase command is run by the program only; use the passphrase itself, or a key file";
    Err(Problem::Target(why.to_owned()).on(request.name))
}

impl Given {
    /// Takes what `target` names.
    pub fn target(target: impl AsRef<OsStr>) -> Self {
        match Target::parse(target) {
            Ok(target) => BaseSource::Target(target).into(),
            Err(error) => Self::of(Err(error)),
        }
    }

    fn of(source: Result<BaseSource>) -> Self {
        Self {
            source: Some(source),
            keys: None,
            accepted_ciphers: Vec::new(),
            rules: HeaderRules::default(),
            slot: None,
            tokens: None,
            limits: KdfLimits::default(),
        }
    }

    /// Demands this of the header, where the target itself does not say otherwise.
    pub fn add_rules(&mut self, rules: &HeaderRules) {
        self.rules = std::mem::take(&mut self.rules).or(rules);
    }

    pub fn rules(&self) -> &HeaderRules {
        &self.rules
    }

    /// Takes keys, or why there are none.
    pub fn set_keys(&mut self, keys: Result<impl Keys + 'static>) {
        match (keys, &self.source) {
            (Ok(keys), _) => self.keys = Some(Arc::new(keys)),
            (Err(error), Some(Ok(_))) => self.source = Some(Err(error)),
            // Something was wrong before.
            (Err(_), _) => {}
        }
    }

    /// Accepts a cipher of the header, exactly as it is written there.
    pub fn accept_cipher(&mut self, spec: String) {
        self.accepted_ciphers.push(spec);
    }

    pub fn accepted_ciphers(&self) -> &[String] {
        &self.accepted_ciphers
    }

    pub fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    pub fn keys(&self) -> Result<&dyn Keys> {
        Ok(self.keys.as_deref().ok_or(Problem::NoKey)?)
    }

    /// The target, where it is one and makes sense.
    pub fn peek(&self) -> Option<&Target> {
        match &self.source {
            Some(Ok(BaseSource::Target(target))) => Some(target),
            _ => None,
        }
    }

    /// The place; or what has been wrong all along.
    pub fn take_source(&mut self) -> Result<BaseSource> {
        let none = || Error::from(Problem::Target("no target is named".to_owned()));
        self.source.take().ok_or_else(none)?
    }
}
