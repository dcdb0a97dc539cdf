//! One target for each parser: a function that takes any bytes, and panics where a promise is broken.

mod btt_image;
mod dm_table;
mod fuse_message;
mod luks2_header;
mod nbd_client;
mod nbd_handshake;
mod nbd_reply;
mod nbd_request;
mod partition_table;
mod tpm_reply;
mod vhost_message;
mod zone_state;

use cryptline_engine::BackendChoice;
use cryptline_nbd::NbdUri;
use cryptline_serve::vhost_user::probe;

use crate::{SparseDisk, luks2_with_json, use_header};

/// Name and function of a target. `fuzz/corpus` has a folder of that name.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[FuzzTarget] = &[
    ("btt_image", btt_image::target),
    ("clevis_token", clevis_token),
    ("dm_table", dm_table::target),
    ("fuse_message", fuse_message::target),
    ("luks1_header", luks1_header),
    ("luks2_header", luks2_header::target),
    ("luks2_json", luks2_json),
    ("nbd_client", nbd_client::target),
    ("nbd_handshake", nbd_handshake::target),
    ("nbd_reply", nbd_reply::target),
    ("nbd_request", nbd_request::target),
    ("nbd_uri", nbd_uri),
    ("partition_table", partition_table::target),
    ("tang_answer", cryptline_tokens::fuzzing::tang_answer),
    ("tpm_reply", tpm_reply::target),
    ("vhost_message", vhost_message::target),
    ("virtqueue", probe::exercise),
    ("zone_state", zone_state::target),
];

/// Returns the backend of a disk's I/O, which one bit chooses.
fn backend(choices: u8) -> BackendChoice {
    if choices & 1 == 0 { BackendChoice::Syscalls } else { BackendChoice::Auto }
}

/// A token of Clevis behind the key share that a server would give, whose length comes first.
fn clevis_token(input: &[u8]) {
    let Some((&len, rest)) = input.split_first() else {
        return;
    };
    let (share, token) = rest.split_at(rest.len().min(len.into()));
    if let Ok(token) = std::str::from_utf8(token) {
        cryptline_tokens::fuzzing::clevis_token(token, share);
    }
}

/// A LUKS1 header behind the number of 4 KiB blocks that its disk has.
fn luks1_header(data: &[u8]) {
    if let Some((units, head)) = data.split_first_chunk::<4>() {
        use_header(SparseDisk::new(head.to_vec(), u64::from(u32::from_be_bytes(*units)) * 4096));
    }
}

/// The JSON of a LUKS2 header whose checksums fit.
fn luks2_json(json: &[u8]) {
    if let Some(image) = luks2_with_json(json) {
        use_header(SparseDisk::new(image, 64 << 20));
    }
}

/// A URI that is understood reads the same when it is printed.
fn nbd_uri(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(uri) = text.parse::<NbdUri>()
    {
        let printed = uri.to_string();
        assert_eq!(printed.parse(), Ok(uri), "{printed}");
    }
}
