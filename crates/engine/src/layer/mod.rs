//! Devices over another device.

mod crypt;
mod fault;

pub use crypt::{CryptDevice, CryptOptions};
pub use fault::{FaultDevice, FaultPlan, FaultRule};
