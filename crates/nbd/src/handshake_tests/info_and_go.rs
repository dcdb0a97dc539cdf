//! `INFO`, `GO` and the limits on option data.

use super::*;

#[test]
fn go_sends_export_info_and_enters_transmission() {
    let mut handshake = haggling(TlsMode::Off);
    let (step, output) = send(&mut handshake, opt::GO, &info_data(b"a", &[]));
    let expected = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\
        \0\0\0\0\0\0\x12\x34\x50\0\x0d\x6d\
        \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0";
    assert_eq!(output, expected);
    assert!(matches!(step, NextStep::Transmission(Negotiated { block_size_agreed: false, .. })));
    assert_eq!(handshake.feed(b"x", &mut Vec::new()), Err(ProtocolError::Finished));
}

#[test]
fn go_leaves_the_first_request_unread() {
    let mut input = option(opt::GO, &info_data(b"a", &[]));
    let len = input.len();
    input.extend([0x25, 0x60, 0x95, 0x13]);
    assert_eq!(haggling(TlsMode::Off).feed(&input, &mut Vec::new()).unwrap().consumed, len);
}

#[test]
fn info_answers_what_is_asked_and_haggling_goes_on() {
    let mut handshake = haggling(TlsMode::Off);
    let asked = [info::BLOCK_SIZE, info::NAME, 0x1234, info::DESCRIPTION, info::EXPORT];
    let (step, output) = send(&mut handshake, opt::INFO, &info_data(b"", &asked));
    assert_eq!(step, NextStep::NeedMore);
    let found = replies(opt::INFO, &output);
    let parsed: Vec<_> = found.iter().map(|(kind, data)| (*kind, client::parse_info(data))).collect();
    let flags = TransmissionFlags::from_bits(0x0d6d);
    let info = |info| (rep::INFO, Some(info));
    let expected = [
        info(InfoReply::Export { size: 0x1234_5000, flags }),
        info(InfoReply::Name(b"a")),
        info(InfoReply::Description(b"the a disk")),
        info(InfoReply::BlockSize(export("a").block_sizes)),
        (rep::ACK, None),
    ];
    assert_eq!(parsed, expected);
    assert_eq!(found[3].1, *b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0");
    assert!(enter(&mut handshake, opt::GO, &info_data(b"", &asked)).block_size_agreed);
}

#[test]
fn info_and_go_for_an_unknown_export() {
    let mut handshake = haggling(TlsMode::Off);
    for code in [opt::INFO, opt::GO] {
        assert_eq!(kinds(&mut handshake, code, &info_data(b"c", &[])), [rep::ERR_UNKNOWN]);
    }
}

#[test]
fn info_and_go_with_malformed_data_are_invalid() {
    let mut handshake = haggling(TlsMode::Off);
    let whole = info_data(b"a", &[info::NAME]);
    let too_long_name = info_data(&[b'x'; 4097], &[]);
    let mut cases: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    cases.push([&whole[..], b"x"].concat());
    cases.push(b"\xff\xff\xff\xffabc\0\0".to_vec());
    cases.push(too_long_name);
    for code in [opt::INFO, opt::GO] {
        for data in &cases {
            assert_eq!(kinds(&mut handshake, code, data), [rep::ERR_INVALID], "{data:x?}");
        }
    }
}

#[test]
fn block_sizes_must_be_asked_for_where_required() {
    let mut handshake = haggling(TlsMode::Off);
    for code in [opt::INFO, opt::GO] {
        let found = kinds(&mut handshake, code, &info_data(b"strict", &[info::NAME]));
        // The sizes come along with the error, to save the client a round trip.
        assert_eq!(found, [rep::INFO, rep::INFO, rep::INFO, rep::ERR_BLOCK_SIZE_REQD]);
    }
    assert!(enter(&mut handshake, opt::GO, &info_data(b"strict", &[info::BLOCK_SIZE])).block_size_agreed);
}

#[test]
fn oversized_option_data_is_skipped_and_too_big() {
    let mut handshake = haggling(TlsMode::Off);
    assert_eq!(kinds(&mut handshake, opt::STRUCTURED_REPLY, b""), [rep::ACK]);
    for code in [opt::INFO, opt::GO, opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
        assert_eq!(kinds(&mut handshake, code, &vec![0; 65_537]), [rep::ERR_TOO_BIG]);
        assert_eq!(kinds(&mut handshake, code, &vec![0; 65_536]), [rep::ERR_INVALID]);
    }
    assert!(handshake.pending.capacity() == 0, "nothing skipped is kept");
}

#[test]
fn option_data_of_4_gib_takes_no_memory() {
    let mut handshake = haggling(TlsMode::Off);
    let mut output = Vec::new();
    let header = [&OPTION_MAGIC.to_be_bytes()[..], &[0, 0, 0, 7, 255, 255, 255, 255]].concat();
    handshake.feed(&header, &mut output).unwrap();
    let mut left = u64::from(u32::MAX);
    let block = vec![0; 16 << 20];
    while left > 0 {
        let part = &block[..usize::try_from(left.min(16 << 20)).unwrap()];
        assert!(output.is_empty());
        assert_eq!(handshake.feed(part, &mut output).unwrap().consumed, part.len());
        assert_eq!(handshake.pending.capacity(), 0);
        left -= u64::try_from(part.len()).unwrap();
    }
    assert_eq!(replies(opt::GO, &output)[0].0, rep::ERR_TOO_BIG);
}

#[test]
fn client_that_has_gone_can_be_refused_yet_and_one_that_knows_no_errors_is_told_nothing() {
    let mut handshake = haggling(TlsMode::Off);
    assert!(enter(&mut handshake, opt::GO, &info_data(b"a", &[])).export == 0);
    let found = replies(opt::GO, &handshake.refuse_transmission("come later"));
    assert_eq!(found, [(rep::ERR_POLICY, b"come later".to_vec())]);
    let mut handshake = haggling(TlsMode::Off);
    enter(&mut handshake, opt::EXPORT_NAME, b"a");
    assert!(handshake.refuse_transmission("come later").is_empty());
}
