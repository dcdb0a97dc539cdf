//! An open volume.

use std::ffi::{CString, OsString};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cryptline::{DirectMode, KdfLimits, Open, Window};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zeroize::Zeroize;

use crate::errors;
use crate::medium::{FileObject, Raised};

/// Key in one of the forms that Python has for it.
#[derive(FromPyObject)]
pub enum Secret {
    Text(String),
    Bytes(Vec<u8>),
}

impl AsRef<[u8]> for Secret {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        match self {
            Self::Text(text) => text.zeroize(),
            Self::Bytes(bytes) => bytes.zeroize(),
        }
    }
}

/// A time budget in seconds.
pub fn limits(seconds: Option<f64>) -> PyResult<KdfLimits> {
    let Some(seconds) = seconds else {
        return Ok(KdfLimits::default());
    };
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| PyValueError::new_err("time_budget is no length of time"))?;
    Ok(KdfLimits { time })
}

/// Medium of a volume.
pub enum Place {
    Name(OsString),
    Object(Arc<FileObject>),
}

impl Place {
    /// Of the name of a target, or of a file object or a `window` of one; and what the object will raise.
    pub fn new(target: &Bound<'_, PyAny>, window: Option<&str>) -> PyResult<(Self, Raised)> {
        let raised = Raised::default();
        if !target.hasattr("read")? {
            return Ok((Self::Name(target.extract()?), raised));
        }
        let mut object = Arc::new(FileObject::new(target, raised.clone())?);
        if let Some(window) = window {
            let window: Window = window.parse().map_err(|why: String| PyValueError::new_err(why))?;
            let find = || window.find_on(Arc::clone(&object));
            let (range, warning) = raised.run(target.py(), find, errors::of)?;
            if let Some(warning) = warning {
                let text = CString::new(warning.to_string())?;
                PyErr::warn(target.py(), &target.py().get_type::<PyUserWarning>(), &text, 1)?;
            }
            object = Arc::new(FileObject::new(target, raised.clone())?.part(range));
        }
        Ok((Self::Object(object), raised))
    }

    pub fn open(&self) -> Open {
        match self {
            Self::Name(name) => Open::new(name),
            Self::Object(object) => Open::medium(Arc::clone(object)),
        }
    }
}

/// An open volume: bytes at offsets. `cryptline.Disk` is the file around it.
#[pyclass(frozen, module = "cryptline._cryptline")]
pub struct Disk {
    /// Until it is closed.
    disk: RwLock<Option<Arc<cryptline::Disk>>>,
    pub raised: Raised,
    /// Contents of the header, as JSON.
    #[pyo3(get)]
    header: Option<String>,
}

impl Disk {
    /// The disk, which is closed only when whoever has it is done.
    pub fn get(&self) -> PyResult<Arc<cryptline::Disk>> {
        let disk = self.disk.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || PyValueError::new_err("I/O operation on closed disk");
        disk.clone().ok_or_else(closed)
    }

    /// Does `work` without the interpreter's lock.
    fn run<T: Send>(
        &self,
        python: Python<'_>,
        work: impl FnOnce(&cryptline::Disk) -> Result<T, cryptline::Fault> + Send,
    ) -> PyResult<T> {
        let disk = self.get()?;
        // The last one of a disk that was closed meanwhile goes without the lock, too.
        let work = move || {
            let done = work(&disk);
            drop(disk);
            done
        };
        let failed = |fault: &cryptline::Fault| errors::of_fault(*fault);
        self.raised.run(python, work, failed)
    }
}

#[pymethods]
impl Disk {
    fn close(&self, python: Python<'_>) {
        python.detach(|| {
            let mut disk = self.disk.write().unwrap_or_else(PoisonError::into_inner);
            let taken = disk.take();
            drop(disk);
            drop(taken);
        });
    }

    fn size(&self) -> PyResult<u64> {
        Ok(self.get()?.size())
    }

    /// Description of the volume, as JSON.
    fn info(&self) -> PyResult<String> {
        Ok(self.get()?.volume().to_json())
    }

    fn read_only(&self) -> PyResult<bool> {
        Ok(self.get()?.volume().info().read_only)
    }

