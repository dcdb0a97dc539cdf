//! Failures as error numbers, for languages that have those.

use std::error::Error as StdError;
use std::io;

use cryptline_engine::Fault;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Problem};

impl Error {
    /// The error number that says most: the system's own where it failed; `ENOKEY` where no key was given and
    /// `EKEYREJECTED` where none fits; `EBUSY`, `EEXIST`, `ENOMEM`; `EINVAL` for demands that make no sense, and `EIO`
    /// for what is damaged.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self.problem() {
            Problem::Exists { .. } | Problem::Holds { .. } => return Errno::EXIST,
            Problem::NoKey | Problem::NoNewKey => return Errno::NOKEY,
            _ => {}
        }
        if let Some(errno) = self.system_errno() {
            return errno;
        }
        match self.kind() {
            ErrorKind::Parameters => Errno::INVAL,
            ErrorKind::NoKey => Errno::KEYREJECTED,
            ErrorKind::Memory => Errno::NOMEM,
            ErrorKind::Busy => Errno::BUSY,
            ErrorKind::Device => Errno::IO,
        }
    }

    /// Returns the error of the system, where it was the system.
    fn system_errno(&self) -> Option<Errno> {
        if let Problem::Draft { source, .. } | Problem::Io { source, .. } = self.problem() {
            return Errno::from_io_error(source);
        }
        if let Problem::CopyFault { fault, .. } = self.problem() {
            return Some(fault.errno());
        }
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self.problem());
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return Errno::from_io_error(error);
            }
            if let Some(fault) = error.downcast_ref::<Fault>() {
                return Some(fault.errno());
            }
            cause = error.source();
        }
        None
    }
}
