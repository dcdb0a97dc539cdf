//! Fronts that serve a cryptline volume.
#![forbid(unsafe_code)]

pub mod nbd;
