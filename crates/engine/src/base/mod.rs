//! Devices at the bottom: where the bytes really are.

mod blank;
mod descriptors;
mod file;
mod host_zones;
mod image;
mod nbd;
mod pmem;
mod ram;
#[cfg(feature = "rbd")]
mod rbd;
#[cfg(not(feature = "rbd"))]
#[path = "rbd/without.rs"]
mod rbd;
mod syncs;
mod zoned;

pub use blank::{Blank, BlankDevice};
pub use file::FileDevice;
pub use image::{DirectMode, Image};
pub use nbd::NbdDevice;
pub use pmem::{PersistentMemory, PmemDevice};
pub use ram::RamDevice;
pub use rbd::{RbdDevice, RbdName};
pub use zoned::{ZoneOptions, ZonedDevice, ZonedFile};
