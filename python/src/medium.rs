//! A Python file object as a place for a volume: an E01 image, a split one, an object in a store.
//!
//! One thread at a time uses it, since it has one position. An exception that it raises becomes the cause of the one
//! that the caller gets; what is no `Exception`, such as `KeyboardInterrupt`, comes out as itself.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cryptline::Medium;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// Bytes that are asked for at a time.
const CHUNK: usize = 1 << 20;

/// A file object.
pub struct FileObject {
    object: Py<PyAny>,
    /// Its first byte here.
    start: u64,
    size: u64,
    is_read_only: bool,
    /// Makes durable, where the system knows the file.
    descriptor: Option<i32>,
    /// Its position is one user's at a time. Never waited for with the interpreter's lock.
    position: Mutex<()>,
    raised: Raised,
}

thread_local! {
    /// Exception that was raised on this thread during a call and is to end more than the call.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// File objects that this thread has.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// A number of this thread's own.
    static OWN: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Exception that the object raised last, and the thread that has it: known to the object and to whoever uses the volume on it.
#[derive(Clone, Default)]
pub struct Raised(Arc<Shared>);

#[derive(Default)]
struct Shared {
    last: Mutex<Option<PyErr>>,
    /// The number of the thread that has the object; 0 for none.
    holder: AtomicU64,
}

/// The position of a file object.
struct Held<'a> {
    object: &'a FileObject,
    _alone: MutexGuard<'a, ()>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() - 1));
        self.object.raised.0.holder.store(0, Ordering::Relaxed);
    }
}

/// Tells if this runs inside of a file object, for which others may be waiting.
pub fn is_inside() -> bool {
    HELD.with(Cell::get) > 0
}

impl Raised {
    /// Takes what there is and puts `error` there.
    fn replace(&self, error: Option<PyErr>) -> Option<PyErr> {
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, error)
    }

    /// Tells if this runs inside of this very object.
    fn is_inside(&self) -> bool {
        // Only this thread puts its number there.
        self.0.holder.load(Ordering::Relaxed) == OWN.with(|own| *own)
    }

    /// Forgets the exception: it is no cause of later failures.
    pub fn forget(&self) {
        drop(self.replace(None));
    }

    fn keep(&self, python: Python<'_>, error: PyErr) -> io::Error {
        let text = format!("the file object raised {error}");
        if !error.is_instance_of::<PyException>(python) {
            drop(INTERRUPT.replace(Some(error.clone_ref(python))));
        }
        // Dropped only when nothing is locked: that may run any code.
        drop(self.replace(Some(error)));
        io::Error::other(text)
    }

    /// Does `work` without the interpreter's lock. Its failure is what `failed` makes of it, with what was raised as
    /// the cause. An interrupt comes out even if the work has got over it.
    pub fn run<T: Send, E: Send>(
        &self,
        python: Python<'_>,
        work: impl FnOnce() -> Result<T, E> + Send,
        failed: impl FnOnce(&E) -> PyErr,
    ) -> PyResult<T> {
        if self.is_inside() {
            // Below, a flush that fails would be taken for a loss of what was written.
            return Err(errors::inside());
        }
        // A file object may use other volumes, within a call.
        let outer = INTERRUPT.take();
        self.forget();
        let done = python.detach(work);
        let cause = self.replace(None);
        if let Some(interrupt) = INTERRUPT.replace(outer) {
            python.detach(move || drop(done));
            return Err(interrupt);
        }
        done.map_err(|error| {
            let failure = failed(&error);
            if cause.is_some() {
                failure.set_cause(python, cause);
            }
            failure
        })
    }
}

impl FileObject {
    /// The same, with only these of its bytes.
    pub fn part(self, range: std::ops::Range<u64>) -> Self {
        Self { start: range.start, size: range.end - range.start, ..self }
    }

    /// An object with `seek` and `read`, and `write` if it can be written.
    pub fn new(object: &Bound<'_, PyAny>, raised: Raised) -> PyResult<Self> {
        if !object.hasattr("seek")? || !object.hasattr("read")? {
            return Err(PyTypeError::new_err("a file object must have read() and seek()"));
        }
        // One that has write() may be for reading all the same, as those of pyewf are.
        let can_tell = object.hasattr("write")? && object.hasattr("writable")?;
        let is_read_only = !(can_tell && object.call_method0("writable")?.is_truthy()?);
        let size = size_of(object)?;
        // What is no file of the system raises here.
        let descriptor = object.call_method0("fileno");
        let descriptor = descriptor.and_then(|number| number.extract()).ok();
        let appends = descriptor.map_or(Ok(false), |number| appends(object.py(), number))?;
        Ok(Self {
            object: object.clone().unbind(),
            start: 0,
            size,
            is_read_only: is_read_only || appends,
            descriptor,
            position: Mutex::new(()),
            raised,
        })
    }

