//! The C library from outside: its header, and programs in C against it.

// Cargo builds the libraries for it.
use cryptline_capi as _;

mod c_programs;
mod header;
