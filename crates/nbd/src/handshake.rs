//! The server's half of the fixed newstyle handshake, as a state machine over bytes.
//!
//! ```text
//!  greeting() ──▶ ClientFlags ──▶ Header ◀───────────────┐
//!                     │             │ option             │ replied
//!                 unknown flag      ├─ needs its data ─▶ Data ─┤
//!                     │             └─ does not ───────▶ Skip ─┤
//!                     ▼                                        ├─ STARTTLS ──▶ Step::StartTls
//!            Err(ProtocolError)                                ├─ GO, EXPORT_NAME ▶ Step::Transmission
//!                                                              └─ ABORT ─────▶ Step::Close
//! ```
//!
//! Invariants:
//! * I1: memory is bounded: at most [`OPTION_DATA_MAX`] bytes of input are kept, and one call
//!   answers at most one option. Data that is not needed is skipped without being kept.
//! * I2: no byte after the one that ends a step is consumed. What a client sends behind `STARTTLS`
//!   in clear is thus never taken for an option (CVE-2021-3716 is what happens otherwise).
//! * I3: state negotiated in clear does not survive `STARTTLS`.
//! * I4: splitting the input differently changes neither replies nor steps.
//!
//! Time is not seen here: the caller bounds how long a handshake may take.
//!
//! Source: proto.md, "Handshake", "TLS support".

use std::sync::Arc;

use super::export::{ExportInfo, ServerOffer, TlsMode, TransmissionFlags};
pub use super::negotiated::{FeedOutcome, Negotiated, NextStep, OPTIONS_MAX, OptionRefusal, ProtocolError};
use super::option::{ContextRequest, InfoRequest, OptionReplies};
use super::wire::{
    BASE_ALLOCATION, GREETING_LEN, INIT_PASSWD, OPTION_HEADER_LEN, OPTION_MAGIC, Reader, STRING_MAX, client_flag,
    handshake_flag, info, opt, rep,
};

/// Longest option data that is read, bytes; longer data is skipped and answered with `ERR_TOO_BIG`.
pub const OPTION_DATA_MAX: u32 = 64 << 10;
/// The id of `base:allocation` in block status replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Zero bytes after the reply to `EXPORT_NAME`, unless the client declined them.
const EXPORT_NAME_ZEROES: usize = 124;

/// Where the state machine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandshakeState {
    ClientFlags,
    Header,
    Data {
        option: u32,
        length: u32,
    },
    /// Data of the option that does not matter; then the answer.
    Skip {
        remaining: u32,
        then: (u32, OptionAnswer),
    },
    Finished,
}

/// The answer to an option whose data does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionAnswer {
    Error(u32, &'static str),
    Abort,
    List,
    StartTls,
    StructuredReply,
}

/// The state of one connection's handshake.
#[derive(Debug, Clone)]
pub struct Handshake {
    offer: Arc<ServerOffer>,
    state: HandshakeState,
    /// The bytes of the item being read that have arrived so far.
    pending: Vec<u8>,
    options_seen: u32,
    shutting_down: bool,
    fixed_newstyle: bool,
    no_zeroes: bool,
    tls: bool,
    structured_replies: bool,
    /// A `GO` was refused because the client had not asked for the block sizes.
    block_size_refused: bool,
    /// The last refusal of what most clients need.
    refusal: Option<OptionRefusal>,
    /// The export for which `base:allocation` is selected.
    base_allocation_for: Option<usize>,
    /// Set if it ended with `GO`.
    has_gone: bool,
}

impl Handshake {
    /// A new connection.
    #[must_use]
    pub fn new(offer: Arc<ServerOffer>) -> Self {
        Self {
            offer,
            state: HandshakeState::ClientFlags,
            pending: Vec::new(),
            options_seen: 0,
            shutting_down: false,
            fixed_newstyle: false,
            no_zeroes: false,
            tls: false,
            structured_replies: false,
            block_size_refused: false,
            refusal: None,
            base_allocation_for: None,
            has_gone: false,
        }
    }

    /// Tells if the client was refused because it had not asked for the block sizes. It may ask yet.
    #[must_use]
    pub fn block_size_refused(&self) -> bool {
        self.block_size_refused
    }

    /// Returns the last refusal that the client got, if it has got nowhere since.
    #[must_use]
    pub fn refusal(&self) -> Option<&OptionRefusal> {
        self.refusal.as_ref()
    }

