//! Copies that end early and go on: the same bytes in the end, and never a part of them passed off as all.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline::{
    Copied, Copy, CopyHash, CopyRemains, CopySource, Create, Error, ErrorKind, Open, Plain, Problem, Progress,
    ResumeError,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::common::{cheap, edit};

const MIB: usize = 1 << 20;
const SIZE: usize = 40 * MIB + 777;

struct Lab {
    folder: TempDir,
    source: PathBuf,
    dest: PathBuf,
    part: PathBuf,
}

impl Lab {
    /// A source with data and holes, which ends inside a block.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let source = folder.path().join("source");
        let file = File::create(&source).unwrap();
        let mut state = 1_u32;
        for mib in (0..40).filter(|mib| mib % 5 != 3) {
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .take(MIB)
            .collect();
            file.write_all_at(&noise, (mib * MIB) as u64).unwrap();
        }
        file.write_all_at(&[5; 777], (SIZE - 777) as u64).unwrap();
        Self { source, dest: folder.path().join("dest"), part: folder.path().join(".dest.cryptline-part"), folder }
    }

    fn copy(&self) -> Copy {
        Copy::new(CopySource::raw(&self.source).unwrap()).resume("")
    }

    /// Ends as soon as more than so much is durable.
    fn until(&self, bytes: u64) -> Result<Copied, Error> {
        let copy = self.copy().on_progress(move |progress| match progress {
            Progress::Copied { bytes: now, .. } if now > bytes => Err(Error::from_keys(ErrorKind::Device, "cut")),
            _ => Ok(()),
        });
        copy.into_file(&self.dest)
    }

    /// Ends when 4 MiB and more count as copied. Flushes come when they come.
    fn cut(&self) {
        let cut = |mib: &usize| {
            assert!(self.until((mib * MIB) as u64).is_err() && !self.dest.exists());
            self.mark() >= 4 * MIB as u64
        };
        (12..).step_by(4).find(cut);
    }

    /// Everything before this counts as copied.
    fn mark(&self) -> u64 {
        let part = fs::read(&self.part).unwrap();
        let number = |at: usize| u64::from_le_bytes(part[at..at + 8].try_into().unwrap());
        let records = [2, 1].map(|back| part.len() - back * 4096);
        let records = records.into_iter().filter(|&at| part[at..].starts_with(b"cryptline copy"));
        let last = records.max_by_key(|&at| number(at + 16)).unwrap();
        number(last + 32)
    }

    fn is_copied(&self) -> bool {
        fs::read(&self.dest).unwrap() == fs::read(&self.source).unwrap() && !self.part.exists()
    }
}

fn why(error: &Error) -> &ResumeError {
    match error.problem() {
        Problem::Resume(why) => why,
        _ => panic!("{error}"),
    }
}

#[test]
fn copy_that_goes_on_hashes_the_whole_source() {
    let lab = Lab::new();
    lab.cut();
    assert!(lab.mark() > 0);
    let copied = lab.copy().hashes([CopyHash::Sha256]).into_file(&lab.dest).unwrap();
    assert_eq!(copied.hashed[0].value, Sha256::digest(fs::read(&lab.source).unwrap()).to_vec());
    assert!(lab.is_copied());
}

#[test]
fn copy_goes_on_where_it_was_cut_and_does_not_write_again_what_is_there() {
    let lab = Lab::new();
    lab.cut();
    // Not one of the chunks that are compared.
    let spoilt = MIB as u64 + 5;
    let part = File::options().read(true).write(true).open(&lab.part).unwrap();
    let mut byte = [0];
    part.read_exact_at(&mut byte, spoilt).unwrap();
    part.write_all_at(&[byte[0] ^ 1], spoilt).unwrap();
    let first = Mutex::new(None);
    let copy = lab.copy().on_progress(move |progress| {
        if let Progress::Copied { bytes, .. } = progress {
            first.lock().unwrap().get_or_insert(bytes);
            assert!(first.lock().unwrap().unwrap() >= 4 * MIB as u64);
        }
        Ok(())
    });
    copy.into_file(&lab.dest).unwrap();
    let mut copied = fs::read(&lab.dest).unwrap();
    let place = usize::try_from(spoilt).unwrap();
    assert_eq!(copied[place], byte[0] ^ 1, "it was written again");
    copied[place] = byte[0];
    assert!(copied == fs::read(&lab.source).unwrap());
    assert!(!lab.part.exists());
}