    fn make_durable(&self, python: Python<'_>) -> PyResult<()> {
        let object = self.object.bind(python);
        if object.hasattr("flush")? {
            object.call_method0("flush")?;
        }
        if let Some(descriptor) = self.descriptor {
            // Python's own makes it again where it was interrupted, which uses up the report of a lost write.
            python.detach(|| sync(descriptor))?;
        }
        Ok(())
    }

    /// Waits until nobody else uses the object.
    fn hold(&self) -> io::Result<Held<'_>> {
        // Whatever runs inside of a file object, such as the end of something that is collected, must not wait for it.
        if self.raised.is_inside() {
            return Err(io::Error::other("the file object is used inside of itself"));
        }
        let alone = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let own = OWN.with(|own| *own);
        self.raised.0.holder.store(own, Ordering::Relaxed);
        HELD.with(|held| held.set(held.get() + 1));
        Ok(Held { object: self, _alone: alone })
    }

    /// Does `work` with the object, which is at `offset` then.
    fn at<T>(&self, offset: u64, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let _held = self.hold()?;
        Python::attach(|python| {
            let object = self.object.bind(python);
            seek(object, self.start + offset)
                .and_then(|()| work(object))
                .map_err(|error| self.raised.keep(python, error))
        })
    }
}

/// Where the object ends. Not every `seek` tells where it has gone to.
fn size_of(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let end = object.call_method1("seek", (0, 2))?;
    let (end, told_by) = match end.is_none() {
        false => (end, "seek(0, 2)"),
        true if object.hasattr("tell")? => (object.call_method0("tell")?, "tell() at the end"),
        true => {
            let text = "seek() of the file object returns None, and it has no tell(): its size is not known; have seek() \
                        return the position, or add tell()";
            return Err(PyTypeError::new_err(text));
        }
    };
    end.extract().map_err(|_| {
        let found = end.repr().map_or_else(|_| "something else".to_owned(), |it| it.to_string());
        PyValueError::new_err(format!("{told_by} of the file object gives no size but {found}"))
    })
}

/// Goes to `offset`. Bytes of another place would be taken for those there.
fn seek(object: &Bound<'_, PyAny>, offset: u64) -> PyResult<()> {
    let at = object.call_method1("seek", (offset,))?;
    if at.is_none() || at.extract().is_ok_and(|at: u64| at == offset) {
        return Ok(());
    }
    let text = format!("seek({offset}) of the file object goes to {}", at.repr()?);
    Err(PyValueError::new_err(text))
}

/// Makes durable what the file behind a descriptor of the object has.
fn sync(descriptor: i32) -> io::Result<()> {
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(rustix::io::Errno::BADF.raw_os_error()));
    }
    // SAFETY: it is not -1. The object, which is kept, has it open; where a program closes it meanwhile, the call says so, or
    // syncs another file, which harms nobody, and keeps nothing of it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    cryptline_sys::sync_all(borrowed)
}

/// Tells if the system puts everything at the end of the file, wherever it belongs.
fn appends(python: Python<'_>, descriptor: i32) -> PyResult<bool> {
    let fcntl = python.import("fcntl")?;
    let flags = fcntl.call_method1("fcntl", (descriptor, fcntl.getattr("F_GETFL")?))?;
    let append: i32 = python.import("os")?.getattr("O_APPEND")?.extract()?;
    Ok(flags.extract::<i32>()? & append != 0)
}

impl Medium for FileObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        self.at(offset, |object| {
            let mut rest = target;
            while !rest.is_empty() {
                let wanted = rest.len().min(CHUNK);
                let found = object.call_method1("read", (wanted,))?;
                let found: &Bound<'_, PyBytes> = found.cast()?;
                let found = found.as_bytes();
                if found.is_empty() || found.len() > wanted {
                    let count = found.len();
                    let text = format!("read({wanted}) gives {count} bytes inside of its size");
                    return Err(PyValueError::new_err(text));
                }
                let (piece, after) = rest.split_at_mut(found.len());
                piece.copy_from_slice(found);
                rest = after;
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.at(offset, |object| {
            let mut rest = source;
            while !rest.is_empty() {
                let piece = &rest[..rest.len().min(CHUNK)];
                let bytes = PyBytes::new(object.py(), piece);
                let count: usize = object.call_method1("write", (bytes,))?.extract()?;
                if count == 0 || count > piece.len() {
                    let wanted = piece.len();
                    let text = format!("write() of {wanted} bytes gives {count}");
                    return Err(PyValueError::new_err(text));
                }
                rest = &rest[count..];
            }
            Ok(())
        })
    }

    fn flush(&self) -> io::Result<()> {
        let _held = self.hold()?;
        Python::attach(|python| self.make_durable(python).map_err(|error| self.raised.keep(python, error)))
    }
}
