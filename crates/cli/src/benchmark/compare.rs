//! Unlocking side by side with cryptsetup: the same new LUKS2 header, made by cryptsetup, and the
//! same passphrase, in turns.
//!
//! cryptsetup's time is that of a whole `cryptsetup open --test-passphrase`. Ours is that of what
//! `cryptline open --check` does inside this process: reading the header, and unlocking it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use cryptline_luks::format::KdfCost;
use cryptline_luks::{Header, Kdf, UnlockOptions};
use serde::Serialize;

use super::measure::median;
use super::{Figure, Report};
use crate::CliError;
use crate::volume::header::HeaderFile;

/// Runs of each program.
const RUNS: usize = 3;
const PASSPHRASE: &[u8] = b"benchmark";
/// A LUKS2 header and a little data.
const IMAGE_BYTES: u64 = 20 << 20;
/// How many times slower than cryptsetup we may be on a default header.
const GOAL: f64 = 1.3;

/// Both programs' times for the same header.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// What `cryptsetup --version` says.
    pub cryptsetup: String,
    /// Key derivation function of the header.
    pub kdf: String,
    /// Its passes.
    pub time: u32,
    /// Its memory in KiB.
    pub memory_kib: u32,
    /// Its lanes.
    pub cpus: u32,
    /// Our times, in milliseconds.
    pub cryptline_ms: Vec<f64>,
    /// cryptsetup's times, in milliseconds.
    pub cryptsetup_ms: Vec<f64>,
}

/// Measures and adds the figure `argon2_over_cryptsetup`. With costs other than `default_cost`
/// there is no goal.
///
/// # Errors
/// Exit code 1 when cryptsetup is not installed, 4 when it fails.
pub fn measure(report: &mut Report, cost: &KdfCost, default_cost: bool) -> Result<(), CliError> {
    let version = cryptsetup(&["--version".as_ref()])?;
    let version = String::from_utf8_lossy(&version.stdout);
    let version = version.lines().next().unwrap_or_default();
    let failed = |error| CliError::device(format!("cannot make a volume to compare with: {error}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let (image, key) = (folder.path().join("image"), folder.path().join("key"));
    fs::write(&key, PASSPHRASE).map_err(failed)?;
    let file = fs::File::create_new(&image).map_err(failed)?;
    file.set_len(IMAGE_BYTES).map_err(failed)?;
    format(&image, &key, cost)?;

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(milliseconds(|| unlock(&image))?);
        let arguments = ["open", "--test-passphrase", "--batch-mode", "--key-file"];
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
        let arguments = [arguments, vec![&key, &image]].concat();
        theirs.push(milliseconds(|| cryptsetup(&arguments).map(drop))?);
    }
    let value = median(&ours) / median(&theirs);
    report.figures.push(Figure {
        name: "argon2_over_cryptsetup",
        value,
        unit: "ratio",
        goal: default_cost.then_some(GOAL),
        met: default_cost.then_some(value <= GOAL),
    });
    report.comparison = Some(comparison(&image, version, ours, theirs)?);
    Ok(())
}

fn milliseconds(work: impl FnOnce() -> Result<(), CliError>) -> Result<f64, CliError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// `cryptsetup luksFormat`, which chooses what is not asked for.
fn format(image: &Path, key: &Path, cost: &KdfCost) -> Result<(), CliError> {
    let mut options = vec![
        "luksFormat".to_owned(),
        "--type=luks2".into(),
        "--batch-mode".into(),
        "--pbkdf=argon2id".into(),
        format!("--iter-time={}", cost.target.as_millis()),
    ];
    options.extend(cost.memory_kib.map(|kib| format!("--pbkdf-memory={kib}")));
    options.extend(cost.cpus.map(|cpus| format!("--pbkdf-parallel={cpus}")));
    let mut arguments: Vec<&Path> = options.iter().map(Path::new).collect();
    arguments.extend([image, key]);
    cryptsetup(&arguments).map(drop)
}

/// What `cryptline open --check` does.
fn unlock(image: &Path) -> Result<(), CliError> {
    let source = HeaderFile::open(image)?;
    let header = source.read()?;
    let opened = header.unlock(&mut &source.file, PASSPHRASE, &UnlockOptions::default());
    opened
        .map(drop)
        .map_err(|error| CliError::luks(&source.name, &error))
}

fn comparison(
    image: &Path,
    version: &str,
    cryptline_ms: Vec<f64>,
    cryptsetup_ms: Vec<f64>,
) -> Result<Comparison, CliError> {
    let kdf = match HeaderFile::open(image)?.read()? {
        Header::V1(_) => None,
        Header::V2(header) => header.metadata.keyslots.into_values().next(),
    };
    let kdf = kdf.and_then(|slot| slot.luks2).map(|slot| slot.kdf);
    let Some(Kdf::Argon2 {
        time,
        memory_kib,
        cpus,
        ..
    }) = kdf
    else {
        return Err(CliError::device("cryptsetup made a header without Argon2"));
    };
    Ok(Comparison {
        cryptsetup: crate::error::on_one_line(version),
        kdf: "argon2id".into(),
        time,
        memory_kib,
        cpus,
        cryptline_ms,
        cryptsetup_ms,
    })
}

/// Runs cryptsetup, which is often outside a user's `PATH`.
fn cryptsetup(arguments: &[&Path]) -> Result<Output, CliError> {
    for program in ["cryptsetup", "/usr/sbin/cryptsetup", "/sbin/cryptsetup"] {
        let run = Command::new(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output();
        match run {
            Ok(output) if output.status.success() => return Ok(output),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                let why = why.lines().next().unwrap_or("it says nothing").to_owned();
                return Err(CliError::device(format!("cryptsetup failed: {why}")));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(CliError::device(format!("cannot run {program}: {error}"))),
        }
    }
    Err(CliError::parameters(
        "there is no cryptsetup to compare with; install it, or leave out --compare-cryptsetup",
    ))
}
