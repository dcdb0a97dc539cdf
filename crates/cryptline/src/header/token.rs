//! Tokens and recovery keys.

use cryptline_luks::edit::{Edit, HeaderChange, TokenPlace, TokenSlots};
use cryptline_luks::recovery;
use cryptline_luks::token::CLEVIS_TOKEN;
use cryptline_sys::SecretBuf;
use serde_json::json;

use super::{Edited, Header, KeptKey, MadeSlot, UnlockedHeader};
use crate::Result;
use crate::clevis::{Advertisement, Pin, TrustFn};
use crate::create::Progress;
use crate::error::Problem;
use crate::keys::with_keys;
use crate::provider::{NewToken, TokenMaker, TokenVolume};
use crate::tokens::AskPin;
use crate::tpm::{self, Pcrs, TpmDevice};

/// The keys of a tang server.
pub struct TangKeys(Advertisement);

impl TangKeys {
    /// Where the server is, as that was given.
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// The names of those that it signs with, by which it is known (RFC 7638, SHA-256).
    #[must_use]
    pub fn thumbprints(&self) -> Vec<String> {
        self.0.thumbprints()
    }

    /// Tells if one of them has this name; by SHA-1 as well, as old servers say it.
    #[must_use]
    pub fn is_known_as(&self, thumbprint: &str) -> bool {
        self.0.is_known_as(thumbprint)
    }
}

impl Header {
    /// Puts a token there, as JSON. Its number is in [`Edited::token`].
    ///
    /// # Errors
    /// Fails for what is no token, a number that is in use, LUKS1, and a header that must be left alone.
    pub fn set_token(self, token: &str, place: TokenPlace, slots: TokenSlots) -> Result<Edited> {
        self.changed_token(|edit| edit.set_token(token, place, slots))
    }

    /// Puts a token there that says: the passphrase is the user key of this description in the kernel's keyring.
    ///
    /// # Errors
    /// As [`set_token`](Self::set_token).
    pub fn set_keyring_token(self, description: &str, place: TokenPlace, slots: TokenSlots) -> Result<Edited> {
        self.changed_token(|edit| edit.set_keyring_token(description, place, slots))
    }

    /// Removes a token. The key slots that it was for stay.
    ///
    /// # Errors
    /// No such token; LUKS1; a header that must be left alone.
    pub fn remove_token(self, id: u32) -> Result<Edited> {
        self.changed_token(|edit| Ok((edit.remove_token(id)?, id)))
    }

    /// Says that a token is not for this key slot any more.
    ///
    /// # Errors
    /// As [`remove_token`](Self::remove_token), and where it was not.
    pub fn unassign_token(self, id: u32, slot: u32) -> Result<Edited> {
        self.changed_token(|edit| Ok((edit.unassign_token(id, slot)?, id)))
    }

