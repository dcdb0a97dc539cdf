//! Every option and every error of the handshake, byte by byte: here what all have in common and the
//! plain options; the larger subjects have files of their own.

mod contexts;
mod info_and_go;
mod offers;
mod pieces;
mod tls;

use std::sync::Arc;

use proptest::prelude::*;

use super::super::client::{self, InfoReply, context_data, info_data, option};
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
        block_sizes: BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 },
        block_size_required: false,
        base_allocation: true,
    }
}

fn offer_of(exports: Vec<ExportInfo>, tls: TlsMode) -> Arc<ServerOffer> {
    Arc::new(ServerOffer::new(exports, tls).unwrap())
}

fn offer(tls: TlsMode) -> Arc<ServerOffer> {
    let strict = ExportInfo { block_size_required: true, ..export("strict") };
    let blind = ExportInfo { base_allocation: false, ..export("blind") };
    offer_of(vec![export("a"), export("b"), strict, blind], tls)
}

/// A handshake that has got past the client flags.
fn past_flags(offer: Arc<ServerOffer>, flags: u32) -> Handshake {
    let mut handshake = Handshake::new(offer);
    let progress = handshake.feed(&flags.to_be_bytes(), &mut Vec::new()).unwrap();
    assert_eq!(progress, FeedOutcome { consumed: 4, step: NextStep::NeedMore });
    handshake
}

fn haggling(tls: TlsMode) -> Handshake {
    past_flags(offer(tls), FIXED)
}

/// Feeds one whole option and gives its step and output.
fn send(handshake: &mut Handshake, code: u32, data: &[u8]) -> (NextStep, Vec<u8>) {
    let (input, mut output) = (option(code, data), Vec::new());
    let progress = handshake.feed(&input, &mut output).unwrap();
    assert_eq!(progress.consumed, input.len());
    (progress.step, output)
}

fn refused(handshake: &mut Handshake, code: u32, data: &[u8]) -> ProtocolError {
    let mut output = Vec::new();
    let error = handshake.feed(&option(code, data), &mut output).unwrap_err();
    assert!(output.is_empty(), "a dropped connection gets no bytes");
    assert_eq!(handshake.feed(&[], &mut output), Err(ProtocolError::Finished));
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
    assert_eq!(step, NextStep::NeedMore);
    replies(code, &output).into_iter().map(|(kind, _)| kind).collect()
}

fn enter(handshake: &mut Handshake, code: u32, data: &[u8]) -> Negotiated {
    match send(handshake, code, data).0 {
        NextStep::Transmission(negotiated) => negotiated,
        other => panic!("expected transmission, got {other:?}"),
    }
}

const SET_BASE: (u32, &[&[u8]]) = (opt::SET_META_CONTEXT, &[b"base:allocation"]);

fn select_base(handshake: &mut Handshake, name: &[u8]) {
    assert_eq!(kinds(handshake, opt::STRUCTURED_REPLY, b""), [rep::ACK]);
    assert_eq!(kinds(handshake, SET_BASE.0, &context_data(name, SET_BASE.1)), [rep::META_CONTEXT, rep::ACK]);
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
        let error = handshake.feed(&flags.to_be_bytes(), &mut Vec::new()).unwrap_err();
        assert_eq!(error, ProtocolError::UnknownClientFlags(flags & !3));
    }
}

#[test]
fn bad_option_magic_drops_the_connection() {
    let mut handshake = haggling(TlsMode::Off);
    let error = handshake.feed(b"GET / HTTP/1.1\r\n", &mut Vec::new()).unwrap_err();
    assert_eq!(error, ProtocolError::BadOptionMagic(0x4745_5420_2f20_4854));
}

#[test]
fn plain_newstyle_client_may_only_choose_an_export() {
    let mut handshake = past_flags(offer(TlsMode::Off), 0);
    assert_eq!(refused(&mut handshake, opt::LIST, b""), ProtocolError::NotFixedNewstyle(3));
    let mut handshake = past_flags(offer(TlsMode::On), 0);
    assert_eq!(refused(&mut handshake, opt::STARTTLS, b""), ProtocolError::NotFixedNewstyle(5));
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
    assert_eq!(step, NextStep::Transmission(expected));
    let mut bytes = vec![0, 0, 0, 0, 0x12, 0x34, 0x50, 0, 0x0d, 0x6d];
    bytes.resize(10 + 124, 0);
    assert_eq!(output, bytes);
}

