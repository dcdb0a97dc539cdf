//! Places of new volumes, which are looked at before anything is changed.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cryptline_luks::format::{FormatOptions, LuksVersion};

use super::making::{HeaderToMake, Making, Resumed, Site};
use super::prepared::Prepared;
use super::{Create, Draft, what_is_there};
use crate::base::{Access, BaseDevice, BaseSource};
use crate::copy::{Copy, Holes, ResumeError};
use crate::error::Problem;
use crate::info::BaseInfo;
use crate::keys::with_keys;
use crate::target::Target;
use crate::{Result, Warning};

/// No LUKS2 volume has larger cipher sectors, in bytes.
const LARGEST_SECTOR: u32 = 4096;
/// Room for data that a stream begins with.
const ROOM: u64 = 64 << 20;
/// A size that all sectors divide, for a disk that nobody knows the size of yet.
const UNKNOWN: u64 = 1 << 40;

impl Create {
    /// Looks where it is to be, and makes its header in memory. Nothing is changed by that.
    pub(super) fn plan<'a>(&'a self, source: &'a BaseSource, copy: Option<&'a Copy>) -> Result<Making<'a>> {
        match (source, &self.header, copy) {
            (_, Some(header), None) => self.in_file(header),
            (BaseSource::Target(Target::Path(path)), _, Some(copy)) if !is_device(path) => {
                self.in_file_from(path, copy)
            }
            (BaseSource::Target(Target::Path(path)), _, None) if !self.in_place && !is_device(path) => {
                self.in_file(path)
            }
            (BaseSource::Target(Target::Path(path) | Target::Pmem(path) | Target::Btt(path)), ..) => {
                self.on_device(source, Some(path), copy)
            }
            // Looked through as it is: where its bytes lie in a file is not known here.
            (BaseSource::Target(Target::Slice(slice)), ..) if !slice.of.is_memory() => {
                self.on_device(source, None, copy)
            }
            (
                BaseSource::Target(Target::Nbd(_) | Target::Rbd(_))
                | BaseSource::Medium(_)
                | BaseSource::Device(_)
                | BaseSource::Image(_),
                ..,
            ) => self.on_device(source, None, copy),
            (BaseSource::Target(target), ..) => Err(Problem::NoPlace(target.to_string()).into()),
        }
    }

    /// In a new file.
    fn in_file<'a>(&'a self, path: &Path) -> Result<Making<'a>> {
        let name = path.display().to_string();
        let size = match (self.size, self.format.detached) {
            (Some(size), false) => size,
            (None, false) => return Err(Problem::NoSize.on(&name)),
            // No shorter than it is.
            (size, true) => {
                let len = self.format.header_len().map_err(|error| Problem::Luks(error).on(&name))?;
                len.max(size.unwrap_or(0))
            }
        };
        let draft = Draft::told(path, self.replace, |progress| self.tell(progress))?;
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        draft.set_size(size, self.preallocate)?;
        let prepared = self.prepare(&name, passphrase, size, &self.format)?;
        // It has a file of its own, and there is no other.
        let prepared = Prepared { is_apart: false, ..prepared };
        Ok(self.making(name, Site::New { draft, size, grows: false }, prepared, None, None))
    }

    /// In a new file, with contents.
    fn in_file_from<'a>(&'a self, path: &Path, copy: &'a Copy) -> Result<Making<'a>> {
        let name = path.display().to_string();
        copy.source.refuse_same(&Target::Path(path.to_owned()))?;
        copy.refuse_zones(None, &name)?;
        if let Some(how) = &copy.resume {
            return self.in_file_again(path, copy, how);
        }
        let draft = Draft::told(path, self.replace, |progress| self.tell(progress))?;
        let known = copy.source.size().map(|size| size.next_multiple_of(512));
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        let mut options = self.format.clone();
        for len in known.iter().chain(&self.size) {
            fit_sector(&mut options, *len);
        }
        let prepared = self.prepare(&name, passphrase, Self::size_with(known.unwrap_or(UNKNOWN)), &options)?;
        let size = self.file_size(&prepared, known, &name)?;
        self.check_data_size(size - prepared.start, &name)?;
        draft.set_size(size, self.preallocate)?;
        let grows = known.is_none() && self.size.is_none();
        Ok(self.making(name, Site::New { draft, size, grows }, prepared, Some(copy), None))
    }

    /// Bytes of a file for so much data; where nobody knows how much that is, the first ones.
    pub(super) fn file_size(&self, prepared: &Prepared, known: Option<u64>, name: &str) -> Result<u64> {
        let start = prepared.start;
        let least = start + known.unwrap_or(0).next_multiple_of(prepared.sector);
        let size = self.size.unwrap_or(if known.is_some() { least } else { start + ROOM });
        if size < least {
            let (has, needs) = (size.saturating_sub(start), least - start);
            return Err(Problem::CopyTooSmall { has, needs }.on(name));
        }
        Ok(size)
    }

    pub(super) fn check_data_size(&self, size: u64, name: &str) -> Result<()> {
        self.format.check_data_size(size).map_err(|error| Problem::Luks(error).on(name))
    }

    /// On a device that is there already.
    fn on_device<'a>(
        &'a self,
        target: &'a BaseSource,
        path: Option<&Path>,
        copy: Option<&'a Copy>,
    ) -> Result<Making<'a>> {
        if let Some(copy) = copy {
            if let BaseSource::Target(target) = target {
                copy.source.refuse_same(target)?;
            }
            if copy.resume.is_some() {
                return Err(Problem::Resume(ResumeError::Destination).on(target));
            }
            if copy.holes == Holes::Keep {
                return Err(Problem::HolesOfDevice.on(target));
            }
            if self.format.detached && self.header.is_none() {
                let reason = "a detached header has no room for contents; it goes to a place of its own";
                return Err(Problem::Luks(cryptline_luks::Error::Parameters(reason.into())).on(target));
            }
        }
        let (mut device, options) = self.open_place(target, path, copy)?;
        let (size, name) = (device.gate.geometry().size, target.to_string());
        let contents = match copy {
            Some(copy) => {
                copy.refuse_zones(Some(&device.gate), &name)?;
                Some(copy.source.size().unwrap_or(0))
            }
            None => None,
        };
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        let room = if contents.is_some() { Self::size_with(size) } else { size };
        let prepared = self.prepare(&name, passphrase, room, &options)?;
        let needed = prepared.bytes.len() as u64;
        if self.header.is_none() && needed > size {
            return Err(Problem::Luks(cryptline_luks::Error::TooSmall { needed, size }).on(&name));
        }
        if let Some(contents) = contents {
            let (has, needs) = (prepared.data_on(size), contents.next_multiple_of(prepared.sector));
            if has < needs {
                return Err(Problem::CopyTooSmall { has, needs }.on(&name));
            }
        }
        let sector = options.sector_size.unwrap_or(device.gate.geometry().logical_block);
        let torn = device.torn_sectors(sector);
        device.warnings.extend(torn);
        Ok(self.making(name, Site::There { device, target }, prepared, copy, None))
    }

    pub(super) fn making<'a>(
        &'a self,
        name: String,
        site: Site<'a>,
        prepared: Prepared,
        contents: Option<&'a Copy>,
        resumed: Option<Resumed>,
    ) -> Making<'a> {
        let header = Some(HeaderToMake { create: self, prepared });
        Making { name, site, header, contents, resumed, observer: self.observer.as_ref() }
    }

    /// Opens a device that is there already, and looks whether it may be overwritten; what to make there.
    fn open_place(
        &self,
        target: &BaseSource,
        path: Option<&Path>,
        copy: Option<&Copy>,
    ) -> Result<(BaseDevice, FormatOptions)> {
        let mut device = target.open_device(Access::default())?;
        let geometry = *device.gate.geometry();
        let size = geometry.size;
        if self.size.is_some() || self.preallocate {
            return Err(Problem::HasSize(size).on(target));
        }
        if geometry.read_only {
            return Err(Problem::ReadOnly.on(target));
        }
        let mut options = self.format.clone();
        fit_sector(&mut options, size);
        if options.detached {
            options.check_data_size(size).map_err(|error| Problem::Luks(error).on(target))?;
        }
        // What is larger than a table's sector can be torn; what is smaller cannot be written.
        let sector = geometry.logical_block;
        if let BaseInfo::Btt { .. } = device.info {
            options.sector_size.get_or_insert(sector);
        }
        if let BaseInfo::Rbd { stripe_period } = device.info {
            let warning = fit_to_rbd(&mut options, stripe_period, size);
            device.warnings.extend(warning);
        }
        let unit = match options.version {
            LuksVersion::Luks1 => 512,
            LuksVersion::Luks2 => options.sector_size.unwrap_or(sector.min(LARGEST_SECTOR)),
        };
        let fits = device.check_sectors(unit);
        fits.map_err(|error| error.on(target))?;
        if unit < sector {
            let block = sector;
            return Err(Problem::DeviceBlocks { unit, block }.on(target));
        }
        if !self.replace {
            self.refuse_contents(&device, target, path, &options, copy)?;
        }
        Ok((device, options))
    }

    /// Refuses a device that holds something, before anything is written.
    fn refuse_contents(
        &self,
        device: &BaseDevice,
        target: &BaseSource,
        path: Option<&Path>,
        options: &FormatOptions,
        copy: Option<&Copy>,
    ) -> Result<()> {
        let failed = |error| Problem::Luks(error).on(target);
        let mut start = options.data_start().map_err(failed)?;
        if options.detached && self.header.is_none() {
            // It is the header that comes here.
            start = options.header_len().map_err(failed)?;
        }
        // Up to the end of the device, where only the end of a stream tells how much comes.
        let contents = copy.map_or(Some(0), |copy| copy.source.size());
        let written = contents
            .map_or(u64::MAX, |contents| start.saturating_add(contents).saturating_add(u64::from(LARGEST_SECTOR)));
        let found = what_is_there(device, written, path, |progress| {
            copy.map_or(Ok(()), |copy| copy.refuse_stopped(&target.to_string()))?;
            self.tell(progress)
        });
        match found.map_err(|error| error.on(target))? {
            Some(what) => Err(Problem::Holds { what }.on(target)),
            None => Ok(()),
        }
    }
}

