//! Failures as exceptions: all are `cryptline.Error`, which is an `OSError` with its number and text.

use std::io;

use cryptline::{ErrorKind, Fault};
use pyo3::create_exception;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

create_exception!(cryptline, Error, PyOSError, "What failed, as an OSError.");
create_exception!(cryptline, WrongKey, Error, "No key slot opens with this key, or none was given.");

/// A failure of the library.
pub fn of(error: &cryptline::Error) -> PyErr {
    let said = (error.errno().raw_os_error(), error.with_next_step());
    match error.kind() {
        ErrorKind::NoKey => WrongKey::new_err(said),
        _ => Error::new_err(said),
    }
}

/// A failure of a request.
pub fn of_fault(fault: Fault) -> PyErr {
    Error::new_err((fault.errno().raw_os_error(), fault.to_string()))
}

/// A failure of the system.
pub fn of_io(error: &io::Error) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
    Error::new_err((errno, error.to_string()))
}

/// A volume is used by its own file object.
pub fn inside() -> PyErr {
    let errno = rustix::io::Errno::DEADLK.raw_os_error();
    let text = "the volume is used inside of its own file object; use it when the object's call is over";
    Error::new_err((errno, text))
}
