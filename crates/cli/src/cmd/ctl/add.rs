//! `ctl add`: opens a volume here, where there are rights to, and hands it to the server.
//!
//! ```text
//! who listens is known ─► opened, locked ─► key asked for and tried ─► [file, pipe with the volume key, lock] ─► server: header read again, exported
//! ```
//!
//! The file's lock goes along: it belongs to the open file. So does cryptsetup's lock of whoever uses the volume, which is
//! a file of its own. The passphrase stays here.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::slice;

use clap::Args;
use cryptline::{Open, SecretBuf, Target, Unlocked, Warning};
use cryptline_engine::base::Image;
use nix::unistd::User;
use rustix::pipe::PipeFlags;
use rustix::process::Uid;
use serde_json::Value;

use super::connection::ControlConnection;
use crate::CliError;
use crate::args::{KeyArgs, TargetArgs, TokenArgs};
use crate::error::luks_advice;
use crate::output::{for_shell, warn, warn_of};
use crate::serve::control::wire::Add;

/// Volume to export, and how to open it.
#[derive(Args, Debug)]
pub struct ExportAddArgs {
    /// A file with a LUKS header; one with a key file of its own is TARGET?key-file=FILE
    #[arg(value_name = "TARGET")]
    pub target: OsString,

    /// Name of the export [default: the file name]
    #[arg(short, long, visible_alias = "export-name", value_name = "NAME")]
    pub name: Option<String>,

    /// Description of the export
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub description: String,

    /// Open for reading only
    #[arg(long, short = 'r')]
    pub read_only: bool,

    /// Pass discards (TRIM) down; this reveals which blocks are unused
    #[arg(long)]
    pub allow_discards: bool,

    /// User of the server, where that is neither root nor you: the volume key is handed to that user
    #[arg(long, value_name = "USER", value_parser = user)]
    pub server_user: Option<Uid>,

    #[command(flatten)]
    pub keys: KeyArgs,

    #[command(flatten)]
    pub tokens: TokenArgs,
}

impl ExportAddArgs {
    /// Opens the volume and hands it over.
    pub fn run(&self, server: &mut ControlConnection) -> Result<Value, CliError> {
        let parsed = Target::parse(&self.target)?;
        let path = self.path(&parsed)?;
        let name = self.name.clone().or_else(|| {
            let name = path.file_name().map(OsStr::to_string_lossy);
            name.map(|name| name.into_owned())
        });
        // Locked before its header is read, so that nobody changes it in between.
        let image = Image::open(path, self.read_only).map_err(cryptline::Error::from)?;
        if image.is_block_device() {
            return Err(self.elsewhere("a block device"));
        }
        let found = Open::target(Target::Path(path.to_owned())).inspect()?;
        let in_use = found.in_use()?;
        let unlocked = self.unlock()?;
        let key = key_pipe(&unlocked.key)?;
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let add = Add {
            name: name.unwrap_or_default(),
            description: self.description.clone(),
            target: whole.display().to_string(),
            read_only: self.read_only || unlocked.doubted.is_some(),
            allow_discards: self.allow_discards,
            accept_cipher: unlocked.ciphers,
            expect_measure: unlocked.measure.filter(|_| self.has_rules()).map(|measure| cryptline::hex(&measure)),
        };
        let mut files = vec![image.file().as_fd(), key.as_fd()];
        files.extend(in_use.as_ref().map(AsFd::as_fd));
        let answer = server.ask("add", &add, &files)?;
        let warnings = answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        warn(&warnings.collect::<Vec<_>>());
        Ok(answer)
    }

    /// Tells if anything was demanded of the header.
    fn has_rules(&self) -> bool {
        let of_target = matches!(Target::parse(&self.target), Ok(Target::Keyed(keyed)) if !keyed.rules.is_empty());
        of_target || !self.keys.rules.rules().is_empty()
    }

    /// The file, where it is one.
    fn path<'a>(&self, target: &'a Target) -> Result<&'a Path, CliError> {
        match target {
            Target::Path(path) => Ok(path),
            Target::Keyed(keyed) => self.path(&keyed.of),
            Target::Slice(_) => Err(self.elsewhere("a part of a disk")),
            _ => Err(self.elsewhere("no file")),
        }
    }

    fn elsewhere(&self, what: &str) -> CliError {
        CliError::parameters(format!(
            "{} is {what}, and a running server takes only files; serve it by a server of its own: cryptline serve {}",
            self.target.display(),
            for_shell(&self.target.to_string_lossy())
        ))
    }

    /// The volume key, and how far the header is to be believed: the server sees no key slot that could tell.
    fn unlock(&self) -> Result<Unlocked, CliError> {
        let options = TargetArgs { tokens: self.tokens.clone(), ..TargetArgs::default() };
        let open = options.to_open(&self.target, &self.keys)?.on_warning(|warning| warn_of(slice::from_ref(warning)));
        let unlocked = open.unlock()?;
        if let Err(why) = &unlocked.usable {
            let advice = luks_advice(why);
            return Err(CliError::device(format!("{}: {why}{advice}", self.target.display())));
        }
        warn_of(&unlocked.doubted.clone().map(Warning::Doubted).into_iter().collect::<Vec<_>>());
        Ok(unlocked)
    }
}

/// A name before a number, as chown(1) has it.
fn user(text: &str) -> Result<Uid, String> {
    let known = User::from_name(text).map_err(|error| error.desc().to_owned())?;
    let number = known.map(|user| user.uid.as_raw()).or_else(|| text.parse().ok());
    number.map(Uid::from_raw).ok_or_else(|| "no such user".to_owned())
}

/// The read end of a pipe that holds the key, closed at its other end. It is in the kernel's memory alone.
fn key_pipe(key: &SecretBuf) -> Result<OwnedFd, CliError> {
    let failed = |error| CliError::memory(format!("cannot pass the volume key on: {error}"));
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    let written = rustix::io::write(&write, key).map_err(failed)?;
    if written < key.len() {
        return Err(failed(rustix::io::Errno::NOSPC));
    }
    Ok(read)
}
