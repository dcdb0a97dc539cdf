//! A program that was built without Ceph says so.

mod name;

pub use name::RbdName;

use cryptline_sys::Ring;

use crate::{Device, Extent, Fault, OpenError, Queue, Traits};

/// An image of a Ceph cluster, of which there is none here.
pub enum RbdDevice {}

impl RbdDevice {
    /// Says what to do instead.
    ///
    /// Errors: always.
    pub fn open(name: &RbdName, _read_only: bool) -> Result<Self, OpenError> {
        Err(OpenError::remote(
            name,
            "this program was built without Ceph (feature rbd); serve the image with `qemu-nbd -t --shared=0 -f raw rbd:POOL/IMAGE` and open nbd://",
        ))
    }

    /// Says the same.
    ///
    /// Errors: always.
    pub fn open_decrypted(name: &RbdName, _passphrase: &[u8]) -> Result<Self, OpenError> {
        Self::open(name, false)
    }

    /// Of an image.
    #[must_use]
    pub fn gone_owner(&self) -> Option<&str> {
        match *self {}
    }

    /// Of an image.
    #[must_use]
    pub fn stripe_period(&self) -> u64 {
        match *self {}
    }
}

impl Device for RbdDevice {
    fn traits(&self) -> Traits {
        match *self {}
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        match *self {}
    }

    fn extent(&self, _offset: u64, _len: u64) -> Result<Extent, Fault> {
        match *self {}
    }
}
