//! The handshake of one connection.
//!
//! The handshake happens once a connection and is no part of the data path, so it is written plainly: read some bytes,
//! feed the codec, send what it says, start TLS when it says so.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use cryptline_nbd::{Handshake, Negotiated, NextStep, ProtocolError};
use cryptline_net::TimedStream;
use rustls::{ServerConfig, ServerConnection};

use super::event::ClientError;
use super::exports::Offered;
use crate::net::clients::ClientPlace;
use crate::net::{Connected, why_refused};

/// Bytes read at a time.
const PIECE: usize = 4096;

/// Runs the handshake; `None` where the client ended it by its own wish. At its end the client has a
/// place in transmission, or was told that there is none.
pub(super) fn negotiate(
    mut stream: TimedStream,
    member: &ClientPlace,
    offered: &Offered,
    tls: Option<&Arc<ServerConfig>>,
) -> Result<Option<(Negotiated, Connected)>, ClientError> {
    let mut state = Handshake::new(Arc::clone(&offered.offer));
    match agree(&mut state, &mut stream, (member, offered), tls) {
        Ok(Some((negotiated, leftover))) => {
            let (socket, tls) = stream.into_parts()?;
            Ok(Some((negotiated, Connected { socket, tls, leftover })))
        }
        // It went; after a refusal that somebody at the server can do something about.
        Ok(None) | Err(ClientError::Handshake(_)) if state.block_size_refused() => {
            Err(ProtocolError::BlockSizeRequired.into())
        }
        // However it has gone.
        Ok(None) | Err(ClientError::Handshake(_)) if state.refusal().is_some() => {
            let refusal = state.refusal().cloned();
            refusal.map_or(Ok(None), |refusal| Err(ClientError::Refused(refusal)))
        }
        // Somebody has looked whether there is a server; who had to give way has not.
        Err(ClientError::Handshake(error)) if state.is_untouched() && has_closed(&error) && !member.is_displaced() => {
            Ok(None)
        }
        other => other.map(|_| None),
    }
}

/// Until transmission begins, with what came behind the handshake, or the client ends it.
fn agree(
    state: &mut Handshake,
    stream: &mut TimedStream,
    (member, offered): (&ClientPlace, &Offered),
    tls: Option<&Arc<ServerConfig>>,
) -> Result<Option<(Negotiated, Vec<u8>)>, ClientError> {
    send(stream, &state.greeting())?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let progress = state.feed(&input, &mut output)?;
        input.drain(..progress.consumed);
        if let NextStep::Transmission(negotiated) = &progress.step {
            let id = offered.id(negotiated.export);
            if let Err(why) = member.begin_transmission(id.ok_or(ProtocolError::UnknownExport)?) {
                // Whether it hears that is its own affair.
                let _ = send(stream, &state.refuse_transmission(why.for_client()));
                return Err(why.into());
            }
        }
        match send(stream, &output) {
            // It need not wait for the answer.
            Err(_) if progress.step == NextStep::Close => return Ok(None),
            sent => sent?,
        }
        output.clear();
        match progress.step {
            NextStep::NeedMore if progress.consumed > 0 && !input.is_empty() => {}
            NextStep::NeedMore => {
                if receive(stream, &mut input)? == 0 {
                    return Ok(None);
                }
            }
            NextStep::StartTls => {
                let config = tls.ok_or_else(|| io::ErrorKind::Unsupported.into());
                let early = std::mem::take(&mut input);
                let started = config.and_then(|config| start_tls(stream, config, early));
                started.map_err(ClientError::Tls)?;
            }
            NextStep::Close => return Ok(None),
            NextStep::Transmission(negotiated) => return Ok(Some((negotiated, input))),
        }
    }
}

fn send(stream: &mut TimedStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Reads what is there behind `input`, and waits where there is nothing. 0 at the end.
fn receive(stream: &mut TimedStream, input: &mut Vec<u8>) -> io::Result<usize> {
    let before = input.len();
    // Not on the stack: the lane that follows would keep those pages.
    input.resize(before + PIECE, 0);
    let read = stream.read(&mut input[before..]);
    input.truncate(before + read.as_ref().unwrap_or(&0));
    read
}

/// Goes over to TLS, whose first bytes may have been read already.
fn start_tls(stream: &mut TimedStream, config: &Arc<ServerConfig>, early: Vec<u8>) -> io::Result<()> {
    let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    stream.secure(tls, early);
    stream.shake_hands().map_err(why_refused)
}

/// Tells if the other end was closed, rather than silent for too long.
fn has_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}
