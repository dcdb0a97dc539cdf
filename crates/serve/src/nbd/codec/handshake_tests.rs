//! Every option and every error of the handshake, byte by byte.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::client::{self, Info, context_data, info_data, option};
use super::super::export::{BlockSizes, Capabilities, OfferError};
use super::super::wire::OPTION_REPLY_MAGIC;
use super::*;

const FIXED: u32 = client_flag::FIXED_NEWSTYLE;
const ABILITIES: Capabilities = Capabilities {
    read_only: false,
    flush: true,
    fua: true,
    rotational: false,
    trim: true,
    write_zeroes: true,
    dont_fragment: true,
    multi_conn: true,
    cache: true,
    fast_zero: true,
};

fn export(name: &str) -> ExportInfo {
    ExportInfo {
        name: name.to_owned(),
        description: format!("the {name} disk"),
        size: 0x1234_5000,
        flags: ABILITIES.into(),
        block_sizes: BlockSizes {
            minimum: 512,
            preferred: 4096,
            maximum: 32 << 20,
        },
        block_size_required: false,
        base_allocation: true,
    }
}

fn offer_of(exports: Vec<ExportInfo>, tls: TlsMode) -> Arc<ServerOffer> {
    Arc::new(ServerOffer::new(exports, tls).unwrap())
}

fn offer(tls: TlsMode) -> Arc<ServerOffer> {
    let strict = ExportInfo {
        block_size_required: true,
        ..export("strict")
    };
    let blind = ExportInfo {
        base_allocation: false,
        ..export("blind")
    };
    offer_of(vec![export("a"), export("b"), strict, blind], tls)
}

/// A handshake that has got past the client flags.
fn past_flags(offer: Arc<ServerOffer>, flags: u32) -> Handshake {
    let mut handshake = Handshake::new(offer);
    let progress = handshake
        .feed(&flags.to_be_bytes(), &mut Vec::new())
        .unwrap();
    assert_eq!(
        progress,
        Progress {
            consumed: 4,
            step: Step::NeedMore
        }
    );
    handshake
}

fn haggling(tls: TlsMode) -> Handshake {
    past_flags(offer(tls), FIXED)
}

/// Feeds one whole option and gives its step and output.
fn send(handshake: &mut Handshake, code: u32, data: &[u8]) -> (Step, Vec<u8>) {
    let (input, mut output) = (option(code, data), Vec::new());
    let progress = handshake.feed(&input, &mut output).unwrap();
    assert_eq!(progress.consumed, input.len());
    (progress.step, output)
}

fn refused(handshake: &mut Handshake, code: u32, data: &[u8]) -> ProtocolError {
    let mut output = Vec::new();
    let error = handshake
        .feed(&option(code, data), &mut output)
        .unwrap_err();
    assert!(output.is_empty(), "a dropped connection gets no bytes");
    assert_eq!(
        handshake.feed(&[], &mut output),
        Err(ProtocolError::Finished)
    );
    error
}

/// The type and data of each reply in `output`.
fn replies(code: u32, mut output: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !output.is_empty() {
        let (reply, used) = client::parse_option_reply(output).unwrap().unwrap();
        assert_eq!(reply.option, code);
        found.push((reply.kind, reply.data.to_vec()));
        output = &output[used..];
    }
    found
}

/// Sends an option and gives the types of its replies; the handshake must go on.
fn kinds(handshake: &mut Handshake, code: u32, data: &[u8]) -> Vec<u32> {
    let (step, output) = send(handshake, code, data);
    assert_eq!(step, Step::NeedMore);
    replies(code, &output)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect()
}

fn enter(handshake: &mut Handshake, code: u32, data: &[u8]) -> Negotiated {
    match send(handshake, code, data).0 {
        Step::Transmission(negotiated) => negotiated,
        other => panic!("expected transmission, got {other:?}"),
    }
}

const SET_BASE: (u32, &[&[u8]]) = (opt::SET_META_CONTEXT, &[b"base:allocation"]);

fn select_base(handshake: &mut Handshake, name: &[u8]) {
    assert_eq!(kinds(handshake, opt::STRUCTURED_REPLY, b""), [rep::ACK]);
    let selected = kinds(handshake, SET_BASE.0, &context_data(name, SET_BASE.1));
    assert_eq!(selected, [rep::META_CONTEXT, rep::ACK]);
}

