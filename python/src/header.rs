//! New volumes, copies, and key slots.

use std::ffi::OsString;
use std::time::Duration;

use cryptline::keys::{KeyFile, VolumeKey};
use cryptline::luks::edit::{LastSlot, NewSlot};
use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion};
use cryptline::{Contents, Copy, CopySource, Create, Header, Problem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::disk::{Disk, Place, Secret, limits};
use crate::errors;

/// Cost of trying a passphrase: a function's name, iterations, KiB of memory, threads, seconds.
type Cost = (Option<String>, Option<u32>, Option<u32>, Option<u32>, Option<f64>);

fn cost(given: Cost) -> PyResult<(Option<KdfKind>, KdfCost)> {
    let (name, iterations, memory_kib, cpus, seconds) = given;
    let kind = match name.as_deref() {
        None => None,
        Some("argon2id") => Some(KdfKind::Argon2id),
        Some("argon2i") => Some(KdfKind::Argon2i),
        Some("pbkdf2") => Some(KdfKind::Pbkdf2),
        Some(_) => {
            let text = "kdf is one of 'argon2id', 'argon2i' and 'pbkdf2'";
            return Err(PyValueError::new_err(text));
        }
    };
    let mut cost = KdfCost { iterations, memory_kib, cpus, ..KdfCost::default() };
    if let Some(seconds) = seconds {
        let target = Duration::try_from_secs_f64(seconds);
        cost.target = target.map_err(|_| PyValueError::new_err("kdf_time is no length of time"))?;
    }
    Ok((kind, cost))
}

/// Makes a volume; bytes of its decrypted disk.
#[pyfunction]
#[pyo3(signature = (target, *, size, passphrase, version, label, cipher, key_bits, sector_size, uuid, replace, preallocate, source, cost, accept_cipher))]
#[allow(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn create(
    python: Python<'_>,
    target: &Bound<'_, PyAny>,
    size: Option<u64>,
    passphrase: Secret,
    version: u8,
    label: Option<String>,
    cipher: Option<String>,
    key_bits: Option<u32>,
    sector_size: Option<u32>,
    uuid: Option<String>,
    replace: bool,
    preallocate: bool,
    source: Option<OsString>,
    cost: Cost,
    accept_cipher: Vec<String>,
) -> PyResult<u64> {
    let (place, raised) = Place::new(target, None)?;
    let mut format = FormatOptions {
        version: match version {
            1 => LuksVersion::Luks1,
            2 => LuksVersion::Luks2,
            _ => return Err(PyValueError::new_err("version is 1 or 2")),
        },
        sector_size,
        uuid,
        label: label.unwrap_or_default(),
        accepted_ciphers: accept_cipher,
        ..FormatOptions::default()
    };
    (format.kdf, format.cost) = self::cost(cost)?;
    if let Some(cipher) = cipher {
        format.cipher = cipher;
    }
    if let Some(bits) = key_bits {
        if !bits.is_multiple_of(8) {
            return Err(PyValueError::new_err("key_bits is a multiple of 8"));
        }
        format.key_len = bits / 8;
    }
    let work = || {
        let mut create = match &place {
            Place::Name(name) => Create::new(name),
            Place::Object(object) => Create::medium(std::sync::Arc::clone(object)),
        };
        let fill = source.map(|source| Ok::<_, cryptline::Error>(Copy::new(CopySource::raw(source)?))).transpose()?;
        with!(create, size: size, fill: fill);
        create.format(format).replace(replace).preallocate(preallocate).passphrase(&passphrase).create()
    };
    Ok(raised.run(python, work, errors::of)?.data_size)
}

/// Copies the decrypted disk to a new file, or to a device; bytes.
#[pyfunction]
#[pyo3(signature = (disk, target, *, verify, replace))]
pub fn copy(python: Python<'_>, disk: &Disk, target: OsString, verify: bool, replace: bool) -> PyResult<u64> {
    let source = disk.get()?;
    let work = move || {
        let copy = Copy::new(CopySource::volume(source.volume()));
        copy.verify(verify).replace(replace).into_target(target)
    };
    Ok(disk.raised.run(python, work, errors::of)?.bytes)
}

/// Contents of a header as JSON, or where they are wanted the `partitions` of a disk.
#[pyfunction]
#[pyo3(signature = (target, *, window, header, partitions))]
pub fn inspect(
    python: Python<'_>,
    target: &Bound<'_, PyAny>,
    window: Option<&str>,
    header: Option<OsString>,
    partitions: bool,
) -> PyResult<String> {
    let (place, raised) = Place::new(target, window)?;
    let work = || {
        let mut open = place.open();
        with!(open, header: header);
        match open.inspect() {
            Ok(found) => Ok(found.to_json()),
            Err(error) => match error.problem() {
                Problem::NotLuks(Contents::Partitioned(table)) if partitions => Ok(table.to_json()),
                _ => Err(error),
            },
        }
    };
    raised.run(python, work, errors::of)
}

/// Changes key slots: `add`, `change` or `remove`; the number of the key slot.
#[pyfunction]
#[pyo3(signature = (what, target, *, window, passphrase, volume_key, key_file, header, new_passphrase, slot, last, time_budget, cost, accept_cipher))]
#[allow(clippy::too_many_arguments, reason = "Python's keywords")]
pub fn edit(
    python: Python<'_>,
    what: &str,
    target: &Bound<'_, PyAny>,
    window: Option<&str>,
    passphrase: Option<Secret>,
    volume_key: Option<Secret>,
    key_file: Option<OsString>,
    header: Option<OsString>,
    new_passphrase: Option<Secret>,
    slot: Option<u32>,
    last: bool,
    time_budget: Option<f64>,
    cost: Cost,
    accept_cipher: Vec<String>,
) -> PyResult<Option<u32>> {
    let (place, raised) = Place::new(target, window)?;
    let limits = limits(time_budget)?;
    let (kdf, cost) = self::cost(cost)?;
    let new = NewSlot { slot, kdf, cost, ..NewSlot::default() };
    let last = if last { LastSlot::Remove } else { LastSlot::Keep };
    let work = || {
        let mut edit = match &place {
            Place::Name(name) => Header::new(name),
            Place::Object(object) => Header::medium(std::sync::Arc::clone(object)),
        };
        edit = accept_cipher.into_iter().fold(edit.kdf_limits(limits), Header::accept_cipher);
        let volume_key = volume_key.as_ref().map(VolumeKey::new).transpose()?;
        with!(edit, passphrase: passphrase.as_ref(), keys: volume_key, keys: key_file.map(KeyFile::new));
        with!(edit, header: header, new_passphrase: new_passphrase.as_ref());
        match (what, slot) {
            ("add", _) => edit.add_key(&new),
            ("change", _) => edit.change_key(&new),
            (_, Some(slot)) => edit.kill_slot(slot, last),
            (_, None) => edit.remove_key(last),
        }
    };
    Ok(raised.run(python, work, errors::of)?.slot)
}