#[test]
fn copy_that_is_cut_again_and_again_ends_in_the_same_bytes() {
    let lab = Lab::new();
    let mut cuts = 0;
    for mib in (0..).step_by(4) {
        match lab.until(mib * MIB as u64) {
            Ok(copied) => {
                assert_eq!(copied.bytes, SIZE as u64);
                break;
            }
            Err(_) => assert!(!lab.dest.exists()),
        }
        cuts += 1;
    }
    assert!(cuts > 3, "{cuts}");
    assert!(lab.is_copied());
}

#[test]
fn source_that_has_changed_is_refused() {
    let lab = Lab::new();
    assert!(lab.until(12 * MIB as u64).is_err());
    File::options().write(true).open(&lab.source).unwrap().write_all_at(&[1], SIZE as u64 - 5).unwrap();
    let refused = lab.copy().into_file(&lab.dest).unwrap_err();
    assert_eq!(*why(&refused), ResumeError::Changed { part: lab.part.clone() });
    assert!(!lab.dest.exists() && lab.part.exists());
    fs::remove_file(&lab.part).unwrap();
    // Other options are as good as another source.
    assert!(lab.until(12 * MIB as u64).is_err());
    let other = Copy::new(CopySource::raw(&lab.source).unwrap()).resume("otherwise");
    let refused = other.into_file(&lab.dest).unwrap_err();
    assert!(matches!(why(&refused), ResumeError::Changed { .. }));
    fs::remove_file(&lab.part).unwrap();
    lab.copy().into_file(&lab.dest).unwrap();
    assert!(lab.is_copied());
}

#[test]
fn source_that_changes_during_the_copy_leaves_nothing() {
    let lab = Lab::new();
    let file = File::options().write(true).open(&lab.source).unwrap();
    let copy = lab.copy().on_progress(move |_| {
        file.write_all_at(&[1], 5).unwrap();
        Ok(())
    });
    let refused = copy.into_file(&lab.dest).unwrap_err();
    assert_changed(&refused);
    assert!(!lab.dest.exists() && !lab.part.exists());
}

type Observer = Box<dyn Fn(Progress<'_>) -> Result<(), Error> + Send + Sync>;

fn assert_changed(error: &Error) {
    let is_told = matches!(error.problem(), Problem::CopyChanged(CopyRemains::Nothing));
    assert!(is_told, "{error}");
}

/// Somebody else's file has the name of the part by then.
#[test]
fn source_that_changes_removes_no_other_file() {
    let lab = Lab::new();
    let copies: [&dyn Fn(Copy, Observer) -> Result<(), Error>; 2] =
        [&|copy, observer| copy.on_progress(observer).into_file(&lab.dest).map(drop), &|copy, observer| {
            let create = Create::new(&lab.dest).passphrase("secret").format(cheap());
            create.fill(copy).on_progress(observer).create().map(drop)
        }];
    for copy in copies {
        // Two changes within one tick of the clock are one.
        let source = File::options().write(true).open(&lab.source).unwrap();
        source.set_modified(std::time::UNIX_EPOCH).unwrap();
        let part = lab.part.clone();
        let changed = AtomicBool::new(false);
        let observer = move |progress: Progress<'_>| {
            let begins = matches!(progress, Progress::Copied { bytes: 0, .. });
            if begins && !changed.swap(true, Ordering::Relaxed) {
                source.write_all_at(&[1], 5).unwrap();
                fs::rename(&part, part.with_extension("elsewhere")).unwrap();
                fs::write(&part, "of somebody else").unwrap();
            }
            Ok(())
        };
        assert!(copy(lab.copy(), Box::new(observer)).is_err());
        assert_eq!(fs::read(&lab.part).unwrap(), b"of somebody else");
        fs::remove_file(&lab.part).unwrap();
    }
}

/// Between the opening, after which somebody may be asked for a passphrase, and the copy.
#[test]
fn source_that_another_file_takes_the_place_of_is_not_taken_for_that() {
    let lab = Lab::new();
    let open = || {
        let plain = Plain::new("aes-xts-plain64", 64);
        let open = Open::new(&lab.source).plain(plain).key([7; 64]);
        open.read_only(true).open().unwrap()
    };
    let volume = open();
    let other = lab.folder.path().join("other");
    fs::copy(&lab.source, &other).unwrap();
    fs::rename(&other, &lab.source).unwrap();
    let copy = Copy::new(CopySource::volume(&volume)).resume("");
    let refused = copy.into_file(&lab.dest).unwrap_err();
    assert_changed(&refused);
    assert!(!lab.dest.exists() && !lab.part.exists());
    drop(volume);
    let copy = Copy::new(CopySource::volume(&open())).resume("");
    copy.into_file(&lab.dest).unwrap();
}

