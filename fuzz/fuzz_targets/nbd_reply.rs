//! What an NBD client reads from a server: option replies, information and transmission replies.
#![no_main]

use cryptline_nbd::client;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = client::parse_info(data);
    let mut rest = data;
    while let Ok(Some((reply, used))) = client::parse_option_reply(rest) {
        let _ = client::parse_info(reply.data);
        rest = &rest[used..];
    }
    while let Ok(Some((_, used))) = client::parse_reply(rest) {
        assert!(used > 0);
        rest = &rest[used..];
    }
});
