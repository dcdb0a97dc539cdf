//! The argument of `--table`: a place to read the line from, or the line itself, which has a key in it.
//!
//! ```text
//!   argv ─► Arguments::take ─┬─► the line, in locked memory, once
//!                            └─► what clap sees: --table and a sign that stands for the line
//! ```
//!
//! clap keeps several copies of each argument and wipes none. The process's own copy, which `ps` shows,
//! is overwritten.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cryptline_sys::{SecretBuf, lock};
use zeroize::Zeroize;

use crate::CliError;

const OPTION: &[u8] = b"--table";
/// Placeholder for the line: no argument of a process can have it.
const SIGN: &str = "\0";

/// The line that the process was started with, on its way past clap.
static TAKEN: Mutex<Option<Arc<SecretBuf>>> = Mutex::new(None);

/// Where a table is.
#[derive(Clone)]
pub enum TableArgument {
    /// On standard input.
    Input,
    /// In a file.
    File(PathBuf),
    /// Here.
    Line(Arc<SecretBuf>),
}

/// Says nothing of the key.
impl std::fmt::Debug for TableArgument {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input => formatter.write_str("-"),
            Self::File(path) => write!(formatter, "@{}", path.display()),
            Self::Line(_) => formatter.write_str("LINE"),
        }
    }
}

impl TableArgument {
    /// The argument as it is given: the line itself, `-` or `@FILE`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        if text == SIGN {
            let taken = lock(&TAKEN).take();
            return taken.map(Self::Line).ok_or_else(|| "no line".into());
        }
        match text.as_bytes() {
            b"-" => Ok(Self::Input),
            [b'@', path @ ..] => Ok(Self::File(OsStr::from_bytes(path).into())),
            line => SecretBuf::copy_of(line).map(|line| Self::Line(Arc::new(line))).map_err(|error| error.to_string()),
        }
    }

    /// For a server in the background, which is started with the arguments of this process.
    ///
    /// # Errors
    /// Exit code 1 for the line itself, which is not among them any more.
    pub fn check_for_background(&self) -> Result<(), CliError> {
        match self {
            Self::Input | Self::File(_) => Ok(()),
            Self::Line(_) => Err(CliError::parameters(
                "the server in the background cannot be given the line of --table, which is wiped by now; \
                 use --table - or --table @FILE, or run it in the foreground",
            )),
        }
    }
}

/// The arguments of this process for clap: a table line among them is taken out, and wiped wherever
/// the process has it.
pub fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let mut follows = false;
    for argument in &mut arguments {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            break;
        }
        let (start, line) = match (follows, bytes.strip_prefix(OPTION)) {
            (true, _) => (0, bytes),
            (false, Some([b'=', line @ ..])) => (OPTION.len() + 1, line),
            (false, rest) => {
                follows = rest == Some(b"");
                continue;
            }
        };
        follows = false;
        if let Some(taken) = take(line) {
            let mut kept = bytes[..start].to_vec();
            kept.extend_from_slice(SIGN.as_bytes());
            *lock(&TAKEN) = Some(Arc::new(taken));
            std::mem::replace(argument, OsString::from_vec(kept)).into_vec().zeroize();
        }
    }
    arguments
}

/// A copy of the line, which is then gone from where the process was given it. Nothing where this is no
/// line, no text, or there is no memory: what is left in place is judged as it is.
fn take(line: &[u8]) -> Option<SecretBuf> {
    if line.is_empty() || line == b"-" || line.starts_with(b"@") || std::str::from_utf8(line).is_err() {
        return None;
    }
    let taken = SecretBuf::copy_of(line).ok()?;
    // Where there is no /proc, the line stays where it was.
    let _ = overwrite(line);
    Some(taken)
}

/// Puts asterisks over the line in the memory that the kernel put the arguments in.
fn overwrite(line: &[u8]) -> Option<()> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Fields are counted from 1, and the second, the program's name, may have spaces and brackets in it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let start: u64 = fields.nth(45)?.parse().ok()?;
    let end: u64 = fields.next()?.parse().ok()?;
    let memory = File::options().read(true).write(true).open("/proc/self/mem").ok()?;
    let len = usize::try_from(end.checked_sub(start)?).ok()?;
    let mut all = SecretBuf::zeroed(len).ok()?;
    memory.read_exact_at(&mut all, start).ok()?;
    let places = all.windows(line.len()).enumerate();
    for (place, _) in places.filter(|(_, window)| *window == line) {
        let stars = vec![b'*'; line.len()];
        memory.write_all_at(&stars, start + place as u64).ok()?;
    }
    Some(())
}