#[test]
fn greeting_is_nbdmagic_ihaveopt_and_both_flags() {
    let greeting = Handshake::new(offer(TlsMode::Off)).greeting();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
    assert_eq!(client::parse_greeting(&greeting), Ok(3));
}

#[test]
fn unknown_client_flags_drop_the_connection() {
    for flags in [4u32, 1 << 31, 0xffff_ffff] {
        let mut handshake = Handshake::new(offer(TlsMode::Off));
        let error = handshake
            .feed(&flags.to_be_bytes(), &mut Vec::new())
            .unwrap_err();
        assert_eq!(error, ProtocolError::UnknownClientFlags(flags & !3));
    }
}

#[test]
fn bad_option_magic_drops_the_connection() {
    let mut handshake = haggling(TlsMode::Off);
    let error = handshake
        .feed(b"GET / HTTP/1.1\r\n", &mut Vec::new())
        .unwrap_err();
    assert_eq!(error, ProtocolError::BadOptionMagic(0x4745_5420_2f20_4854));
}

#[test]
fn plain_newstyle_client_may_only_choose_an_export() {
    let mut handshake = past_flags(offer(TlsMode::Off), 0);
    assert_eq!(
        refused(&mut handshake, opt::LIST, b""),
        ProtocolError::NotFixedNewstyle(3)
    );
    let mut handshake = past_flags(offer(TlsMode::On), 0);
    assert_eq!(
        refused(&mut handshake, opt::STARTTLS, b""),
        ProtocolError::NotFixedNewstyle(5)
    );
    let mut handshake = past_flags(offer(TlsMode::Off), 0);
    assert_eq!(enter(&mut handshake, opt::EXPORT_NAME, b"b").export, 1);
}

#[test]
fn export_name_sends_size_flags_and_124_zeroes() {
    let (step, output) = send(&mut haggling(TlsMode::Off), opt::EXPORT_NAME, b"b");
    let expected = Negotiated {
        export: 1,
        flags: TransmissionFlags::from_bits(0x0d6d),
        structured_replies: false,
        extended_headers: false,
        base_allocation: None,
        block_size_agreed: false,
        no_zeroes: false,
        tls: false,
    };
    assert_eq!(step, Step::Transmission(expected));
    let mut bytes = vec![0, 0, 0, 0, 0x12, 0x34, 0x50, 0, 0x0d, 0x6d];
    bytes.resize(10 + 124, 0);
    assert_eq!(output, bytes);
}

#[test]
fn export_name_leaves_out_the_zeroes_when_declined() {
    let mut handshake = past_flags(offer(TlsMode::Off), 3);
    let (step, output) = send(&mut handshake, opt::EXPORT_NAME, b"a");
    assert_eq!(output, [0, 0, 0, 0, 0x12, 0x34, 0x50, 0, 0x0d, 0x6d]);
    assert!(matches!(
        step,
        Step::Transmission(Negotiated {
            no_zeroes: true,
            ..
        })
    ));
}

#[test]
fn export_name_empty_is_the_first_export() {
    assert_eq!(
        enter(&mut haggling(TlsMode::Off), opt::EXPORT_NAME, b"").export,
        0
    );
}

#[test]
fn export_name_empty_prefers_an_export_with_that_very_name() {
    let offer = offer_of(vec![export("a"), export("")], TlsMode::Off);
    let mut handshake = past_flags(offer, FIXED);
    assert_eq!(enter(&mut handshake, opt::EXPORT_NAME, b"").export, 1);
}

#[test]
fn export_name_unknown_drops_the_connection() {
    let error = refused(&mut haggling(TlsMode::Off), opt::EXPORT_NAME, b"c");
    assert_eq!(error, ProtocolError::UnknownExport);
    let mut handshake = past_flags(offer_of(vec![], TlsMode::Off), FIXED);
    assert_eq!(
        refused(&mut handshake, opt::EXPORT_NAME, b""),
        ProtocolError::UnknownExport
    );
}

