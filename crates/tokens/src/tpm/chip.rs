//! The commands that are needed of a TPM. What they leave in it is flushed when this is dropped, since without a resource
//! manager there is room for three keys.

use std::fmt;
use std::time::{Duration, Instant};

use cryptline::{SecretBuf, TokenRefusal};
use sha2::{Digest, Sha256};

use super::code::Code;
use super::device::TpmLink;
use super::session::{self, COORDINATE, DECRYPT, ENCRYPT, LAST, Proposal, SessionUse, TpmSession};
use super::wire::{
    ALG_AES, ALG_CFB, ALG_ECC, ALG_KEYEDHASH, ALG_NULL, ALG_RSA, ALG_SHA256, CURVE_P256, CommandWriter, HEADER,
    MESSAGE_MAX, RH_OWNER, RS_PASSWORD, ResponseReader, ST_NO_SESSIONS, ST_SESSIONS, pcr_selection,
};

const CREATE_PRIMARY: u32 = 0x131;
const CREATE: u32 = 0x153;
const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const FLUSH_CONTEXT: u32 = 0x165;
const POLICY_AUTH_VALUE: u32 = 0x16b;
const READ_PUBLIC: u32 = 0x173;
const START_AUTH_SESSION: u32 = 0x176;
const PCR_READ: u32 = 0x17e;
const POLICY_PCR: u32 = 0x17f;
const POLICY_GET_DIGEST: u32 = 0x189;

/// Fixed to this TPM and its parent, made in it, used with its (empty) password, and only for keys below it.
const STORAGE_KEY: u32 = 0x0003_0072;
/// Fixed to this TPM and its parent; only a policy opens it, and wrong PINs count.
const SEALED: u32 = 0x0000_0012;

/// Why a command was not done.
#[derive(Debug)]
pub enum TpmFailure {
    Code(Code),
    Line(String),
}

impl fmt::Display for TpmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => code.fmt(f),
            Self::Line(why) => f.write_str(why),
        }
    }
}

impl<T: Into<TokenRefusal>> From<T> for TpmFailure {
    fn from(why: T) -> Self {
        Self::Line(why.into().why())
    }
}

type TpmResult<T> = std::result::Result<T, TpmFailure>;

/// How often a command may be put off, for 255 ms altogether.
const ATTEMPTS: u32 = 8;

/// Time that a TPM has to flush what is left there, whatever it has taken before.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(1);

const DAMAGED: &str = "its answer is damaged";

/// The kind of a primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryKind {
    Ecc,
    Rsa,
}

/// Something that the TPM has loaded.
pub struct LoadedObject {
    pub handle: u32,
    pub public: Public,
}

/// The public area of a key or a sealed secret (`TPMT_PUBLIC`).
pub struct Public(pub Vec<u8>);

impl Public {
    /// Returns what the TPM calls it.
    pub fn name(&self) -> Vec<u8> {
        CommandWriter::default().u16(ALG_SHA256).bytes(&Sha256::digest(&self.0)).0
    }

    /// The point of a key for ECDH on P-256; `None` of other keys.
    pub fn point(&self) -> Option<([u8; COORDINATE], [u8; COORDINATE])> {
        let mut area = ResponseReader(&self.0);
        let kind = area.u16()?;
        let (_name, _attributes, _policy) = (area.u16()?, area.u32()?, area.sized()?);
        if area.u16()? == ALG_AES {
            let (_bits, _mode) = (area.u16()?, area.u16()?);
        }
        let (_scheme, curve, _kdf) = (area.u16()?, area.u16()?, area.u16()?);
        let (x, y) = (area.sized()?, area.sized()?);
        let is_known = kind == ALG_ECC && curve == CURVE_P256 && area.0.is_empty();
        is_known.then_some((coordinate(x)?, coordinate(y)?))
    }
}

/// Zeros in front may be left out.
fn coordinate(bytes: &[u8]) -> Option<[u8; COORDINATE]> {
    let mut coordinate = [0; COORDINATE];
    let start = COORDINATE.checked_sub(bytes.len())?;
    coordinate[start..].copy_from_slice(bytes);
    Some(coordinate)
}

