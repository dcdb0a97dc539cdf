//! The NBD server against programs we did not write and a client of our own. What all fronts promise is
//! checked in `front`.

mod block_sizes;
mod client_shapes;
mod ending;
mod failures;
mod growth;
mod hang;
mod libnbd;
mod peers;
mod promises;
mod statistics;
mod tls;
mod zoned;
