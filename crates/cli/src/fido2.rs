//! Security keys, by the programs of libfido2: they know all kinds of keys, and this program has nothing of USB in it.
//!
//! ```text
//! fido2-token -L             which keys there are
//! fido2-cred -M -h           makes a credential, for `token bind`
//! fido2-assert -G -h         has a key make the secret of a credential and a salt
//! ```
//!
//! A PIN goes to them by standard input: they run in a session of their own, without our terminal. With several keys each is
//! asked first, without a touch or a PIN, whether it knows the credential, so that no wrong key loses one of its tries.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use cryptline::{AskPin, Problem, SecretBuf};
use cryptline_tokens::{Authenticator, HmacSecretRequest, NewCredential, RELYING_PARTY};

use crate::CliError;
use crate::key_program::KeyProgram;
use crate::output::complain;

/// Bytes of a secret.
const LEN: usize = 32;
/// Longest answer of a program, in bytes.
const ANSWER_MAX: usize = 64 << 10;
/// Longest time for a touch and its answer.
const TIME: Duration = Duration::from_secs(60);
/// Nothing that is signed is ever looked at.
const CLIENT_DATA_HASH: [u8; 32] = [0; 32];
/// Places of the credential and of the secret among the lines of an answer.
const CREDENTIAL_LINE: usize = 4;
const SECRET_LINE: usize = 4;

/// Any key, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityKey {
    /// Those that are there.
    Auto,
    /// The one at this device.
    At(PathBuf),
}

impl SecurityKey {
    /// `auto`, or a path.
    ///
    /// # Errors
    /// Reason why that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            path if path.starts_with('/') => Ok(Self::At(path.into())),
            _ => Err("use auto, or the path of a device such as /dev/hidraw0".to_owned()),
        }
    }

    /// Paths of the keys.
    fn devices(&self) -> Result<Vec<PathBuf>, CliError> {
        if let Self::At(path) = self {
            return Ok(vec![path.clone()]);
        }
        let mut command = Command::new("fido2-token");
        command.arg("-L");
        let listed = said(command, b"")?;
        let text = String::from_utf8_lossy(&listed.output).into_owned();
        // `/dev/hidraw0: vendor=0x1050, product=0x0407 (...)`
        let paths = text.lines().filter_map(|line| line.split_once(": ")).map(|(path, _)| PathBuf::from(path));
        Ok(paths.collect())
    }
}

/// Keys, and who knows their PINs.
#[derive(Debug)]
pub struct SecurityKeys {
    /// Which.
    pub keys: SecurityKey,
    /// Nobody does where there is none.
    pub pin: Option<AskPin>,
}

impl Authenticator for SecurityKeys {
    fn hmac_secret(&self, request: &HmacSecretRequest<'_>) -> cryptline::Result<Option<SecretBuf>> {
        self.secret(request).map_err(CliError::into_keys_error)
    }
}

impl SecurityKeys {
    fn secret(&self, request: &HmacSecretRequest<'_>) -> Result<Option<SecretBuf>, CliError> {
        let mut devices = self.keys.devices()?;
        if devices.len() > 1 {
            let mut knowing = Vec::new();
            for device in devices {
                if !matches!(ask(&device, request, &AnswerTerms::QUIETLY, None)?, FidoAnswer::Unknown) {
                    knowing.push(device);
                }
            }
            devices = knowing;
        }
        let Some(device) = devices.first() else { return Ok(None) };
        let asked = AnswerTerms {
            pin: request.pin.unwrap_or(false),
            presence: request.presence,
            verification: request.verification,
        };
        let pin = if asked.pin { Some(self.pin_of(request)?) } else { None };
        if asked.presence != Some(false) {
            complain(&format!("touch the security key that unlocks {}", request.name));
        }
        let answer = match (ask(device, request, &asked, pin.as_ref())?, request.pin) {
            (FidoAnswer::WantsPin, None) => {
                let pin = self.pin_of(request)?;
                ask(device, request, &AnswerTerms { pin: true, ..asked }, Some(&pin))?
            }
            (answer, _) => answer,
        };
        match answer {
            FidoAnswer::Secret(secret) => Ok(Some(secret)),
            FidoAnswer::Unknown => Ok(None),
            FidoAnswer::WantsPin => {
                Err(CliError::no_key("the security key wants a PIN that its token does not tell of"))
            }
            FidoAnswer::Refused(why) => Err(CliError::no_key(format!("{}: {why}", device.display()))),
        }
    }

