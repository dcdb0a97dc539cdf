//! `token bind`: a key slot that opens by a server, the TPM of this machine, a security key or a helper.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cryptline::{Edited, Header};
use cryptline_tokens::{BindClevis, BindFido2, BindHelper, BindTpm, Pcrs, TangKeys};

use super::super::header::ask;
use super::super::key::{ConfirmArgs, HeaderArgs, refuse_two_keys, unlocking_with};
use crate::CliError;
use crate::args::{
    KeyArgs, PassphraseSource, Taker, TokenArgs, TokenHelperArgs, ask_pin, ask_pin_of_key, refuse_shared_input,
};
use crate::error::on_one_line;
use crate::fido2::{self, SecurityKey, SecurityKeys};
use crate::output::{changed, report};
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "token bind",
    examples: "\
cryptline token bind disk.img tang http://tang.example
cryptline token bind disk.img tang http://tang.example --thumbprint uAprhr4HADpaEdRcS3pmVLh4u2tyFLFmZ3rWC4gN7xI
cryptline token bind disk.img sss '{\"t\": 2, \"pins\": {\"tang\": [{\"url\": \"a\"}, {\"url\": \"b\"}, {\"url\": \"c\"}]}}'
# the machine must boot as it has booted now (PCR 7)
cryptline token bind disk.img tpm2
cryptline token bind disk.img tpm2 --pcrs 7+11 --with-pin
cryptline token bind disk.img fido2 --with-pin
cryptline token bind disk.img exec '{\"key\": \"disk\"}' --token-helper vault=/etc/vault.json
# asks nothing while one of them answers
cryptline serve disk.img",
    notes: "\
A new key slot gets a random passphrase that is kept in the header.

tang: the passphrase is encrypted under a key that can be recovered only with the server's help. The server learns
neither the passphrase nor the key. That is what
`clevis luks bind` does, and each program opens what the other has bound. Without --thumbprint you are shown the
names of the server's keys (`tang-show-keys` there) and asked whether you trust them.

sss: CONFIG is the JSON of clevis's sss pin: tang servers or further sss groups, of which \"t\" are needed to open the
volume (1 without it). A server is trusted by \"thp\", the name of its key, or by \"adv\", what it has once
said, or the file that has it; otherwise you are asked.

tpm2: only the TPM of this machine decrypts it, and only while its registers have the values that they have now, and
for whoever knows the PIN, if there is one. That is what `systemd-cryptenroll --tpm2-device=auto` does, and each program
opens what the other has enrolled. Which registers tell what is a matter of firmware and boot loader: 7 is Secure
Boot, 11 the kernel image of systemd-stub. Keep another key: updates change registers.

fido2: a security key makes the passphrase of a random salt, after a touch, and with its PIN if --with-pin is given. That is
what `systemd-cryptenroll --fido2-device=auto` does, and each program opens what the other has enrolled. It takes the
programs of libfido2 (Debian: fido2-tools). The volume opens with --fido2-device auto.

exec: a helper, which is named by --token-helper, wraps the passphrase, by a key of Vault or of a cloud for instance, and
unwraps it whenever the volume is opened with the same option. CONFIG is a JSON object by which the helper finds its key.",
    exit: "0 bound, 1 invalid parameters, LUKS1 or not confirmed, 2 wrong passphrase, 3 out of memory, 4 wrong \
        device, damaged header, or a server, TPM or security key that cannot be used, 5 in use",
    ..Verb::EMPTY
};