#[test]
fn export_name_too_long_drops_the_connection_before_its_data_arrives() {
    let mut header = option(opt::EXPORT_NAME, &[b'x'; 4097]);
    header.truncate(OPTION_HEADER_LEN);
    let error = haggling(TlsMode::Off)
        .feed(&header, &mut Vec::new())
        .unwrap_err();
    assert_eq!(error, ProtocolError::NameTooLong(4097));
    let error = refused(&mut haggling(TlsMode::Off), opt::EXPORT_NAME, &[b'x'; 4096]);
    assert_eq!(error, ProtocolError::UnknownExport);
}

#[test]
fn export_name_drops_where_block_sizes_must_be_asked_for() {
    let error = refused(&mut haggling(TlsMode::Off), opt::EXPORT_NAME, b"strict");
    assert_eq!(error, ProtocolError::BlockSizeRequired);
}

#[test]
fn abort_is_acknowledged_and_its_data_ignored() {
    for data in [&b""[..], b"so long"] {
        let mut handshake = haggling(TlsMode::Require);
        let (step, output) = send(&mut handshake, opt::ABORT, data);
        assert_eq!(step, Step::Close);
        assert_eq!(
            output,
            *b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x02\0\0\0\x01\0\0\0\0"
        );
        assert_eq!(
            handshake.feed(b"x", &mut Vec::new()),
            Err(ProtocolError::Finished)
        );
    }
}

#[test]
fn list_names_every_export_with_its_description() {
    let offer = offer_of(
        vec![
            export("a"),
            ExportInfo {
                description: String::new(),
                ..export("")
            },
        ],
        TlsMode::Off,
    );
    let (step, output) = send(&mut past_flags(offer, FIXED), opt::LIST, b"");
    assert_eq!(step, Step::NeedMore);
    let mut expected = Vec::new();
    for (kind, data) in [
        (rep::SERVER, &b"\0\0\0\x01athe a disk"[..]),
        (rep::SERVER, b"\0\0\0\0"),
        (rep::ACK, b""),
    ] {
        expected.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        expected.extend(opt::LIST.to_be_bytes());
        expected.extend(kind.to_be_bytes());
        expected.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        expected.extend(data);
    }
    assert_eq!(output, expected);
}

#[test]
fn list_with_data_is_invalid() {
    assert_eq!(
        kinds(&mut haggling(TlsMode::Off), opt::LIST, b"x"),
        [rep::ERR_INVALID]
    );
}

#[test]
fn starttls_is_against_policy_when_off() {
    let mut handshake = haggling(TlsMode::Off);
    let (step, output) = send(&mut handshake, opt::STARTTLS, b"");
    assert_eq!(step, Step::NeedMore);
    let message = b"TLS is not enabled on this server".to_vec();
    assert_eq!(
        replies(opt::STARTTLS, &output),
        [(rep::ERR_POLICY, message)]
    );
}

#[test]
fn starttls_with_data_is_invalid() {
    for tls in [TlsMode::Off, TlsMode::On, TlsMode::Require] {
        assert_eq!(
            kinds(&mut haggling(tls), opt::STARTTLS, b"x"),
            [rep::ERR_INVALID]
        );
    }
}

#[test]
fn starttls_twice_is_invalid() {
    let mut handshake = haggling(TlsMode::On);
    assert_eq!(send(&mut handshake, opt::STARTTLS, b"").0, Step::StartTls);
    assert_eq!(
        kinds(&mut handshake, opt::STARTTLS, b""),
        [rep::ERR_INVALID]
    );
}

#[test]
fn starttls_forgets_what_was_negotiated_in_clear() {
    let mut handshake = haggling(TlsMode::On);
    select_base(&mut handshake, b"a");
    let (step, output) = send(&mut handshake, opt::STARTTLS, b"");
    assert_eq!(
        (step, replies(opt::STARTTLS, &output)),
        (Step::StartTls, vec![(rep::ACK, vec![])])
    );
    let negotiated = enter(&mut handshake, opt::GO, &info_data(b"a", &[]));
    assert!(negotiated.tls && !negotiated.structured_replies);
    assert_eq!(negotiated.base_allocation, None);
    assert!(!negotiated.flags.contains(TransmissionFlags::SEND_DF));
}