    /// Tells if the client has sent nothing so far.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.state == HandshakeState::ClientFlags && self.pending.is_empty()
    }

    /// The first bytes of a connection, to be sent before any input is read.
    #[must_use]
    pub fn greeting(&self) -> [u8; GREETING_LEN] {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        let mut greeting = [0; GREETING_LEN];
        greeting[..8].copy_from_slice(&INIT_PASSWD.to_be_bytes());
        greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        greeting[16..].copy_from_slice(&flags.to_be_bytes());
        greeting
    }

    /// Bytes to send in place of the last output where transmission cannot begin after all: why, for a client that has sent
    /// `GO`, and nothing for one that has sent `EXPORT_NAME`, which knows no errors.
    #[must_use]
    pub fn refuse_transmission(&self, why: &str) -> Vec<u8> {
        let mut output = Vec::new();
        if self.has_gone {
            OptionReplies { option: opt::GO, output: &mut output }.error(rep::ERR_POLICY, why);
        }
        output
    }

    /// From now on every option but `ABORT` is answered with `ERR_SHUTDOWN`.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Takes input up to the end of one option and appends the replies to `output`.
    ///
    /// # Errors
    /// The connection must be dropped, without sending `output`.
    pub fn feed(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<FeedOutcome, ProtocolError> {
        let progress = self.advance(input, output);
        if progress.is_err() {
            self.state = HandshakeState::Finished;
        }
        progress
    }

    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<FeedOutcome, ProtocolError> {
        let mut rest = input;
        let step = loop {
            match self.state {
                HandshakeState::ClientFlags => match self.fill(&mut rest, 4) {
                    Some(flags) => self.client_flags(&flags)?,
                    None => break NextStep::NeedMore,
                },
                HandshakeState::Header => match self.fill(&mut rest, OPTION_HEADER_LEN) {
                    Some(header) => self.option_header(&header)?,
                    None => break NextStep::NeedMore,
                },
                HandshakeState::Data { option, length } => match self.fill(&mut rest, to_usize(length)) {
                    Some(data) => break self.option_data(option, &data, output)?,
                    None => break NextStep::NeedMore,
                },
                HandshakeState::Skip { ref mut remaining, then: (option, answer) } => {
                    skip(&mut rest, remaining);
                    if *remaining > 0 {
                        break NextStep::NeedMore;
                    }
                    break self.answer(option, answer, output);
                }
                HandshakeState::Finished => return Err(ProtocolError::Finished),
            }
        };
        Ok(FeedOutcome { consumed: input.len() - rest.len(), step })
    }

    /// Collects `len` bytes from `rest`; `None` until they have all arrived.
    fn fill(&mut self, rest: &mut &[u8], len: usize) -> Option<Vec<u8>> {
        let wanted = len - self.pending.len();
        let (head, tail) = rest.split_at(wanted.min(rest.len()));
        self.pending.extend_from_slice(head);
        *rest = tail;
        (self.pending.len() == len).then(|| std::mem::take(&mut self.pending))
    }

    fn client_flags(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let flags = Reader::new(bytes).u32().unwrap_or(0);
        let known = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;
        if flags & !known != 0 {
            return Err(ProtocolError::UnknownClientFlags(flags & !known));
        }
        self.fixed_newstyle = flags & client_flag::FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & client_flag::NO_ZEROES != 0;
        self.state = HandshakeState::Header;
        Ok(())
    }

    /// Decides from an option's header alone whether its data matters.
    fn option_header(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u64().unwrap_or(0);
        let (option, length) = (reader.u32().unwrap_or(0), reader.u32().unwrap_or(0));
        if magic != OPTION_MAGIC {
            return Err(ProtocolError::BadOptionMagic(magic));
        }
        if self.options_seen == OPTIONS_MAX {
            return Err(ProtocolError::TooManyOptions);
        }
        self.options_seen += 1;
        if option == opt::EXPORT_NAME {
            self.check_export_name(length)?;
        } else if !self.fixed_newstyle {
            return Err(ProtocolError::NotFixedNewstyle(option));
        }
        self.state = match self.answer_without_data(option, length) {
            Some(answer) => HandshakeState::Skip { remaining: length, then: (option, answer) },
            None => HandshakeState::Data { option, length },
        };
        Ok(())
    }

    /// `EXPORT_NAME` has no error reply, so all that speaks against it drops the connection.
    fn check_export_name(&self, length: u32) -> Result<(), ProtocolError> {
        if self.tls_missing() {
            return Err(ProtocolError::TlsRequired);
        }
        if self.shutting_down {
            return Err(ProtocolError::ShuttingDown);
        }
        if to_usize(length) > STRING_MAX {
            return Err(ProtocolError::NameTooLong(length));
        }
        Ok(())
    }

    fn tls_missing(&self) -> bool {
        self.offer.tls() == TlsMode::Require && !self.tls
    }

    fn answer_without_data(&mut self, option: u32, length: u32) -> Option<OptionAnswer> {
        if option == opt::EXPORT_NAME {
            return None;
        }
        if option == opt::ABORT {
            return Some(OptionAnswer::Abort);
        }
        if option == opt::SET_META_CONTEXT {
            // Contexts are replaced even when the option fails.
            self.base_allocation_for = None;
        }
        if self.tls_missing() && option != opt::STARTTLS {
            return Some(OptionAnswer::Error(rep::ERR_TLS_REQD, "start TLS first"));
        }
        if self.shutting_down {
            return Some(OptionAnswer::Error(rep::ERR_SHUTDOWN, "the server is shutting down"));
        }
        match option {
            opt::LIST | opt::STARTTLS | opt::STRUCTURED_REPLY if length > 0 => {
                Some(OptionAnswer::Error(rep::ERR_INVALID, "this option takes no data"))
            }
            opt::LIST => Some(OptionAnswer::List),
            opt::STARTTLS => Some(self.answer_to_starttls()),
            opt::STRUCTURED_REPLY => Some(OptionAnswer::StructuredReply),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT if !self.structured_replies => {
                Some(OptionAnswer::Error(rep::ERR_INVALID, "negotiate structured replies first"))
            }
            opt::INFO | opt::GO | opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
                (length > OPTION_DATA_MAX).then_some(OptionAnswer::Error(rep::ERR_TOO_BIG, "option data over 64 KiB"))
            }
            // EXTENDED_HEADERS ends here too, until 64-bit headers are implemented.
            _ => Some(OptionAnswer::Error(rep::ERR_UNSUP, "unknown option")),
        }
    }

    fn answer_to_starttls(&self) -> OptionAnswer {
        match self.offer.tls() {
            TlsMode::Off => OptionAnswer::Error(rep::ERR_POLICY, "TLS is not enabled on this server"),
            _ if self.tls => OptionAnswer::Error(rep::ERR_INVALID, "TLS is already in use"),
            _ => OptionAnswer::StartTls,
        }
    }

    fn answer(&mut self, option: u32, answer: OptionAnswer, output: &mut Vec<u8>) -> NextStep {
        let mut replies = OptionReplies { option, output };
        self.state = HandshakeState::Header;
        match answer {
            OptionAnswer::Error(kind, message) => {
                replies.error(kind, message);
                match kind {
                    rep::ERR_TLS_REQD => self.refusal = Some(OptionRefusal::TlsRequired),
                    rep::ERR_POLICY => self.refusal = Some(OptionRefusal::NoTls),
                    _ => {}
                }
                return NextStep::NeedMore;
            }
            OptionAnswer::List => {
                self.refusal = None;
                self.offer.exports().iter().for_each(|export| replies.server(export));
            }
            OptionAnswer::StructuredReply => self.structured_replies = true,
            OptionAnswer::StartTls | OptionAnswer::Abort => {}
        }
        replies.ack();
        match answer {
            OptionAnswer::Abort => {
                self.state = HandshakeState::Finished;
                NextStep::Close
            }
            OptionAnswer::StartTls => {
                self.tls = true;
                self.refusal = None;
                self.structured_replies = false;
                self.base_allocation_for = None;
                NextStep::StartTls
            }
            _ => NextStep::NeedMore,
        }
    }

    fn option_data(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) -> Result<NextStep, ProtocolError> {
        self.state = HandshakeState::Header;
        if option == opt::EXPORT_NAME {
            return self.export_name(data, output);
        }
        let mut replies = OptionReplies { option, output };
        let step = if matches!(option, opt::INFO | opt::GO) {
            self.info_or_go(option, data, &mut replies)
        } else {
            self.meta_context(option, data, &mut replies).map(|()| NextStep::NeedMore)
        };
        Ok(step.unwrap_or_else(|(kind, message)| {
            replies.error(kind, message);
            NextStep::NeedMore
        }))
    }

    fn export_name(&mut self, name: &[u8], output: &mut Vec<u8>) -> Result<NextStep, ProtocolError> {
        let index = self.offer.find(name).ok_or(ProtocolError::UnknownExport)?;
        let export = &self.offer.exports()[index];
        if export.block_size_required {
            return Err(ProtocolError::BlockSizeRequired);
        }
        output.extend_from_slice(&export.size.to_be_bytes());
        output.extend_from_slice(&self.flags(export).bits().to_be_bytes());
        if !self.no_zeroes {
            output.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(self.enter_transmission(index, false))
    }

    fn info_or_go(
        &mut self,
        option: u32,
        data: &[u8],
        replies: &mut OptionReplies<'_>,
    ) -> Result<NextStep, OptionError> {
        let request = InfoRequest::parse(data).ok_or(MALFORMED)?;
        let Some(index) = self.offer.find(request.name) else {
            self.refusal = Some(OptionRefusal::of_name(request.name));
            return Err(UNKNOWN_EXPORT);
        };
        let export = &self.offer.exports()[index];
        replies.info_export(export.size, self.flags(export));
        if request.wants_name {
            replies.info_text(info::NAME, &export.name);
        }
        if request.wants_description && !export.description.is_empty() {
            replies.info_text(info::DESCRIPTION, &export.description);
        }
        if request.wants_block_size || export.block_size_required {
            replies.info_block_size(export.block_sizes);
        }
        if export.block_size_required && !request.wants_block_size {
            self.block_size_refused |= option == opt::GO;
            return Err((rep::ERR_BLOCK_SIZE_REQD, "ask for the block sizes (NBD_INFO_BLOCK_SIZE)"));
        }
        replies.ack();
        self.refusal = None;
        if option == opt::INFO {
            return Ok(NextStep::NeedMore);
        }
        self.has_gone = true;
        Ok(self.enter_transmission(index, request.wants_block_size))
    }

    fn meta_context(&mut self, option: u32, data: &[u8], replies: &mut OptionReplies<'_>) -> Result<(), OptionError> {
        let request = ContextRequest::parse(data).ok_or(MALFORMED)?;
        let index = self.offer.find(request.name).ok_or(UNKNOWN_EXPORT)?;
        let offered = self.offer.exports()[index].base_allocation;
        if option == opt::SET_META_CONTEXT {
            if offered && request.base_allocation {
                self.base_allocation_for = Some(index);
                replies.meta_context(BASE_ALLOCATION_ID, BASE_ALLOCATION);
            }
        } else if offered && (request.is_empty || request.base_wildcard || request.base_allocation) {
            // In a list the id is reserved.
            replies.meta_context(0, BASE_ALLOCATION);
        }
        replies.ack();
        Ok(())
    }

    fn flags(&self, export: &ExportInfo) -> TransmissionFlags {
        if self.structured_replies { export.flags } else { export.flags.without(TransmissionFlags::SEND_DF) }
    }

    fn enter_transmission(&mut self, export: usize, block_size_agreed: bool) -> NextStep {
        self.state = HandshakeState::Finished;
        let selected = self.base_allocation_for == Some(export);
        NextStep::Transmission(Negotiated {
            export,
            flags: self.flags(&self.offer.exports()[export]),
            structured_replies: self.structured_replies,
            extended_headers: false,
            base_allocation: selected.then_some(BASE_ALLOCATION_ID),
            block_size_agreed,
            no_zeroes: self.no_zeroes,
            tls: self.tls,
        })
    }
}

/// An error reply: its type and a line for the person at the client.
type OptionError = (u32, &'static str);

const MALFORMED: OptionError = (rep::ERR_INVALID, "malformed option data");
const UNKNOWN_EXPORT: OptionError = (rep::ERR_UNKNOWN, "no export has this name");

/// Drops up to `remaining` bytes from `rest` and counts them off.
fn skip(rest: &mut &[u8], remaining: &mut u32) {
    let skipped = rest.len().min(to_usize(*remaining));
    *rest = &rest[skipped..];
    *remaining -= u32::try_from(skipped).unwrap_or(*remaining);
}

/// Lossless on every platform with at least 32-bit addresses, which are all that are supported.
fn to_usize(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "handshake_tests/mod.rs"]
mod tests;
