//! Every error of a request, and the order of the checks.

use proptest::prelude::*;

use super::super::client;
use super::*;

const MIB: u32 = 1 << 20;

const LIMITS: ExportLimits = ExportLimits {
    size: 100 * 1024 * 1024,
    min_block: 512,
    max_payload: 32 * MIB,
    flags: TransmissionFlags::from_bits(0x0ded),
    structured_replies: true,
    block_status: true,
    zeroes_are_fast: true,
};

fn header(command: u16, flags: u16, offset: u64, length: u32) -> RequestHeader {
    RequestHeader { flags, command, cookie: 7, offset, length }
}

fn accepted(command: u16, flags: u16) -> NbdCommand {
    validate(&header(command, flags, 512, 1024), &LIMITS).unwrap()
}

/// The error of a request without payload, or with a payload that is drained first.
fn error_in(limits: &ExportLimits, header: RequestHeader) -> NbdError {
    match validate(&header, limits).unwrap_err() {
        Rejection::Reply(error) => {
            assert_eq!(header.payload_length(), 0, "payload must be drained");
            error
        }
        Rejection::ReplyAfterDraining { error, length } => {
            assert_eq!(length, header.payload_length());
            error
        }
        Rejection::DropConnection => panic!("dropped"),
    }
}

fn error(header: RequestHeader) -> NbdError {
    error_in(&LIMITS, header)
}

#[test]
fn request_is_parsed_byte_by_byte() {
    let bytes = *b"\x25\x60\x95\x13\x00\x01\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08\
        \x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24";
    let expected = RequestHeader {
        flags: 1,
        command: 6,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1112_1314_1516_1718,
        length: 0x2122_2324,
    };
    assert_eq!(parse_request(&bytes), Ok(expected));
}

#[test]
fn wrong_magic_is_out_of_step() {
    // The magic of the extended header is wrong too, as long as it is not negotiated.
    for magic in [0u32, 0x2560_9514, 0x21e4_1c71, 0x6744_6698] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&magic.to_be_bytes());
        assert_eq!(parse_request(&bytes), Err(BadMagic(magic)));
    }
}

#[test]
fn every_command_is_accepted_with_its_flags() {
    assert_eq!(accepted(cmd::READ, 0), NbdCommand::Read { df: false });
    assert_eq!(accepted(cmd::READ, cmd_flag::DF), NbdCommand::Read { df: true });
    assert_eq!(accepted(cmd::WRITE, 0), NbdCommand::Write { fua: false });
    assert_eq!(accepted(cmd::WRITE, cmd_flag::FUA), NbdCommand::Write { fua: true });
    assert_eq!(accepted(cmd::TRIM, cmd_flag::FUA), NbdCommand::Trim { fua: true });
    assert_eq!(accepted(cmd::CACHE, 0), NbdCommand::Cache);
    assert_eq!(
        accepted(cmd::WRITE_ZEROES, cmd_flag::FUA | cmd_flag::NO_HOLE),
        NbdCommand::WriteZeroes { fua: true, no_hole: true, fast_zero: false }
    );
    assert_eq!(
        accepted(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO),
        NbdCommand::WriteZeroes { fua: false, no_hole: false, fast_zero: true }
    );
    assert_eq!(accepted(cmd::BLOCK_STATUS, 0), NbdCommand::BlockStatus { req_one: false });
    assert_eq!(accepted(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE), NbdCommand::BlockStatus { req_one: true });
    assert_eq!(validate(&header(cmd::FLUSH, 0, 0, 0), &LIMITS), Ok(NbdCommand::Flush));
}

#[test]
fn disconnect_is_obeyed_whatever_else_it_says() {
    let garbled = header(cmd::DISC, 0xffff, u64::MAX, u32::MAX);
    assert_eq!(validate(&garbled, &LIMITS), Ok(NbdCommand::Disconnect));
}

const COMMANDS: [u16; 6] = [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::CACHE, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS];

#[test]
fn unknown_commands_are_invalid_and_have_no_payload() {
    for command in [8, 9, 0x100, 0xffff] {
        for length in [512, u32::MAX] {
            let refused = validate(&header(command, 0, 0, length), &LIMITS);
            assert_eq!(refused, Err(Rejection::Reply(NbdError::Inval)), "{command} {length}");
        }
    }
}

