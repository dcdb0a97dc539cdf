//! Every reply, byte by byte.

use super::super::client::{self, Content, ServerMessage};
use super::super::wire::{STATE_HOLE, STATE_ZERO};
use super::*;

const COOKIE: u64 = 0x0102_0304_0506_0708;
const ERRORS: [NbdError; 8] = [
    NbdError::Perm,
    NbdError::Io,
    NbdError::NoMem,
    NbdError::Inval,
    NbdError::NoSpc,
    NbdError::Overflow,
    NbdError::NotSup,
    NbdError::Shutdown,
];

/// Parses `bytes` as one whole chunk.
fn chunk_of(bytes: &[u8]) -> (bool, Content<'_>) {
    match client::parse_reply(bytes).unwrap().unwrap() {
        (ServerMessage::Chunk { cookie: COOKIE, done, content }, used) if used == bytes.len() => (done, content),
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_have_the_numbers_of_the_protocol() {
    assert_eq!(ERRORS.map(NbdError::code), [1, 5, 12, 22, 28, 75, 95, 108]);
    for error in ERRORS {
        assert_eq!(NbdError::from_code(error.code()), error);
    }
    assert_eq!(NbdError::from_code(2), NbdError::Inval);
    assert_eq!(NbdError::from_code(u32::MAX), NbdError::Inval);
}

#[test]
fn system_errors_become_the_protocols_errors() {
    let cases = [
        (Errno::PERM, NbdError::Perm),
        (Errno::ROFS, NbdError::Perm),
        (Errno::IO, NbdError::Io),
        (Errno::NOMEM, NbdError::NoMem),
        (Errno::INVAL, NbdError::Inval),
        (Errno::OPNOTSUPP, NbdError::Inval),
        (Errno::NOSPC, NbdError::NoSpc),
        (Errno::DQUOT, NbdError::NoSpc),
        (Errno::FBIG, NbdError::NoSpc),
        (Errno::SHUTDOWN, NbdError::Shutdown),
        (Errno::NODEV, NbdError::Io),
    ];
    for (errno, error) in cases {
        assert_eq!(NbdError::from_errno(errno), error, "{errno}");
    }
}

#[test]
fn simple_reply_is_magic_error_cookie() {
    assert_eq!(simple(COOKIE, Ok(())), *b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08");
    let failed = simple(COOKIE, Err(NbdError::NoSpc));
    assert_eq!(failed, *b"\x67\x44\x66\x98\0\0\0\x1c\x01\x02\x03\x04\x05\x06\x07\x08");
}

#[test]
fn none_is_always_the_last_chunk() {
    assert_eq!(none(COOKIE), *b"\x66\x8e\x33\xef\0\x01\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0");
    assert_eq!(chunk_of(&none(COOKIE)), (true, Content::None));
}

#[test]
fn offset_data_counts_its_offset_in_the_length() {
    let bytes = offset_data(COOKIE, 0x1122_3344_5566_7788, 512, ChunkPosition::Yes);
    let expected = b"\x66\x8e\x33\xef\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\x02\x08\
        \x11\x22\x33\x44\x55\x66\x77\x88";
    assert_eq!(&bytes, expected);
    let largest = offset_data(COOKIE, 0, OFFSET_DATA_MAX, ChunkPosition::No);
    assert_eq!(largest[4..6], [0, 0]);
    assert_eq!(largest[16..20], [0xff; 4]);
    let whole = [&offset_data(COOKIE, 5, 3, ChunkPosition::No)[..], b"abc"].concat();
    assert_eq!(chunk_of(&whole), (false, Content::Data { offset: 5, data: b"abc" }));
}

#[test]
#[should_panic(expected = "bounded by the maximum payload")]
fn offset_data_over_the_length_field_is_a_fault_of_the_caller() {
    let _ = offset_data(COOKIE, 0, OFFSET_DATA_MAX + 1, ChunkPosition::Yes);
}

#[test]
fn offset_hole_has_12_bytes() {
    let bytes = offset_hole(COOKIE, 0x1122_3344_5566_7788, 0x0a0b_0c0d, ChunkPosition::No);
    let expected = b"\x66\x8e\x33\xef\0\0\0\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x0c\
        \x11\x22\x33\x44\x55\x66\x77\x88\x0a\x0b\x0c\x0d";
    assert_eq!(&bytes, expected);
    let hole = Content::Hole { offset: 0x1122_3344_5566_7788, length: 0x0a0b_0c0d };
    assert_eq!(chunk_of(&bytes), (false, hole));
}

#[test]
fn block_status_is_context_then_extents() {
    let mut out = [0xee; 64];
    let mut status = BlockStatus::new(&mut out).unwrap();
    let extents = [NbdExtent { length: 4096, flags: 0 }, NbdExtent { length: 512, flags: STATE_HOLE | STATE_ZERO }];
    assert!(extents.iter().all(|&extent| status.push(extent)));
    let bytes = status.finish(COOKIE, 1, ChunkPosition::Yes).unwrap();
    let expected = b"\x66\x8e\x33\xef\0\x01\0\x05\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x14\
        \0\0\0\x01\0\0\x10\0\0\0\0\0\0\0\x02\0\0\0\0\x03";
    assert_eq!(bytes, expected);
    let content = Content::BlockStatus { context: 1, extents: extents.to_vec() };
    assert_eq!(chunk_of(bytes), (true, content));
}

#[test]
fn block_status_stops_when_the_slice_is_full_and_is_no_reply_without_extents() {
    let extent = NbdExtent { length: 1, flags: 0 };
    assert!(BlockStatus::new(&mut [0; BLOCK_STATUS_LEN + DESCRIPTOR_LEN - 1]).is_none());
    let mut out = [0; BLOCK_STATUS_LEN + 2 * DESCRIPTOR_LEN + 7];
    assert!(BlockStatus::new(&mut out).unwrap().finish(COOKIE, 1, ChunkPosition::Yes).is_none());
    let mut status = BlockStatus::new(&mut out).unwrap();
    assert!(status.push(extent) && status.push(extent));
    assert!(!status.push(extent));
    assert_eq!(status.finish(COOKIE, 1, ChunkPosition::No).unwrap().len(), BLOCK_STATUS_LEN + 2 * DESCRIPTOR_LEN);
}

#[test]
fn block_status_has_at_most_a_million_extents() {
    let mut out = vec![0; BLOCK_STATUS_LEN + DESCRIPTOR_LEN * (DESCRIPTORS_MAX + 1)];
    let mut status = BlockStatus::new(&mut out).unwrap();
    let pushed = (0..=DESCRIPTORS_MAX).filter(|_| status.push(NbdExtent { length: 1, flags: 0 })).count();
    assert_eq!(pushed, DESCRIPTORS_MAX);
    assert_eq!(status.finish(COOKIE, 1, ChunkPosition::Yes).unwrap()[16..20], 8_388_612u32.to_be_bytes());
}

#[test]
fn error_chunks_are_error_then_message_and_the_offset_at_the_end() {
    let reply = error_chunk(COOKIE, NbdError::Io, "no", ChunkPosition::Yes);
    let expected = b"\x66\x8e\x33\xef\0\x01\x80\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x08\
        \0\0\0\x05\0\x02no";
    assert_eq!(reply.as_bytes(), expected);
    let reply = error_offset_chunk(COOKIE, NbdError::Io, "no", 0x1122_3344_5566_7788, ChunkPosition::No);
    let expected = b"\x66\x8e\x33\xef\0\0\x80\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x10\
        \0\0\0\x05\0\x02no\x11\x22\x33\x44\x55\x66\x77\x88";
    assert_eq!(reply.as_bytes(), expected);
}

#[test]
fn messages_are_cut_between_characters() {
    let long = "é".repeat(150);
    for (message, expected) in [(long.clone(), 200), (format!("x{long}"), 199), (String::new(), 0)] {
        let reply = error_offset_chunk(COOKIE, NbdError::Inval, &message, 9, ChunkPosition::Yes);
        let (_, content) = chunk_of(reply.as_bytes());
        let Content::Error { message: sent, offset: Some(9), error: NbdError::Inval } = content else {
            panic!("{content:?}")
        };
        assert_eq!(sent.len(), expected);
        assert!(message.starts_with(std::str::from_utf8(sent).unwrap()));
    }
}

#[test]
fn failure_uses_the_reply_that_was_negotiated() {
    let chunk = failure(true, COOKIE, NbdError::Perm, "read-only");
    assert_eq!(chunk.as_bytes(), error_chunk(COOKIE, NbdError::Perm, "read-only", ChunkPosition::Yes).as_bytes());
    let plain = failure(false, COOKIE, NbdError::Perm, "read-only");
    assert_eq!(plain.as_bytes(), simple(COOKIE, Err(NbdError::Perm)));
}