    fn pread<'py>(&self, python: Python<'py>, count: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.get()?.size();
        let count = clamp(count, offset, size);
        PyBytes::new_with(python, count, |target| self.run(python, move |disk| disk.read_at(offset, target)))
    }

    /// Fills the buffer, as far as the disk goes; how many bytes.
    #[allow(clippy::needless_pass_by_value, reason = "it is released at the end")]
    fn readinto(&self, python: Python<'_>, target: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        if target.readonly() || !target.is_c_contiguous() {
            return Err(PyBufferError::new_err("a contiguous buffer that can be written is needed"));
        }
        let count = clamp(target.len_bytes(), offset, self.get()?.size());
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the buffer is contiguous, writable and at least `count` bytes long (checked above), and its exporter
        // keeps it in its place until `target` is released, at the end. Other threads of the program may use the
        // bytes meanwhile, since the interpreter's lock is released: as with a file's readinto(), that is the
        // program's own race, about the values of bytes; whatever they are is a byte.
        let bytes = unsafe { std::slice::from_raw_parts_mut(target.buf_ptr().cast(), count) };
        self.run(python, |disk| disk.read_at(offset, bytes))?;
        Ok(count)
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is released at the end")]
    fn pwrite(&self, python: Python<'_>, source: PyBuffer<u8>, offset: u64, durable: bool) -> PyResult<usize> {
        if !source.is_c_contiguous() {
            return Err(PyBufferError::new_err("a contiguous buffer is needed"));
        }
        let count = source.len_bytes();
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the buffer is contiguous and `count` bytes long, and its exporter keeps it in its place until
        // `source` is released, at the end. As above, a thread that changes the bytes meanwhile decides only which
        // ones are written.
        let bytes = unsafe { std::slice::from_raw_parts(source.buf_ptr().cast::<u8>(), count) };
        self.run(python, |disk| disk.write_at(offset, bytes, durable))?;
        Ok(count)
    }

    fn flush(&self, python: Python<'_>) -> PyResult<()> {
        self.run(python, cryptline::Disk::flush)
    }

    fn discard(&self, python: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.run(python, |disk| disk.discard(offset, length))
    }

    fn zero(&self, python: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.run(python, |disk| disk.write_zeroes(offset, length))
    }

    /// The run at `offset`: its length, whether it is a hole, and whether it is zeros; `None` behind the end.
    fn extent(&self, python: Python<'_>, offset: u64) -> PyResult<Option<(u64, bool, bool)>> {
        self.run(python, |disk| {
            let found = disk.extents(offset).next().transpose()?;
            Ok(found.map(|extent| (extent.len, extent.hole, extent.zero)))
        })
    }
}

/// How many of `count` bytes there are.
fn clamp(count: usize, offset: u64, size: u64) -> usize {
    let left = size.saturating_sub(offset);
    count.min(usize::try_from(left).unwrap_or(usize::MAX))
}

/// Opens a volume.
#[pyfunction]
#[pyo3(signature = (target, *, window, passphrase, volume_key, key_file, key_slot, header, readonly, discards, shared, direct, partition, time_budget, accept_cipher))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "Python's keywords")]
pub fn open(
    python: Python<'_>,
    target: &Bound<'_, PyAny>,
    window: Option<&str>,
    passphrase: Option<Secret>,
    volume_key: Option<Secret>,
    key_file: Option<OsString>,
    key_slot: Option<u32>,
    header: Option<OsString>,
    readonly: bool,
    discards: bool,
    shared: bool,
    direct: bool,
    partition: Option<&str>,
    time_budget: Option<f64>,
    accept_cipher: Vec<String>,
) -> PyResult<Disk> {
    let (place, raised) = Place::new(target, window)?;
    let limits = limits(time_budget)?;
    // Programs read files piece by piece. What others write to would be hidden by it.
    let page_cache = if direct || shared { DirectMode::Auto } else { DirectMode::Off };
    let partition = partition.map(str::parse).transpose();
    let partition = partition.map_err(|why: String| PyValueError::new_err(why))?;
    if [passphrase.is_some(), volume_key.is_some(), key_file.is_some()].into_iter().filter(|is_given| *is_given).count()
        > 1
    {
        let text = "use one of passphrase, volume_key and key_file";
        return Err(PyValueError::new_err(text));
    }
    let work = || {
        // Told with what was opened; a volume without a LUKS header has none.
        let mut inspected = place.open();
        with!(inspected, header: header.as_ref());
        let inspected = inspected.inspect().ok().map(|found| found.to_json());
        raised.forget();
        let open = place.open().read_only(readonly).discards(discards).shared(shared);
        let mut open = open.direct(page_cache).kdf_limits(limits);
        with!(open, header: header.as_ref(), key_slot: key_slot, passphrase: passphrase.as_ref());
        with!(open, key: volume_key.as_ref(), key_file: key_file, partition: partition);
        let open = accept_cipher.into_iter().fold(open, Open::accept_cipher);
        Ok((open.open()?.disk()?, inspected))
    };
    let (disk, header) = raised.run(python, work, errors::of)?;
    if isize::try_from(disk.size()).is_err() {
        return Err(PyOverflowError::new_err("the disk is larger than a file can be"));
    }
    let disk = RwLock::new(Some(Arc::new(disk)));
    Ok(Disk { disk, raised, header })
}
