//! One file for each verb: its arguments, its help, and `run`.

pub mod attach;
pub mod bench;
pub mod btt;
pub mod completions;
pub mod copy;
pub mod create;
pub mod detach;
pub mod devices;
pub mod encrypt;
pub mod erase;
pub mod header;
pub mod info;
pub mod key;
pub mod man;
pub mod mount;
pub mod open;
pub mod recover;
pub mod resize;
pub mod serve;
pub mod table;
pub mod token;
pub mod top;
pub mod umount;
pub mod vhost_user;
pub mod words;
pub mod zones;
