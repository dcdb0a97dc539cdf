//! Parts that a server needs around its protocol.
//!
//! ```text
//! front                what every front does, from options to exit code      options  those of every front
//! banner               what is said when clients can connect          hints  commands for them to paste
//! pidfile, notify      the same for programs
//! backend              io_uring or preadv, tried out
//! unix                 Unix sockets to listen on
//! listen, activation   those of NBD, made here or passed to us      tls  its certificates
//! run                  a command that lives with the server      passed  descriptors it must not have
//! signals, parent      when to end
//! sandbox              what is given up before the first client          memory  how many clients its limits admit
//! cleanup              what is removed at the end
//! doors                one listener for all who ask: control, stats_socket, metrics_socket
//! statistics           counters to JSON lines      stats_socket  who gets them
//! metrics              the same to Prometheus' text          metrics_socket  who gets it      process  figures of our own
//! names                those of several volumes
//! volumes              what is served now        control  JSON commands for a running server
//! log                  so many lines about clients and no more          events  what they and the log's fields say
//! certificates         those of TLS, read again when SIGHUP asks for it          expiry  how long they are valid
//! ```

pub mod activation;
pub mod backend;
pub mod background;
pub mod banner;
pub mod certificates;
pub mod cleanup;
pub mod control;
pub mod doors;
pub mod events;
pub mod expiry;
pub mod front;
pub mod hints;
pub mod listen;
pub mod log;
pub mod memory;
mod metrics;
pub mod metrics_socket;
pub mod names;
pub mod notify;
pub mod options;
pub mod parent;
pub mod passed;
pub mod pidfile;
pub mod process;
pub mod run;
pub mod sandbox;
pub mod signals;
pub mod statistics;
pub mod stats_socket;
pub mod tls;
pub mod unix;
pub mod volumes;
