//! The client's half of the handshake, over anything that reads and writes: fixed newstyle, then `GO`.
//!
//! ```text
//! greet ─► [start_tls ─► TLS by the caller ─►] negotiate
//! ```
//!
//! Anything said before TLS counts for nothing behind it, so all options come after.
//!
//! Whoever calls bounds the time: a stream whose reads and writes fail once it is over. What a server says is
//! bounded here, each reply and their number.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use super::client::{
    self, InfoReply, ReplyError, context_data, info_data, parse_greeting, parse_info, parse_option_reply,
};
use super::export::{BlockSizes, TransmissionFlags};
use super::wire::{
    BASE_ALLOCATION, GREETING_LEN, OPTION_REPLY_HEADER_LEN, Reader, STRING_MAX, client_flag, handshake_flag, info, opt,
    rep,
};

/// Longest reply to an option: two strings and what belongs to them.
const REPLY_MAX: usize = 2 * STRING_MAX + 64;
/// Most replies to one option.
const REPLIES_MAX: usize = 512;
/// Names of exports in a message.
const NAMES_SHOWN: usize = 8;
/// Characters of a server's text in a message.
const TEXT_SHOWN: usize = 160;

/// Terms that a client and a server have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Bytes of the export.
    pub size: u64,
    /// Abilities of the export.
    pub flags: TransmissionFlags,
    /// The sizes that requests must keep to; the protocol's defaults where the server says nothing.
    pub block_sizes: BlockSizes,
    /// Reads are answered with chunks.
    pub structured_replies: bool,
}

/// Why there is no agreement.
#[derive(Debug, thiserror::Error)]
pub enum NegotiateError {
    /// The connection failed, or time is over.
    #[error("{}", describe(.0))]
    Io(#[from] io::Error),
    /// No valid reply came.
    #[error("{0}")]
    Reply(#[from] ReplyError),
    /// A server from before 2011.
    #[error("the server does not speak the fixed newstyle handshake; use a newer server")]
    NotFixed,
    /// The server wants TLS.
    #[error("the server demands TLS")]
    TlsRequired,
    /// The server has no TLS.
    #[error("the server does not offer TLS{}", said(.0))]
    NoTls(String),
    /// No such export.
    #[error("the server has no export {wanted:?}{}", listed(.known))]
    NoExport {
        /// The name that was asked for.
        wanted: String,
        /// Some of those that it has; empty where it does not tell.
        known: Vec<String>,
    },
    /// The server refuses.
    #[error("the server refuses the export{}", said(.0))]
    Refused(String),
    /// The server does not know `GO`.
    #[error("the server does not know NBD_OPT_GO; use a newer server")]
    NoGo,
    /// The server breaks a rule of the protocol.
    #[error("the server breaks the protocol: {0}")]
    Invalid(&'static str),
}

/// Takes the server's greeting, and answers it.
///
/// # Errors
/// When the server cannot be understood.
pub fn greet(stream: &mut (impl Read + Write)) -> Result<(), NegotiateError> {
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting)?;
    let flags = parse_greeting(&greeting)?;
    if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
        return Err(NegotiateError::NotFixed);
    }
    // Nothing is sent by it, but a server may take a client without it for an old one.
    let no_zeroes = if flags & handshake_flag::NO_ZEROES == 0 { 0 } else { client_flag::NO_ZEROES };
    let answer = client_flag::FIXED_NEWSTYLE | no_zeroes;
    stream.write_all(&answer.to_be_bytes())?;
    Ok(())
}

/// Asks for TLS. The next byte on the stream is the TLS handshake's: nothing behind the answer is read.
///
/// # Errors
/// When the server does not want to, or cannot be understood.
pub fn start_tls(stream: &mut (impl Read + Write)) -> Result<(), NegotiateError> {
    let mut talk = Negotiation { stream, name: "", left: 0 };
    talk.ask(opt::STARTTLS, &[])?;
    let HeardReply { kind, data } = talk.reply(opt::STARTTLS)?;
    match kind {
        rep::ACK => Ok(()),
        kind if kind & rep::ERROR_BIT != 0 => Err(NegotiateError::NoTls(shown(&data))),
        _ => Err(NegotiateError::Invalid("a reply that does not fit its option")),
    }
}

/// Negotiates the export `name` behind the greeting; requests can be sent after that.
///
/// # Errors
/// When the server does not want to, or cannot be understood.
pub fn negotiate(stream: &mut (impl Read + Write), name: &str) -> Result<Agreed, NegotiateError> {
    agree(stream, name, false).map(|(agreed, _)| agreed)
}

/// The same for a connection that asks for block status: with the number that the server has given to
/// `base:allocation`, where it tells of that.
///
/// # Errors
/// As [`negotiate`].
pub fn negotiate_allocation(
    stream: &mut (impl Read + Write),
    name: &str,
) -> Result<(Agreed, Option<u32>), NegotiateError> {
    agree(stream, name, true)
}

fn agree(
    stream: &mut (impl Read + Write),
    name: &str,
    asks_allocation: bool,
) -> Result<(Agreed, Option<u32>), NegotiateError> {
    if name.len() > STRING_MAX {
        return Err(NegotiateError::Refused("a name has at most 4096 bytes".to_owned()));
    }
    let mut talk = Negotiation { stream, name, left: 0 };
    let structured_replies = talk.structured_replies()?;
    let allocation = if asks_allocation && structured_replies { talk.base_allocation()? } else { None };
    let (size, flags, block_sizes) = talk.go()?;
    let agreed = Agreed { size, flags, block_sizes, structured_replies };
    Ok((agreed, allocation))
}

struct Negotiation<'a, S> {
    stream: &'a mut S,
    name: &'a str,
    /// Replies that the option may still have.
    left: usize,
}

