//! Instructions of a call into AES-XTS, and of a read through the engine, compared with those of before.
//!
//! ```text
//!   each back end that valgrind can run × shape × direction; each stack
//!        └─► an example under callgrind ─► count ─► within 2 % of the committed one?
//! ```
//!
//! The programs that are counted are built without LTO: what calls a kernel is inlined, or small beside it.
//!
//! Counts do not vary with the load of a machine, so they show what times hide. They depend on the
//! compiler, so they are compared only where it is the baseline's. They do not depend on the C library, whose
//! functions are left out, nor on the
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

/// A program whose runs are counted, and where the counts are committed.
struct Subject {
    package: &'static str,
    example: &'static str,
    baseline: &'static str,
    head: &'static str,
    /// Lines of the baseline without their counts.
    shapes: fn() -> Vec<String>,
    /// Forces the back end that a line begins with.
    has_backends: bool,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        package: "cryptline-cipher",
        example: "instructions",
        baseline: "crates/cipher/instructions.txt",
        head: "\
# Instructions of one call of AES-256-XTS, in place: back end, direction, bytes of the request, bytes
# of a cipher sector, count. Compared by `cargo xtask counts`, written by `cargo xtask recount`.
",
        shapes: cipher_shapes,
        has_backends: true,
    },
    Subject {
        package: "cryptline-engine",
        example: "read_instructions",
        baseline: "crates/engine/instructions.txt",
        head: "\
# Instructions of one 4 KiB read through a stack of examples/read_instructions.rs, without the copy itself: stack, count.
# Compared by `cargo xtask counts`, written by `cargo xtask recount`.
",
        shapes: engine_shapes,
        has_backends: false,
    },
];
/// Those that valgrind can run.
const BACKENDS: [&str; 2] = ["aesni", "portable"];
const SHAPES: [(u32, u32); 5] = [(512, 512), (4096, 512), (4096, 4096), (65536, 512), (65536, 4096)];
const STACKS: [&str; 6] = ["ram", "crypt", "linear", "cut", "file", "crypt-file"];
/// Percent by which a count may differ from the committed one.
const TOLERANCE: u64 = 2;

/// Counts by shape, as the baseline's lines begin.
type InstructionCounts = BTreeMap<String, u64>;

/// Compares with the baselines.
pub fn run() -> Result<(), Failed> {
    if !succeeds("valgrind", &["--version"]) {
        return cannot_run("counts", "valgrind is missing: apt-get install valgrind");
    }
    SUBJECTS.iter().try_for_each(compare)
}

fn compare(subject: &Subject) -> Result<(), Failed> {
    let baseline = committed(subject)?;
    let here = compiler()?;
    if baseline.compiler != here {
        // In CI too: nothing about this tree has failed.
        let of = baseline.compiler;
        skip("counts", &format!("the baseline is of {of}, and this is {here}"));
        return Ok(());
    }
    let counts = count_all(subject)?;
    for (shape, count) in &counts {
        println!("{shape} {count}");
    }
    let changed = changes(&baseline.counts, &counts);
    if changed.is_empty() {
        return Ok(());
    }
    Err(Failed(format!("{}; if that is meant to be: cargo xtask recount", changed.join("; "))))
}

/// Writes the baselines again.
pub fn update() -> Result<(), Failed> {
    SUBJECTS.iter().try_for_each(|subject| {
        let Subject { baseline, head, .. } = subject;
        let mut text = format!("{head}{}\n", compiler()?);
        for (shape, count) in count_all(subject)? {
            let _infallible = writeln!(text, "{shape} {count}");
        }
        std::fs::write(crate::root().join(baseline), text).map_err(|error| Failed(format!("{baseline}: {error}")))?;
        println!("wrote {baseline}");
        Ok(())
    })
}

/// The committed file.
struct Baseline {
    /// As [`compiler`] says it.
    compiler: String,
    counts: InstructionCounts,
}

fn committed(subject: &Subject) -> Result<Baseline, Failed> {
    let failed = |what: &str| Failed(format!("{}: {what}", subject.baseline));
    let text = std::fs::read_to_string(crate::root().join(subject.baseline));
    let text = text.map_err(|error| failed(&error.to_string()))?;
    parse(&text).ok_or_else(|| failed("not a shape and a count"))
}

fn parse(text: &str) -> Option<Baseline> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let compiler = lines.next().unwrap_or_default().to_owned();
    let counts = lines.map(|line| {
        let (shape, count) = line.rsplit_once(' ')?;
        Some((shape.to_owned(), count.parse().ok()?))
    });
    Some(Baseline { compiler, counts: counts.collect::<Option<_>>()? })
}

