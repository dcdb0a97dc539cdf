//! The files of copies: a source, and a folder that is watched by the page-cache model.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind};
use cryptline::{DispatchMode, DispatchOptions, Open, Plain, Zeroes};
use cryptline_testkit::cache::{FileContent, Left, Temper};
use tempfile::TempDir;

use super::{CHUNK, CHUNKS_MAX, From, GRAIN, Into, Plan};
use crate::audit::fill;
use crate::media::Media;

/// Name of the destination.
pub const DEST: &str = "dest";
/// The name that it has while it is not whole, where a later run can go on with it.
pub const PART: &str = ".dest.cryptline-part";
/// Where the data of a new volume begins, and the range of a file that is there; and the bytes of both.
pub const START: usize = 1 << 20;
pub const WITHIN: usize = (CHUNKS_MAX + 1) * CHUNK;
const WHOLE: usize = START + WITHIN + (1 << 20);
/// A file for a stream begins with so many bytes.
const CAPACITY_OF_STREAM: usize = 17 << 20;
const PHRASE: &str = "pass phrase";
const KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut at = 0;
    while at < 64 {
        key[at] = at as u8 * 3;
        at += 1;
    }
    key
};
/// Patterns of a source, and of what was there before.
const SOURCE: u64 = 2;
const OLD: u64 = 3;

/// Folders for the copies of all histories, one after the other.
pub struct Place {
    pub media: &'static Media,
    source: TempDir,
    dest: TempDir,
    aside: TempDir,
    /// The pattern of the largest source.
    pattern: OnceLock<Vec<u8>>,
    old: OnceLock<[Vec<u8>; 2]>,
}

/// A source, as the model has it.
pub struct Source {
    /// The clear bytes.
    pub bytes: Vec<u8>,
    pub file: File,
    image: FileContent,
}

impl Place {
    pub fn new(media: &'static Media, memory: &Path) -> io::Result<Self> {
        let folder = || TempDir::new_in(memory);
        let (source, dest, aside) = (folder()?, folder()?, folder()?);
        Ok(Self { media, source, dest, aside, pattern: OnceLock::new(), old: OnceLock::new() })
    }

    pub fn source_path(&self) -> PathBuf {
        self.source.path().join("source")
    }

    pub fn dest_path(&self) -> PathBuf {
        self.dest.path().join(DEST)
    }

    /// Makes the source of a copy.
    pub fn make_source(&self, plan: &Plan) -> io::Result<Source> {
        let pattern = self.pattern.get_or_init(|| patterned(SOURCE, (CHUNKS_MAX + 1) * CHUNK));
        let mut bytes = pattern[..plan.size()].to_vec();
        for (first, count) in &plan.holes {
            bytes[first * GRAIN..(first + count) * GRAIN].fill(0);
        }
        let path = self.source_path();
        let _ = fs::remove_file(&path);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.set_len(bytes.len() as u64)?;
        let runs = runs_of_data(&bytes);
        if plan.from == From::Volume {
            let volume = volume(&path).open().map_err(io::Error::other)?;
            let mut blocking = volume.blocking().map_err(io::Error::other)?;
            for run in runs {
                blocking.write_at(run.start as u64, &bytes[run], false).map_err(io::Error::other)?;
            }
        } else {
            for run in runs {
                file.write_all_at(&bytes[run.clone()], run.start as u64)?;
            }
        }
        let mut image = fs::read(&path)?;
        image.resize(image.len().next_multiple_of(4096), 0);
        Ok(Source { bytes, file, image: FileContent::from(image) })
    }

    /// The range that is copied into, and what is around it, before that; in the clear, and as it is in the file.
    pub fn old(&self, into: Into) -> &[u8] {
        let [clear, sealed] = self.old.get_or_init(|| {
            let mut clear = patterned(OLD, WHOLE);
            // A part that holds nothing.
            clear[START + CHUNK..START + 2 * CHUNK].fill(0);
            let path = self.aside.path().join("old");
            put(&path, &clear).expect("a file is written");
            let volume = self.opened(Into::Volume, &path, false).open().expect("a plain volume opens");
            let data = &clear[START..START + WITHIN];
            volume.blocking().expect("a ring").write_at(0, data, false).expect("it is written");
            drop(volume);
            let sealed = fs::read(&path).expect("a file is read");
            [clear, sealed]
        });
        if into == Into::Volume { sealed } else { clear }
    }

    /// Contents of the folder before the first run.
    pub fn found(&self, plan: &Plan) -> Left {
        let old = if plan.into.is_in_place() {
            self.old(plan.into).to_vec()
        } else if plan.replaces {
            self.old(plan.into)[..3 * 4096].to_vec()
        } else {
            return Left::new();
        };
        Left::from([(DEST.into(), old)])
    }

