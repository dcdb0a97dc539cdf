//! One file for each verb: its arguments, its help, and `run`.

pub mod bench;
pub mod btt;
pub mod completions;
pub mod create;
pub mod info;
pub mod man;
pub mod open;
pub mod serve;
pub mod table;
pub mod top;
pub mod zones;