    fn pin_of(&self, request: &HmacSecretRequest<'_>) -> Result<SecretBuf, CliError> {
        let unknown = || CliError::from(cryptline::Error::from(Problem::NoPin)).advised(" (--pin-file)");
        let ask = self.pin.as_ref().ok_or_else(unknown)?;
        Ok(ask.ask(request.name, request.token)?)
    }
}

/// Makes a credential for a volume on the only key that is there, or the one that is named.
///
/// # Errors
/// Exit code 4 for no key or several, or one that refuses; 2 for a wrong PIN.
pub fn enrol(keys: &SecurityKey, name: &str, pin: Option<&AskPin>) -> Result<(SecurityKey, NewCredential), CliError> {
    let devices = keys.devices()?;
    let device = match &*devices {
        [device] => device,
        [] => {
            return Err(CliError::device("there is no security key; plug it in, and see what `fido2-token -L` shows"));
        }
        several => {
            let names: Vec<_> = several.iter().map(|device| device.display().to_string()).collect();
            let names = names.join(", ");
            return Err(CliError::device(format!("there are several security keys, {names}; use --fido2-device")));
        }
    };
    let mut user = [0; LEN];
    user.copy_from_slice(&SecretBuf::random(LEN).map_err(|error| CliError::memory(error.to_string()))?);
    let hash = Base64::encode_string(&CLIENT_DATA_HASH);
    let input = format!("{hash}\n{RELYING_PARTY}\n{}\n{}\n", one_line(name), Base64::encode_string(&user));
    let parameters = written(&input)?;
    let mut command = Command::new("fido2-cred");
    command.args(["-M", "-h", "-i"]).arg(parameters.path());
    // Without a PIN it must not wait for one.
    if pin.is_none() {
        command.arg("-q");
    }
    command.arg(device);
    let pin_line = pin.map(|pin| pin.ask(name, None)).transpose()?;
    complain("touch the security key that is to unlock the volume");
    let made = said(command, &line_of(pin_line.as_ref())?)?;
    if !made.succeeded {
        return Err(CliError::device(format!("{}: no credential was made: {}", device.display(), made.complaint)));
    }
    let answer = String::from_utf8_lossy(&made.output).into_owned();
    let id = answer.lines().nth(CREDENTIAL_LINE).and_then(|line| Base64::decode_vec(line).ok());
    let id = id.filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| CliError::device("fido2-cred has answered without a credential; update libfido2"))?;
    let credential = NewCredential { id, pin: pin.is_some(), presence: true, verification: false };
    Ok((SecurityKey::At(device.clone()), credential))
}

/// Conditions of an answer.
struct AnswerTerms {
    pin: bool,
    presence: Option<bool>,
    verification: Option<bool>,
}

impl AnswerTerms {
    /// Nothing but whether it knows the credential.
    const QUIETLY: Self = Self { pin: false, presence: Some(false), verification: None };
}

enum FidoAnswer {
    Secret(SecretBuf),
    /// The key does not know the credential.
    Unknown,
    WantsPin,
    Refused(String),
}

