//! Structured replies and metadata contexts.

use super::*;

#[test]
fn structured_reply_is_acknowledged_and_turns_df_on() {
    let mut handshake = haggling(TlsMode::Off);
    assert_eq!(kinds(&mut handshake, opt::STRUCTURED_REPLY, b"x"), [rep::ERR_INVALID]);
    assert_eq!(kinds(&mut handshake, opt::STRUCTURED_REPLY, b""), [rep::ACK]);
    let negotiated = enter(&mut handshake, opt::GO, &info_data(b"a", &[]));
    assert!(negotiated.structured_replies);
    assert_eq!(negotiated.flags.bits(), 0x0ded);
}

#[test]
fn meta_contexts_need_structured_replies() {
    let mut handshake = haggling(TlsMode::Off);
    for code in [opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
        let data = context_data(b"a", SET_BASE.1);
        assert_eq!(kinds(&mut handshake, code, &data), [rep::ERR_INVALID]);
    }
}

#[test]
fn list_meta_context_matches_nothing_asked_wildcard_and_name() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let queries: [&[&[u8]]; 4] = [&[], &[b"base:"], &[b"base:allocation"], &[b"qemu:", b"base:allocation", b"base:"]];
    for query in queries {
        let (_, output) = send(&mut handshake, opt::LIST_META_CONTEXT, &context_data(b"a", query));
        let context = (rep::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec());
        assert_eq!(replies(opt::LIST_META_CONTEXT, &output), [context, (rep::ACK, vec![])]);
    }
    let missing: [(&[u8], &[&[u8]]); 4] = [
        (b"a", &[b"qemu:dirty-bitmap:x"]),
        (b"a", &[b"base:other"]),
        (b"a", &[b"x-y:base:allocation"]),
        (b"blind", &[]),
    ];
    for (name, query) in missing {
        assert_eq!(kinds(&mut handshake, opt::LIST_META_CONTEXT, &context_data(name, query)), [rep::ACK]);
    }
    assert_eq!(enter(&mut handshake, opt::GO, &info_data(b"a", &[])).base_allocation, None);
}

#[test]
fn set_meta_context_selects_base_allocation_for_its_export() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let data = context_data(b"", SET_BASE.1);
    let (_, output) = send(&mut handshake, opt::SET_META_CONTEXT, &data);
    let context = (rep::META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec());
    assert_eq!(replies(opt::SET_META_CONTEXT, &output), [context, (rep::ACK, vec![])]);
    // The default export and its name are the same export.
    assert_eq!(enter(&mut handshake, opt::EXPORT_NAME, b"a").base_allocation, Some(BASE_ALLOCATION_ID));
}

#[test]
fn set_meta_context_does_not_carry_over_to_another_export() {
    let mut handshake = haggling(TlsMode::Off);
    select_base(&mut handshake, b"a");
    assert_eq!(enter(&mut handshake, opt::GO, &info_data(b"b", &[])).base_allocation, None);
}

#[test]
fn set_meta_context_replaces_the_selection_even_when_it_fails() {
    let nothing = context_data(b"a", &[]);
    let wildcard = context_data(b"a", &[b"base:"]);
    let unknown_export = context_data(b"c", SET_BASE.1);
    let too_big = vec![0; 65_537];
    for data in [&nothing[..], &wildcard, &unknown_export, &too_big, b"malformed"] {
        let mut handshake = haggling(TlsMode::Off);
        select_base(&mut handshake, b"a");
        kinds(&mut handshake, opt::SET_META_CONTEXT, data);
        assert_eq!(enter(&mut handshake, opt::GO, &info_data(b"a", &[])).base_allocation, None, "{data:x?}");
    }
}

#[test]
fn set_meta_context_selects_nothing_where_extents_are_unknown() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let data = context_data(b"blind", SET_BASE.1);
    assert_eq!(kinds(&mut handshake, opt::SET_META_CONTEXT, &data), [rep::ACK]);
}

#[test]
fn meta_contexts_of_an_unknown_export_or_malformed() {
    let mut handshake = haggling(TlsMode::Off);
    kinds(&mut handshake, opt::STRUCTURED_REPLY, b"");
    let whole = context_data(b"a", SET_BASE.1);
    let mut cases: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    cases.push([&whole[..], b"x"].concat());
    cases.push(context_data(b"a", &[b"no namespace"]));
    cases.push(context_data(b"a", &[&[b':'; 4097]]));
    cases.push(b"\0\0\0\x01a\xff\xff\xff\xff\0\0\0\x05base:".to_vec());
    for code in [opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
        let unknown = context_data(b"c", SET_BASE.1);
        assert_eq!(kinds(&mut handshake, code, &unknown), [rep::ERR_UNKNOWN]);
        for data in &cases {
            assert_eq!(kinds(&mut handshake, code, data), [rep::ERR_INVALID], "{data:x?}");
        }
    }
}