/// The part of the public area that makes a primary key always the same one: systemd's.
fn primary(algorithm: PrimaryKind) -> Vec<u8> {
    let common = |kind| {
        let area = CommandWriter::default().u16(kind).u16(ALG_SHA256).u32(STORAGE_KEY).sized(&[]);
        area.u16(ALG_AES).u16(128).u16(ALG_CFB).u16(ALG_NULL)
    };
    match algorithm {
        PrimaryKind::Ecc => common(ALG_ECC).u16(CURVE_P256).u16(ALG_NULL).sized(&[]).sized(&[]).0,
        PrimaryKind::Rsa => common(ALG_RSA).u16(2048).u32(0).sized(&[]).0,
    }
}

/// Registers, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub struct PcrSelection {
    pub there: u32,
    pub measured: u32,
}

/// A TPM that is asked for something.
pub struct Tpm<'a> {
    line: &'a mut dyn TpmLink,
    deadline: Instant,
    left_there: Vec<u32>,
}

impl Drop for Tpm<'_> {
    fn drop(&mut self) {
        self.deadline = self.deadline.max(Instant::now() + PATIENCE_AT_THE_END);
        self.flush_all();
    }
}

impl<'a> Tpm<'a> {
    pub fn new(line: &'a mut dyn TpmLink, deadline: Instant) -> Self {
        Self { line, deadline, left_there: Vec::new() }
    }

    /// The key of the owner that is the same each time.
    pub fn create_primary(&mut self, algorithm: PrimaryKind) -> TpmResult<LoadedObject> {
        let nothing_secret = CommandWriter::default().sized(&[]).sized(&[]).0;
        let parameters = CommandWriter::default().sized(&nothing_secret).sized(&primary(algorithm)).sized(&[]).u32(0).0;
        let body = self.with_password(CREATE_PRIMARY, RH_OWNER, &parameters)?;
        let mut body = ResponseReader(&body);
        let handle = self.loaded(&mut body)?;
        let mut parameters = parameters_of(&mut body)?;
        let public = Public(parameters.sized().ok_or(DAMAGED)?.to_vec());
        Ok(LoadedObject { handle, public })
    }

    /// A key that stays in the TPM.
    pub fn read_public(&mut self, handle: u32) -> TpmResult<LoadedObject> {
        let body = self.plain(READ_PUBLIC, &CommandWriter::default().u32(handle).0)?;
        let public = ResponseReader(&body).sized().ok_or(DAMAGED)?.to_vec();
        Ok(LoadedObject { handle, public: Public(public) })
    }

    /// Loads what lies under `parent`: both areas with their lengths.
    pub fn load(&mut self, parent: &LoadedObject, private: &[u8], public: &[u8]) -> TpmResult<LoadedObject> {
        let parameters = [private, public].concat();
        let body = self.with_password(LOAD, parent.handle, &parameters)?;
        let handle = self.loaded(&mut ResponseReader(&body))?;
        let public = ResponseReader(public).sized().ok_or(DAMAGED)?.to_vec();
        Ok(LoadedObject { handle, public: Public(public) })
    }

    /// A session that nobody else can read along with, salted to `key`.
    pub fn start_session(&mut self, kind: SessionUse, key: &LoadedObject) -> TpmResult<TpmSession> {
        let point = key.public.point().ok_or("its key is not one for ECDH")?;
        let proposal = Proposal::new(kind, key.handle, &point)?;
        let body = self.plain(START_AUTH_SESSION, &proposal.command)?;
        let mut body = ResponseReader(&body);
        let handle = self.loaded(&mut body)?;
        let nonce = body.sized().ok_or(DAMAGED)?;
        Ok(proposal.accepted(handle, nonce))
    }

    /// Which of these registers the TPM has in this bank, and in which of them something was measured.
    pub fn registers(&mut self, bank: u16, pcrs: u32) -> TpmResult<PcrSelection> {
        let mut registers = PcrSelection::default();
        // One command tells the values of some.
        loop {
            let wanted = pcrs & !registers.there;
            let body = self.plain(PCR_READ, &pcr_selection(bank, wanted).0)?;
            let mut body = ResponseReader(&body);
            let (_changes, told) = (body.u32(), body.pcrs(bank).ok_or(DAMAGED)?);
            let _count = body.u32();
            for pcr in (0..u32::BITS).filter(|pcr| told >> pcr & 1 == 1) {
                let value = body.sized().ok_or(DAMAGED)?;
                let is_new = |new: u8| value.iter().all(|&byte| byte == new);
                let is_measured = !is_new(0) && !is_new(0xff);
                registers.measured |= u32::from(is_measured) << pcr;
            }
            if told & wanted == 0 || told & !wanted != 0 {
                return Ok(registers);
            }
            registers.there |= told;
        }
    }

