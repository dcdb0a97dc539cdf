//! `STARTTLS`, and what clients may do before it.

use super::*;

#[test]
fn starttls_is_against_policy_when_off() {
    let mut handshake = haggling(TlsMode::Off);
    let (step, output) = send(&mut handshake, opt::STARTTLS, b"");
    assert_eq!(step, NextStep::NeedMore);
    let message = b"TLS is not enabled on this server".to_vec();
    assert_eq!(replies(opt::STARTTLS, &output), [(rep::ERR_POLICY, message)]);
}

#[test]
fn starttls_with_data_or_twice_is_invalid() {
    for tls in [TlsMode::Off, TlsMode::On, TlsMode::Require] {
        assert_eq!(kinds(&mut haggling(tls), opt::STARTTLS, b"x"), [rep::ERR_INVALID]);
    }
    let mut handshake = haggling(TlsMode::On);
    assert_eq!(send(&mut handshake, opt::STARTTLS, b"").0, NextStep::StartTls);
    assert_eq!(kinds(&mut handshake, opt::STARTTLS, b""), [rep::ERR_INVALID]);
}

#[test]
fn starttls_forgets_what_was_negotiated_in_clear() {
    let mut handshake = haggling(TlsMode::On);
    select_base(&mut handshake, b"a");
    let (step, output) = send(&mut handshake, opt::STARTTLS, b"");
    assert_eq!((step, replies(opt::STARTTLS, &output)), (NextStep::StartTls, vec![(rep::ACK, vec![])]));
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
    let progress = haggling(TlsMode::Require).feed(&input, &mut output).unwrap();
    assert_eq!(progress, FeedOutcome { consumed: starttls.len(), step: NextStep::StartTls });
    assert_eq!(replies(opt::STARTTLS, &output).len(), 1);
}

#[test]
fn tls_required_refuses_all_but_starttls_and_abort() {
    let mut handshake = haggling(TlsMode::Require);
    let long = vec![0; 70_000];
    for code in [opt::LIST, opt::INFO, opt::GO, opt::STRUCTURED_REPLY, 9, 10, 11, 4, 77] {
        assert_eq!(kinds(&mut handshake, code, b"data"), [rep::ERR_TLS_REQD]);
        assert_eq!(kinds(&mut handshake, code, &long), [rep::ERR_TLS_REQD]);
    }
    assert_eq!(send(&mut handshake, opt::STARTTLS, b"").0, NextStep::StartTls);
    assert_eq!(enter(&mut handshake, opt::GO, &info_data(b"b", &[])).export, 1);
}

#[test]
fn tls_required_drops_export_name_in_clear() {
    assert_eq!(refused(&mut haggling(TlsMode::Require), opt::EXPORT_NAME, b"a"), ProtocolError::TlsRequired);
    let mut plain_newstyle = past_flags(offer(TlsMode::Require), 0);
    assert_eq!(refused(&mut plain_newstyle, opt::EXPORT_NAME, b"a"), ProtocolError::TlsRequired);
}

#[test]
fn tls_on_lets_clear_clients_in() {
    assert!(!enter(&mut haggling(TlsMode::On), opt::GO, &info_data(b"", &[])).tls);
}

#[test]
fn what_a_client_was_refused_last_is_remembered_until_it_gets_on() {
    let mut handshake = haggling(TlsMode::Require);
    send(&mut handshake, opt::LIST, b"");
    assert_eq!(handshake.refusal(), Some(&OptionRefusal::TlsRequired));
    send(&mut handshake, opt::STARTTLS, b"");
    assert_eq!(handshake.refusal(), None);
    let name = [b"x\n\xff".as_slice(), &[b'y'; 1000]].concat();
    send(&mut handshake, opt::GO, &info_data(&name, &[]));
    let said = handshake.refusal().unwrap().to_string();
    assert!(said.contains("x\\n\u{fffd}yyy") && said.len() < 160, "{said}");

    let mut handshake = haggling(TlsMode::Off);
    send(&mut handshake, opt::STARTTLS, b"");
    assert_eq!(handshake.refusal(), Some(&OptionRefusal::NoTls));
}
