//! Devices over another device.

mod crypt;
pub mod linear;
mod subblock;
pub mod zoned;

pub use crypt::{CipherRange, CryptDevice, CryptOptions, Zeroes};
pub use linear::LinearDevice;
pub use subblock::{Exclusion, SubBlockDevice, SubBlockOptions};

pub use crate::test::{DelayDevice, DelaySpec, FaultDevice, FaultPlan, FaultRule};