#[test]
fn export_name_leaves_out_the_zeroes_when_declined() {
    let mut handshake = past_flags(offer(TlsMode::Off), 3);
    let (step, output) = send(&mut handshake, opt::EXPORT_NAME, b"a");
    assert_eq!(output, [0, 0, 0, 0, 0x12, 0x34, 0x50, 0, 0x0d, 0x6d]);
    assert!(matches!(step, NextStep::Transmission(Negotiated { no_zeroes: true, .. })));
}

#[test]
fn export_name_empty_is_the_export_of_that_very_name_or_else_the_first() {
    assert_eq!(enter(&mut haggling(TlsMode::Off), opt::EXPORT_NAME, b"").export, 0);
    let offer = offer_of(vec![export("a"), export("")], TlsMode::Off);
    assert_eq!(enter(&mut past_flags(offer, FIXED), opt::EXPORT_NAME, b"").export, 1);
}

#[test]
fn export_name_that_cannot_be_entered_drops_the_connection() {
    let none = || past_flags(offer_of(vec![], TlsMode::Off), FIXED);
    for (mut handshake, name, expected) in [
        (haggling(TlsMode::Off), &b"c"[..], ProtocolError::UnknownExport),
        (none(), b"", ProtocolError::UnknownExport),
        (haggling(TlsMode::Off), &[b'x'; 4096], ProtocolError::UnknownExport),
        // Block sizes must be asked for.
        (haggling(TlsMode::Off), b"strict", ProtocolError::BlockSizeRequired),
    ] {
        assert_eq!(refused(&mut handshake, opt::EXPORT_NAME, name), expected);
    }
    // Before its data arrives.
    let mut header = option(opt::EXPORT_NAME, &[b'x'; 4097]);
    header.truncate(OPTION_HEADER_LEN);
    let error = haggling(TlsMode::Off).feed(&header, &mut Vec::new()).unwrap_err();
    assert_eq!(error, ProtocolError::NameTooLong(4097));
}

#[test]
fn abort_is_acknowledged_and_its_data_ignored() {
    for data in [&b""[..], b"so long"] {
        let mut handshake = haggling(TlsMode::Require);
        let (step, output) = send(&mut handshake, opt::ABORT, data);
        assert_eq!(step, NextStep::Close);
        assert_eq!(output, *b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x02\0\0\0\x01\0\0\0\0");
        assert_eq!(handshake.feed(b"x", &mut Vec::new()), Err(ProtocolError::Finished));
    }
}

#[test]
fn list_names_every_export_with_its_description_and_takes_no_data() {
    assert_eq!(kinds(&mut haggling(TlsMode::Off), opt::LIST, b"x"), [rep::ERR_INVALID]);
    let offer = offer_of(vec![export("a"), ExportInfo { description: String::new(), ..export("") }], TlsMode::Off);
    let (step, output) = send(&mut past_flags(offer, FIXED), opt::LIST, b"");
    assert_eq!(step, NextStep::NeedMore);
    let mut expected = Vec::new();
    for (kind, data) in [(rep::SERVER, &b"\0\0\0\x01athe a disk"[..]), (rep::SERVER, b"\0\0\0\0"), (rep::ACK, b"")] {
        expected.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        expected.extend(opt::LIST.to_be_bytes());
        expected.extend(kind.to_be_bytes());
        expected.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        expected.extend(data);
    }
    assert_eq!(output, expected);
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
    for code in [opt::LIST, opt::STARTTLS, opt::INFO, opt::GO, opt::STRUCTURED_REPLY, 99] {
        assert_eq!(kinds(&mut handshake, code, b""), [rep::ERR_SHUTDOWN]);
    }
    let mut other = handshake.clone();
    assert_eq!(refused(&mut other, opt::EXPORT_NAME, b"a"), ProtocolError::ShuttingDown);
    assert_eq!(send(&mut handshake, opt::ABORT, b"").0, NextStep::Close);
}

#[test]
fn options_are_counted_and_bounded() {
    let mut handshake = haggling(TlsMode::Off);
    for _ in 0..OPTIONS_MAX {
        assert_eq!(kinds(&mut handshake, 99, b""), [rep::ERR_UNSUP]);
    }
    assert_eq!(refused(&mut handshake, opt::GO, b""), ProtocolError::TooManyOptions);
}

#[test]
fn one_call_answers_one_option() {
    let input = [option(opt::LIST, b""), option(opt::LIST, b"")].concat();
    let mut output = Vec::new();
    let progress = haggling(TlsMode::Off).feed(&input, &mut output).unwrap();
    assert_eq!(progress, FeedOutcome { consumed: OPTION_HEADER_LEN, step: NextStep::NeedMore });
}