/// Tells if volumes are made on it, and not in its place.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// A header of its own does not know the size of its data, which need not be a multiple of the largest sector.
fn fit_sector(options: &mut FormatOptions, size: u64) {
    if options.detached && !size.is_multiple_of(LARGEST_SECTOR.into()) {
        options.sector_size.get_or_insert(512);
    }
}

/// Chooses what Ceph's own encryption would make, so that it opens it, too: data begins with a round of objects, and a
/// sector of LUKS2 has 4096 bytes. What was asked for stays as it is; where there is no room for that, so does what is
/// usual.
fn fit_to_rbd(options: &mut FormatOptions, stripe_period: u64, size: u64) -> Option<Warning> {
    let usual = match options.version {
        LuksVersion::Luks1 => 2 << 20,
        LuksVersion::Luks2 => 16 << 20,
    };
    let mut warning = None;
    if options.data_offset.is_none() && !options.detached {
        let wanted = u64::checked_next_multiple_of(usual, stripe_period).unwrap_or(u64::MAX);
        // A small image without room for any data has its own error.
        if wanted < size || wanted == usual {
            options.data_offset = Some(wanted);
        } else {
            warning = Some(Warning::CephOffset { wanted });
        }
    }
    if options.version == LuksVersion::Luks2 && size.is_multiple_of(u64::from(LARGEST_SECTOR)) {
        options.sector_size.get_or_insert(LARGEST_SECTOR);
    }
    warning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_begins_with_a_round_of_objects_where_there_is_room() {
        const MIB: u64 = 1 << 20;
        let fit = |period, size| {
            let mut options = FormatOptions::default();
            let warning = fit_to_rbd(&mut options, period, size);
            (options.data_offset, warning.is_some())
        };
        assert_eq!(fit(4 * MIB, 20 * MIB), (Some(16 * MIB), false));
        assert_eq!(fit(12 * MIB, 32 * MIB), (Some(24 * MIB), false));
        assert_eq!(fit(12 * MIB, 20 * MIB), (None, true));
        // Too small for any: the error is that of all targets.
        assert_eq!(fit(4 * MIB, 8 * MIB), (Some(16 * MIB), false));
    }
}
