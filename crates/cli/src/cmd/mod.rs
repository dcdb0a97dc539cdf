//! One file for each verb: its arguments, its help, and `run`.

pub(crate) mod attach;
pub(crate) mod benchmark;
pub(crate) mod btt;
pub(crate) mod certs;
pub(crate) mod check;
pub mod completions;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod ctl;
pub(crate) mod detach;
pub(crate) mod devices;
pub(crate) mod encrypt;
pub(crate) mod header;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod mount;
pub(crate) mod resize;
pub(crate) mod serve;
pub(crate) mod table;
pub(crate) mod testing;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod vhost_user;
pub(crate) mod words;
