//! Common ground of `attach`, `detach` and `devices`: which devices there are, and who serves them.
//!
//! ```text
//! attach ─► background
//!    └─► state ◄─ devices, detach, recover
//! ```

pub mod background;
pub mod orphans;
pub mod state;
mod words;
