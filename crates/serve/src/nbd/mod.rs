//! The NBD front.

pub mod codec;
