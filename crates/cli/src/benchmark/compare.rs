//! Unlocking side by side with cryptsetup: the same LUKS2 header, whose costs are fixed, and the same
//! passphrase, in turns.
//!
//! ```text
//! a new header ─► cryptline open --check ─► cryptsetup open --test-passphrase ─► ... ─► medians
//! ```
//!
//! Both times are those of a whole process.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind, Version, format};
use serde::Serialize;

use super::measure::median;
use super::{Figure, Report};
use crate::CliError;

/// Runs of each program.
const RUNS: usize = 5;
const PASSPHRASE: &[u8] = b"benchmark";
/// A LUKS2 header and a little data.
const IMAGE_BYTES: u64 = 20 << 20;
/// Passes of Argon2.
const TIME: u32 = 4;
/// Memory of Argon2 in KiB that cryptsetup gives a new slot at most, unless told otherwise.
const MEMORY_KIB: u32 = 1 << 20;
/// Lanes of Argon2, likewise.
const LANES: u32 = 4;
/// How many times slower than cryptsetup we may be with these costs.
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

/// Measures and adds the figure `argon2_over_cryptsetup`. With memory or lanes of its own, `cost`
/// makes it another figure, without a goal.
///
/// # Errors
/// Exit code 1 when cryptsetup is not installed, 3 when there is too little memory, 4 when a
/// program fails.
pub fn measure(report: &mut Report, cost: &KdfCost) -> Result<(), CliError> {
    let version = cryptsetup(&[Path::new("--version")])?;
    let version = String::from_utf8_lossy(&version.stdout);
    let version = version.split_whitespace().take(2).collect::<Vec<_>>();
    let version = version.join(" ");
    let failed = |error| CliError::device(format!("cannot make a volume to compare with: {error}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let (image, key) = (folder.path().join("image"), folder.path().join("key"));
    fs::write(&key, PASSPHRASE).map_err(failed)?;
    let mut file = fs::File::create_new(&image).map_err(failed)?;
    file.set_len(IMAGE_BYTES).map_err(failed)?;
    let memory_kib = cost.memory_kib.unwrap_or(MEMORY_KIB);
    let cpus = cost.cpus.unwrap_or(LANES);
    let options = header(memory_kib, cpus);
    format(&mut file, IMAGE_BYTES, PASSPHRASE, &options)
        .map_err(|error| CliError::luks("--compare-cryptsetup", &error))?;
    drop(file);

    let itself = std::env::current_exe()
        .map_err(|error| CliError::device(format!("cannot find this program: {error}")))?;
    let arguments = |words: [&'static str; 3]| -> Vec<PathBuf> {
        let words = words.into_iter().map(PathBuf::from);
        words.chain([key.clone(), image.clone()]).collect()
    };
    let ours = arguments(["open", "--check", "--key-file"]);
    let theirs = arguments(["open", "--test-passphrase", "--key-file"]);
    let (mut cryptline_ms, mut cryptsetup_ms) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        cryptline_ms.push(milliseconds(|| succeed(&itself, &ours).map(drop))?);
        cryptsetup_ms.push(milliseconds(|| cryptsetup(&theirs).map(drop))?);
    }
    let value = median(&cryptline_ms) / median(&cryptsetup_ms);
    let has_goal = (memory_kib, cpus) == (MEMORY_KIB, LANES);
    report.figures.push(Figure {
        name: "argon2_over_cryptsetup",
        value,
        unit: "ratio",
        goal: has_goal.then_some(GOAL),
        met: has_goal.then_some(value <= GOAL),
    });
    report.comparison = Some(Comparison {
        cryptsetup: crate::error::on_one_line(&version),
        kdf: "argon2id".into(),
        time: TIME,
        memory_kib,
        cpus,
        cryptline_ms,
        cryptsetup_ms,
    });
    Ok(())
}

/// cryptsetup itself would make another header on each machine: it measures the passes, and gives
/// no more lanes than there are processors.
fn header(memory_kib: u32, cpus: u32) -> FormatOptions {
    FormatOptions {
        version: Version::Luks2,
        kdf: Some(KdfKind::Argon2id),
        cost: KdfCost {
            iterations: Some(TIME),
            memory_kib: Some(memory_kib),
            cpus: Some(cpus),
            ..KdfCost::default()
        },
        ..FormatOptions::default()
    }
}

fn milliseconds(work: impl FnOnce() -> Result<(), CliError>) -> Result<f64, CliError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// Runs cryptsetup, which is often outside a user's `PATH`.
fn cryptsetup(arguments: &[impl AsRef<Path>]) -> Result<Output, CliError> {
    for program in ["cryptsetup", "/usr/sbin/cryptsetup", "/sbin/cryptsetup"] {
        if let Some(output) = run(Path::new(program), arguments)? {
            return Ok(output);
        }
    }
    Err(CliError::parameters(
        "there is no cryptsetup to compare with; install it, or leave out --compare-cryptsetup",
    ))
}

fn succeed(program: &Path, arguments: &[impl AsRef<Path>]) -> Result<Output, CliError> {
    let gone = || CliError::device(format!("{} is gone", program.display()));
    run(program, arguments)?.ok_or_else(gone)
}

/// Nothing if there is no such program.
fn run(program: &Path, arguments: &[impl AsRef<Path>]) -> Result<Option<Output>, CliError> {
    let name = program.display();
    let run = Command::new(program)
        .args(arguments.iter().map(AsRef::as_ref))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(output) if output.status.success() => Ok(Some(output)),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().next().unwrap_or("it says nothing");
            let why = crate::error::on_one_line(why);
            Err(CliError::device(format!("{name} failed: {why}")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::device(format!("cannot run {name}: {error}"))),
    }
}