#[test]
fn part_of_somebody_else_is_left_alone() {
    let lab = Lab::new();
    fs::write(&lab.part, b"").unwrap();
    fs::set_permissions(&lab.part, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = lab.copy().into_file(&lab.dest).unwrap_err();
    assert!(matches!(why(&refused), ResumeError::NotOurs { .. }));
    fs::remove_file(&lab.part).unwrap();
    std::os::unix::fs::symlink(lab.folder.path().join("elsewhere"), &lab.part).unwrap();
    assert!(lab.copy().into_file(&lab.dest).is_err());
    assert!(!lab.folder.path().join("elsewhere").exists());
    fs::remove_file(&lab.part).unwrap();
    // Whatever it says, it is not taken for a copy.
    fs::write(&lab.part, vec![7; 3 * MIB]).unwrap();
    fs::set_permissions(&lab.part, fs::Permissions::from_mode(0o600)).unwrap();
    lab.copy().into_file(&lab.dest).unwrap();
    assert!(lab.is_copied());
}

#[test]
fn what_does_not_tell_whether_it_changes_is_refused() {
    let lab = Lab::new();
    let stream = CopySource::stream(File::open(&lab.source).unwrap(), "a pipe");
    let refused = Copy::new(stream).resume("").into_file(&lab.dest);
    assert_eq!(*why(&refused.unwrap_err()), ResumeError::Source);
    let device = format!("{}?offset=0", lab.source.display());
    let onto: &Path = Path::new(&device);
    let refused = Copy::new(CopySource::raw("/proc/self/exe").unwrap()).resume("").into_target(onto);
    assert_eq!(*why(&refused.unwrap_err()), ResumeError::Destination);
}

/// The part that an earlier run has copied is compared, too; nobody goes on with what is wrong.
#[test]
fn copy_that_goes_on_is_verified_from_its_first_byte() {
    let lab = Lab::new();
    lab.cut();
    lab.copy().verify(true).into_file(&lab.dest).unwrap();
    assert!(lab.is_copied());
    fs::remove_file(&lab.dest).unwrap();
    lab.cut();
    let part = File::options().write(true).open(&lab.part).unwrap();
    part.write_all_at(b"rotten", MIB as u64 + 5).unwrap();
    let error = lab.copy().verify(true).into_file(&lab.dest).unwrap_err();
    let Problem::CopyDiffers { offset, left } = error.problem() else {
        panic!("{error}");
    };
    assert_eq!((*offset, left), (MIB as u64, &CopyRemains::Nothing));
    assert!(!lab.dest.exists() && !lab.part.exists());
}

#[test]
fn error_says_that_the_same_goes_on() {
    let lab = Lab::new();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let error = lab.copy().stop(stop).into_file(&lab.dest).unwrap_err();
    let Problem::CopyStopped(left) = error.problem() else {
        panic!("{error}");
    };
    assert_eq!(*left, CopyRemains::Kept);
}

/// Whoever can write to an unfinished volume can put another cipher into its header, under which its key slot still opens.
#[test]
fn volume_whose_header_names_another_cipher_by_now_is_not_filled() {
    let lab = Lab::new();
    let fill = |until: u64| {
        let create = Create::new(&lab.dest).passphrase("secret").format(cheap()).fill(lab.copy());
        let cut = create.on_progress(move |progress| match progress {
            Progress::Copied { bytes, .. } if bytes > until => Err(Error::from_keys(ErrorKind::Device, "cut")),
            _ => Ok(()),
        });
        cut.create().map(drop)
    };
    fill(8 * MIB as u64).unwrap_err();
    let name = |from: &str, to: &str| {
        edit(&lab.part, |json| {
            let (before, segments) = json.split_once("\"segments\":{").unwrap();
            format!("{before}\"segments\":{{{}", segments.replacen(&format!("\"{from}\""), &format!("\"{to}\""), 1))
        });
    };
    for cipher in ["aes-xts-null", "aes:2-ctr-null", "aes-xts-plain"] {
        name("aes-xts-plain64", cipher);
        let before = fs::read(&lab.part).unwrap();
        let error = fill(u64::MAX).unwrap_err();
        assert!(matches!(why(&error), ResumeError::OtherCipher { found, .. } if found == cipher), "{error}");
        assert!(fs::read(&lab.part).unwrap() == before && !lab.dest.exists(), "something was written");
        name(cipher, "aes-xts-plain64");
    }
    fill(u64::MAX).unwrap();
    assert!(lab.dest.exists());
}
