//! The library as programs use it.

mod common;
mod copy;
mod copy_allocations;
mod copy_resume;
mod device;
mod disk;
mod growth;
mod many_lines;
mod medium;
mod nbd;
mod seal;
mod segments;
mod slices;
mod table;
mod tokens;
mod trust;
