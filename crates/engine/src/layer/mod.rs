//! Devices over another device.

mod crypt;
mod delay;
mod fault;

pub use crypt::{CryptDevice, CryptOptions};
pub use delay::{DelayDevice, DelaySpec};
pub use fault::{FaultDevice, FaultPlan, FaultRule};