#[test]
fn bytes_behind_starttls_are_left_for_the_tls_handshake() {
    let starttls = option(opt::STARTTLS, b"");
    let mut input = starttls.clone();
    input.extend(option(opt::LIST, b""));
    let mut output = Vec::new();
    let progress = haggling(TlsMode::Require)
        .feed(&input, &mut output)
        .unwrap();
    assert_eq!(
        progress,
        Progress {
            consumed: starttls.len(),
            step: Step::StartTls
        }
    );
    assert_eq!(replies(opt::STARTTLS, &output).len(), 1);
}

#[test]
fn tls_required_refuses_all_but_starttls_and_abort() {
    let mut handshake = haggling(TlsMode::Require);
    let long = vec![0; 70_000];
    for code in [
        opt::LIST,
        opt::INFO,
        opt::GO,
        opt::STRUCTURED_REPLY,
        9,
        10,
        11,
        4,
        77,
    ] {
        assert_eq!(kinds(&mut handshake, code, b"data"), [rep::ERR_TLS_REQD]);
        assert_eq!(kinds(&mut handshake, code, &long), [rep::ERR_TLS_REQD]);
    }
    assert_eq!(send(&mut handshake, opt::STARTTLS, b"").0, Step::StartTls);
    assert_eq!(
        enter(&mut handshake, opt::GO, &info_data(b"b", &[])).export,
        1
    );
}

#[test]
fn tls_required_drops_export_name_in_clear() {
    let error = refused(&mut haggling(TlsMode::Require), opt::EXPORT_NAME, b"a");
    assert_eq!(error, ProtocolError::TlsRequired);
    let mut plain_newstyle = past_flags(offer(TlsMode::Require), 0);
    assert_eq!(
        refused(&mut plain_newstyle, opt::EXPORT_NAME, b"a"),
        ProtocolError::TlsRequired
    );
}

#[test]
fn tls_on_lets_clear_clients_in() {
    let negotiated = enter(&mut haggling(TlsMode::On), opt::GO, &info_data(b"", &[]));
    assert!(!negotiated.tls);
}

#[test]
fn go_sends_export_info_and_enters_transmission() {
    let mut handshake = haggling(TlsMode::Off);
    let (step, output) = send(&mut handshake, opt::GO, &info_data(b"a", &[]));
    let expected = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\
        \0\0\0\0\0\0\x12\x34\x50\0\x0d\x6d\
        \0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0";
    assert_eq!(output, expected);
    assert!(matches!(
        step,
        Step::Transmission(Negotiated {
            block_size_agreed: false,
            ..
        })
    ));
    assert_eq!(
        handshake.feed(b"x", &mut Vec::new()),
        Err(ProtocolError::Finished)
    );
}

#[test]
fn go_leaves_the_first_request_unread() {
    let mut input = option(opt::GO, &info_data(b"a", &[]));
    let len = input.len();
    input.extend([0x25, 0x60, 0x95, 0x13]);
    let progress = haggling(TlsMode::Off)
        .feed(&input, &mut Vec::new())
        .unwrap();
    assert_eq!(progress.consumed, len);
}

#[test]
fn info_answers_what_is_asked_and_haggling_goes_on() {
    let mut handshake = haggling(TlsMode::Off);
    let asked = [
        info::BLOCK_SIZE,
        info::NAME,
        0x1234,
        info::DESCRIPTION,
        info::EXPORT,
    ];
    let (step, output) = send(&mut handshake, opt::INFO, &info_data(b"", &asked));
    assert_eq!(step, Step::NeedMore);
    let found = replies(opt::INFO, &output);
    let parsed: Vec<_> = found
        .iter()
        .map(|(kind, data)| (*kind, client::parse_info(data)))
        .collect();
    let flags = TransmissionFlags::from_bits(0x0d6d);
    let info = |info| (rep::INFO, Some(info));
    let expected = [
        info(Info::Export {
            size: 0x1234_5000,
            flags,
        }),
        info(Info::Name(b"a")),
        info(Info::Description(b"the a disk")),
        info(Info::BlockSize(export("a").block_sizes)),
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
        assert_eq!(
            kinds(&mut handshake, code, &info_data(b"c", &[])),
            [rep::ERR_UNKNOWN]
        );
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
            assert_eq!(
                kinds(&mut handshake, code, data),
                [rep::ERR_INVALID],
                "{data:x?}"
            );
        }
    }
}