    /// The machine is switched on and finds this.
    pub fn begin(&self, plan: &Plan, source: &Source, found: &Left) -> io::Result<()> {
        let machine = self.media.machine();
        machine.reset(Temper::default());
        for entry in fs::read_dir(&self.dest)? {
            fs::remove_file(entry?.path())?;
        }
        // The names of drafts are left to chance, and nobody looks for them.
        let is_found = |name: &OsStr| !name.as_encoded_bytes().starts_with(b".cryptline-");
        for (name, bytes) in found.iter().filter(|(name, _)| is_found(name)) {
            put(&self.dest.path().join(name), bytes)?;
        }
        machine.attach(&source.file, source.image.clone(), 4096);
        let capacity = match (plan.from, plan.into) {
            (From::Stream, _) => CAPACITY_OF_STREAM,
            (_, Into::Range | Into::Volume) => WHOLE,
            // With a journal behind it.
            _ => START + plan.needs() + 3 * 4096,
        };
        machine.watch(self.dest.path(), capacity);
        Ok(())
    }

    /// Files that the folder has now, as programs see them.
    pub fn shown(&self) -> io::Result<Left> {
        let entries = fs::read_dir(&self.dest)?;
        entries.map(|entry| entry.and_then(|entry| Ok((entry.file_name(), fs::read(entry.path())?)))).collect()
    }

    /// Names in the folder now.
    pub fn names(&self) -> io::Result<BTreeSet<OsString>> {
        fs::read_dir(&self.dest)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    /// Files of the folder, open.
    pub fn files(&self) -> io::Result<Vec<File>> {
        fs::read_dir(&self.dest)?.map(|entry| File::options().read(true).write(true).open(entry?.path())).collect()
    }

    /// The clear disk of what the folder has under a name: `len` bytes of it.
    pub fn clear(&self, plan: &Plan, file: &[u8], len: usize) -> Result<Vec<u8>, String> {
        let start = if plan.into.is_in_place() { START } else { 0 };
        if !plan.into.is_encrypted() {
            return file.get(start..start + len).map(<[u8]>::to_vec).ok_or_else(|| "it is too short".to_owned());
        }
        let path = self.aside.path().join("left");
        put(&path, file).map_err(|error| error.to_string())?;
        let volume = self.opened(plan.into, &path, plan.keeps_holes).read_only(true).open();
        let volume = volume.map_err(|error| format!("it does not open: {error}"))?;
        let mut bytes = vec![0; len.next_multiple_of(512)];
        let mut blocking = volume.blocking().map_err(|error| error.to_string())?;
        blocking.read_at(0, &mut bytes).map_err(|fault| format!("it can not be read: {fault}"))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// How a volume with the copy is opened.
    pub fn opened(&self, into: Into, path: &Path, detects: bool) -> Open {
        let open = match into {
            Into::Volume => volume(range_of(path)).overwrite(true),
            _ => Open::new(path).passphrase(PHRASE).dispatch(inline()),
        };
        open.zeroes(if detects { Zeroes::Detect } else { Zeroes::Decrypt })
    }
}

/// A volume of a source: holes are zeros in it.
pub fn volume(target: impl AsRef<OsStr>) -> Open {
    let plain = Plain {
        cipher: "aes-xts-plain64".to_owned(),
        key_len: KEY.len(),
        hash: None,
        start: 0,
        size: None,
        sector_size: 512,
        iv_offset: 0,
        iv_large_sectors: false,
    };
    Open::new(target).plain(plain).key(KEY).dispatch(inline()).zeroes(Zeroes::Detect).overwrite(true)
}

fn inline() -> DispatchOptions {
    DispatchOptions { both: Some(DispatchMode::Inline), ..DispatchOptions::default() }
}

/// The target of a copy into a range of a file.
pub fn range_of(path: &Path) -> String {
    format!("{}?offset={START}&length={WITHIN}", path.display())
}

/// A new volume with its passphrase.
pub fn new_volume(path: &Path) -> cryptline::Create {
    let format = FormatOptions {
        kdf: Some(KdfKind::Pbkdf2),
        cost: KdfCost { iterations: Some(1000), ..KdfCost::default() },
        data_offset: Some(START as u64),
        ..FormatOptions::default()
    };
    cryptline::Create::new(path).format(format).passphrase(PHRASE)
}

fn patterned(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, id, 0, 0);
    bytes
}

/// Ranges that are not zeros, in grains.
fn runs_of_data(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let is_data = |grain: &[u8]| grain.iter().any(|byte| *byte != 0);
    let grains = bytes.chunks(GRAIN).enumerate().filter(|(_, grain)| is_data(grain));
    grains.map(|(number, grain)| number * GRAIN..number * GRAIN + grain.len()).collect()
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file?.write_all(bytes)
}
