//! Fronts, through their protocols.

mod common;
mod front;
mod hostile;
mod kernel_oracle_vhost;
mod nbd;
mod vhost_user;
