//! What the tests stand on: other people's programs and a real kernel to judge our bytes.
//!
//! * [`peer`] finds and runs programs we did not write, bounded in time.
//! * [`oracle`] boots a Debian kernel under QEMU and lets its dm-crypt write and read disk images.
//!
//! Never part of the shipped program.

#![forbid(unsafe_code)]

pub mod oracle;
pub mod peer;
