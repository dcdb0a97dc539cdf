//! The NBD protocol as pure functions: bytes in, typed values out. No sockets, no clocks, no threads.
//!
//! ```text
//!             handshake (control path)                    transmission (hot path, no allocation)
//!   client ── bytes ──▶ Handshake::feed ──▶ Step          [u8; 28] ──▶ parse_request ──▶ RequestHeader
//!                            │                                                              │ validate
//!                            ▼                                                              ▼
//!                       reply bytes                       reply::* ◀── outcome ◀── Command | Rejection
//! ```
//!
//! | file | what it knows |
//! |---|---|
//! | `wire` | magic numbers, codes, big-endian reading |
//! | `export` | what a server offers: names, sizes, [`TransmissionFlags`], [`BlockSizes`] |
//! | `option` | the data of one option, parsed; and the replies to it, encoded |
//! | `handshake` | the server's fixed newstyle state machine |
//! | `negotiated` | what a handshake leads to |
//! | `request` | one transmission request, parsed and checked |
//! | `reply` | transmission replies, encoded into fixed arrays |
//! | `uri` | `nbd://`, `nbds://`, `nbd+unix://` and `nbds+unix://` |
//! | `client` | the other side of all of it |
//! | `incoming` | a server's replies, read piece by piece without allocating |
//! | `negotiate` | the client's handshake over anything that reads and writes |
//!
//! Source: the NBD project's `doc/proto.md` and `doc/uri.md`; "proto.md, X" below cites its section X.
#![forbid(unsafe_code)]

pub mod client;
pub mod export;
pub mod handshake;
pub mod incoming;
pub mod negotiate;
mod negotiated;
pub(crate) mod option;
pub mod reply;
pub mod request;
pub mod uri;
pub mod wire;

pub use export::{BlockSizes, Capabilities, ExportInfo, OfferError, ServerOffer, TlsMode, TransmissionFlags};
pub use handshake::{FeedOutcome, Handshake, Negotiated, NextStep, OptionRefusal, ProtocolError};
pub use reply::NbdError;
pub use request::{DRAIN_MAX, ExportLimits, NbdCommand, Rejection, RequestHeader, parse_request, validate};
pub use uri::NbdUri;
