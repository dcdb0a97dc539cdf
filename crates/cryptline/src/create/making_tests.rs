//! Steps that are told of each making, in the order of the table.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion};
use tempfile::TempDir;

use super::MakingStep::{self, *};
use crate::create::Progress;
use crate::{Copy, CopySource, Create, Error, ErrorKind, Medium, Open, Result};

const SIZE: u64 = 18 << 20;

fn cheap(version: LuksVersion) -> FormatOptions {
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    FormatOptions { version, kdf: Some(KdfKind::Pbkdf2), cost, ..FormatOptions::default() }
}

/// Observer that takes note of steps, and ends the making at one of them.
fn noting(
    steps: &Arc<Mutex<Vec<MakingStep>>>,
    last: Option<MakingStep>,
) -> impl Fn(Progress<'_>) -> Result<()> + use<> {
    let steps = Arc::clone(steps);
    move |progress| {
        let Progress::Step(step) = progress else { return Ok(()) };
        steps.lock().unwrap().push(step);
        if last == Some(step) { Err(Error::from_keys(ErrorKind::Device, "cut")) } else { Ok(()) }
    }
}

/// Steps of a volume that is made in or on `folder`.
struct Lab(TempDir);

impl Lab {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("source"), vec![7; 1 << 20]).unwrap();
        let there = std::fs::File::create(folder.path().join("there")).unwrap();
        there.set_len(SIZE).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn copy(&self) -> Copy {
        Copy::new(CopySource::raw(self.path("source")).unwrap())
    }

    fn create(&self, place: &str) -> Create {
        Create::new(self.path(place)).format(cheap(LuksVersion::Luks2)).passphrase("pass phrase")
    }

    /// On what stands for a device.
    fn there(&self) -> Create {
        let target = format!("pmem:{}", self.path("there").display());
        Create::new(target).format(cheap(LuksVersion::Luks2)).passphrase("pass phrase").replace(true)
    }
}

fn steps_of(create: Create) -> Vec<MakingStep> {
    let steps = Arc::default();
    create.on_progress(noting(&steps, None)).create().unwrap();
    std::mem::take(&mut *steps.lock().unwrap())
}

fn steps_of_copy(copy: Copy, into: &Path) -> Vec<MakingStep> {
    let steps = Arc::default();
    copy.on_progress(noting(&steps, None)).into_file(into).unwrap();
    std::mem::take(&mut *steps.lock().unwrap())
}

#[test]
fn each_verb_takes_its_steps_of_one_order() {
    let lab = Lab::new();
    let verified = || lab.copy().verify(true);
    let rows = [
        ("new", steps_of(lab.create("1").size(SIZE)), vec![Refuse, Begin, Head, Size, Check, Name]),
        (
            "header alone",
            steps_of(lab.create("2").header(lab.path("2h"))),
            vec![Refuse, Begin, Head, Size, Check, Name],
        ),
        ("filled", steps_of(lab.create("3").fill(lab.copy())), vec![Refuse, Begin, Fill, Head, Size, Check, Name]),
        (
            "filled and verified",
            steps_of(lab.create("4").fill(verified())),
            vec![Refuse, Begin, Fill, Compare, Head, Size, Check, Name],
        ),
        (
            "filled, header apart",
            steps_of(lab.create("5").header(lab.path("5h")).fill(verified())),
            vec![Refuse, Apart, Fill, Compare, Size, Check, Name],
        ),
        (
            "in several runs",
            steps_of(lab.create("6").fill(verified().resume(""))),
            vec![Refuse, Begin, Fill, Compare, Size, Check, Name],
        ),
        ("there", steps_of(lab.there()), vec![Refuse, Clear, Head, Check]),
        (
            "there, filled and verified",
            steps_of(lab.there().fill(verified())),
            vec![Refuse, Clear, Fill, Compare, Head, Check],
        ),
        (
            "there, header apart",
            steps_of(lab.there().header(lab.path("9h")).fill(verified())),
            vec![Refuse, Apart, Clear, Fill, Compare, Check, Name],
        ),
        ("copied", steps_of_copy(verified(), &lab.path("10")), vec![Refuse, Fill, Compare, Size, Name]),
        (
            "copied in several runs",
            steps_of_copy(verified().resume(""), &lab.path("11")),
            vec![Refuse, Begin, Fill, Compare, Size, Name],
        ),
    ];
    for (verb, told, expected) in rows {
        assert_eq!(told, expected, "{verb}");
        assert!(told.is_sorted(), "{verb}");
    }
}