/// Lists, in words, what is not as it was.
fn changes(before: &InstructionCounts, now: &InstructionCounts) -> Vec<String> {
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

fn cipher_shapes() -> Vec<String> {
    let directed = BACKENDS.iter().flat_map(|backend| ["encrypt", "decrypt"].map(|direction| (backend, direction)));
    let all = directed.flat_map(|(backend, direction)| {
        SHAPES.map(|(bytes, sector)| format!("{backend} {direction} {bytes} {sector}"))
    });
    all.collect()
}

fn engine_shapes() -> Vec<String> {
    STACKS.map(str::to_owned).to_vec()
}

fn count_all(subject: &Subject) -> Result<InstructionCounts, Failed> {
    let program = program(subject)?;
    let shapes = (subject.shapes)();
    let (some, others) = shapes.split_at(shapes.len() / 2);
    let count_some = |shapes: &[String]| -> Result<Vec<(String, u64)>, Failed> {
        shapes.iter().map(|shape| Ok((shape.clone(), count(&program, subject, shape)?))).collect()
    };
    std::thread::scope(|scope| {
        let counting = [some, others].map(|shapes| scope.spawn(move || count_some(shapes)));
        let counted = counting.map(|it| it.join().expect("nothing in it panics"));
        counted.into_iter().try_fold(InstructionCounts::new(), |mut all, more| {
            all.extend(more?);
            Ok(all)
        })
    })
}

/// The example. That of the cipher is built for the target of the static program where that is possible, since the crates
/// below it are there already; what the engine's needs for its tests is not made for musl.
fn program(subject: &Subject) -> Result<PathBuf, Failed> {
    let Subject { package, example, .. } = subject;
    let build = ["build", "--release", "--package", package, "--example", example, "--locked"];
    let triple = portable::TRIED.target;
    let is_static = *package == "cryptline-cipher" && has_target(triple)?;
    let (more, folder) = if is_static { (vec!["--target", triple], triple) } else { (Vec::new(), "") };
    cargo(&[&build[..], &more].concat())?;
    Ok(crate::target().join(folder).join("release/examples").join(example))
}

/// One run under callgrind, which counts between entering and leaving the functions of that name.
fn count(program: &Path, subject: &Subject, shape: &str) -> Result<u64, Failed> {
    let folder = tempfile::tempdir().map_err(|error| Failed(error.to_string()))?;
    let file = folder.path().join("callgrind.out");
    let mut words = shape.split(' ').peekable();
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--toggle-collect=*measured*", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg("--quiet");
    if subject.has_backends {
        valgrind.env("CRYPTLINE_CPU", words.next().unwrap_or_default());
    }
    output(valgrind.arg(program).args(words))?;
    let profile = std::fs::read_to_string(&file).map_err(|error| Failed(format!("{}: {error}", file.display())))?;
    match own_instructions(&profile, program) {
        0 => Err(Failed(format!("callgrind counted nothing of {shape}"))),
        count => Ok(count),
    }
}

/// Instructions of the program itself in a profile of callgrind's, without those that copy and fill memory, which a static
/// program has and others have not.
fn own_instructions(profile: &str, program: &Path) -> u64 {
    let (mut is_of_program, mut is_own, mut is_call) = (false, false, false);
    let mut sum = 0;
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_of_program = Path::new(object) == program;
        } else if let Some(function) = line.strip_prefix("fn=") {
            is_own = !["memcpy", "memmove", "memset"].iter().any(|name| function.contains(name));
        } else if line.starts_with("calls=") {
            // The next line has what the function that is called takes.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) && !std::mem::take(&mut is_call) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok());
            sum += cost.filter(|_: &u64| is_of_program && is_own).unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> InstructionCounts {
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
    fn committed_baselines_have_every_shape() {
        for subject in SUBJECTS {
            let baseline = committed(&subject).expect("a baseline");
            assert!(baseline.compiler.starts_with("rustc "));
            let shapes: std::collections::BTreeSet<_> = (subject.shapes)().into_iter().collect();
            assert!(baseline.counts.keys().eq(&shapes));
        }
    }

    #[test]
    fn a_line_without_a_count_is_no_baseline() {
        assert!(parse("rustc 1.95.0\naesni encrypt 512\nx").is_none());
    }

    #[test]
    fn instructions_of_libraries_of_copies_and_of_calls_are_not_counted_twice() {
        let profile = "positions: line\nevents: Ir\n\nob=/p\nfl=a\nfn=one::measured\n1 5\ncob=/lib/libc.so.6\ncfn=memcpy\n\
                       calls=1 0\n1 130\n2 7\n\nob=/lib/libc.so.6\nfn=other\n0 130\n\nob=/p\nfn=memcpy\n0 64\n\nfn=two\n0 3\n\ntotals: 209\n";
        assert_eq!(own_instructions(profile, Path::new("/p")), 15);
    }
}