#[test]
fn block_sizes_must_be_asked_for_where_required() {
    let mut handshake = haggling(TlsMode::Off);
    for code in [opt::INFO, opt::GO] {
        let found = kinds(&mut handshake, code, &info_data(b"strict", &[info::NAME]));
        // The sizes come along with the error, to save the client a round trip.
        assert_eq!(
            found,
            [rep::INFO, rep::INFO, rep::INFO, rep::ERR_BLOCK_SIZE_REQD]
        );
    }
    let negotiated = enter(
        &mut handshake,
        opt::GO,
        &info_data(b"strict", &[info::BLOCK_SIZE]),
    );
    assert!(negotiated.block_size_agreed);
}

#[test]
fn oversized_option_data_is_skipped_and_too_big() {
    let mut handshake = haggling(TlsMode::Off);
    assert_eq!(
        kinds(&mut handshake, opt::STRUCTURED_REPLY, b""),
        [rep::ACK]
    );
    for code in [
        opt::INFO,
        opt::GO,
        opt::LIST_META_CONTEXT,
        opt::SET_META_CONTEXT,
    ] {
        assert_eq!(
            kinds(&mut handshake, code, &vec![0; 65_537]),
            [rep::ERR_TOO_BIG]
        );
        assert_eq!(
            kinds(&mut handshake, code, &vec![0; 65_536]),
            [rep::ERR_INVALID]
        );
    }
    assert!(handshake.pending.capacity() == 0, "nothing skipped is kept");
}

#[test]
fn option_data_of_4_gib_takes_no_memory() {
    let mut handshake = haggling(TlsMode::Off);
    let mut output = Vec::new();
    let header = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &[0, 0, 0, 7, 255, 255, 255, 255],
    ]
    .concat();
    handshake.feed(&header, &mut output).unwrap();
    let mut left = u64::from(u32::MAX);
    let block = vec![0; 16 << 20];
    while left > 0 {
        let part = &block[..usize::try_from(left.min(16 << 20)).unwrap()];
        assert!(output.is_empty());
        assert_eq!(
            handshake.feed(part, &mut output).unwrap().consumed,
            part.len()
        );
        assert_eq!(handshake.pending.capacity(), 0);
        left -= u64::try_from(part.len()).unwrap();
    }
    assert_eq!(replies(opt::GO, &output)[0].0, rep::ERR_TOO_BIG);
}

#[test]
fn structured_reply_is_acknowledged_and_turns_df_on() {
    let mut handshake = haggling(TlsMode::Off);
    assert_eq!(
        kinds(&mut handshake, opt::STRUCTURED_REPLY, b"x"),
        [rep::ERR_INVALID]
    );
    assert_eq!(
        kinds(&mut handshake, opt::STRUCTURED_REPLY, b""),
        [rep::ACK]
    );
    let negotiated = enter(&mut handshake, opt::GO, &info_data(b"a", &[]));
    assert!(negotiated.structured_replies);
    assert_eq!(negotiated.flags.bits(), 0x0ded);
}

#[test]
fn meta_contexts_need_structured_replies() {
    let mut handshake = haggling(TlsMode::Off);
    for code in [opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
        let data = context_data(b"a", SET_BASE.1);
        assert_eq!(kinds(&mut handshake, code, &data), [rep::ERR_INVALID]);
    }
}

#[test]
fn list_meta_context_matches_nothing_asked_wildcard_and_name() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let queries: [&[&[u8]]; 4] = [
        &[],
        &[b"base:"],
        &[b"base:allocation"],
        &[b"qemu:", b"base:allocation", b"base:"],
    ];
    for query in queries {
        let (_, output) = send(
            &mut handshake,
            opt::LIST_META_CONTEXT,
            &context_data(b"a", query),
        );
        let context = (rep::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec());
        assert_eq!(
            replies(opt::LIST_META_CONTEXT, &output),
            [context, (rep::ACK, vec![])]
        );
    }
    let missing: [(&[u8], &[&[u8]]); 4] = [
        (b"a", &[b"qemu:dirty-bitmap:x"]),
        (b"a", &[b"base:other"]),
        (b"a", &[b"x-y:base:allocation"]),
        (b"blind", &[]),
    ];
    for (name, query) in missing {
        let found = kinds(
            &mut handshake,
            opt::LIST_META_CONTEXT,
            &context_data(name, query),
        );
        assert_eq!(found, [rep::ACK]);
    }
    assert_eq!(
        enter(&mut handshake, opt::GO, &info_data(b"a", &[])).base_allocation,
        None
    );
}