#[test]
fn flags_of_other_commands_and_unknown_flags_are_invalid() {
    for command in COMMANDS {
        let allowed = match command {
            cmd::READ => cmd_flag::FUA | cmd_flag::DF,
            cmd::WRITE_ZEROES => cmd_flag::FUA | cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
            cmd::BLOCK_STATUS => cmd_flag::FUA | cmd_flag::REQ_ONE,
            _ => cmd_flag::FUA,
        };
        for flag in (0..16).map(|bit| 1 << bit) {
            let request = header(command, flag, 0, 512);
            if allowed & flag != 0 {
                assert!(validate(&request, &LIMITS).is_ok(), "{request:?}");
            } else {
                assert_eq!(error(request), NbdError::Inval, "{request:?}");
            }
        }
    }
}

#[test]
fn flags_and_commands_that_were_not_advertised_are_invalid() {
    for (flag, request) in [
        (TransmissionFlags::SEND_FUA, header(cmd::WRITE, cmd_flag::FUA, 0, 512)),
        (TransmissionFlags::SEND_FUA, header(cmd::READ, cmd_flag::FUA, 0, 512)),
        (TransmissionFlags::SEND_DF, header(cmd::READ, cmd_flag::DF, 0, 512)),
        (TransmissionFlags::SEND_FAST_ZERO, header(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 0, 512)),
        (TransmissionFlags::SEND_TRIM, header(cmd::TRIM, 0, 0, 512)),
        (TransmissionFlags::SEND_CACHE, header(cmd::CACHE, 0, 0, 512)),
        (TransmissionFlags::SEND_WRITE_ZEROES, header(cmd::WRITE_ZEROES, 0, 0, 512)),
        (TransmissionFlags::SEND_FLUSH, header(cmd::FLUSH, 0, 0, 0)),
    ] {
        let without = ExportLimits { flags: LIMITS.flags.without(flag), ..LIMITS };
        assert_eq!(error_in(&without, request), NbdError::Inval, "{request:?}");
    }
    // Block status needs structured replies and a context.
    let request = header(cmd::BLOCK_STATUS, 0, 0, 512);
    for limits in [ExportLimits { block_status: false, ..LIMITS }, ExportLimits { structured_replies: false, ..LIMITS }]
    {
        assert_eq!(error_in(&limits, request), NbdError::Inval, "{limits:?}");
    }
}

#[test]
fn read_only_exports_refuse_changes_with_eperm_even_out_of_range() {
    let limits = ExportLimits { flags: TransmissionFlags::from_bits(0x058f), ..LIMITS };
    for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
        assert_eq!(error_in(&limits, header(command, 0, 0, 512)), NbdError::Perm);
        assert_eq!(error_in(&limits, header(command, 0, LIMITS.size, 512)), NbdError::Perm);
    }
    assert!(validate(&header(cmd::READ, 0, 0, 512), &limits).is_ok());
    assert!(validate(&header(cmd::FLUSH, 0, 0, 0), &limits).is_ok());
}

#[test]
fn ranges_that_are_empty_unaligned_or_not_wanted_are_invalid() {
    let bytewise = ExportLimits { min_block: 1, ..LIMITS };
    for command in COMMANDS {
        for (offset, length) in [(0, 0), (1, 512), (0, 513)] {
            assert_eq!(error(header(command, 0, offset, length)), NbdError::Inval, "{command} {offset} {length}");
        }
        assert!(validate(&header(command, 0, 1, 513), &bytewise).is_ok());
    }
    assert_eq!(error(header(cmd::FLUSH, 0, 512, 0)), NbdError::Inval);
    assert_eq!(error(header(cmd::FLUSH, 0, 0, 512)), NbdError::Inval);
}

#[test]
fn past_the_end_is_enospc_for_writes_and_einval_for_the_rest() {
    for command in COMMANDS {
        let grows = [cmd::WRITE, cmd::WRITE_ZEROES].contains(&command);
        let expected = if grows { NbdError::NoSpc } else { NbdError::Inval };
        assert!(validate(&header(command, 0, LIMITS.size - 512, 512), &LIMITS).is_ok());
        for offset in [LIMITS.size - 512, LIMITS.size, u64::MAX - 511] {
            assert_eq!(error(header(command, 0, offset, 1024)), expected, "{command} {offset}");
        }
    }
}

