//! Devices over another device.

mod crypt;
mod delay;
mod fault;
mod subblock;
pub mod zoned;

pub use crypt::{CryptDevice, CryptOptions, Zeroes};
pub use delay::{DelayDevice, DelaySpec};
pub use fault::{FaultDevice, FaultPlan, FaultRule};
pub use subblock::{Exclusion, SubBlockDevice, SubBlockOptions};