#[test]
fn set_meta_context_selects_base_allocation_for_its_export() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let data = context_data(b"", SET_BASE.1);
    let (_, output) = send(&mut handshake, opt::SET_META_CONTEXT, &data);
    let context = (rep::META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec());
    assert_eq!(
        replies(opt::SET_META_CONTEXT, &output),
        [context, (rep::ACK, vec![])]
    );
    // The default export and its name are the same export.
    let negotiated = enter(&mut handshake, opt::EXPORT_NAME, b"a");
    assert_eq!(negotiated.base_allocation, Some(BASE_ALLOCATION_ID));
}

#[test]
fn set_meta_context_does_not_carry_over_to_another_export() {
    let mut handshake = haggling(TlsMode::Off);
    select_base(&mut handshake, b"a");
    assert_eq!(
        enter(&mut handshake, opt::GO, &info_data(b"b", &[])).base_allocation,
        None
    );
}

#[test]
fn set_meta_context_replaces_the_selection_even_when_it_fails() {
    let nothing = context_data(b"a", &[]);
    let wildcard = context_data(b"a", &[b"base:"]);
    let unknown_export = context_data(b"c", SET_BASE.1);
    let too_big = vec![0; 65_537];
    for data in [
        &nothing[..],
        &wildcard,
        &unknown_export,
        &too_big,
        b"malformed",
    ] {
        let mut handshake = haggling(TlsMode::Off);
        select_base(&mut handshake, b"a");
        kinds(&mut handshake, opt::SET_META_CONTEXT, data);
        let negotiated = enter(&mut handshake, opt::GO, &info_data(b"a", &[]));
        assert_eq!(negotiated.base_allocation, None, "{data:x?}");
    }
}

#[test]
fn set_meta_context_selects_nothing_where_extents_are_unknown() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let data = context_data(b"blind", SET_BASE.1);
    assert_eq!(
        kinds(&mut handshake, opt::SET_META_CONTEXT, &data),
        [rep::ACK]
    );
}

#[test]
fn meta_contexts_of_an_unknown_export_or_malformed() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let whole = context_data(b"a", SET_BASE.1);
    let mut cases: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    cases.push([&whole[..], b"x"].concat());
    cases.push(context_data(b"a", &[b"no namespace"]));
    cases.push(context_data(b"a", &[&[b':'; 4097]]));
    cases.push(b"\0\0\0\x01a\xff\xff\xff\xff\0\0\0\x05base:".to_vec());
    for code in [opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
        let unknown = context_data(b"c", SET_BASE.1);
        assert_eq!(kinds(&mut handshake, code, &unknown), [rep::ERR_UNKNOWN]);
        for data in &cases {
            assert_eq!(
                kinds(&mut handshake, code, data),
                [rep::ERR_INVALID],
                "{data:x?}"
            );
        }
    }
}

#[test]
fn unknown_options_are_unsupported_and_their_data_skipped() {
    let mut handshake = haggling(TlsMode::Off);
    for code in [0, 4, opt::EXTENDED_HEADERS, 12, 0x1234_5678, u32::MAX] {
        for len in [0, 5, 70_000] {
            assert_eq!(kinds(&mut handshake, code, &vec![1; len]), [rep::ERR_UNSUP]);
        }
    }
}

#[test]
fn shutdown_refuses_all_but_abort() {
    let mut handshake = haggling(TlsMode::On);
    handshake.shut_down();
    for code in [
        opt::LIST,
        opt::STARTTLS,
        opt::INFO,
        opt::GO,
        opt::STRUCTURED_REPLY,
        99,
    ] {
        assert_eq!(kinds(&mut handshake, code, b""), [rep::ERR_SHUTDOWN]);
    }
    let mut other = handshake.clone();
    assert_eq!(
        refused(&mut other, opt::EXPORT_NAME, b"a"),
        ProtocolError::ShuttingDown
    );
    assert_eq!(send(&mut handshake, opt::ABORT, b"").0, Step::Close);
}

