//! A new volume that is filled where something is already: on a device, or in a part of one.
//!
//! ```text
//! old header set aside or wiped ─► data ─► flush ─► compared, if that was asked for ─► header
//! ```
//!
//! So whatever ends it on the way, nothing that opens is left.

use std::io::{Seek, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

use cryptline_luks::format::wipe_old_copies;

use super::fill::{Prepared, PriorContents};
use super::{Create, Created, Draft, Progress, unreadable};
use crate::base::{Base, BaseDevice, BaseSource};
use crate::bytes::GateBytes;
use crate::copy::{Copy, CopyRemains, Holes, Moved, ResumeError, Transfer, Zeros};
use crate::error::Problem;
use crate::keys::with_keys;
use crate::{Result, Volume, Zeroes};

/// Bytes of zeros in one write.
const WIPED_AT_ONCE: usize = 1 << 20;

impl Create {
    /// On a device that is there already.
    pub(super) fn in_place_from(&self, target: &BaseSource, path: Option<&Path>, mut copy: Copy) -> Result<Created> {
        if let BaseSource::Target(target) = target {
            copy.source.refuse_same(target)?;
        }
        if copy.resume.is_some() {
            return Err(Problem::Resume(ResumeError::Destination).on(target));
        }
        if copy.holes == Holes::Keep {
            return Err(Problem::HolesOfDevice.on(target));
        }
        let (device, options) = self.open_place(target, path, Some(&copy))?;
        let size = device.gate.size();
        let name = target.to_string();
        copy.refuse_zones(Some(&device.gate), &name)?;
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        let prepared = self.prepare(&name, passphrase, size, &options)?;
        let start = prepared.start;
        let needs = copy.source.size().unwrap_or(0).next_multiple_of(prepared.sector);
        let has = size.saturating_sub(start);
        let has = has - has % prepared.sector;
        if has < needs {
            return Err(Problem::CopyTooSmall { has, needs }.on(&name));
        }
        let header = self.header_apart(&prepared)?;
        // What cannot be opened, or has no room, is refused while all is as it was.
        let volume = self.volume_on(&device, &name, &prepared)?;
        copy.check_room(volume.gate(), &name)?;
        // It would open onto what is neither the old data nor the new.
        let aside = header.as_ref().map(Draft::set_aside).transpose()?.flatten();
        // An old header would be found where the new one is not finished.
        zero(&device, start, &copy, target)?;
        let moved = self.fill_device(&volume, &name, &copy)?;
        drop(volume);
        let header = header.map(Draft::found_by_its_data).transpose()?;
        if copy.verify {
            // Before there is a header: what is found to be wrong must not open.
            let volume = self.volume_on(&device, &name, &prepared)?;
            let left = CopyRemains::Part(name.clone());
            self.compare(&volume, &copy, &moved, &name, left)?;
        }
        let data_size = match &header {
            Some(header) => self.check_file(header, &name, &prepared).map(|_| has)?,
            None => self.finish_place(&device, target, &prepared)?,
        };
        header.map_or(Ok(()), |header| header.publish(self.replace))?;
        if let Some(aside) = aside {
            aside.remove();
        }
        let warnings = device.warnings;
        Ok(self.created(data_size, copy.copied(moved, warnings)))
    }

    fn fill_device(&self, volume: &Volume, name: &str, copy: &Copy) -> Result<Moved> {
        let tell = |progress: Progress<'_>| self.tell(progress);
        // What else is there is not known to be zeros, nor that it stays so.
        let moved = Transfer::new(copy, volume.gate(), Zeros::Write, &tell).run();
        moved.map_err(|trouble| trouble.into_error(copy.source.name(), name, CopyRemains::Part(name.to_owned())))
    }

    /// The volume that is not there yet. Each is opened anew, with a cipher of its own.
    fn volume_on(&self, device: &BaseDevice, name: &str, prepared: &Prepared) -> Result<Volume> {
        let source = BaseSource::Device(device.gate.clone());
        let base = Base::Device(source.open_device(Default::default())?);
        self.volume(base, name, prepared, Zeroes::Decrypt)
    }

    /// Puts the header where the data is.
    fn finish_place(&self, device: &BaseDevice, target: &BaseSource, prepared: &Prepared) -> Result<u64> {
        let finished = self.put_header_in_place(device, target, prepared);
        finished.inspect_err(|_| {
            if let Ok(mut bytes) = GateBytes::new(&device.gate) {
                super::wipe(&mut bytes, &self.format);
            }
        })
    }

    fn put_header_in_place(&self, device: &BaseDevice, target: &BaseSource, prepared: &Prepared) -> Result<u64> {
        let put = self.put_prepared(GateBytes::new(&device.gate)?, prepared, PriorContents::IsUnknown);
        put.map_err(|error| unreadable(error, target))?;
        self.tell(Progress::Checking)?;
        with_keys(|| {
            let bytes = GateBytes::new(&device.gate)?;
            self.try_opening(bytes, device.gate.size(), &prepared.passphrase, &prepared.key)
                .map_err(|why| Problem::DoesNotOpenInPlace(why).on(target))
        })
    }
}

/// Overwrites the first `len` bytes, which may be many: as far as an offset that was asked for. The second copy of an old
/// header may lie behind them.
fn zero(device: &BaseDevice, len: u64, copy: &Copy, target: &BaseSource) -> Result<()> {
    let mut bytes = GateBytes::new(&device.gate)?;
    wipe_old_copies(&mut bytes, device.gate.size()).map_err(|error| Problem::Luks(error).on(target))?;
    bytes.rewind().map_err(|error| unreadable(error, target))?;
    let piece = vec![0; WIPED_AT_ONCE];
    let mut left = len;
    while left > 0 {
        if copy.stop.load(Ordering::Relaxed) {
            return Err(Problem::CopyStopped(CopyRemains::Part(target.to_string())).on(target));
        }
        let len = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
        let written = bytes.write_all(&piece[..len]);
        written.map_err(|error| unreadable(error, target))?;
        left -= len as u64;
    }
    bytes.flush().map_err(|error| unreadable(error, target))
}
