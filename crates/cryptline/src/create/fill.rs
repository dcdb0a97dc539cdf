//! A new volume that is filled as it is made.
//!
//! ```text
//! header in memory ─► data, encrypted under its key ─► flush ─► key slots ─► flush ─► the rest of the header
//! ```
//!
//! In a new file the key slots are written before the data, and one flush makes both durable: megabytes of noise, which open
//! nothing without a header.
//!
//! So there is no volume before its data is durable, and in a file none under its name before it was opened again.

use std::io::{Cursor, Seek, SeekFrom, Write};
use std::path::Path;

use cryptline_engine::base::Image;
use cryptline_luks::format::FormatOptions;
use cryptline_luks::{LuksHeader, SegmentPolicy};
use cryptline_sys::{SecretBuf, is_zero};

use super::{Create, Created, Draft, Durable, Progress, draft, fit_sector, is_device, made_no_header};
use crate::base::{Base, BaseSource};
use crate::copy::{Copy, CopyRemains, CopyTrouble, Moved, Transfer};
use crate::error::Problem;
use crate::keys::with_keys;
use crate::setters::setters;
use crate::target::Target;
use crate::{DispatchMode, DispatchOptions, Open, Result, Warning, Zeroes};

/// Memory for the making of a header; no default one is longer.
pub(super) const HEADER_MAX: usize = 16 << 20;
/// Bytes that make the header a header; they are written last.
const FIRST: usize = 4096;
/// Room for data that a stream begins with.
const ROOM: u64 = 64 << 20;
/// A size that all sectors divide, for a disk that nobody knows the size of yet.
const UNKNOWN: u64 = 1 << 40;

/// The threads of a copy, and of a comparison, are as many as there are cores.
fn inline() -> DispatchOptions {
    DispatchOptions { both: Some(DispatchMode::Inline), ..DispatchOptions::default() }
}

/// Contents of the place where a header goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorContents {
    /// A new file: what stays zeros takes no room.
    IsZeros,
    /// The same, where [the key slots](put_key_slots) are already.
    HasKeySlots,
    IsUnknown,
}

/// A header that is on no medium yet.
pub(super) struct Prepared {
    pub bytes: Vec<u8>,
    /// Where the place of the key slots begins, in bytes.
    pub slots: usize,
    /// Where the data begins, in bytes: behind the header, unless that is elsewhere.
    pub start: u64,
    pub header: LuksHeader,
    pub key: SecretBuf,
    pub passphrase: SecretBuf,
    /// Bytes in a cipher sector.
    pub sector: u64,
}

impl Create {
    setters! {
        /// Makes the volume with these contents. A file is as large as it takes, unless a size was given. What happens is
        /// told to [`on_progress`](Self::on_progress) of this.
        fn fill(copy: Copy) { copy = Some(copy) }
    }

    /// Makes the volume and fills it.
    pub(super) fn create_from(&self, source: &BaseSource, copy: Copy) -> Result<Created> {
        self.refuse_header(source, &copy)?;
        let mut created = match source {
            BaseSource::Target(Target::Path(path)) if !is_device(path) => self.in_file_from(path, copy),
            BaseSource::Target(Target::Path(path) | Target::Pmem(path) | Target::Btt(path)) => {
                self.in_place_from(source, Some(path), copy)
            }
            BaseSource::Target(Target::Slice(slice)) if !slice.of.is_memory() => self.in_place_from(source, None, copy),
            BaseSource::Target(Target::Nbd(_) | Target::Rbd(_))
            | BaseSource::Medium(_)
            | BaseSource::Device(_)
            | BaseSource::Image(_) => self.in_place_from(source, None, copy),
            BaseSource::Target(target) => Err(Problem::NoPlace(target.to_string()).into()),
        }?;
        created.warnings.extend(Warning::of_key_memory());
        Ok(created)
    }

