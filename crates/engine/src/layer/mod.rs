//! Devices over another device.

mod crypt;
mod subblock;
pub mod zoned;

pub use crypt::{CryptDevice, CryptOptions, Zeroes};
pub use subblock::{Exclusion, SubBlockDevice, SubBlockOptions};

#[cfg(feature = "test-layers")]
pub use crate::test::{DelayDevice, DelaySpec, FaultDevice, FaultPlan, FaultRule};