    /// Adds a key slot for a new random recovery key, and returns that as text: the passphrase of the slot. It is
    /// marked by a token as systemd's are, so it opens the volume whatever its case, and without its dashes.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); LUKS1.
    pub fn add_recovery_key(self, slot: Option<u32>) -> Result<(Edited, SecretBuf)> {
        let mut text = None;
        let edited = self.with_key_memory(|this, opened, edit| {
            if let cryptline_luks::LuksHeader::V1(_) = edit.header() {
                return Err(Problem::NoRecoveryKeys.on(&opened.name));
            }
            let UnlockedHeader { key, notes: warnings, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            this.tell(Progress::Deriving)?;
            let text = text.insert(opened.on(recovery::new_key())?);
            let (change, slot, token) = opened.on(edit.add_recovery(&key, text, slot))?;
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })?;
        Ok((edited, text.expect("it was made for the key slot")))
    }

    /// Adds a key slot for a new random passphrase that the tang server at `url` helps to recover, and the token of
    /// clevis that says so. `trust` is told the names of the server's keys; an error from it leaves everything as it is.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); a server that cannot be reached or does not do what it should; LUKS1.
    pub fn bind_tang(
        self,
        url: &str,
        slot: Option<u32>,
        trust: impl FnMut(&TangKeys) -> Result<()> + Send,
    ) -> Result<Edited> {
        self.bind_clevis(slot, trust, |trust| Pin::tang(url, trust))
    }

    /// The same for several servers, of which so many are needed: `config` is the JSON of clevis's pin sss, with the pins
    /// tang and sss in it. `trust` is told the names of the keys of each server that the configuration says nothing of.
    ///
    /// # Errors
    /// As [`bind_tang`](Self::bind_tang); a configuration that cannot be used.
    pub fn bind_sss(
        self,
        config: &str,
        slot: Option<u32>,
        trust: impl FnMut(&TangKeys) -> Result<()> + Send,
    ) -> Result<Edited> {
        self.bind_clevis(slot, trust, |trust| Pin::sss(config, trust))
    }

    fn bind_clevis(
        self,
        slot: Option<u32>,
        mut trust: impl FnMut(&TangKeys) -> Result<()> + Send,
        pin: impl FnOnce(&mut TrustFn<'_>) -> Result<Pin> + Send,
    ) -> Result<Edited> {
        let ask = move |name: &str| pin(&mut |server| trust(&TangKeys(server.clone()))).map_err(|error| error.on(name));
        self.bind_by(slot, ask, |name, pin| {
            let secret = recovery::new_key().map_err(|error| Problem::Luks(error).on(name))?;
            let jwe = pin.seal(&secret).map_err(|why| Problem::Tang(why).on(name))?.to_json();
            Ok(NewToken { secret, json: json!({"type": CLEVIS_TOKEN, "keyslots": [], "jwe": jwe}), warning: None })
        })
    }

    /// Adds a key slot for a new random passphrase that the TPM gives while its registers `pcrs` have the values that
    /// they have now, and the token of systemd that says so. With `pin` that is asked for, too.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); a TPM that is not there, does not have these registers (with SHA-256) or does not
    /// do what it should; an empty PIN; LUKS1.
    pub fn bind_tpm(self, device: &TpmDevice, pcrs: Pcrs, pin: Option<&AskPin>, slot: Option<u32>) -> Result<Edited> {
        let ask = |name: &str| {
            let pin = pin.map(|pin| pin.ask(name, None)).transpose()?;
            if pin.as_ref().is_some_and(|pin| pin.is_empty()) {
                return Err(Problem::Tpm("the PIN is empty; choose one".to_owned()).on(name));
            }
            Ok(pin)
        };
        self.bind_by(slot, ask, |name, pin| {
            tpm::seal(device, pcrs, pin.as_ref()).map_err(|refusal| Problem::Tpm(refusal.why()).on(name))
        })
    }

    /// Adds a key slot for a passphrase that `maker` makes, and the token that yields it.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); what keeps the maker from making one; LUKS1.
    pub fn bind<M: TokenMaker>(self, mut maker: M, slot: Option<u32>) -> Result<Edited> {
        self.with_key_memory(|this, opened, edit| {
            let volume = TokenVolume::new(&opened.name, edit.header());
            let prepared = maker.prepare(&volume)?;
            let UnlockedHeader { key, notes, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            let new = maker.make(&volume, prepared)?;
            let (change, slot, token) = opened.on(edit.add_bound(&key, &new.secret, slot, new.json))?;
            let warnings = new.warning.into_iter().chain(notes).collect();
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })
    }

    /// The same for a secret that `seal` makes; `prepare` comes before anything is unlocked.
    fn bind_by<T: Send>(
        self,
        slot: Option<u32>,
        prepare: impl FnOnce(&str) -> Result<T> + Send,
        seal: impl FnOnce(&str, T) -> Result<NewToken> + Send,
    ) -> Result<Edited> {
        self.with_key_memory(|this, opened, edit| {
            let prepared = prepare(&opened.name)?;
            let UnlockedHeader { key, notes, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            let new = seal(&opened.name, prepared)?;
            let added = edit.add_bound(&key, &new.secret, slot, new.json);
            let (change, slot, token) = opened.on(added)?;
            let warnings = new.warning.into_iter().chain(notes).collect();
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })
    }

    fn changed_token(
        mut self,
        change: impl FnOnce(&Edit) -> std::result::Result<(HeaderChange<'_>, u32), cryptline_luks::Error>,
    ) -> Result<Edited> {
        let opened = self.open(false)?;
        let edit = opened.load()?;
        let (change, token) = opened.on(change(&edit))?;
        let edited = with_keys(|| {
            let key = self.key_of_seal(&opened, &change)?;
            self.commit(&opened, change, None, key.as_ref())
        })?;
        Ok(Edited { token: Some(token), ..edited })
    }
}