    /// In a new file.
    fn in_file_from(&self, path: &Path, mut copy: Copy) -> Result<Created> {
        if let Some(how) = copy.resume.take() {
            return self.in_file_again(path, copy, &how);
        }
        let name = path.display().to_string();
        copy.source.refuse_same(&Target::Path(path.to_owned()))?;
        copy.refuse_zones(None, &name)?;
        let draft = Draft::new(path, self.replace)?;
        self.tell(Progress::Unfinished(draft.path()))?;
        let known = copy.source.size().map(|size| size.next_multiple_of(512));
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        let data = known.unwrap_or(UNKNOWN);
        let mut options = self.format.clone();
        for len in known.iter().chain(&self.size) {
            fit_sector(&mut options, *len);
        }
        let prepared = self.prepare(&name, passphrase, data, &options)?;
        let start = prepared.start;
        let least = start + known.unwrap_or(0).next_multiple_of(prepared.sector);
        let size = self.size.unwrap_or(if known.is_some() { least } else { start + ROOM });
        if size < least {
            let (has, needs) = (size.saturating_sub(start), least - start);
            return Err(Problem::CopyTooSmall { has, needs }.on(&name));
        }
        self.check_data_size(size - start, &name)?;
        draft.set_size(size, self.preallocate)?;
        let header = self.header_apart(&prepared)?;
        if header.is_none() {
            put_key_slots(&draft, &prepared).map_err(|source| draft::failed("write", &name, source))?;
        }
        let grows = known.is_none() && self.size.is_none();
        let moved = self.fill_file(&draft, &name, &prepared, &copy, grows)?;
        if header.is_none() {
            self.put_prepared(Durable(draft.file()), &prepared, PriorContents::HasKeySlots)
                .map_err(|source| draft::failed("write", &name, source))?;
        }
        // What was written behind the end of a stream was hashed, too.
        if copy.verify {
            let open = self.reopen(&draft, &prepared, &copy);
            let volume = with_header(open, header.as_ref().map(Draft::path)).open()?;
            self.compare(&volume, &copy, &moved, &name, CopyRemains::Nothing)?;
        }
        if grows {
            let data = moved.bytes.next_multiple_of(prepared.sector).max(prepared.sector);
            self.check_data_size(data, &name)?;
            draft.set_size(start + data, false)?;
        }
        draft.sync()?;
        let data_size = match &header {
            Some(header) => {
                self.check_file(header, &name, &prepared)?;
                draft.size()?.saturating_sub(start)
            }
            None => self.check_file(&draft, &name, &prepared)?,
        };
        copy.refuse_stopped(&name)?;
        self.publish_both(draft, header)?;
        Ok(self.created(data_size, copy.copied(moved, Vec::new())))
    }

    fn check_data_size(&self, size: u64, name: &str) -> Result<()> {
        self.format.check_data_size(size).map_err(|error| Problem::Luks(error).on(name))
    }

    pub(super) fn created(&self, data_size: u64, copied: crate::Copied) -> Created {
        Created { data_size, warnings: Vec::new(), copied: Some(copied) }
    }

    /// Makes the header and its key, in memory.
    pub(super) fn prepare(
        &self,
        name: &str,
        passphrase: SecretBuf,
        data_size: u64,
        options: &FormatOptions,
    ) -> Result<Prepared> {
        with_keys(move || {
            self.tell(Progress::Deriving)?;
            let mut bytes = Cursor::new(vec![0; HEADER_MAX]);
            // The header says "up to the end", wherever that is; the size only chooses the sector.
            let size = data_size.max(1 << 20) + HEADER_MAX as u64;
            let key = self
                .put_header(&mut bytes, size, &passphrase, options, name)?
                .map_err(|error| made_no_header(error, name))?;
            self.tell(Progress::Looked)?;
            let header = cryptline_luks::read(&mut bytes, size).map_err(|error| Problem::Luks(error).on(name))?;
            let policy = SegmentPolicy { allow_null_cipher: options.allow_null_cipher, detached: options.detached };
            let segments = header.segments(policy).map_err(|error| Problem::Luks(error).on(name))?;
            let (start, sector) = (segments[0].offset, segments[0].sector_size);
            let len = if options.detached { options.header_len() } else { Ok(start) };
            let len = len.map_err(|error| Problem::Luks(error).on(name))?;
            let mut bytes = bytes.into_inner();
            bytes.truncate(usize::try_from(len).unwrap_or(HEADER_MAX));
            let slots = usize::try_from(options.metadata_len()).unwrap_or(HEADER_MAX).min(bytes.len());
            Ok(Prepared { bytes, slots, start, header, key, passphrase, sector: sector.into() })
        })
    }

    fn fill_file(&self, draft: &Draft, name: &str, prepared: &Prepared, copy: &Copy, grows: bool) -> Result<Moved> {
        let volume = self.volume_in(draft, name, prepared, Zeroes::Decrypt)?;
        let start = prepared.start;
        let grow = |room: u64| {
            let grown = draft.file().set_len(start + room).map_err(CopyTrouble::Grow);
            grown.map(|()| {
                volume.grow();
            })
        };
        let tell = |progress: Progress<'_>| self.tell(progress);
        let transfer = Transfer {
            grow: grows.then_some(&grow),
            ..Transfer::new(copy, volume.gate(), copy.holes.written_as(), &tell)
        };
        transfer.run().map_err(|trouble| trouble.into_error(copy.source.name(), name, CopyRemains::Nothing))
    }

    /// The volume in an unfinished file.
    pub(super) fn volume_in(
        &self,
        draft: &Draft,
        name: &str,
        prepared: &Prepared,
        zeroes: Zeroes,
    ) -> Result<crate::Volume> {
        let base = Base::Image(Image::open(draft.path(), false)?);
        self.volume(base, name, prepared, zeroes)
    }

