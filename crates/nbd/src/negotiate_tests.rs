//! The client's handshake with our own server, and with servers that do as they like.

use std::sync::Arc;

use super::super::export::{Capabilities, ExportInfo, ServerOffer, TlsMode};
use super::super::handshake::Handshake;
use super::*;

const SIZES: BlockSizes = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 };

/// Our server at the other end of a stream in memory.
struct Server {
    handshake: Handshake,
    said: Vec<u8>,
}

impl Server {
    fn new(tls: TlsMode) -> Self {
        let export = |name: &str| ExportInfo {
            name: name.to_owned(),
            description: String::new(),
            size: 1 << 20,
            flags: Capabilities { flush: true, ..Capabilities::default() }.into(),
            block_sizes: SIZES,
            block_size_required: true,
            base_allocation: true,
        };
        let exports = vec![export("one"), export("t\x1bwo")];
        let handshake = Handshake::new(Arc::new(ServerOffer::new(exports, tls).unwrap()));
        Self { said: handshake.greeting().to_vec(), handshake }
    }
}

impl Read for Server {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        // A byte at a time: no reply may be taken for whole before it is.
        let len = target.len().min(self.said.len()).min(1);
        target[..len].copy_from_slice(&self.said[..len]);
        self.said.drain(..len);
        Ok(len)
    }
}

