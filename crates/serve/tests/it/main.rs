//! Fronts, through their protocols.

mod common;
mod front;
mod hostile;
mod kernel_oracle_vhost;
mod kernel_oracle_vhost_killed;
mod nbd;
mod vhost_user;