#[test]
fn options_are_counted_and_bounded() {
    let mut handshake = haggling(TlsMode::Off);
    for _ in 0..OPTIONS_MAX {
        assert_eq!(kinds(&mut handshake, 99, b""), [rep::ERR_UNSUP]);
    }
    assert_eq!(
        refused(&mut handshake, opt::GO, b""),
        ProtocolError::TooManyOptions
    );
}

#[test]
fn one_call_answers_one_option() {
    let input = [option(opt::LIST, b""), option(opt::LIST, b"")].concat();
    let mut output = Vec::new();
    let progress = haggling(TlsMode::Off).feed(&input, &mut output).unwrap();
    assert_eq!(
        progress,
        Progress {
            consumed: OPTION_HEADER_LEN,
            step: Step::NeedMore
        }
    );
}

#[test]
fn transmission_flags_have_the_bits_of_the_protocol() {
    let only = |can: Capabilities| TransmissionFlags::from(can).bits();
    let none = Capabilities::default();
    assert_eq!(only(none), 1);
    assert_eq!(
        only(Capabilities {
            read_only: true,
            ..none
        }),
        0b11
    );
    assert_eq!(
        only(Capabilities {
            flush: true,
            ..none
        }),
        1 | 1 << 2
    );
    assert_eq!(only(Capabilities { fua: true, ..none }), 1 | 1 << 3);
    assert_eq!(
        only(Capabilities {
            rotational: true,
            ..none
        }),
        1 | 1 << 4
    );
    assert_eq!(only(Capabilities { trim: true, ..none }), 1 | 1 << 5);
    assert_eq!(
        only(Capabilities {
            write_zeroes: true,
            ..none
        }),
        1 | 1 << 6
    );
    assert_eq!(
        only(Capabilities {
            dont_fragment: true,
            ..none
        }),
        1 | 1 << 7
    );
    assert_eq!(
        only(Capabilities {
            multi_conn: true,
            ..none
        }),
        1 | 1 << 8
    );
    assert_eq!(
        only(Capabilities {
            cache: true,
            ..none
        }),
        1 | 1 << 10
    );
    // Fast zeroes need zeroes, and a read-only export advertises no write command.
    assert_eq!(
        only(Capabilities {
            fast_zero: true,
            ..none
        }),
        1
    );
    assert_eq!(only(ABILITIES), 0x0ded);
    assert_eq!(
        only(Capabilities {
            read_only: true,
            ..ABILITIES
        }),
        0x058f
    );
}

#[test]
fn offers_that_the_protocol_forbids_are_refused() {
    let new = |export: ExportInfo| ServerOffer::new(vec![export], TlsMode::Off).unwrap_err();
    let sizes = |minimum, preferred, maximum| BlockSizes {
        minimum,
        preferred,
        maximum,
    };
    for name in ["x".repeat(4097), "a\0b".to_owned()] {
        let bad = new(ExportInfo {
            name,
            ..export("a")
        });
        assert_eq!(
            bad,
            OfferError::BadString {
                index: 0,
                what: "name"
            }
        );
    }
    let bad = new(ExportInfo {
        description: "x".repeat(4097),
        ..export("a")
    });
    assert_eq!(
        bad,
        OfferError::BadString {
            index: 0,
            what: "description"
        }
    );
    for block_sizes in [
        sizes(0, 4096, 1 << 20),
        sizes(3, 4096, 1 << 20),
        sizes(1 << 17, 1 << 17, 1 << 20),
        sizes(1, 256, 1 << 20),
        sizes(4096, 512, 1 << 20),
        sizes(1, 4096, 2048),
        sizes(1, 4096, u32::MAX),
    ] {
        let bad = new(ExportInfo {
            block_sizes,
            ..export("a")
        });
        assert!(
            matches!(bad, OfferError::BadBlockSizes { .. }),
            "{block_sizes:?}"
        );
    }
    let bad = new(ExportInfo {
        size: 513,
        ..export("a")
    });
    assert!(matches!(
        bad,
        OfferError::UnalignedSize {
            size: 513,
            minimum: 512,
            ..
        }
    ));
    let twice = ServerOffer::new(vec![export("a"), export("a")], TlsMode::Off).unwrap_err();
    assert_eq!(twice, OfferError::DuplicateName("a".to_owned()));
}