/// Ended at each step: a file is as if nothing had been; a device is as it was before its header was cleared, and opens by
/// nothing after that.
#[test]
fn making_that_ends_at_any_step_leaves_nothing_that_opens() {
    for last in [Refuse, Begin, Fill, Compare, Head, Size, Check, Name] {
        let lab = Lab::new();
        let before = std::fs::read_dir(lab.0.path()).unwrap().count();
        let create = lab.create("new").fill(lab.copy().verify(true));
        let ended = create.on_progress(noting(&Arc::default(), Some(last))).create();
        assert!(ended.is_err(), "{last:?}");
        assert_eq!(std::fs::read_dir(lab.0.path()).unwrap().count(), before, "{last:?}");
    }
    for (last, is_filled) in
        [(Refuse, false), (Refuse, true), (Clear, true), (Fill, true), (Compare, true), (Head, true)]
            .into_iter()
            .chain([(Check, true), (Clear, false), (Head, false), (Check, false)])
    {
        let lab = Lab::new();
        lab.there().create().unwrap();
        let before = std::fs::read(lab.path("there")).unwrap();
        let create = if is_filled { lab.there().fill(lab.copy().verify(true)) } else { lab.there() };
        assert!(create.on_progress(noting(&Arc::default(), Some(last))).create().is_err(), "{last:?}");
        if last <= Clear {
            assert!(std::fs::read(lab.path("there")).unwrap() == before, "{last:?}: refused, and changed");
        } else {
            let open = Open::new(lab.path("there")).passphrase("pass phrase").read_only(true);
            assert!(open.open().is_err(), "{last:?}: it opens");
        }
    }
}

#[test]
fn header_alone_is_whole_whatever_size_is_asked_for() {
    let lab = Lab::new();
    for (name, size) in [("none", None), ("small", Some(4096)), ("large", Some(20 << 20))] {
        let create = lab.create("data").header(lab.path(name)).with(size, Create::size);
        create.create().unwrap();
        let len = std::fs::metadata(lab.path(name)).unwrap().len();
        assert_eq!(len, size.unwrap_or(0).max(16 << 20), "{name}");
    }
}

/// A header of another version has its second copy where the new one does not come.
#[test]
fn no_copy_of_an_older_header_is_left_whatever_the_new_volume_holds() {
    for is_filled in [false, true] {
        let lab = Lab::new();
        let old = FormatOptions { metadata_size: Some(4 << 20), ..cheap(LuksVersion::Luks2) };
        lab.there().format(old).create().unwrap();
        let second = |lab: &Lab| std::fs::read(lab.path("there")).unwrap()[4 << 20..][..6].to_vec();
        assert_eq!(second(&lab), b"SKUL\xba\xbe");
        let create = lab.there().format(cheap(LuksVersion::Luks1));
        let create = if is_filled { create.fill(lab.copy()) } else { create };
        create.create().unwrap();
        assert_ne!(second(&lab), b"SKUL\xba\xbe", "filled: {is_filled}");
    }
}

/// A medium of zeros that cannot be read any more once the old header is to go.
struct FailsWhenCleared(Arc<AtomicBool>);

impl Medium for FailsWhenCleared {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read_at(&self, _offset: u64, target: &mut [u8]) -> io::Result<()> {
        target.fill(0);
        if self.0.load(Ordering::Relaxed) { Err(io::Error::other("gone")) } else { Ok(()) }
    }

    fn write_at(&self, _offset: u64, _source: &[u8]) -> io::Result<()> {
        panic!("it is written without having been read")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn separate_header_keeps_its_name_where_nothing_was_written_to_its_disk() {
    let lab = Lab::new();
    let header = lab.path("header");
    std::fs::write(&header, b"old").unwrap();
    let is_gone = Arc::new(AtomicBool::new(false));
    let create = Create::medium(Arc::new(FailsWhenCleared(Arc::clone(&is_gone))));
    let create = create.format(cheap(LuksVersion::Luks2)).passphrase("pass phrase").replace(true).header(&header);
    let create = create.fill(lab.copy()).on_progress(move |progress| {
        if let Progress::Step(Clear) = progress {
            is_gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    });
    create.create().unwrap_err();
    assert_eq!(std::fs::read(&header).unwrap(), b"old");
}

#[test]
fn making_that_was_stopped_before_it_began_changes_nothing() {
    let (lab, three) = (Lab::new(), vec![3; usize::try_from(SIZE).unwrap()]);
    std::fs::write(lab.path("there"), &three).unwrap();
    let stopped = lab.there().fill(lab.copy().stop(Arc::new(AtomicBool::new(true)))).create().unwrap_err();
    assert!(matches!(stopped.problem(), crate::error::Problem::CopyStopped(_)), "{stopped}");
    assert!(std::fs::read(lab.path("there")).unwrap() == three);
}
