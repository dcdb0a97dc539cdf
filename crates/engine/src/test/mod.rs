//! Layers that make a device slow or let it fail, for tests and measurements: `cryptline testing`.

mod delay;
mod fault;

pub use delay::{DelayDevice, DelaySpec};
pub use fault::{FaultDevice, FaultPlan, FaultRule};
