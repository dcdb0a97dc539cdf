//! A Python file object as a place for a volume: an E01 image, a split one, an object in a store.
//!
//! It is used by one thread at a time, since it has one position. What it raises becomes the cause of the exception
//! that the caller gets.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cryptline::Medium;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes that are asked for at a time.
const CHUNK: usize = 1 << 20;

/// A file object.
pub struct FileObject {
    object: Py<PyAny>,
    size: u64,
    is_read_only: bool,
    /// Makes durable, where the system knows the file.
    descriptor: Option<i32>,
    /// Its position is one user's at a time. Never waited for with the interpreter's lock.
    position: Mutex<()>,
    raised: Raised,
}

/// What the object raised last.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, error: PyErr) -> io::Error {
        let text = format!("the file object raised {error}");
        *self.lock() = Some(error);
        io::Error::other(text)
    }

    /// `failure` with what was raised as its cause.
    pub fn explain(&self, python: Python<'_>, failure: PyErr) -> PyErr {
        if let Some(cause) = self.lock().take() {
            failure.set_cause(python, Some(cause));
        }
        failure
    }
}

impl FileObject {
    /// An object with `seek` and `read`, and `write` if it can be written.
    pub fn new(object: &Bound<'_, PyAny>, raised: Raised) -> PyResult<Self> {
        if !object.hasattr("seek")? {
            return Err(PyTypeError::new_err(
                "a file object must have read() and seek()",
            ));
        }
        let is_read_only = if object.hasattr("writable")? {
            !object.call_method0("writable")?.is_truthy()?
        } else {
            !object.hasattr("write")?
        };
        let size: i128 = object.call_method1("seek", (0, 2))?.extract()?;
        let size = u64::try_from(size);
        let size = size.map_err(|_| PyValueError::new_err("seek() gives no size"))?;
        // What is no file of the system raises here.
        let descriptor = object.call_method0("fileno");
        let descriptor = descriptor.and_then(|number| number.extract()).ok();
        Ok(Self {
            object: object.clone().unbind(),
            size,
            is_read_only,
            descriptor,
            position: Mutex::new(()),
            raised,
        })
    }

    /// Does `work` with the object, which is at `offset` then.
    fn at<T>(
        &self,
        offset: u64,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> io::Result<T> {
        let _alone = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        Python::attach(|python| {
            let object = self.object.bind(python);
            object
                .call_method1("seek", (offset,))
                .and_then(|_| work(object))
                .map_err(|error| self.raised.keep(error))
        })
    }
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
        let _alone = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        Python::attach(|python| {
            let object = self.object.bind(python);
            if object.hasattr("flush")? {
                object.call_method0("flush")?;
            }
            if let Some(descriptor) = self.descriptor {
                python.import("os")?.call_method1("fsync", (descriptor,))?;
            }
            Ok(())
        })
        .map_err(|error| self.raised.keep(error))
    }
}
