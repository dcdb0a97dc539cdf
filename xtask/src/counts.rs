//! How many instructions a call into AES-XTS takes, compared with what it took before.
//!
//! ```text
//!   each back end that valgrind can run × shape × direction
//!        └─► examples/instructions under callgrind ─► count ─► within 2 % of the committed one?
//! ```
//!
//! The program that is counted is built without LTO: what calls a kernel is inlined, or small beside it.
//!
//! Counts do not vary with the load of a machine, so they show what times hide. They depend on the
//! compiler, so they are compared only where it is the baseline's. They do not depend on the C library, nor on the
//! processor, since the back end is forced: valgrind emulates a processor with AES-NI and AVX2. It supports
//! neither VAES nor AVX-512, so those kernels are not counted; they share `xts/driver.rs` with the one
//! for AES-NI, which is.
//!
//! `cargo xtask recount` records an intended change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::portable;
use crate::step::{Failed, cannot_run, cargo, output, skip, succeeds};
use crate::tools::has_target;

const BASELINE: &str = "crates/cipher/instructions.txt";
const HEAD: &str = "\
# Instructions of one call of AES-256-XTS, in place: back end, direction, bytes of the request, bytes
# of a cipher sector, count. Compared by `cargo xtask counts`, written by `cargo xtask recount`.
";
/// Those that valgrind can run.
const BACKENDS: [&str; 2] = ["aesni", "portable"];
const SHAPES: [(u32, u32); 5] = [(512, 512), (4096, 512), (4096, 4096), (65536, 512), (65536, 4096)];
/// Percent by which a count may differ from the committed one.
const TOLERANCE: u64 = 2;

/// Counts by back end, direction and shape, as the baseline's lines begin.
type Counts = BTreeMap<String, u64>;

/// Compares with the baseline.
pub fn run() -> Result<(), Failed> {
    if !succeeds("valgrind", &["--version"]) {
        return cannot_run("counts", "valgrind is missing: apt-get install valgrind");
    }
    let path = crate::root().join(BASELINE);
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failed(format!("{BASELINE}: {error}")))?;
    let baseline = parse(&text)?;
    let here = compiler()?;
    if baseline.compiler != here {
        // In CI too: nothing about this tree has failed.
        let of = baseline.compiler;
        skip("counts", &format!("the baseline is of {of}, and this is {here}"));
        return Ok(());
    }
    let counts = count_all()?;
    for (shape, count) in &counts {
        println!("{shape} {count}");
    }
    let changed = changes(&baseline.counts, &counts);
    if changed.is_empty() {
        return Ok(());
    }
    Err(Failed(format!("{}; if that is meant to be: cargo xtask recount", changed.join("; "))))
}

/// Writes the baseline again.
pub fn update() -> Result<(), Failed> {
    let mut text = format!("{HEAD}{}\n", compiler()?);
    for (shape, count) in count_all()? {
        let _infallible = writeln!(text, "{shape} {count}");
    }
    std::fs::write(crate::root().join(BASELINE), text).map_err(|error| Failed(format!("{BASELINE}: {error}")))?;
    println!("wrote {BASELINE}");
    Ok(())
}

/// The committed file.
struct Baseline {
    /// As [`compiler`] says it.
    compiler: String,
    counts: Counts,
}

fn parse(text: &str) -> Result<Baseline, Failed> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let compiler = lines.next().unwrap_or_default().to_owned();
    let counts = lines.map(|line| {
        let (shape, count) = line.rsplit_once(' ')?;
        Some((shape.to_owned(), count.parse().ok()?))
    });
    let counts: Option<Counts> = counts.collect();
    let counts = counts.ok_or_else(|| Failed(format!("{BASELINE}: not a shape and a count")))?;
    Ok(Baseline { compiler, counts })
}

