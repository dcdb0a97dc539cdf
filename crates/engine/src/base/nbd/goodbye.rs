//! The last word to a server: nothing more comes. A courtesy, so it waits for nothing.

use std::io::Write as _;
use std::os::fd::AsFd;

use cryptline_nbd::RequestHeader;
use cryptline_nbd::client::request;
use cryptline_nbd::wire::{REQUEST_LEN, cmd};
use cryptline_net::{Records, TimedStream};
use rustix::net::SendFlags;

pub(super) fn say_goodbye(stream: &mut TimedStream) {
    let _ = stream.at_once().write_all(&goodbye());
    stream.end_tls();
}

/// The same on a socket that a ring may still have.
pub(super) fn say_goodbye_on(socket: impl AsFd, records: Option<&mut Records>) {
    let bye = goodbye();
    let sealed = records.map(|records| records.farewell(&bye));
    let _ = cryptline_net::send(socket, sealed.as_deref().unwrap_or(&bye), SendFlags::DONTWAIT);
}

fn goodbye() -> [u8; REQUEST_LEN] {
    request(&RequestHeader { flags: 0, command: cmd::DISC, cookie: 0, offset: 0, length: 0 })
}
