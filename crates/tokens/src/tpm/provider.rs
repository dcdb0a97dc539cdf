//! Passphrases of tokens that a TPM gives, and key slots that it opens.

use std::time::Duration;

use cryptline::luks::token::TPM_TOKEN;
use cryptline::{
    AskPin, NewToken, Problem, Result, SecretBuf, TokenMaker, TokenProvider, TokenRefusal, TokenRequest, TokenVolume,
};

use super::{Enrolled, PATIENCE, Pcrs, TpmDevice, seal};

/// Tokens whose passphrase the TPM at this place gives.
#[derive(Clone, Debug, Default)]
pub struct TpmTokens(pub TpmDevice);

impl TokenProvider for TpmTokens {
    fn kind(&self) -> &str {
        TPM_TOKEN
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn passphrase(&self, request: &TokenRequest<'_>) -> std::result::Result<SecretBuf, TokenRefusal> {
        let enrolled = Enrolled::new(&request.json(), &self.0, request.deadline())?;
        if !request.may_count && enrolled.may_count() {
            let why = "the TPM has counted a failure before, and after some it is locked; name this token to try it";
            return Err(TokenRefusal::NotUsed(why.to_owned()));
        }
        if !enrolled.has_pin() {
            return enrolled.passphrase(None, request.deadline());
        }
        match request.ask_pin() {
            Err(error) if matches!(error.problem(), Problem::NoPin) => {
                Err(TokenRefusal::NotUsed(error.problem().to_string()))
            }
            Err(error) => Err(error.into()),
            Ok(None) => Err(TokenRefusal::NotUsed("it wants a PIN".to_owned())),
            // No token is made with one, and each try may count.
            Ok(Some(pin)) if pin.is_empty() => Err("the PIN is empty, so it was not tried".into()),
            Ok(Some(pin)) => enrolled.passphrase(Some(&pin), request.deadline()),
        }
    }
}

/// A key slot for a new random passphrase that the TPM gives while its registers have the values that they have now, as
/// systemd's tools make it.
#[derive(Clone, Copy, Debug)]
pub struct BindTpm<'a> {
    /// Where the TPM is.
    pub device: &'a TpmDevice,
    /// The registers, in the bank of SHA-256.
    pub pcrs: Pcrs,
    /// Party that chooses a PIN, which is asked for then as well.
    pub pin: Option<&'a AskPin>,
}

impl TokenMaker for BindTpm<'_> {
    type Prepared = Option<SecretBuf>;

    fn prepare(&mut self, volume: &TokenVolume<'_>) -> Result<Option<SecretBuf>> {
        let pin = self.pin.map(|pin| pin.ask(volume.name, None)).transpose()?;
        if pin.as_ref().is_some_and(|pin| pin.is_empty()) {
            return Err(Problem::Tpm("the PIN is empty; choose one".to_owned()).on(volume.name));
        }
        Ok(pin)
    }

    fn make(&self, volume: &TokenVolume<'_>, pin: Option<SecretBuf>) -> Result<NewToken> {
        let sealed = seal(self.device, self.pcrs, pin.as_ref());
        sealed.map_err(|refusal| Problem::Tpm(refusal.why()).on(volume.name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cryptline::luks::edit::{TokenPlace, TokenSlots};
    use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind};
    use cryptline::{Create, Header, Open, Tokens};

    use super::*;

    #[test]
    fn tpm_that_is_not_there_is_named_in_a_warning_and_leaves_it_to_the_passphrase() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
        let format =
            FormatOptions { kdf: Some(KdfKind::Pbkdf2), cost, data_offset: Some(3 << 20), ..FormatOptions::default() };
        Create::new(&path).size(4 << 20).format(format).passphrase("x").create().unwrap();
        let token = r#"{"type": "systemd-tpm2", "keyslots": ["0"], "tpm2-blob": "AAFwAAJQVQ==", "tpm2-pcrs": [7]}"#;
        Header::new(&path).set_token(token, TokenPlace::default(), TokenSlots::AsGiven).unwrap();
        let provider = TpmTokens(TpmDevice::parse("/no/such").unwrap());
        let tokens = Tokens { providers: vec![Arc::new(provider)], ..Tokens::default() };
        let unlocked = Open::new(&path).passphrase("x").tokens(tokens).unlock().unwrap();
        assert_eq!(unlocked.token, None);
        let said: Vec<_> = unlocked.warnings.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|it| it.contains("token 0") && it.contains("/no/such")), "{said:?}");
    }
}
