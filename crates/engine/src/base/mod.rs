//! Devices at the bottom: where the bytes really are.

mod file;
mod host_zones;
mod image;
mod pmem;
mod ram;
mod syncs;
mod zoned;

pub use file::FileDevice;
pub use image::{DirectMode, Image};
pub use pmem::{PersistentMemory, PmemDevice};
pub use ram::RamDevice;
pub use zoned::{ZoneOptions, ZonedDevice, ZonedFile};