/// One reply to an option.
struct HeardReply {
    kind: u32,
    data: Vec<u8>,
}

impl<S: Read + Write> Negotiation<'_, S> {
    fn structured_replies(&mut self) -> Result<bool, NegotiateError> {
        self.ask(opt::STRUCTURED_REPLY, &[])?;
        match self.reply(opt::STRUCTURED_REPLY)?.kind {
            rep::ACK => Ok(true),
            rep::ERR_TLS_REQD => Err(NegotiateError::TlsRequired),
            kind if kind & rep::ERROR_BIT != 0 => Ok(false),
            _ => Err(NegotiateError::Invalid("a reply that does not fit its option")),
        }
    }

    /// The number of `base:allocation`. A server that knows no such thing is as good as any.
    fn base_allocation(&mut self) -> Result<Option<u32>, NegotiateError> {
        let invalid = |what| Err(NegotiateError::Invalid(what));
        let data = context_data(self.name.as_bytes(), &[BASE_ALLOCATION.as_bytes()]);
        self.ask(opt::SET_META_CONTEXT, &data)?;
        let mut number = None;
        loop {
            let HeardReply { kind, data } = self.reply(opt::SET_META_CONTEXT)?;
            let mut reader = Reader::new(&data);
            match (kind, reader.u32(), reader.rest()) {
                (rep::META_CONTEXT, Some(found), name) if name == BASE_ALLOCATION.as_bytes() => {
                    if number.replace(found).is_some() {
                        return invalid("a metadata context twice");
                    }
                }
                (rep::META_CONTEXT, ..) => {
                    return invalid("a metadata context that nobody asked for");
                }
                (rep::ACK, ..) => return Ok(number),
                (kind, ..) if kind & rep::ERROR_BIT != 0 => return Ok(None),
                _ => return invalid("a reply that does not fit its option"),
            }
        }
    }

    fn go(&mut self) -> Result<(u64, TransmissionFlags, BlockSizes), NegotiateError> {
        let data = info_data(self.name.as_bytes(), &[info::BLOCK_SIZE]);
        self.ask(opt::GO, &data)?;
        let (mut export, mut block_sizes) = (None, None);
        loop {
            let HeardReply { kind, data } = self.reply(opt::GO)?;
            match kind {
                rep::INFO => match parse_info(&data) {
                    Some(InfoReply::Export { size, flags }) => export = Some((size, flags)),
                    Some(InfoReply::BlockSize(sizes)) => block_sizes = Some(sizes),
                    Some(_) => {}
                    None => return Err(NegotiateError::Invalid("malformed information")),
                },
                rep::ACK => break,
                kind => return Err(self.refusal(kind, &data)),
            }
        }
        let missing = NegotiateError::Invalid("no size of the export");
        let (size, flags) = export.ok_or(missing)?;
        let block_sizes = block_sizes.map_or(Ok(BlockSizes::default()), usable)?;
        Ok((size, flags, block_sizes))
    }

    fn refusal(&mut self, kind: u32, data: &[u8]) -> NegotiateError {
        match kind {
            rep::ERR_UNKNOWN => NegotiateError::NoExport {
                wanted: self.name.to_owned(),
                // That it does not tell is no news.
                known: self.exports().unwrap_or_default(),
            },
            rep::ERR_TLS_REQD => NegotiateError::TlsRequired,
            rep::ERR_UNSUP => NegotiateError::NoGo,
            kind if kind & rep::ERROR_BIT != 0 => NegotiateError::Refused(shown(data)),
            _ => NegotiateError::Invalid("a reply that does not fit its option"),
        }
    }

    /// The names of the first exports.
    fn exports(&mut self) -> Result<Vec<String>, NegotiateError> {
        self.ask(opt::LIST, &[])?;
        let mut names = Vec::new();
        while names.len() < NAMES_SHOWN {
            let HeardReply { kind, data } = self.reply(opt::LIST)?;
            match (kind, Reader::new(&data).string32()) {
                (rep::SERVER, Some(name)) => names.push(shown(name)),
                _ => break,
            }
        }
        Ok(names)
    }

    fn ask(&mut self, option: u32, data: &[u8]) -> Result<(), NegotiateError> {
        self.left = REPLIES_MAX;
        self.stream.write_all(&client::option(option, data))?;
        Ok(())
    }

    fn reply(&mut self, option: u32) -> Result<HeardReply, NegotiateError> {
        let endless = NegotiateError::Invalid("too many replies to one option");
        self.left = self.left.checked_sub(1).ok_or(endless)?;
        let mut bytes = vec![0; OPTION_REPLY_HEADER_LEN];
        self.stream.read_exact(&mut bytes)?;
        let mut length = Reader::new(&bytes[OPTION_REPLY_HEADER_LEN - 4..]);
        let length = length.u32().unwrap_or(u32::MAX);
        let len = usize::try_from(length).ok().filter(|len| *len <= REPLY_MAX);
        // The wrong magic number tells more than the wrong length.
        parse_option_reply(&bytes)?;
        let len = len.ok_or(ReplyError::TooLong(length))?;
        bytes.resize(OPTION_REPLY_HEADER_LEN + len, 0);
        self.stream.read_exact(&mut bytes[OPTION_REPLY_HEADER_LEN..])?;
        match parse_option_reply(&bytes)? {
            Some((reply, _)) if reply.option == option => {
                Ok(HeardReply { kind: reply.kind, data: reply.data.to_vec() })
            }
            _ => Err(NegotiateError::Invalid("a reply to another option")),
        }
    }
}

