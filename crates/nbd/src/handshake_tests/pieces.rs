//! However the input is split, the outcome is the same.

use super::*;

/// All that a connection shows: steps, output, bytes consumed, and how it ended.
#[derive(Debug, PartialEq)]
struct Trace {
    output: Vec<u8>,
    steps: Vec<NextStep>,
    consumed: usize,
    error: Option<ProtocolError>,
}

/// Feeds `input` in pieces whose lengths come from `cuts`, over and over.
fn run(tls: TlsMode, input: &[u8], cuts: &[usize]) -> Trace {
    let mut handshake = Handshake::new(offer(tls));
    let mut trace = Trace { output: Vec::new(), steps: Vec::new(), consumed: 0, error: None };
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
                    let over = matches!(progress.step, NextStep::Transmission(_) | NextStep::Close);
                    if progress.step != NextStep::NeedMore {
                        trace.steps.push(progress.step);
                    }
                    if over {
                        return trace;
                    }
                    if trace.consumed == end {
                        break;
                    }
                    assert!(progress.consumed > 0, "no progress on {} bytes", piece.len());
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
    prop_oneof![Just(TlsMode::Off), Just(TlsMode::On), Just(TlsMode::Require)]
}

/// Bytes that get deep into the state machine: options with sensible or random data, and noise.
fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just(&b"a"[..]), Just(&b""[..]), Just(&b"strict"[..]), Just(&b"zz"[..])];
    let queries =
        prop::collection::vec(prop_oneof![Just(&b"base:allocation"[..]), Just(&b"base:"[..]), Just(&b"x"[..])], 0..3);
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
