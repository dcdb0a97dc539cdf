//! One file for each verb: its arguments, its help, and `run`.

pub mod attach;
pub mod benchmark;
pub mod btt;
pub mod certs;
pub mod check;
pub mod completions;
pub mod copy;
pub mod create;
pub mod ctl;
pub mod detach;
pub mod devices;
pub mod encrypt;
pub mod header;
pub mod info;
pub mod key;
pub mod mount;
pub mod resize;
pub mod serve;
pub mod table;
pub mod testing;
pub mod token;
pub mod top;
pub mod vhost_user;
pub mod words;