    /// The policy now asks that these registers have the values that they have.
    pub fn policy_pcr(&mut self, session: &TpmSession, bank: u16, pcrs: u32) -> TpmResult<()> {
        let command = CommandWriter::default().u32(session.handle).sized(&[]).bytes(&pcr_selection(bank, pcrs).0).0;
        self.plain(POLICY_PCR, &command).map(drop)
    }

    /// The policy now asks for the secret of what is opened.
    pub fn policy_auth_value(&mut self, session: &TpmSession) -> TpmResult<()> {
        let command = CommandWriter::default().u32(session.handle).0;
        self.plain(POLICY_AUTH_VALUE, &command).map(drop)
    }

    /// Returns what the policy has come to.
    pub fn policy_digest(&mut self, session: &TpmSession) -> TpmResult<Vec<u8>> {
        let command = CommandWriter::default().u32(session.handle).0;
        let body = self.plain(POLICY_GET_DIGEST, &command)?;
        Ok(ResponseReader(&body).sized().ok_or(DAMAGED)?.to_vec())
    }

    /// Returns what was sealed, over a session with its policy, which ends. `auth` is its secret, if the policy asks
    /// for one.
    pub fn unseal(&mut self, sealed: &LoadedObject, session: &TpmSession, auth: Option<&[u8]>) -> TpmResult<SecretBuf> {
        let (auth, proves) = (auth.unwrap_or_default(), auth.is_some());
        let call = session.call(UNSEAL, LAST | ENCRYPT, auth, proves)?;
        let area = call.authorisation(&[&sealed.public.name()], &[]);
        let body = self.with_area(UNSEAL, sealed.handle, &area, &[])?;
        let response = checked(&call, &body)?;
        self.forget(session.handle);
        let secret = ResponseReader(response.parameters).sized().ok_or(DAMAGED)?;
        let mut secret = SecretBuf::copy_of(secret)?;
        call.decrypt(response.nonce, &mut secret);
        Ok(secret)
    }

    /// Seals a secret under `parent`, over a session of HMACs, which ends. Returns both areas with their lengths.
    pub fn seal(
        &mut self,
        parent: &LoadedObject,
        session: &TpmSession,
        (secret, auth): (&[u8], &[u8]),
        policy: &[u8],
    ) -> TpmResult<(Vec<u8>, Vec<u8>)> {
        let call = session.call(CREATE, LAST | DECRYPT, &[], true)?;
        let mut sensitive = SecretBuf::zeroed(4 + auth.len() + secret.len())?;
        let (first, second) = sensitive.split_at_mut(2 + auth.len());
        for (place, bytes) in [(first, auth), (second, secret)] {
            let len = u16::try_from(bytes.len()).map_err(|_| "the secret is too long")?;
            place[..2].copy_from_slice(&len.to_be_bytes());
            place[2..].copy_from_slice(bytes);
        }
        call.encrypt(&mut sensitive);
        let public = CommandWriter::default().u16(ALG_KEYEDHASH).u16(ALG_SHA256);
        let public = public.u32(SEALED).sized(policy).u16(ALG_NULL).sized(&[]).0;
        let parameters = CommandWriter::default().sized(&sensitive).sized(&public).sized(&[]).u32(0).0;
        let area = call.authorisation(&[&parent.public.name()], &parameters);
        let body = self.with_area(CREATE, parent.handle, &area, &parameters)?;
        let response = checked(&call, &body)?;
        self.forget(session.handle);
        let mut areas = ResponseReader(response.parameters);
        let (private, public) = (areas.with_size(), areas.with_size());
        let (private, public) = (private.ok_or(DAMAGED)?, public.ok_or(DAMAGED)?);
        Ok((private.to_vec(), public.to_vec()))
    }