#[test]
fn payload_over_the_limit_is_refused_and_what_has_none_may_be_larger() {
    let over = 32 * MIB + 512;
    assert!(validate(&header(cmd::READ, 0, 0, 32 * MIB), &LIMITS).is_ok());
    assert!(validate(&header(cmd::WRITE, 0, 0, 32 * MIB), &LIMITS).is_ok());
    assert_eq!(error(header(cmd::READ, 0, 0, over)), NbdError::Overflow);
    assert_eq!(error(header(cmd::WRITE, 0, 0, over)), NbdError::Inval);
    let simple = ExportLimits { structured_replies: false, ..LIMITS };
    assert_eq!(error_in(&simple, header(cmd::READ, 0, 0, over)), NbdError::Inval);
    for command in &COMMANDS[2..] {
        assert!(validate(&header(*command, 0, 0, 64 * MIB), &LIMITS).is_ok());
    }
}

#[test]
fn refused_write_is_drained_up_to_64_mib_and_else_drops_the_connection() {
    let refused = |length| validate(&header(cmd::WRITE, 0, 0, length), &LIMITS).unwrap_err();
    let drained = Rejection::ReplyAfterDraining { error: NbdError::Inval, length: 64 * MIB };
    assert_eq!(refused(64 * MIB), drained);
    assert_eq!(refused(64 * MIB + 1), Rejection::DropConnection);
    assert_eq!(refused(u32::MAX), Rejection::DropConnection);
    // Whatever the write is refused for.
    let unknown_flag = header(cmd::WRITE, 0x8000, 0, u32::MAX);
    assert_eq!(validate(&unknown_flag, &LIMITS), Err(Rejection::DropConnection));
}

#[test]
fn fast_zero_is_enotsup_only_when_asked_for_and_slow() {
    let slow = ExportLimits { zeroes_are_fast: false, ..LIMITS };
    let fast_zero = header(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 0, 512);
    assert_eq!(error_in(&slow, fast_zero), NbdError::NotSup);
    assert!(validate(&header(cmd::WRITE_ZEROES, 0, 0, 512), &slow).is_ok());
    let past_the_end = RequestHeader { offset: LIMITS.size, ..fast_zero };
    assert_eq!(error_in(&slow, past_the_end), NbdError::NoSpc);
}

fn any_header() -> impl Strategy<Value = RequestHeader> {
    let length = prop_oneof![any::<u32>(), (0u32..200).prop_map(|blocks| blocks * 512)];
    let offset = prop_oneof![any::<u64>(), (0u64..210_000).prop_map(|blocks| blocks * 512)];
    let flags = prop_oneof![3 => Just(0u16), 1 => any::<u16>(), 2 => 0u16..32];
    let command = prop_oneof![4 => 0u16..9, 1 => any::<u16>()];
    (flags, command, any::<u64>(), offset, length).prop_map(|(flags, command, cookie, offset, length)| RequestHeader {
        flags,
        command,
        cookie,
        offset,
        length,
    })
}

proptest! {
    #[test]
    fn encoded_requests_are_parsed_back(header in any_header()) {
        prop_assert_eq!(parse_request(&client::request(&header)), Ok(header));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in any::<[u8; REQUEST_LEN]>()) {
        let _ = parse_request(&bytes);
    }

    #[test]
    fn whatever_is_accepted_lies_inside_the_export(
        header in any_header(),
        bits in any::<u16>(),
        min_block in prop_oneof![Just(1u32), Just(512), Just(4096)],
        size_blocks in 0u64..50_000,
    ) {
        let limits = ExportLimits {
            size: size_blocks * 4096,
            min_block,
            flags: TransmissionFlags::from_bits(bits),
            ..LIMITS
        };
        match validate(&header, &limits) {
            Ok(NbdCommand::Disconnect | NbdCommand::Flush) => {}
            Ok(command) => {
                let end = u128::from(header.offset) + u128::from(header.length);
                prop_assert!(end <= u128::from(limits.size));
                prop_assert!(header.length > 0);
                prop_assert_eq!(header.offset % u64::from(min_block), 0);
                prop_assert_eq!(header.length % min_block, 0);
                let has_payload = matches!(command, NbdCommand::Read { .. } | NbdCommand::Write { .. });
                prop_assert!(!has_payload || header.length <= limits.max_payload);
                let changes = matches!(command,
                    NbdCommand::Write { .. } | NbdCommand::Trim { .. } | NbdCommand::WriteZeroes { .. });
                prop_assert!(!changes || bits & 2 == 0);
            }
            Err(Rejection::Reply(_)) => prop_assert_eq!(header.payload_length(), 0),
            Err(Rejection::ReplyAfterDraining { length, .. }) => {
                prop_assert_eq!(length, header.payload_length());
                prop_assert!(length <= DRAIN_MAX);
            }
            Err(Rejection::DropConnection) => prop_assert!(header.payload_length() > DRAIN_MAX),
        }
    }
}
