//! Devices, layers and queues, through what the crate makes public.

mod apart;
mod broken_ring;
mod channel;
mod claims_loom;
mod conformance;
mod covering;
mod delay;
mod dispatch;
mod faults;
mod growth;
mod image_open;
mod linear;
mod lost_writes;
mod mapped;
mod model;
mod nbd;
mod page_cache;
mod parts;
mod subblock;
mod zoned;