impl Write for Server {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fed = self.handshake.feed(bytes, &mut self.said);
        fed.map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn met(stream: &mut (impl Read + Write), name: &str) -> Result<Agreed, NegotiateError> {
    greet(stream)?;
    negotiate(stream, name)
}

fn met_allocation(stream: &mut (impl Read + Write), name: &str) -> Result<(Agreed, Option<u32>), NegotiateError> {
    greet(stream)?;
    negotiate_allocation(stream, name)
}

#[test]
fn export_of_our_own_server_is_agreed_on_with_its_sizes_and_flags() {
    for name in ["one", ""] {
        let agreed = met(&mut Server::new(TlsMode::Off), name).unwrap();
        assert_eq!((agreed.size, agreed.block_sizes), (1 << 20, SIZES));
        assert!(agreed.structured_replies);
        assert!(agreed.flags.contains(TransmissionFlags::SEND_FLUSH));
        assert!(!agreed.flags.contains(TransmissionFlags::READ_ONLY));
    }
}

#[test]
fn wrong_name_is_answered_with_the_right_ones_and_nothing_a_terminal_would_obey() {
    let error = met(&mut Server::new(TlsMode::Off), "three").unwrap_err();
    let text = error.to_string();
    assert!(text.contains(r#"no export "three"; it has "one", "t\u{1b}wo""#), "{text}");
}

#[test]
fn server_that_demands_tls_says_so() {
    let error = met(&mut Server::new(TlsMode::Require), "one").unwrap_err();
    assert!(matches!(error, NegotiateError::TlsRequired), "{error}");
}

#[test]
fn server_with_tls_is_ready_for_it_behind_its_answer() {
    for tls in [TlsMode::On, TlsMode::Require] {
        let mut server = Server::new(tls);
        greet(&mut server).unwrap();
        start_tls(&mut server).unwrap();
        assert!(server.said.is_empty(), "nothing is read too far");
    }
}

#[test]
fn server_without_tls_is_said_to_have_none() {
    let mut server = Server::new(TlsMode::Off);
    greet(&mut server).unwrap();
    let error = start_tls(&mut server).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("does not offer TLS"), "{text}");
    let ack = reply(opt::STARTTLS, rep::INFO, &[]);
    let odd = start_tls(&mut Script(ack)).unwrap_err();
    assert!(matches!(odd, NegotiateError::Invalid(_)), "{odd}");
}

/// A server that says what it was told to, whatever it hears.
struct Script(Vec<u8>);

impl Read for Script {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let len = target.len().min(self.0.len());
        target[..len].copy_from_slice(&self.0[..len]);
        self.0.drain(..len);
        Ok(len)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap();
    [
        &super::super::wire::OPTION_REPLY_MAGIC.to_be_bytes()[..],
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &length.to_be_bytes(),
        data,
    ]
    .concat()
}

fn outcome(parts: &[Vec<u8>]) -> Result<Agreed, NegotiateError> {
    let script = [GREETING.to_vec(), parts.concat()].concat();
    met(&mut Script(script), "x")
}

fn export_info() -> Vec<u8> {
    let mut data = vec![0; 12];
    data[8] = 1;
    data[11] = 1;
    data
}

fn block_sizes(sizes: [u32; 3]) -> Vec<u8> {
    let numbers = sizes.map(u32::to_be_bytes).concat();
    [&info::BLOCK_SIZE.to_be_bytes()[..], &numbers].concat()
}

#[test]
fn server_without_structured_replies_and_sizes_gets_the_defaults() {
    let agreed = outcome(&[
        reply(opt::STRUCTURED_REPLY, rep::ERR_UNSUP, b""),
        reply(opt::GO, rep::INFO, &export_info()),
        reply(opt::GO, rep::ACK, b""),
    ])
    .unwrap();
    assert!(!agreed.structured_replies);
    assert_eq!(agreed.block_sizes, BlockSizes::default());
    assert_eq!(agreed.size, 256);
}

#[test]
fn hostile_handshakes_end_with_a_reason() {
    let yes = || reply(opt::STRUCTURED_REPLY, rep::ACK, b"");
    let go = |kind, data: &[u8]| reply(opt::GO, kind, data);
    let sized = |sizes| {
        let told = [export_info(), block_sizes(sizes)].map(|data| go(rep::INFO, &data));
        [&[yes()][..], &told, &[go(rep::ACK, b"")]].concat()
    };
    let mut long = reply(opt::GO, rep::INFO, b"");
    long[16..].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut longish = reply(opt::GO, rep::INFO, b"");
    longish[16..].copy_from_slice(&(1u32 << 20).to_be_bytes());
    let endless = (0..600).map(|_| go(rep::INFO, &export_info()));
    for (parts, what) in [
        (vec![], "hung up"),
        (vec![b"garbage that is no reply".to_vec()], "out of step"),
        (vec![go(rep::ACK, b"")], "another option"),
        (vec![yes(), go(rep::ACK, b"")], "no size"),
        (vec![yes(), go(rep::INFO, b"\0\0\0")], "malformed"),
        (vec![yes(), long], "too long"),
        (vec![yes(), longish], "too long"),
        (vec![yes(), go(rep::SERVER, b"")], "does not fit"),
        (vec![yes(), go(rep::ERR_UNSUP, b"")], "newer server"),
        (vec![yes(), go(rep::ERR_TLS_REQD, b"")], "demands TLS"),
        (vec![yes(), go(rep::ERR_POLICY, b"no\x1b!")], r"refuses the export: no\u{1b}!"),
        (vec![yes(), go(rep::ERR_UNKNOWN, b"")], "has no export \"x\""),
        (sized([0, 4096, 4096]), "minimum"),
        (sized([3, 4096, 4096]), "minimum"),
        (sized([1 << 17, 1 << 17, 1 << 20]), "minimum"),
        (sized([4096, 4096, 512]), "below the minimum"),
        (std::iter::once(yes()).chain(endless).collect(), "too many"),
    ] {
        let text = outcome(&parts).unwrap_err().to_string();
        assert!(text.contains(what), "{what}: {text}");
    }
    let text = met(&mut Script(b"HTTP/1.1 400 Bad Request".to_vec()), "x").unwrap_err();
    assert!(text.to_string().contains("not a newstyle"), "{text}");
    let old = met(&mut Script(b"NBDMAGICIHAVEOPT\0\0".to_vec()), "x").unwrap_err();
    assert!(matches!(old, NegotiateError::NotFixed), "{old}");
}

#[test]
fn advice_that_makes_no_sense_is_mended() {
    let sizes = |sizes| {
        outcome(&[
            reply(opt::STRUCTURED_REPLY, rep::ACK, b""),
            reply(opt::GO, rep::INFO, &block_sizes(sizes)),
            reply(opt::GO, rep::INFO, &export_info()),
            reply(opt::GO, rep::ACK, b""),
        ])
        .unwrap()
        .block_sizes
    };
    let block = |minimum, preferred, maximum| BlockSizes { minimum, preferred, maximum };
    assert_eq!(sizes([1, 77, 5000]), block(1, 4096, 5000));
    assert_eq!(sizes([512, 1, u32::MAX]), block(512, 4096, u32::MAX - 511));
}

#[test]
fn number_of_base_allocation_is_what_the_server_says_where_it_says_one() {
    let ours = met_allocation(&mut Server::new(TlsMode::Off), "one");
    let expected = super::super::handshake::BASE_ALLOCATION_ID;
    assert_eq!(ours.unwrap().1, Some(expected));

    let set = |kind, data: &[u8]| reply(opt::SET_META_CONTEXT, kind, data);
    let context = |name: &[u8]| set(rep::META_CONTEXT, &[b"\0\0\0\x05", name].concat());
    let told = |answers: &[Vec<u8>]| {
        let ends = [reply(opt::GO, rep::INFO, &export_info()), reply(opt::GO, rep::ACK, b"")];
        let start = [GREETING.to_vec(), reply(opt::STRUCTURED_REPLY, rep::ACK, b"")];
        let script = [&start[..], answers, &ends].concat().concat();
        met_allocation(&mut Script(script), "x").map(|(_, number)| number)
    };
    let (good, ack) = (context(b"base:allocation"), set(rep::ACK, b""));
    assert_eq!(told(&[good.clone(), ack.clone()]).unwrap(), Some(5));
    assert_eq!(told(std::slice::from_ref(&ack)).unwrap(), None);
    for refusal in [rep::ERR_UNSUP, rep::ERR_UNKNOWN, rep::ERR_TOO_BIG] {
        assert_eq!(told(&[set(refusal, b"no")]).unwrap(), None);
    }
    for (answers, what) in [
        (vec![good.clone(), good.clone()], "twice"),
        (vec![context(b"base:other"), ack], "nobody asked for"),
        (vec![set(rep::META_CONTEXT, b"\0")], "nobody asked for"),
        (vec![set(rep::SERVER, b"")], "does not fit"),
        (vec![reply(opt::GO, rep::ACK, b"")], "another option"),
    ] {
        let text = told(&answers).unwrap_err().to_string();
        assert!(text.contains(what), "{what}: {text}");
    }
}
