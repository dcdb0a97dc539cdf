//! The client's parsers: partial input, hostile input, and pairs with the server's encoders.

use proptest::prelude::*;

use super::super::reply::{self, ChunkPosition};
use super::*;

#[test]
fn requests_have_28_bytes_in_order() {
    let header = RequestHeader { flags: 1, command: 1, cookie: 2, offset: 3, length: 4 };
    let expected = b"\x25\x60\x95\x13\0\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04";
    assert_eq!(&request(&header), expected);
}

#[test]
fn options_and_their_data_are_encoded_as_the_protocol_says() {
    assert_eq!(option(3, b""), b"IHAVEOPT\0\0\0\x03\0\0\0\0");
    assert_eq!(option(1, b"ab"), b"IHAVEOPT\0\0\0\x01\0\0\0\x02ab");
    assert_eq!(info_data(b"ab", &[1, 3]), b"\0\0\0\x02ab\0\x02\0\x01\0\x03");
    assert_eq!(context_data(b"a", &[b"x:"]), b"\0\0\0\x01a\0\0\0\x01\0\0\0\x02x:");
}

#[test]
fn only_newstyle_greetings_are_accepted() {
    assert_eq!(parse_greeting(b"NBDMAGICIHAVEOPT\0\x01"), Ok(1));
    let oldstyle = b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0";
    assert_eq!(parse_greeting(oldstyle), Err(ReplyError::Greeting));
}

#[test]
fn wrong_magic_and_endless_replies_are_refused() {
    assert_eq!(parse_option_reply(&[1; 20]), Err(ReplyError::Magic(0x0101_0101_0101_0101)));
    assert_eq!(parse_reply(&[2; 16]), Err(ReplyError::Magic(0x0202_0202)));
    let mut endless = reply::none(1);
    endless[16..].copy_from_slice(&[0xff; 4]);
    assert_eq!(parse_reply(&endless), Err(ReplyError::TooLong(u32::MAX)));
}

#[test]
fn chunks_whose_content_does_not_fit_their_type_are_malformed() {
    let chunk = |kind: u16, payload: &[u8]| {
        let mut bytes = reply::none(1).to_vec();
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[16..20].copy_from_slice(&length32(payload));
        bytes.extend(payload);
        parse_reply(&bytes).map(|found| found.is_some())
    };
    let malformed: [(u16, &[u8]); 10] = [
        (chunk::NONE, b"x"),
        (chunk::OFFSET_DATA, &[0; 8]),
        (chunk::OFFSET_HOLE, &[0; 12]),
        (chunk::OFFSET_HOLE, &[1; 13]),
        (chunk::BLOCK_STATUS, &[0; 4]),
        (chunk::BLOCK_STATUS, &[1; 13]),
        (chunk::ERROR, &[0; 6]),
        (chunk::ERROR, b"\0\0\0\x05\0\x02x"),
        (chunk::ERROR_OFFSET, b"\0\0\0\x05\0\0\0"),
        (3, b""),
    ];
    for (kind, payload) in malformed {
        assert_eq!(chunk(kind, payload), Err(ReplyError::Malformed(u32::from(kind))));
    }
    assert_eq!(chunk(chunk::ERROR_BIT | 99, b"\0\0\0\x05\0\0more"), Ok(true));
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let last = || prop_oneof![Just(ChunkPosition::No), Just(ChunkPosition::Yes)];
    let error = (0u32..120).prop_map(NbdError::from_code);
    prop_oneof![
        (any::<u64>(), prop::option::of(error.clone())).prop_map(|(cookie, error)| reply::simple(
            cookie,
            error.map_or(Ok(()), Err)
        )
        .to_vec()),
        any::<u64>().prop_map(|cookie| reply::none(cookie).to_vec()),
        (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 1..50), last()).prop_map(
            |(cookie, offset, data, last)| {
                let length = u32::try_from(data.len()).unwrap();
                [&reply::offset_data(cookie, offset, length, last)[..], &data].concat()
            }
        ),
        (any::<u64>(), any::<u64>(), 1u32.., last())
            .prop_map(|(cookie, offset, length, last)| { reply::offset_hole(cookie, offset, length, last).to_vec() }),
        (any::<u64>(), any::<u64>(), error, "\\PC{0,20}", last()).prop_map(|(cookie, offset, error, message, last)| {
            reply::error_offset_chunk(cookie, error, &message, offset, last).as_bytes().to_vec()
        }),
    ]
}

proptest! {
    #[test]
    fn messages_are_whole_only_when_every_byte_is_there(
        message in any_message(),
        next in any::<[u8; 4]>(),
    ) {
        for len in 0..message.len() {
            prop_assert_eq!(parse_reply(&message[..len]), Ok(None));
        }
        let stream = [&message[..], &next].concat();
        let (_, used) = parse_reply(&stream).unwrap().unwrap();
        prop_assert_eq!(used, message.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        kind in any::<u16>(),
    ) {
        let _ = parse_reply(&bytes);
        let _ = parse_option_reply(&bytes);
        let _ = parse_info(&bytes);
        let _ = parse_content(kind, Reader::new(&bytes));
        let _ = parse_content(kind % 6, Reader::new(&bytes));
    }
}
