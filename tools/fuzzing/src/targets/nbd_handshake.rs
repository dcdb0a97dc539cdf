//! The NBD handshake: whatever a client sends, and however it is split, the outcome is the same.
//!
//! Input: one byte for the TLS mode, one for the length of the pieces, then the client's bytes.

use std::sync::{Arc, LazyLock};

use cryptline_nbd::{BlockSizes, Capabilities, ExportInfo, Handshake, NextStep, ProtocolError, ServerOffer, TlsMode};

type Trace = (Vec<u8>, Vec<NextStep>, Result<usize, ProtocolError>);

static OFFERS: LazyLock<[Arc<ServerOffer>; 3]> =
    LazyLock::new(|| [TlsMode::Off, TlsMode::On, TlsMode::Require].map(offer));

fn offer(tls: TlsMode) -> Arc<ServerOffer> {
    let export = |name: &str, block_size_required, base_allocation| ExportInfo {
        name: name.to_owned(),
        description: "a disk".to_owned(),
        size: 1 << 30,
        flags: Capabilities { dont_fragment: true, ..Capabilities::default() }.into(),
        block_sizes: BlockSizes::default(),
        block_size_required,
        base_allocation,
    };
    let exports = vec![export("a", false, true), export("b", true, false)];
    Arc::new(ServerOffer::new(exports, tls).expect("a valid offer"))
}

/// Tries one input.
pub fn target(data: &[u8]) {
    let [mode, piece, input @ ..] = data else {
        return;
    };
    let offer = &OFFERS[usize::from(*mode) % OFFERS.len()];
    let whole = run(offer, input, input.len());
    let split = run(offer, input, usize::from(*piece).max(1));
    assert_eq!(whole, split);
}

/// Feeds `input` in pieces until the handshake ends or the input does.
fn run(offer: &Arc<ServerOffer>, input: &[u8], piece: usize) -> Trace {
    let mut handshake = Handshake::new(Arc::clone(offer));
    let (mut output, mut steps, mut consumed, mut end) = (Vec::new(), Vec::new(), 0, 0);
    while consumed < input.len() {
        if consumed == end {
            end = input.len().min(end + piece);
        }
        let progress = match handshake.feed(&input[consumed..end], &mut output) {
            Ok(progress) => progress,
            Err(error) => return (output, steps, Err(error)),
        };
        consumed += progress.consumed;
        assert!(consumed <= end && progress.consumed > 0);
        if progress.step != NextStep::NeedMore {
            let over = matches!(progress.step, NextStep::Transmission(_) | NextStep::Close);
            steps.push(progress.step);
            if over {
                break;
            }
        }
    }
    (output, steps, Ok(consumed))
}
