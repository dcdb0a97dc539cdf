//! The data of one option, parsed, and the replies to it, encoded.
//!
//! ```text
//! INFO, GO               u32 n | name n | u16 m | m × u16 information type
//! LIST_, SET_META_CONTEXT u32 n | name n | u32 m | m × (u32 k | query k)
//! any reply              u64 magic | u32 option | u32 type | u32 n | data n
//! ```
//!
//! Source: proto.md, "Option types", "Option reply types".

use super::export::{BlockSizes, ExportInfo, TransmissionFlags};
use super::wire::{BASE_ALLOCATION, OPTION_REPLY_MAGIC, Reader, STRING_MAX, info, rep};

/// The data of `INFO` or `GO`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InfoRequest<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) wants_name: bool,
    pub(crate) wants_description: bool,
    pub(crate) wants_block_size: bool,
}

impl<'a> InfoRequest<'a> {
    /// `None` when the data is malformed. Information types unknown here are skipped, as the
    /// protocol demands.
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let name = export_name(&mut reader)?;
        let count = reader.u16()?;
        let mut request = Self { name, wants_name: false, wants_description: false, wants_block_size: false };
        for _ in 0..count {
            match reader.u16()? {
                info::NAME => request.wants_name = true,
                info::DESCRIPTION => request.wants_description = true,
                info::BLOCK_SIZE => request.wants_block_size = true,
                _ => {}
            }
        }
        reader.is_empty().then_some(request)
    }
}

/// The data of `LIST_META_CONTEXT` or `SET_META_CONTEXT`, reduced to what is asked of `base:`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContextRequest<'a> {
    pub(crate) name: &'a [u8],
    /// No queries at all: list everything, or select nothing.
    pub(crate) is_empty: bool,
    /// A query was exactly `base:`: list all of that namespace, or select nothing.
    pub(crate) base_wildcard: bool,
    /// A query was exactly `base:allocation`.
    pub(crate) base_allocation: bool,
}

impl<'a> ContextRequest<'a> {
    /// `None` when the data is malformed or a query has no namespace. Queries for namespaces and
    /// leaf names unknown here are skipped, as the protocol demands.
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let name = export_name(&mut reader)?;
        let count = reader.u32()?;
        let mut request = Self { name, is_empty: count == 0, base_wildcard: false, base_allocation: false };
        // Each query takes at least its 4 bytes of length, so a false count ends this early.
        for _ in 0..count {
            let query = reader.string32().filter(|query| query.len() <= STRING_MAX)?;
            if !query.contains(&b':') {
                return None;
            }
            request.base_wildcard |= query == b"base:";
            request.base_allocation |= query == BASE_ALLOCATION.as_bytes();
        }
        reader.is_empty().then_some(request)
    }
}

fn export_name<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    reader.string32().filter(|name| name.len() <= STRING_MAX)
}

/// Appends replies to one option.
pub(crate) struct OptionReplies<'a> {
    pub(crate) option: u32,
    pub(crate) output: &'a mut Vec<u8>,
}

impl OptionReplies<'_> {
    pub(crate) fn ack(&mut self) {
        self.reply(rep::ACK, &[]);
    }

    /// An error with a line for the person at the client.
    pub(crate) fn error(&mut self, kind: u32, message: &str) {
        debug_assert!(kind & rep::ERROR_BIT != 0);
        self.reply(kind, &[message.as_bytes()]);
    }

    pub(crate) fn server(&mut self, export: &ExportInfo) {
        let name = export.name.as_bytes();
        self.reply(rep::SERVER, &[&length_of(&[name]), name, export.description.as_bytes()]);
    }

    pub(crate) fn info_export(&mut self, size: u64, flags: TransmissionFlags) {
        let (size, flags) = (size.to_be_bytes(), flags.bits().to_be_bytes());
        self.reply(rep::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
    }

    pub(crate) fn info_text(&mut self, kind: u16, text: &str) {
        self.reply(rep::INFO, &[&kind.to_be_bytes(), text.as_bytes()]);
    }

    pub(crate) fn info_block_size(&mut self, sizes: BlockSizes) {
        let kind = info::BLOCK_SIZE.to_be_bytes();
        let [minimum, preferred, maximum] = [sizes.minimum, sizes.preferred, sizes.maximum].map(u32::to_be_bytes);
        self.reply(rep::INFO, &[&kind, &minimum, &preferred, &maximum]);
    }

    pub(crate) fn meta_context(&mut self, id: u32, name: &str) {
        self.reply(rep::META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()]);
    }

    fn reply(&mut self, kind: u32, parts: &[&[u8]]) {
        self.output.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.output.extend_from_slice(&self.option.to_be_bytes());
        self.output.extend_from_slice(&kind.to_be_bytes());
        self.output.extend_from_slice(&length_of(parts));
        for part in parts {
            self.output.extend_from_slice(part);
        }
    }
}

/// The length field for data made of `parts`. All strings are bounded by [`STRING_MAX`] when an
/// offer is built, so the sum fits.
fn length_of(parts: &[&[u8]]) -> [u8; 4] {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    u32::try_from(length).expect("an option reply is a few strings of at most 4096 bytes").to_be_bytes()
}