fn ask(
    device: &Path,
    request: &HmacSecretRequest<'_>,
    asked: &AnswerTerms,
    pin: Option<&SecretBuf>,
) -> Result<FidoAnswer, CliError> {
    let [hash, credential, salt] = [&CLIENT_DATA_HASH[..], request.credential, request.salt].map(Base64::encode_string);
    let parameters = written(&format!("{hash}\n{}\n{credential}\n{salt}\n", one_line(request.relying_party)))?;
    let mut command = Command::new("fido2-assert");
    command.args(["-G", "-h", "-i"]).arg(parameters.path());
    for (option, value) in
        [("pin", Some(asked.pin)), ("up", asked.presence), ("uv", asked.verification.filter(|_| !asked.pin))]
    {
        if let Some(value) = value {
            command.arg("-t").arg(format!("{option}={value}"));
        }
    }
    command.arg(device);
    let answer = said(command, &line_of(pin)?)?;
    if answer.succeeded {
        let secret = answer.output.split(|byte| *byte == b'\n').nth(SECRET_LINE);
        return Ok(FidoAnswer::Secret(secret.map_or_else(|| Err(no_secret()), in_binary)?));
    }
    let complaint = answer.complaint;
    let has = |word: &str| complaint.contains(word);
    Ok(match () {
        () if has("NO_CREDENTIALS") || has("INVALID_CREDENTIAL") => FidoAnswer::Unknown,
        () if has("PIN_REQUIRED") || has("PUAT_REQUIRED") => FidoAnswer::WantsPin,
        () if has("BLOCKED") => {
            FidoAnswer::Refused("it takes no PIN any more until it is reset or plugged in again".into())
        }
        () if has("PIN_INVALID") => FidoAnswer::Refused("the PIN is wrong".into()),
        () if has("TIMEOUT") || has("OPERATION_DENIED") || has("UP_REQUIRED") => {
            FidoAnswer::Refused("it was not touched in time; try again".into())
        }
        () => return Err(CliError::device(format!("{}: {complaint}", device.display()))),
    })
}

fn no_secret() -> CliError {
    CliError::device("fido2-assert has answered without a secret; does the key have the extension hmac-secret?")
}

/// Decodes a secret without a copy elsewhere.
fn in_binary(text: &[u8]) -> Result<SecretBuf, CliError> {
    let mut secret = SecretBuf::zeroed(LEN).map_err(|error| CliError::memory(error.to_string()))?;
    let decoded = Base64::decode(text.trim_ascii_end(), &mut secret).map(<[u8]>::len);
    if decoded == Ok(LEN) { Ok(secret) } else { Err(no_secret()) }
}

/// Outcome of a program.
struct ProgramOutcome {
    succeeded: bool,
    output: SecretBuf,
    /// Its last line on standard error.
    complaint: String,
}

fn said(mut command: Command, input: &[u8]) -> Result<ProgramOutcome, CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot make a temporary file: {error}"));
    let name = command.get_program().to_string_lossy().into_owned();
    let mut errors = tempfile::tempfile().map_err(failed)?;
    command.stderr(errors.try_clone().map_err(failed)?);
    let program = KeyProgram::new(command, input, ANSWER_MAX, TIME).without_terminal();
    let ended = program.run().map_err(|why| {
        CliError::device(format!("{name} {why}")).advised("; install libfido2's programs (Debian: fido2-tools)")
    })?;
    Ok(ProgramOutcome { succeeded: ended.status.success(), output: ended.output, complaint: last_line(&mut errors) })
}

fn last_line(errors: &mut File) -> String {
    let mut text = Vec::new();
    // What cannot be read is not told.
    let _ = errors.rewind().and_then(|()| errors.take(ANSWER_MAX as u64).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it has not said why").trim().to_owned()
}

/// The parameters, none of which is a secret, in a file: standard input is for the PIN.
fn written(text: &str) -> Result<tempfile::NamedTempFile, CliError> {
    let failed = |error: io::Error| CliError::device(format!("cannot make a temporary file: {error}"));
    let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file)
}

/// The PIN as a line.
fn line_of(pin: Option<&SecretBuf>) -> Result<SecretBuf, CliError> {
    let len = pin.map_or(0, |pin| pin.len() + 1);
    let mut line = SecretBuf::zeroed(len).map_err(|error| CliError::memory(error.to_string()))?;
    if let Some(pin) = pin {
        line[..pin.len()].copy_from_slice(pin);
        line[pin.len()] = b'\n';
    }
    Ok(line)
}

/// A header may say anything: the parameters are lines.
fn one_line(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}