    /// Takes out of the TPM what is not needed any more.
    pub fn flush(&mut self, handle: u32) -> TpmResult<()> {
        self.forget(handle);
        self.flush_context(handle)
    }

    /// The same of all that is left there.
    pub fn flush_all(&mut self) {
        for handle in std::mem::take(&mut self.left_there) {
            // Nothing else can be done about what stays.
            let _ = self.flush_context(handle);
        }
    }

    fn forget(&mut self, handle: u32) {
        self.left_there.retain(|&left| left != handle);
    }

    fn flush_context(&mut self, handle: u32) -> TpmResult<()> {
        let command = CommandWriter::default().u32(handle).0;
        self.plain(FLUSH_CONTEXT, &command).map(drop)
    }

    /// A handle at the beginning of a response, which is to be flushed.
    fn loaded(&mut self, body: &mut ResponseReader<'_>) -> TpmResult<u32> {
        let handle = body.u32().ok_or(DAMAGED)?;
        self.left_there.push(handle);
        Ok(handle)
    }

    /// A command without sessions.
    fn plain(&mut self, code: u32, rest: &[u8]) -> TpmResult<Vec<u8>> {
        self.exchange(ST_NO_SESSIONS, code, rest)
    }

    /// A command that the empty password of `handle` authorises.
    fn with_password(&mut self, code: u32, handle: u32, parameters: &[u8]) -> TpmResult<Vec<u8>> {
        let area = CommandWriter::default().u32(RS_PASSWORD).sized(&[]).u8(1).sized(&[]).0;
        self.with_area(code, handle, &area, parameters)
    }

    fn with_area(&mut self, code: u32, handle: u32, area: &[u8], parameters: &[u8]) -> TpmResult<Vec<u8>> {
        let len = u32::try_from(area.len()).map_err(|_| "the command is too long")?;
        let rest = CommandWriter::default().u32(handle).u32(len);
        self.exchange(ST_SESSIONS, code, &rest.bytes(area).bytes(parameters).0)
    }

    fn exchange(&mut self, tag: u16, code: u32, rest: &[u8]) -> TpmResult<Vec<u8>> {
        let len = HEADER + rest.len();
        let stated = u32::try_from(len).ok().filter(|_| len <= MESSAGE_MAX);
        let stated = stated.ok_or("the token's data is too long for it")?;
        let command = CommandWriter::default().u16(tag).u32(stated).u32(code).bytes(rest).0;
        let mut waits = (0..ATTEMPTS).map(|attempt| Duration::from_millis(1 << attempt));
        loop {
            let response = self.line.exchange(&command, self.deadline)?;
            let mut reader = ResponseReader(&response);
            let (answered, _len) = (reader.u16(), reader.u32());
            let code = Code(reader.u32().ok_or(DAMAGED)?);
            match waits.next() {
                Some(wait) if code.is_later() => std::thread::sleep(wait),
                _ if code != Code(0) => return Err(TpmFailure::Code(code)),
                _ if answered != Some(tag) => return Err(DAMAGED.into()),
                _ => return Ok(reader.0.to_vec()),
            }
        }
    }
}

/// The parameters of a response with sessions, behind its handle.
fn parameters_of<'a>(body: &mut ResponseReader<'a>) -> TpmResult<ResponseReader<'a>> {
    let len = body.u32().and_then(|len| usize::try_from(len).ok());
    let parameters = len.and_then(|len| body.take(len));
    Ok(ResponseReader(parameters.ok_or(DAMAGED)?))
}

struct Response<'a> {
    parameters: &'a [u8],
    nonce: &'a [u8],
}

/// The parameters of a response that this TPM has made.
fn checked<'a>(call: &session::TpmCall<'_>, body: &'a [u8]) -> TpmResult<Response<'a>> {
    let mut body = ResponseReader(body);
    let parameters = parameters_of(&mut body)?.0;
    let (nonce, attributes, mac) = (body.sized(), body.u8(), body.sized());
    let (Some(nonce), Some(attributes), Some(mac)) = (nonce, attributes, mac) else {
        return Err(DAMAGED.into());
    };
    if !call.is_genuine(parameters, nonce, attributes, mac) {
        return Err("its answer was changed on the way".into());
    }
    Ok(Response { parameters, nonce })
}
