//! `zero` and `error` of device-mapper: ranges that nothing is stored in.

use cryptline_sys::Ring;
use rustix::io::Errno;

use crate::queue::Immediate;
use crate::{Device, Extent, Fault, Geometry, Op, OpenError, Queue, Request, Traits};

/// Behavior of a range that nothing is stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// Reads as zeros, and takes writes without keeping them.
    Zeros,
    /// Everything fails but a flush, since nothing is ever written.
    Errors,
}

/// A device that stores nothing.
pub struct BlankDevice {
    what: Blank,
    size: u64,
    read_only: bool,
}

impl BlankDevice {
    /// A device of `size` bytes.
    ///
    /// Errors: the size is no whole number of sectors, or none at all.
    pub fn new(what: Blank, size: u64, read_only: bool) -> Result<Self, OpenError> {
        if size > 0 && size.is_multiple_of(512) {
            Ok(Self { what, size, read_only })
        } else {
            Err(OpenError::Geometry(format!("a range of {size} bytes is not a whole number of 512-byte sectors")))
        }
    }
}

impl Device for BlankDevice {
    fn traits(&self) -> Traits {
        Traits::immediate(Geometry {
            read_only: self.read_only,
            discard: !self.read_only,
            write_zeroes: !self.read_only,
            cache: true,
            ..Geometry::plain(self.size, 512)
        })
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(BlankQueue(self.what)))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        let is_hole = self.what == Blank::Zeros;
        Ok(Extent { len, hole: is_hole, zero: is_hole })
    }
}

struct BlankQueue(Blank);

impl Immediate for BlankQueue {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        match (request.op, self.0) {
            (Op::Flush, _) => Ok(()),
            (Op::Read | Op::Cache, Blank::Errors) => Err(Fault::Io(Errno::IO)),
            // Nothing that was acknowledged is lost by that.
            (_, Blank::Errors) => Err(Fault::NoStore),
            (op, Blank::Zeros) => {
                if let (Op::Read, Some(buffer)) = (op, &mut request.data) {
                    buffer.fill(0);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cryptline_sys::BackendChoice;

    use super::*;
    use crate::Gate;
    use crate::blocking::Blocking;

    #[test]
    fn zeros_stay_zeros_and_errors_stay_errors() {
        let open = |what| {
            let gate = Gate::new(BlankDevice::new(what, 1 << 40, false).unwrap());
            Blocking::new(&gate, BackendChoice::Syscalls).unwrap()
        };
        let mut zeros = open(Blank::Zeros);
        zeros.write_at(4096, &[1; 512], true).unwrap();
        zeros.flush().unwrap();
        let mut found = [1; 1024];
        zeros.read_at(4096, &mut found).unwrap();
        assert_eq!(found, [0; 1024]);
        let mut errors = open(Blank::Errors);
        assert_eq!(errors.flush(), Ok(()));
        assert_eq!(errors.read_at(0, &mut found), Err(Fault::Io(Errno::IO)));
        for is_durable in [false, true] {
            assert_eq!(errors.write_at(0, &found, is_durable), Err(Fault::NoStore));
        }
        assert_eq!(errors.discard(0, 4096), Err(Fault::NoStore));
        assert_eq!(errors.flush(), Ok(()), "nothing was lost");
        assert!(BlankDevice::new(Blank::Zeros, 0, false).is_err());
        assert!(BlankDevice::new(Blank::Zeros, 513, false).is_err());
    }

    #[test]
    fn range_that_is_only_to_be_read_refuses_changes() {
        let gate = Gate::new(BlankDevice::new(Blank::Zeros, 4096, true).unwrap());
        let mut zeros = Blocking::new(&gate, BackendChoice::Syscalls).unwrap();
        assert_eq!(zeros.write_at(0, &[0; 512], false), Err(Fault::ReadOnly));
    }
}
