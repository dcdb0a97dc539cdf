//! Steps that are told of each making, in the order of the table.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cryptline_luks::format::{FormatOptions, LuksVersion};
use tempfile::TempDir;

use super::MakingStep::{self, *};
use crate::copy::CopyRemains;
use crate::create::Progress;
use crate::error::Problem;
use crate::testing::cheap;
use crate::{Copy, CopySource, Create, CreateBtt, Error, ErrorKind, Header, Medium, Open, Result};

const SIZE: u64 = 18 << 20;

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

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn copy(&self) -> Copy {
        Copy::new(CopySource::raw(self.path("source")).unwrap())
    }

    fn create(&self, place: &str) -> Create {
        Create::new(self.path(place)).format(cheap(LuksVersion::Luks2)).passphrase("pass phrase")
    }

    /// Stands for a device.
    fn device(&self) -> String {
        format!("pmem:{}", self.path("there").display())
    }

    fn onto_volume(&self, copy: Copy) -> Result<crate::Copied> {
        let volume = self.path("volume");
        if !volume.exists() {
            self.create("volume").size(SIZE).create()?;
        }
        copy.replace(true).into_volume(|| Ok(Open::new(&volume).passphrase("pass phrase")))
    }

    fn there(&self) -> Create {
        Create::new(self.device()).format(cheap(LuksVersion::Luks2)).passphrase("pass phrase").replace(true)
    }
}

type Observed = Box<dyn Fn(Progress<'_>) -> Result<()> + Send + Sync>;
type Run<'a> = Box<dyn Fn(&Lab, Observed) -> Result<()> + 'a>;

/// Everything that is made, and the steps that it takes.
fn verbs() -> Vec<(&'static str, Run<'static>, Vec<MakingStep>)> {
    fn create(of: impl Fn(&Lab) -> Create + 'static) -> Run<'static> {
        Box::new(move |lab, observer| of(lab).on_progress(observer).create().map(drop))
    }
    fn copy(run: impl Fn(&Lab, Copy) -> Result<crate::Copied> + 'static) -> Run<'static> {
        Box::new(move |lab, observer| run(lab, lab.copy().verify(true).on_progress(observer)).map(drop))
    }
    fn table(of: impl Fn(&Lab) -> CreateBtt + 'static) -> Run<'static> {
        Box::new(move |lab, observer| of(lab).on_progress(observer).create().map(drop))
    }
    let backup: Run<'static> = Box::new(|lab, observer| {
        lab.create("volume").size(SIZE).create()?;
        Header::new(lab.path("volume")).on_progress(observer).backup(lab.path("backup")).map(drop)
    });
    vec![
        ("new", create(|lab| lab.create("new").size(SIZE)), vec![Refuse, Begin, Head, Size, Check, Name]),
        (
            "header alone",
            create(|lab| lab.create("new").header(lab.path("head"))),
            vec![Refuse, Begin, Head, Size, Check, Name],
        ),
        (
            "filled",
            create(|lab| lab.create("new").fill(lab.copy())),
            vec![Refuse, Begin, Fill, Head, Size, Check, Name],
        ),
        (
            "filled and verified",
            create(|lab| lab.create("new").fill(lab.copy().verify(true))),
            vec![Refuse, Begin, Fill, Compare, Head, Size, Check, Name],
        ),
        (
            "filled, header apart",
            create(|lab| lab.create("new").header(lab.path("head")).fill(lab.copy().verify(true))),
            vec![Refuse, Apart, Fill, Compare, Size, Check, Name],
        ),
        (
            "in several runs",
            create(|lab| lab.create("new").fill(lab.copy().verify(true).resume(""))),
            vec![Refuse, Begin, Fill, Compare, Size, Check, Name],
        ),
        ("there", create(Lab::there), vec![Refuse, Clear, Head, Check]),
        (
            "there, filled and verified",
            create(|lab| lab.there().fill(lab.copy().verify(true))),
            vec![Refuse, Clear, Fill, Compare, Head, Check],
        ),
        (
            "there, header apart",
            create(|lab| lab.there().header(lab.path("head")).fill(lab.copy().verify(true))),
            vec![Refuse, Apart, Clear, Fill, Compare, Check, Name],
        ),
        ("copied", copy(|lab, copy| copy.into_file(lab.path("new"))), vec![Refuse, Fill, Compare, Size, Name]),
        (
            "copied in several runs",
            copy(|lab, copy| copy.resume("").into_file(lab.path("new"))),
            vec![Refuse, Begin, Fill, Compare, Size, Name],
        ),
        ("copied there", copy(|lab, copy| copy.into_target(lab.device())), vec![Refuse, Fill, Compare]),
        ("copied into a volume", copy(Lab::onto_volume), vec![Refuse, Fill, Compare]),
        ("table", table(|lab| CreateBtt::new(lab.path("new")).size(SIZE)), vec![Refuse, Head, Size, Check, Name]),
        ("table there", table(|lab| CreateBtt::new(lab.path("there")).replace(true)), vec![Refuse, Head, Check]),
        ("backup of a header", backup, vec![Refuse, Head, Size, Name]),
    ]
}

#[test]
fn each_verb_takes_its_steps_of_one_order() {
    for (verb, run, expected) in verbs() {
        let (lab, steps) = (Lab::new(), Arc::default());
        run(&lab, Box::new(noting(&steps, None))).unwrap_or_else(|error| panic!("{verb}: {error}"));
        let told = std::mem::take(&mut *steps.lock().unwrap());
        assert_eq!(told, expected, "{verb}");
        assert!(told.is_sorted(), "{verb}");
    }
}

/// Whoever ends the process meanwhile can remove it.
#[test]
fn each_file_without_its_name_was_told_of() {
    let drafts = |folder: &Path| -> Vec<PathBuf> {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".cryptline-")).collect()
    };
    for (verb, run, _) in verbs() {
        let lab = Lab::new();
        let (folder, told) = (lab.0.path().to_owned(), Mutex::new(Vec::new()));
        let look = move |progress: Progress<'_>| {
            match progress {
                Progress::Unfinished(path) => told.lock().unwrap().push(path.to_owned()),
                Progress::Step(step) => {
                    let there = drafts(&folder);
                    let told = told.lock().unwrap();
                    assert!(there.iter().all(|path| told.contains(path)), "{verb}, {step:?}: {there:?}, {told:?}");
                }
                _ => {}
            }
            Ok(())
        };
        run(&lab, Box::new(look)).unwrap();
        assert_eq!(drafts(lab.0.path()), Vec::<PathBuf>::new(), "{verb}");
    }
}

