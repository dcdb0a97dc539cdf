//! One target for each parser: a function that takes any bytes, and panics where a promise is broken.

mod btt_image;
mod clevis_token;
mod dm_table;
mod fuse_message;
mod luks1_header;
mod luks2_header;
mod luks2_json;
mod nbd_client;
mod nbd_handshake;
mod nbd_reply;
mod nbd_request;
mod nbd_session;
mod nbd_uri;
mod partition_table;
mod tang_answer;
mod tpm_reply;
mod vhost_message;
mod virtqueue;
mod zone_state;

/// Name and function of a target. `fuzz/corpus` has a folder of that name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("btt_image", btt_image::target),
    ("clevis_token", clevis_token::target),
    ("dm_table", dm_table::target),
    ("fuse_message", fuse_message::target),
    ("luks1_header", luks1_header::target),
    ("luks2_header", luks2_header::target),
    ("luks2_json", luks2_json::target),
    ("nbd_client", nbd_client::target),
    ("nbd_handshake", nbd_handshake::target),
    ("nbd_reply", nbd_reply::target),
    ("nbd_request", nbd_request::target),
    ("nbd_session", nbd_session::target),
    ("nbd_uri", nbd_uri::target),
    ("partition_table", partition_table::target),
    ("tang_answer", tang_answer::target),
    ("tpm_reply", tpm_reply::target),
    ("vhost_message", vhost_message::target),
    ("virtqueue", virtqueue::target),
    ("zone_state", zone_state::target),
];
