//! Messages that an NBD client reads from a server: option replies, information and transmission replies.

use std::io::{self, Read, Write};

use cryptline_nbd::client;
use cryptline_nbd::incoming::parse_incoming;
use cryptline_nbd::negotiate::{greet, negotiate};

/// A server that says what it says, whatever it hears.
struct ScriptedServer<'a>(&'a [u8]);

impl Read for ScriptedServer<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.0.read(target)
    }
}

impl Write for ScriptedServer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tries one input.
pub fn target(data: &[u8]) {
    let _ = client::parse_info(data);
    let mut rest = data;
    while let Ok(Some((reply, used))) = client::parse_option_reply(rest) {
        let _ = client::parse_info(reply.data);
        rest = &rest[used..];
    }
    let replies = rest;
    while let Ok(Some((_, used))) = client::parse_reply(rest) {
        assert!(used > 0);
        rest = &rest[used..];
    }
    rest = replies;
    while let Ok(Some((_, used))) = parse_incoming(rest) {
        assert!(used > 0);
        rest = &rest[used..];
    }
    // The fixed start of each handshake, so that what follows is looked at.
    let script = [&b"NBDMAGICIHAVEOPT\0\x03"[..], data].concat();
    let mut server = ScriptedServer(&script);
    if greet(&mut server).is_ok()
        && let Ok(agreed) = negotiate(&mut server, "x")
    {
        assert!(agreed.block_sizes.minimum.is_power_of_two());
        assert!(agreed.block_sizes.maximum >= agreed.block_sizes.minimum);
    }
}