/// All that a connection shows: steps, output, bytes consumed, and how it ended.
#[derive(Debug, PartialEq)]
struct Trace {
    output: Vec<u8>,
    steps: Vec<Step>,
    consumed: usize,
    error: Option<ProtocolError>,
}

/// Feeds `input` in pieces whose lengths come from `cuts`, over and over.
fn run(tls: TlsMode, input: &[u8], cuts: &[usize]) -> Trace {
    let mut handshake = Handshake::new(offer(tls));
    let mut trace = Trace {
        output: Vec::new(),
        steps: Vec::new(),
        consumed: 0,
        error: None,
    };
    let mut end = 0;
    for cut in cuts.iter().cycle() {
        end = input.len().min(end + cut);
        loop {
            let piece = &input[trace.consumed..end];
            match handshake.feed(piece, &mut trace.output) {
                Ok(progress) => {
                    assert!(progress.consumed <= piece.len());
                    assert!(handshake.pending.len() <= usize::try_from(OPTION_DATA_MAX).unwrap());
                    trace.consumed += progress.consumed;
                    let over = matches!(progress.step, Step::Transmission(_) | Step::Close);
                    if progress.step != Step::NeedMore {
                        trace.steps.push(progress.step);
                    }
                    if over {
                        return trace;
                    }
                    if trace.consumed == end {
                        break;
                    }
                    assert!(
                        progress.consumed > 0,
                        "no progress on {} bytes",
                        piece.len()
                    );
                }
                Err(error) => {
                    trace.error = Some(error);
                    // What a failing call took is not told.
                    trace.consumed = 0;
                    return trace;
                }
            }
        }
        if end == input.len() {
            return trace;
        }
    }
    trace
}

fn any_tls() -> impl Strategy<Value = TlsMode> {
    prop_oneof![
        Just(TlsMode::Off),
        Just(TlsMode::On),
        Just(TlsMode::Require)
    ]
}

/// Bytes that get deep into the state machine: options with sensible or random data, and noise.
fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        Just(&b"a"[..]),
        Just(&b""[..]),
        Just(&b"strict"[..]),
        Just(&b"zz"[..])
    ];
    let queries = prop::collection::vec(
        prop_oneof![
            Just(&b"base:allocation"[..]),
            Just(&b"base:"[..]),
            Just(&b"x"[..])
        ],
        0..3,
    );
    prop_oneof![
        (0u32..13, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(o, d)| option(o, &d)),
        (6u32..8, name.clone(), prop::collection::vec(0u16..5, 0..4))
            .prop_map(|(o, n, t)| option(o, &info_data(n, &t))),
        (9u32..11, name, queries).prop_map(|(o, n, q)| option(o, &context_data(n, &q))),
        prop_oneof![Just(5u32), Just(8), Just(3)].prop_map(|o| option(o, b"")),
        (6u32..12).prop_map(|o| option(o, &vec![7; 66_000])),
        prop::collection::vec(any::<u8>(), 1..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_in_any_pieces_have_the_same_outcome(
        tls in any_tls(),
        flags in prop_oneof![4 => Just(1u32), 2 => Just(3), 1 => Just(0), 1 => any::<u32>()],
        structured in any::<bool>(),
        options in prop::collection::vec(any_option(), 0..8),
        cuts in prop::collection::vec(prop_oneof![1usize..8, 1usize..400], 1..20),
    ) {
        let first = if structured { option(opt::STRUCTURED_REPLY, b"") } else { Vec::new() };
        let input = [flags.to_be_bytes().to_vec(), first, options.concat()].concat();
        let whole = run(tls, &input, &[input.len()]);
        prop_assert_eq!(&run(tls, &input, &cuts), &whole);
        if input.len() < 2000 {
            prop_assert_eq!(&run(tls, &input, &[1]), &whole);
        }
    }

    #[test]
    fn noise_never_panics(input in prop::collection::vec(any::<u8>(), 1..200)) {
        run(TlsMode::On, &input, &[input.len()]);
        run(TlsMode::On, &[&[0, 0, 0, 1], &b"IHAVEOPT"[..], &input].concat(), &[7]);
    }
}
