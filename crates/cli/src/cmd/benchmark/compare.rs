//! Unlocking side by side with cryptsetup: the same LUKS2 header, whose costs are fixed, and the same
//! passphrase, in turns.
//!
//! ```text
//! a new header ─► cryptline check ─► cryptsetup open --test-passphrase ─► ... ─► medians
//! ```
//!
//! Both times are those of a whole process.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use cryptline_cipher::ceiling::median;
use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion, format};
use serde::Serialize;

use super::report::BenchmarkFigure;
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
pub struct ComparedTimes {
    pub cryptsetup: String,
    pub kdf: &'static str,
    pub time: u32,
    pub memory_kib: u32,
    pub cpus: u32,
    pub cryptline_ms: Vec<f64>,
    pub cryptsetup_ms: Vec<f64>,
}

/// Measures. The figure has no goal where `cost` has memory or lanes of its own.
pub fn measure(cost: &KdfCost) -> Result<(ComparedTimes, BenchmarkFigure), CliError> {
    let version = cryptsetup(&["--version"])?.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
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
        .map_err(|error| CliError::new(error.kind(), format!("--compare-cryptsetup: {error}")))?;
    drop(file);

    let itself =
        std::env::current_exe().map_err(|error| CliError::device(format!("cannot find this program: {error}")))?;
    let open = |check: &'static str| {
        let words = ["open", check, "--key-file"].map(OsStr::new);
        [&words[..], &[key.as_os_str(), image.as_os_str()]].concat()
    };
    let (mut cryptline_ms, mut cryptsetup_ms) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        cryptline_ms.push(milliseconds(|| run(&itself, &open("--check")).map(drop))?);
        cryptsetup_ms.push(milliseconds(|| cryptsetup(&open("--test-passphrase")).map(drop))?);
    }
    let other_costs = (memory_kib, cpus) != (MEMORY_KIB, LANES);
    let ratios: Vec<f64> = cryptline_ms.iter().zip(&cryptsetup_ms).map(|(ours, theirs)| ours / theirs).collect();
    let figure = BenchmarkFigure::new("argon2_over_cryptsetup", median(&ratios), "ratio")
        .at_most(GOAL, other_costs.then_some("the goal is for the costs of a default key slot"));
    let comparison = ComparedTimes {
        cryptsetup: crate::error::on_one_line(&version),
        kdf: "argon2id",
        time: TIME,
        memory_kib,
        cpus,
        cryptline_ms,
        cryptsetup_ms,
    };
    Ok((comparison, figure))
}

/// cryptsetup itself would make another header on each machine: it measures the passes, and gives
/// no more lanes than there are processors.
fn header(memory_kib: u32, cpus: u32) -> FormatOptions {
    FormatOptions {
        version: LuksVersion::Luks2,
        kdf: Some(KdfKind::Argon2id),
        cost: KdfCost { iterations: Some(TIME), memory_kib: Some(memory_kib), cpus: Some(cpus), ..KdfCost::default() },
        ..FormatOptions::default()
    }
}

fn milliseconds(work: impl FnOnce() -> Result<(), CliError>) -> Result<f64, CliError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// Runs cryptsetup, which is often outside a user's `PATH`; what it prints.
fn cryptsetup(arguments: &[impl AsRef<OsStr>]) -> Result<String, CliError> {
    for program in ["cryptsetup", "/usr/sbin/cryptsetup", "/sbin/cryptsetup"] {
        if let Some(output) = run(Path::new(program), arguments)? {
            return Ok(output);
        }
    }
    Err(CliError::parameters("there is no cryptsetup to compare with; install it, or leave out --compare-cryptsetup"))
}

/// Runs a program that must succeed; what it prints. Nothing if there is no such program.
fn run(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Option<String>, CliError> {
    let name = program.file_name().unwrap_or(program.as_os_str()).display();
    let run = Command::new(program).args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    match run {
        Ok(output) if output.status.success() => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(CliError::device(format!("{name} failed: {}", said.lines().next().unwrap_or("it says nothing"))))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::device(format!("cannot run {name}: {error}"))),
    }
}