/// Whose, and to what.
#[derive(Args, Debug)]
pub struct BindArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// How the key slot is unlocked
    #[arg(value_enum, value_name = "METHOD")]
    pub by: By,

    /// tang: where the server is; sss: which pins, and how many of them, in JSON; exec: which key, in JSON
    #[arg(value_name = "URL|CONFIG", required_if_eq_any([("by", "tang"), ("by", "sss")]))]
    pub how: Option<String>,

    /// tang: name of a key that the server must sign with; nothing is asked then
    #[arg(long, value_name = "NAME")]
    pub thumbprint: Option<String>,

    /// tpm2: registers that must keep their values, numbers with + between them; '' for none [default: 7]
    #[arg(long, value_name = "PCRS", alias = "tpm2-pcrs")]
    pub pcrs: Option<Pcrs>,

    /// tpm2, fido2: ask for a PIN as well, now and whenever it opens; after some wrong ones neither takes more for a while
    #[arg(long)]
    pub with_pin: bool,

    /// Take the PIN from FILE, less a newline at its end: tpm2: the new one; fido2: that of the security key
    #[arg(long, value_name = "FILE", requires = "with_pin")]
    pub new_pin_file: Option<PathBuf>,

    /// exec: take the passphrase that the helper has already, as from a store of secrets; of at least 32 random bytes
    #[arg(long)]
    pub stored: bool,

    /// Number of the new key slot [default: the lowest that is free]
    #[arg(long, value_name = "N")]
    pub new_key_slot: Option<u32>,

    #[command(flatten)]
    pub confirm: ConfirmArgs,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// Means of opening a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A tang server
    Tang,
    /// Some of several tang servers
    Sss,
    /// The TPM of this machine
    Tpm2,
    /// A FIDO2 security key
    Fido2,
    /// A helper program
    Exec,
}

/// Result of binding, and when the volume opens now.
type BindOutcome = (cryptline::Result<Edited>, String);

impl BindArgs {
    /// Binds.
    pub fn run(&self) -> Result<(), CliError> {
        refuse_two_keys(&self.place, &self.keys)?;
        if self.stored && self.by != By::Exec {
            return Err(CliError::parameters("--stored is for a helper; leave it out"));
        }
        // The helper, or the security key, is for the new token only.
        let mut tokens = self.tokens.clone();
        match self.by {
            By::Exec => tokens.helpers = TokenHelperArgs::default(),
            By::Fido2 => tokens.fido2_device = None,
            _ => {}
        }
        let header = unlocking_with(&self.place, &self.keys, &tokens)?;
        let how = self.how.as_deref();
        let (bound, condition) = match (self.by, how) {
            (By::Tang, Some(url)) => self.to_tang(header, url)?,
            (By::Sss, Some(config)) => self.to_several(header, config)?,
            (By::Tpm2, None) => self.to_tpm(header)?,
            (By::Fido2, None) => self.to_security_key(header)?,
            (By::Fido2, Some(_)) => return Err(CliError::parameters("a security key has no URL; leave it out")),
            (By::Exec, config) => self.to_helper(header, config.unwrap_or("{}"))?,
            (By::Tang, None) => return Err(CliError::parameters("add the URL of the server")),
            (By::Sss, None) => return Err(CliError::parameters("add the configuration of the group, in JSON")),
            (By::Tpm2, Some(_)) => {
                return Err(CliError::parameters("a TPM has no URL; leave it out"));
            }
        };
        let edited = changed(bound)?;
        let (slot, token) = (edited.slot.unwrap_or_default(), edited.token.unwrap_or_default());
        report(&format!("Token {token} opens key slot {slot} {condition}.\n"))
    }

    fn to_tang(&self, header: Header, url: &str) -> Result<BindOutcome, CliError> {
        self.refuse_tpm()?;
        let bound = header.bind(BindClevis::tang(url, |server: &TangKeys| self.trust(server)), self.new_key_slot);
        Ok((bound, format!("while {} can be reached", on_one_line(url))))
    }

    fn to_several(&self, header: Header, config: &str) -> Result<BindOutcome, CliError> {
        self.refuse_tpm()?;
        if self.thumbprint.is_some() {
            return Err(CliError::parameters(
                "--thumbprint is for one tang server; here each pin may have its \"thp\"",
            ));
        }
        let bound = header.bind(BindClevis::sss(config, |server: &TangKeys| self.trust(server)), self.new_key_slot);
        Ok((bound, "while enough of its servers can be reached".to_owned()))
    }

