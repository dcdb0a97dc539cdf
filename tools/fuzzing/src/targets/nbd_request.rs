//! NBD requests: what is accepted lies inside the export, and is encoded to the same bytes.
//!
//! Input: 2 bytes of transmission flags, one of settings, 4 for the export's size in units of
//! 4 KiB, then requests of 28 bytes.

use cryptline_nbd::export::DEFAULT_MAX_PAYLOAD;
use cryptline_nbd::{ExportLimits, NbdCommand, Rejection, TransmissionFlags, client, parse_request, validate};

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some(([f0, f1, settings, s0, s1, s2, s3], requests)) = data.split_first_chunk::<7>() else {
        return;
    };
    let limits = ExportLimits {
        size: u64::from(u32::from_be_bytes([*s0, *s1, *s2, *s3])) * 4096,
        min_block: 1 << (settings & 15).min(12),
        max_payload: DEFAULT_MAX_PAYLOAD,
        flags: TransmissionFlags::from_bits(u16::from_be_bytes([*f0, *f1])),
        structured_replies: settings & 16 != 0,
        block_status: settings & 32 != 0,
        zeroes_are_fast: settings & 64 != 0,
    };
    let (requests, _) = requests.as_chunks::<28>();
    for bytes in requests {
        let Ok(header) = parse_request(bytes) else {
            return;
        };
        assert_eq!(client::request(&header), *bytes);
        match validate(&header, &limits) {
            Ok(NbdCommand::Disconnect) => return,
            Ok(NbdCommand::Flush) => assert_eq!((header.offset, header.length), (0, 0)),
            Ok(_) => {
                let end = u128::from(header.offset) + u128::from(header.length);
                assert!(end <= u128::from(limits.size) && header.length > 0);
                assert!(header.offset.is_multiple_of(u64::from(limits.min_block)));
            }
            Err(Rejection::Reply(_)) => assert_eq!(header.payload_length(), 0),
            Err(Rejection::ReplyAfterDraining { length, .. }) => {
                assert_eq!(length, header.payload_length());
            }
            Err(Rejection::DropConnection) => return,
        }
    }
}
