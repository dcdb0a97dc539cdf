//! What `cryptline serve` needs around the NBD server.
//!
//! ```text
//! listen, activation   sockets, made here or passed to us
//! backend              io_uring or preadv, tried out
//! report               what is said when clients can connect
//! pidfile, notify      the same for programs
//! run                  a command that lives with the server      passed  descriptors it must not have
//! signals, parent      when to end
//! sandbox              what is given up before the first client
//! cleanup              what is removed at the end
//! statistics           counters to JSON lines      stats_socket  who gets them
//! tls                  certificates              log  lines about clients
//! ```

pub mod activation;
pub mod backend;
pub mod cleanup;
pub mod listen;
pub mod log;
pub mod notify;
pub mod parent;
pub mod passed;
pub mod pidfile;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod signals;
pub mod statistics;
pub mod stats_socket;
pub mod tls;
