//! Results of a handshake: the next step, the terms agreed on, or why the connection is dropped.

use super::export::TransmissionFlags;

/// Options that one connection may send before it is dropped.
pub const OPTIONS_MAX: u32 = 1024;

/// Next step of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Send the output. Then feed the input that was not consumed or, without any, more input.
    NeedMore,
    /// Send the output, do the TLS handshake, and go on with this same state over TLS. Input that
    /// was not consumed belongs to the TLS handshake.
    StartTls,
    /// Send the output and enter transmission. Input that was not consumed is its first request.
    Transmission(Negotiated),
    /// Send the output and close the connection: the client asked for it.
    Close,
}

/// The outcome of one [`Handshake::feed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedOutcome {
    /// Bytes taken from the front of the input.
    pub consumed: usize,
    /// Next step to take.
    pub step: NextStep,
}

/// Terms that client and server agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Position of the export in [`ServerOffer::exports`].
    pub export: usize,
    /// The flags sent to this client.
    pub flags: TransmissionFlags,
    /// Reads and block status must be answered with structured replies.
    pub structured_replies: bool,
    /// 64-bit headers; never negotiated yet.
    pub extended_headers: bool,
    /// The id of `base:allocation`, if the client selected it for this export.
    pub base_allocation: Option<u32>,
    /// The client asked for the block sizes and so promised to keep to them.
    pub block_size_agreed: bool,
    /// The client declined the 124 zero bytes. They are part of the handshake's own output.
    pub no_zeroes: bool,
    /// TLS was started.
    pub tls: bool,
}

/// Reason for refusing an option that most clients cannot do without. They are told, and may try something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionRefusal {
    /// No export has this name, of which this is the beginning.
    #[error("refused: the export {0:?} does not exist; nbdinfo --list shows the names")]
    UnknownExport(String),
    /// TLS is required.
    #[error("refused: client did not use TLS, which this server requires (nbds://)")]
    TlsRequired,
    /// TLS is not offered.
    #[error("refused: client asked for TLS, which is off here")]
    NoTls,
}

impl OptionRefusal {
    /// Of a name, at most this many characters are kept.
    const NAME_MAX: usize = 64;

    pub(super) fn of_name(name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        Self::UnknownExport(name.chars().take(Self::NAME_MAX).collect())
    }
}

/// Why a connection must be dropped without another byte: the protocol has no reply for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Client flags that the server did not offer.
    #[error("client sent unknown handshake flags {0:#x}; use a client for fixed newstyle NBD")]
    UnknownClientFlags(u32),
    /// An option without its magic number.
    #[error("client sent {0:#018x} in place of an NBD option; is it an NBD client?")]
    BadOptionMagic(u64),
    /// An option in plain newstyle, which has only `EXPORT_NAME`.
    #[error("client sent option {0} without having agreed to fixed newstyle")]
    NotFixedNewstyle(u32),
    /// `EXPORT_NAME` before TLS where TLS is required.
    #[error("refused: client did not use TLS, which this server requires (nbds://)")]
    TlsRequired,
    /// `EXPORT_NAME` with a name that is not offered.
    #[error("refused: client chose an export that does not exist; nbdinfo --list shows the names")]
    UnknownExport,
    /// `EXPORT_NAME` with a name longer than the protocol allows.
    #[error("client sent an export name of {0} bytes; at most 4096 are allowed")]
    NameTooLong(u32),
    /// `EXPORT_NAME`, or `GO` and then nothing better, for an export whose block sizes the client must
    /// ask for.
    #[error(
        "client did not ask for block sizes, and this export has no blocks of 512 bytes: use a client that asks for them (qemu, libnbd)"
    )]
    BlockSizeRequired,
    /// More than [`OPTIONS_MAX`] options.
    #[error("client sent more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// `EXPORT_NAME` while the server shuts down.
    #[error("client chose an export while the server is shutting down")]
    ShuttingDown,
    /// Input after the handshake ended; a fault of the caller.
    #[error("the handshake is over")]
    Finished,
}