    fn to_helper(&self, header: Header, config: &str) -> Result<BindOutcome, CliError> {
        self.refuse_tpm()?;
        if self.thumbprint.is_some() {
            return Err(CliError::parameters("--thumbprint is for a tang server; leave it out"));
        }
        let helpers = self.tokens.helpers.helpers()?;
        let ([named], Some(helpers)) = (&*self.tokens.helpers.token_helper, helpers) else {
            return Err(CliError::parameters("exec: name one helper with --token-helper"));
        };
        let maker = BindHelper::new(&*helpers, &named.name, config, self.stored);
        let bound = maker.and_then(|maker| header.bind(maker, self.new_key_slot));
        Ok((bound, format!("with the helper {}", named.name)))
    }

    fn to_security_key(&self, header: Header) -> Result<BindOutcome, CliError> {
        if self.pcrs.is_some() || self.thumbprint.is_some() {
            return Err(CliError::parameters("--pcrs and --thumbprint are not for a security key; leave them out"));
        }
        self.refuse_shared_pin()?;
        let pin = self.with_pin.then(|| ask_pin_of_key(self.new_pin_file.clone()));
        let keys = self.tokens.fido2_device.clone().unwrap_or(SecurityKey::Auto);
        let (keys, credential) = fido2::enrol(&keys, &self.place.name().display().to_string(), pin.as_ref())?;
        let condition = if self.with_pin { "with the security key, for its PIN" } else { "with the security key" };
        let maker = BindFido2 { authenticator: &SecurityKeys { keys, pin }, credential: &credential };
        let bound = header.bind(maker, self.new_key_slot);
        Ok((bound, condition.to_owned()))
    }

    fn refuse_tpm(&self) -> Result<(), CliError> {
        if self.pcrs.is_none() && !self.with_pin {
            return Ok(());
        }
        Err(CliError::parameters("--pcrs and --with-pin are for a TPM; leave them out"))
    }

    fn to_tpm(&self, header: Header) -> Result<BindOutcome, CliError> {
        if self.thumbprint.is_some() {
            return Err(CliError::parameters("--thumbprint is for a tang server; leave it out"));
        }
        self.refuse_shared_pin()?;
        let (device, pcrs) = (self.tokens.tpm()?, self.pcrs.unwrap_or_default());
        let pin = self.with_pin.then(|| ask_pin(self.new_pin_file.clone()));
        let bound = header.bind(BindTpm { device: &device, pcrs, pin: pin.as_ref() }, self.new_key_slot);
        let mut condition = "with this machine's TPM".to_owned();
        if pcrs != Pcrs::NONE {
            condition += &format!(" while PCR {pcrs} keeps its value");
        }
        if self.with_pin {
            condition += ", for the PIN";
        }
        Ok((bound, condition))
    }

    /// Standard input is the passphrase or the PIN, unless each is one line of it.
    fn refuse_shared_pin(&self) -> Result<(), CliError> {
        let new_pin = PassphraseSource::of(self.new_pin_file.clone(), None);
        let key = Taker {
            what: "the passphrase",
            instead: "--key-file",
            takes: self.keys.of_target(&self.place.target).from_input(),
        };
        let pin =
            Taker { what: "the PIN", instead: "--new-pin-file", takes: new_pin.from_input().filter(|_| self.with_pin) };
        refuse_shared_input(&[key, pin])
    }

    fn trust(&self, server: &TangKeys) -> cryptline::Result<()> {
        let url = server.url();
        let names = server.thumbprints().join(", ");
        let trusted = match &self.thumbprint {
            Some(name) if server.is_known_as(name) => Ok(()),
            Some(_) => Err(CliError::device(format!(
                "{}: none of the server's keys has that name, but {names}; is it another server?",
                on_one_line(url)
            ))),
            None => ask(
                self.confirm,
                &format!(
                    "The server {url} signs with the key {names}. Check that it is the server's, then use --thumbprint."
                ),
            ),
        };
        trusted.map_err(CliError::into_keys_error)
    }
}
