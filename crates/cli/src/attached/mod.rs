//! Common ground of `attach`, `detach` and `devices`: which devices there are, and who serves them.
//!
//! ```text
//! attach ─► server ─► state ◄─ devices, detach, recover
//!    └─► background
//! ```

pub mod background;
pub mod orphans;
pub mod server;
pub mod state;
mod words;