    /// The volume under a header that is not there yet.
    pub(super) fn volume(&self, base: Base, name: &str, prepared: &Prepared, zeroes: Zeroes) -> Result<crate::Volume> {
        let open = Open::new(name).dispatch(inline()).zeroes(zeroes).allow_null_cipher(self.format.allow_null_cipher);
        with_header(open, self.header.as_deref()).under(base, &prepared.header, &prepared.key)
    }

    /// Writes the header: its beginning last, when all else is durable.
    pub(super) fn put_prepared(
        &self,
        mut device: impl Write + Seek,
        prepared: &Prepared,
        place: PriorContents,
    ) -> std::io::Result<()> {
        let (first, rest) = prepared.bytes.split_at(FIRST);
        match place {
            PriorContents::IsZeros => put_data(&mut device, FIRST, rest)?,
            PriorContents::HasKeySlots => put_data(&mut device, FIRST, &prepared.bytes[FIRST..prepared.slots])?,
            PriorContents::IsUnknown => {
                device.seek(SeekFrom::Start(FIRST as u64))?;
                device.write_all(rest)?;
            }
        }
        device.flush()?;
        device.seek(SeekFrom::Start(0))?;
        device.write_all(first)?;
        device.flush()
    }

    pub(super) fn check_file(&self, draft: &Draft, name: &str, prepared: &Prepared) -> Result<u64> {
        self.tell(Progress::Checking)?;
        let image = Image::open(draft.path(), true)?;
        with_keys(|| {
            self.try_opening(image.file(), image.size(), &prepared.passphrase, &prepared.key)
                .map_err(|why| Problem::DoesNotOpen(why).on(name))
        })
    }

    /// The volume in an unfinished file, by its header: as others will open it.
    pub(super) fn reopen(&self, draft: &Draft, prepared: &Prepared, copy: &Copy) -> Open {
        Open::target(Target::Path(draft.path().to_owned()))
            .key(&*prepared.key)
            .read_only(true)
            .dispatch(inline())
            .zeroes(copy.holes.read_as())
            // It was checked when the volume was made.
            .accept_cipher(&self.format.cipher)
            .allow_null_cipher(self.format.allow_null_cipher)
    }

    /// Compares what is in the volume with what was read of the source.
    pub(super) fn compare(
        &self,
        volume: &crate::Volume,
        copy: &Copy,
        moved: &Moved,
        name: &str,
        left: CopyRemains,
    ) -> Result<()> {
        let tell = |progress: Progress<'_>| self.tell(progress);
        let compared = moved.compare(volume.gate(), copy, &tell);
        compared.map_err(|trouble| trouble.into_error(copy.source.name(), name, left))
    }
}

/// Writes the place of the key slots into a new file. The flush that ends the copy makes it durable.
fn put_key_slots(draft: &Draft, prepared: &Prepared) -> std::io::Result<()> {
    put_data(&mut Durable(draft.file()), prepared.slots, &prepared.bytes[prepared.slots..])
}

/// Writes `bytes` at an offset of a new file, without the blocks of zeros: each run of others at once.
fn put_data(device: &mut (impl Write + Seek), offset: usize, bytes: &[u8]) -> std::io::Result<()> {
    let (mut at, mut left) = (offset, bytes);
    while !left.is_empty() {
        let is_first_zero = is_zero(&left[..left.len().min(FIRST)]);
        let blocks = left.chunks(FIRST).take_while(|block| is_zero(block) == is_first_zero);
        let (run, rest) = left.split_at(blocks.map(<[u8]>::len).sum());
        if !is_first_zero {
            device.seek(SeekFrom::Start(at as u64))?;
            device.write_all(run)?;
        }
        (at, left) = (at + run.len(), rest);
    }
    Ok(())
}

/// With a header that is elsewhere, where it is.
fn with_header(open: Open, header: Option<&Path>) -> Open {
    match header {
        Some(path) => open.header(path),
        None => open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium that notes where each write goes, and how long it is.
    #[derive(Default)]
    struct Noted(Cursor<Vec<u8>>, Vec<(u64, usize)>);

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1.push((self.0.position(), bytes.len()));
            self.0.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Noted {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn blocks_of_zeros_are_left_out_and_each_run_of_others_is_one_write() {
        let mut bytes = vec![0; 6 * FIRST + 512];
        bytes[FIRST..3 * FIRST].fill(1);
        bytes[4 * FIRST + 7] = 1;
        bytes[6 * FIRST] = 1;
        let mut noted = Noted::default();
        put_data(&mut noted, FIRST, &bytes).unwrap();
        let at = |block: usize| (block * FIRST) as u64;
        assert_eq!(noted.1, [(at(2), 2 * FIRST), (at(5), FIRST), (at(7), 512)]);
        assert_eq!(noted.0.into_inner()[FIRST..], bytes);
    }
}