/// Lists, in words, what is not as it was.
fn changes(before: &Counts, now: &Counts) -> Vec<String> {
    let mut changed = Vec::new();
    for (shape, count) in now {
        match before.get(shape) {
            None => changed.push(format!("{shape} is not in the baseline")),
            Some(before) if before.abs_diff(*count) * 100 > before * TOLERANCE => {
                changed.push(format!("{shape} took {before} instructions and takes {count}"));
            }
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|shape| !now.contains_key(*shape));
    changed.extend(gone.map(|shape| format!("{shape} is not counted any more")));
    changed
}

fn compiler() -> Result<String, Failed> {
    let version = output(Command::new("rustc").arg("--version"))?;
    // Without the date: distributions have their own.
    let words: Vec<_> = version.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

fn count_all() -> Result<Counts, Failed> {
    let program = program()?;
    let count_all_of = |backend: &str| {
        let mut counts = Counts::new();
        for (bytes, sector) in SHAPES {
            for direction in ["encrypt", "decrypt"] {
                let shape = [direction, &bytes.to_string(), &sector.to_string()];
                let count = count(&program, backend, shape)?;
                counts.insert(format!("{backend} {}", shape.join(" ")), count);
            }
        }
        Ok(counts)
    };
    std::thread::scope(|scope| {
        let counting = BACKENDS.map(|backend| scope.spawn(move || count_all_of(backend)));
        let counted = counting.map(|it| it.join().expect("nothing in it panics"));
        counted.into_iter().try_fold(Counts::new(), |mut all, more| {
            all.append(&mut more?);
            Ok(all)
        })
    })
}

/// The example, built for the target of the static program where that is possible: the crates below it are there already.
fn program() -> Result<PathBuf, Failed> {
    let build = ["build", "--release", "--package", "cryptline-cipher", "--example", "instructions", "--locked"];
    let triple = portable::TRIED.target;
    let target = crate::target();
    if has_target(triple)? {
        cargo(&[&build[..], &["--target", triple]].concat())?;
        return Ok(target.join(triple).join("release/examples/instructions"));
    }
    cargo(&build)?;
    Ok(target.join("release/examples/instructions"))
}

/// One run under callgrind, which counts between entering and leaving the functions of that name.
fn count(program: &Path, backend: &str, shape: [&str; 3]) -> Result<u64, Failed> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--toggle-collect=*measured*"])
        .args(["--callgrind-out-file=/dev/null", "--log-fd=1"])
        .arg(program)
        .args(shape)
        .env("CRYPTLINE_CPU", backend);
    let log = output(&mut valgrind)?;
    let collected = log.lines().find_map(|line| {
        let (_, count) = line.split_once("Collected : ")?;
        count.trim().parse().ok()
    });
    match collected {
        None | Some(0) => Err(Failed(format!("callgrind counted nothing: {log}"))),
        Some(count) => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        let counts = of.iter().map(|(shape, count)| ((*shape).to_owned(), *count));
        counts.collect()
    }

    #[test]
    fn two_percent_pass_and_more_is_told_both_ways() {
        let before = counts(&[("less", 1000), ("more", 1000), ("near", 1000)]);
        let now = counts(&[("less", 979), ("more", 1021), ("near", 1020)]);
        assert_eq!(
            changes(&before, &now),
            ["less took 1000 instructions and takes 979", "more took 1000 instructions and takes 1021"]
        );
    }

    #[test]
    fn shapes_that_come_and_go_are_told() {
        let changed = changes(&counts(&[("old", 1)]), &counts(&[("new", 1)]));
        let expected = ["new is not in the baseline", "old is not counted any more"];
        assert_eq!(changed, expected);
    }

    #[test]
    fn the_committed_baseline_has_every_shape() {
        let text = std::fs::read_to_string(crate::root().join(BASELINE)).expect(BASELINE);
        let baseline = parse(&text).expect("a baseline");
        assert!(baseline.compiler.starts_with("rustc "));
        assert_eq!(baseline.counts.len(), 2 * BACKENDS.len() * SHAPES.len());
    }

    #[test]
    fn a_line_without_a_count_is_no_baseline() {
        assert!(parse("rustc 1.95.0\naesni encrypt 512\nx").is_err());
    }
}
