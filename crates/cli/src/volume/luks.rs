//! LUKS volumes: the header says everything but the passphrase.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cryptline_cipher::{CipherError, SectorOptions};
use cryptline_engine::base::Image;
use cryptline_luks::{Header, Segment, SegmentPolicy};

use super::dispatch::{PerfFlags, Stored};
use super::header::{check_type, kind, read, unlock};
use super::plain::no_key;
use super::stack::{Base, Plan, sector_cipher};
use super::{KeySource, TargetOptions, Volume};
use crate::CliError;

/// Opens and locks `target`, reads its header or the detached one, and unlocks it.
pub(super) fn open(
    target: &str,
    options: &TargetOptions,
    keys: &KeySource,
) -> Result<Volume, CliError> {
    let base = Base::open(target, options)?;
    let header_image = options.header.as_deref();
    let header_image = header_image
        .map(|path| open_detached(path, &base))
        .transpose()?;
    let source = header_image.as_ref().unwrap_or(&base);
    let name = source.name(target);
    let header = read(source.reader()?, source.size(), &name)?;
    check_type(&header, options.kind, &name)?;
    let segment = usable_segment(&header, options, &name)?;
    let size = segment
        .data_size(base.size())
        .map_err(|error| CliError::luks(target, &error))?;
    let wish = Stored::Header(PerfFlags::from(&header.flags()));
    let decision = options.dispatch.decide(wish)?;
    let sectors = SectorOptions {
        sector_size: segment.sector_size,
        iv_offset: segment.iv_tweak,
        iv_large_sectors: false,
    };
    let null = segment.cipher.is_null();
    let read_key = || {
        let reader = source.reader()?;
        let (key, _) = unlock(&header, reader, &name, keys, options.allow_null_cipher)?;
        // The null cipher takes no key, whatever the header keeps for it.
        if null { no_key() } else { Ok(key) }
    };
    // Here it is the header that is wrong, not the command line.
    let wrong = |error: &CipherError| CliError::device(format!("{name}: {error}"));
    let (cipher, key_len) = sector_cipher(&segment.cipher, sectors, read_key, wrong)?;
    drop(header_image);
    let flags = header.flags();
    let mut warnings = header.warnings().to_vec();
    warnings.extend(
        flags.other.iter().map(|flag| {
            format!("the header's flag '{flag}' is not known here and changes nothing")
        }),
    );
    let plan = Plan {
        source: target,
        kind: kind(&header),
        cipher: &segment.cipher,
        key_len,
        sectors,
        start: segment.offset,
        size: Some(size),
        discards: options.allow_discards || flags.allow_discards,
        dispatch: decision.dispatch,
    };
    plan.build(base, cipher, options, warnings)
}

/// The data segment, if this program can and may open it.
///
/// # Errors
/// Why not: reencryption, integrity, other ciphers, `cipher_null`.
pub fn usable_segment(
    header: &Header,
    options: &TargetOptions,
    name: &str,
) -> Result<Segment, CliError> {
    let policy = SegmentPolicy {
        allow_null_cipher: options.allow_null_cipher,
        detached: options.header.is_some(),
    };
    header
        .segment(policy)
        .map_err(|error| CliError::luks(name, &error))
}

/// A detached header, which must not be the data itself.
fn open_detached(path: &Path, base: &Base) -> Result<Base, CliError> {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let data = base
        .file()
        .and_then(|file| file.metadata().map(identity).ok());
    if data.is_some() && std::fs::metadata(path).map(identity).ok() == data {
        return Err(CliError::parameters(
            "the header and the target are the same file; leave out --header",
        ));
    }
    Ok(Base::Image(Image::open(path, true)?))
}
