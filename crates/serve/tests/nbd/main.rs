//! The NBD server against programs we did not write, our own client, failures and a model.

#[path = "../common/mod.rs"]
mod common;

mod abandoned;
mod block_sizes;
mod client_shapes;
mod failures;
mod libnbd;
mod model;
mod peers;
mod promises;
mod statistics;
mod tls;
mod zoned;