/// Sizes that a client can keep to. What is only advice is mended.
fn usable(sizes: BlockSizes) -> Result<BlockSizes, NegotiateError> {
    let BlockSizes { minimum, preferred, maximum } = sizes;
    if !minimum.is_power_of_two() || minimum > 1 << 16 {
        return Err(NegotiateError::Invalid("the minimum block size is no power of two up to 65536"));
    }
    if maximum < minimum {
        return Err(NegotiateError::Invalid("the maximum block size is below the minimum"));
    }
    let is_usual = preferred.is_power_of_two() && preferred >= minimum;
    Ok(BlockSizes {
        minimum,
        preferred: if is_usual { preferred } else { minimum.max(4096) },
        maximum: maximum - maximum % minimum,
    })
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server hung up; is it an NBD server?".to_owned(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "the server does not answer; is it an NBD server?".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A server's text without anything that a terminal would obey.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut shown = String::new();
    for character in text.chars().take(TEXT_SHOWN) {
        let _ = write!(shown, "{}", character.escape_debug());
    }
    shown
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let more = if names.len() == NAMES_SHOWN { " and perhaps more" } else { "" };
    format!("; it has {}{more}", quoted.join(", "))
}

#[cfg(test)]
#[path = "negotiate_tests.rs"]
mod tests;