/// Whatever is made in a file of its own, and however far it has come.
#[test]
fn making_of_a_file_that_ends_at_any_step_leaves_no_other_file() {
    for (verb, _, steps) in verbs() {
        for last in steps {
            let (lab, run) = (Lab::new(), verbs().into_iter().find(|it| it.0 == verb).unwrap().1);
            let names = || -> Vec<_> {
                let entries = std::fs::read_dir(lab.0.path()).unwrap();
                entries.map(|entry| entry.unwrap().file_name()).filter(|name| name != "volume").collect()
            };
            let before = names();
            let is_kept = ["in several runs", "copied in several runs"].contains(&verb);
            // Bytes that are there already stay as they are or go, and a table that was begun is finished.
            let is_ended = verb != "table there" || last == Refuse;
            // Its data is there, which nothing else opens.
            let is_found = verb == "there, header apart" && last == Name;
            let ended = run(&lab, Box::new(noting(&Arc::default(), Some(last))));
            assert_eq!(ended.is_err(), is_ended, "{verb}, {last:?}");
            if !is_kept && !is_found {
                assert_eq!(names(), before, "{verb}, {last:?}");
            }
        }
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
    assert!(matches!(stopped.problem(), Problem::CopyStopped(_)), "{stopped}");
    assert!(std::fs::read(lab.path("there")).unwrap() == three);
    // As it is: that nothing was written is said, too.
    let stopped = || lab.copy().replace(true).stop(Arc::new(AtomicBool::new(true)));
    lab.create("volume").size(SIZE).create().unwrap();
    let before = std::fs::read(lab.path("volume")).unwrap();
    for refused in [stopped().into_target(lab.device()), lab.onto_volume(stopped())] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused.problem(), Problem::CopyStopped(CopyRemains::Nothing)), "{refused}");
    }
    assert!(std::fs::read(lab.path("there")).unwrap() == three);
    assert!(std::fs::read(lab.path("volume")).unwrap() == before);
}

/// Somebody gives its name to another file while a table is made.
#[test]
fn file_that_has_taken_the_name_of_an_unfinished_table_is_left_alone() {
    let (lab, other) = (Lab::new(), Arc::new(Mutex::new(PathBuf::new())));
    let unfinished = Arc::clone(&other);
    let create = CreateBtt::new(lab.path("new")).size(SIZE).on_progress(move |progress| {
        match progress {
            Progress::Unfinished(path) => path.clone_into(&mut unfinished.lock().unwrap()),
            Progress::Step(Head) => {
                let path = unfinished.lock().unwrap();
                std::fs::remove_file(&*path).unwrap();
                std::fs::write(&*path, vec![3; usize::try_from(SIZE).unwrap()]).unwrap();
            }
            _ => {}
        }
        Ok(())
    });
    assert_eq!(create.create().unwrap_err().kind(), ErrorKind::Busy);
    assert!(!lab.path("new").exists());
}
