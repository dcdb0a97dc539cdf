//! Devices at the bottom: where the bytes really are.

mod file;
mod ram;

pub use file::{DirectMode, FileDevice, Image};
pub use ram::RamDevice;
