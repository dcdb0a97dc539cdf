//! The options that say what a target is and how to open it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use cryptline::luks::KEY_LEN_MAX;
use cryptline::{
    DelaySpec, DirectMode, FaultRule, Format, LuksVersion, Open, PartitionName, Plain, RandomKey, Target, Volume,
};

use super::blocks::BlockOptions;
use super::choice::{self, ChoiceWords};
use super::dispatch::DispatchArgs;
use super::keys::KeyArgs;
use super::table_argument::TableArgument;
use super::tokens::TokenArgs;
use crate::{CliError, size};

const DIRECT: &ChoiceWords<DirectMode> = &[
    ("auto", "Where the file system supports it", DirectMode::Auto),
    ("on", "Always, or fail", DirectMode::On),
    ("off", "Never: use the page cache", DirectMode::Off),
];

/// Words of `--type` where only a header can be meant.
pub const LUKS_TYPES: &ChoiceWords<VolumeType> = &[
    ("luks", "LUKS1 or LUKS2, as the header says", VolumeType::Luks),
    ("luks1", "LUKS1 only", VolumeType::Luks1),
    ("luks2", "LUKS2 only", VolumeType::Luks2),
];

/// Meaning of `--type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VolumeType {
    /// LUKS1 or LUKS2, as the header says
    Luks,
    /// LUKS1 only
    Luks1,
    /// LUKS2 only
    Luks2,
    /// No header: the key comes straight from the passphrase
    Plain,
}

impl VolumeType {
    /// The version of LUKS that is asked for; `None` for any.
    pub fn version(self) -> Option<LuksVersion> {
        match self {
            Self::Luks1 => Some(LuksVersion::Luks1),
            Self::Luks2 => Some(LuksVersion::Luks2),
            Self::Luks | Self::Plain => None,
        }
    }
}

/// How to open a target.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Volume options")]
pub struct TargetArgs {
    /// Open what a device-mapper table describes, instead of a target: one or more lines `START LEN crypt CIPHER KEY
    /// IVOFFSET DEVICE OFFSET [OPTS]`, `START LEN linear DEVICE OFFSET`, `START LEN zero` or `START LEN error`; DEVICE
    /// is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command line, and so the
    /// keys in it: `-` reads the table from standard input, `@FILE` from a file
    #[arg(long, value_name = "LINE", value_parser = OsStringValueParser::new().try_map(|line| TableArgument::parse(&line)))]
    pub table: Option<TableArgument>,

    /// Read the LUKS header from FILE; the target holds only data
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub header: Option<PathBuf>,

    /// Open for reading only
    #[arg(long, short = 'r')]
    pub read_only: bool,

    /// Bypass the page cache (O_DIRECT)
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = choice::of(DIRECT))]
    pub direct: DirectMode,

    /// Pass discards (TRIM) down; this reveals which blocks are unused
    #[arg(long)]
    pub allow_discards: bool,

    /// For an NBD server below: connect again for up to SECONDS when the connection is lost, such as while the server is
    /// started again. Each write is then durable before it is acknowledged, which costs time. Writes under way go out once
    /// more only if the server is known to have ended: it takes several connections, the process that listened on its Unix
    /// socket also answers there, and that process is gone. With any other (over TCP, in the background, in another
    /// container, one process for each client) they fail, and so does each flush until the volume is opened again. A
    /// tunnel, a proxy or a plug-in that passes writes on can end before they are made: leave this out there. A server that
    /// stays silent without hanging up is waited for
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub reconnect: Option<u64>,

    /// Accept a header with cipher_null, which encrypts nothing
    #[arg(long)]
    pub allow_null_cipher: bool,

    /// Type of the target [default: luks]
    #[arg(long = "type", value_enum, value_name = "TYPE", conflicts_with = "table")]
    pub kind: Option<VolumeType>,

    /// Only this partition of the decrypted disk: a number, label or UUID of the partition table in it. A partition of
    /// the target itself is named by `TARGET?partition=N`. `N@512` and `N@4096` say which sectors an MBR counts in, where
    /// nothing on the disk does
    #[arg(long, value_name = "N|LABEL|UUID")]
    pub partition: Option<PartitionName>,

    /// Tokens of the header.
    #[command(flatten)]
    pub tokens: TokenArgs,

    /// Options for volumes without a header.
    #[command(flatten)]
    pub plain: PlainOptions,

    /// Blocks and holes.
    #[command(flatten)]
    pub blocks: BlockOptions,

    /// Options on who runs the cipher.
    #[command(flatten)]
    pub dispatch: DispatchArgs,

    /// Make requests to the device below fail. The page `cryptline help testing` has it.
    #[arg(long, value_name = "RULE", value_parser = fault_rule, hide = true)]
    pub fault: Vec<String>,

    /// Make the device below as slow as another medium. The page `cryptline help testing` has it.
    #[arg(long, value_name = "SPEC", hide = true)]
    pub delay: Option<DelaySpec>,
}

/// Options that a header would state, for volumes without one.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options for --type plain (as `cryptsetup open --type plain`) and ram:SIZE")]
pub struct PlainOptions {
    /// Cipher word, such as aes-xts-plain64
    #[arg(long, value_name = "SPEC", conflicts_with = "table")]
    pub cipher: Option<String>,

    /// Size of the volume key in bits, such as 512
    #[arg(long, value_name = "BITS", conflicts_with = "table")]
    pub key_size: Option<u32>,

    /// Hash that makes the key from the passphrase, such as sha256 or sha512:32; `plain` for none.
    /// A key file on disk is the key itself and is not hashed
    #[arg(long, value_name = "NAME", conflicts_with = "table")]
    pub hash: Option<String>,

    /// Start of the data on the device, in 512-byte sectors
    #[arg(long, value_name = "SECTORS", conflicts_with = "table")]
    pub offset: Option<u64>,

    /// Number of the first sector for the IV, in 512-byte sectors
    #[arg(long, value_name = "SECTORS", conflicts_with = "table")]
    pub skip: Option<u64>,

    /// Size of the volume, in 512-byte sectors [default: all of the device]
    #[arg(long, value_name = "SECTORS", conflicts_with = "table")]
    pub size: Option<u64>,

    /// Bytes in a cipher sector: 512, 1024, 2048 or 4096 [default: 512; ram: 4096]
    #[arg(long, value_name = "BYTES", value_parser = size::parse_block, conflicts_with = "table")]
    pub sector_size: Option<u32>,

    /// Count IVs in cipher sectors instead of 512-byte sectors
    #[arg(long, conflicts_with = "table")]
    pub iv_large_sectors: bool,

    /// Open a plain volume for writing even where a file system or another format is recognised
    #[arg(long, conflicts_with = "table")]
    pub force: bool,
}

/// Opens `target`; with `--table` it is in the table, and `target` is empty.
///
/// # Errors
/// One line and cryptsetup's exit code: 1 parameters, 2 no key, 3 memory, 4 device, 5 busy.
pub fn open(target: &OsStr, options: &TargetArgs, keys: &KeyArgs) -> Result<Volume, CliError> {
    Ok(options.to_open(target, keys)?.open()?)
}

impl TargetArgs {
    /// Returns what the library is to do.
    ///
    /// # Errors
    /// Exit code 1 for options that contradict each other or the target.
    pub fn to_open(&self, target: &OsStr, keys: &KeyArgs) -> Result<Open, CliError> {
        if self.header.is_some() && self.kind == Some(VolumeType::Plain) {
            return Err(CliError::parameters("a plain volume has no header; leave out --header, or --type plain"));
        }
        let keys = &keys.of_target(target);
        let target = self.target(target)?;
        let format = self.format(&target, keys)?;
        let is_luks = matches!(format, Some(Format::Luks(_)));
        let tokens = if is_luks { self.tokens.choice(keys)? } else { None };
        if !is_luks {
            self.tokens.refuse("only LUKS2 headers have tokens")?;
        }
        let takes_key = matches!(format, Some(Format::Luks(_) | Format::Plain(_)));
        let mut open = Open::target(target)
            .kdf_limits(keys.kdf_limits())
            .read_only(self.read_only)
            .direct(self.direct)
            .discards(self.allow_discards)
            .allow_null_cipher(self.allow_null_cipher)
            .overwrite(self.plain.force)
            .with(self.reconnect.map(Duration::from_secs), Open::reconnect)
            .with(self.partition.clone(), Open::partition)
            .with(takes_key.then(|| keys.clone()), Open::keys)
            .with(tokens, Open::tokens)
            .with(format, Open::format)
            .with(self.header.as_ref(), Open::header)
            .with(keys.key_slot, Open::key_slot)
            .with(self.delay.clone(), Open::delay);
        open = keys.trusting(open, Open::accept_cipher, Open::header_rules);
        for rule in &self.fault {
            let parsed = rule.parse::<FaultRule>();
            open = open.fault(parsed.map_err(CliError::parameters)?);
        }
        Ok(self.dispatch.apply(self.blocks.apply(open)))
    }

    fn target(&self, target: &OsStr) -> Result<Target, CliError> {
        match (&self.table, target) {
            (Some(_), target) if !target.is_empty() => {
                Err(CliError::parameters("use either a TARGET or --table, which names its device itself"))
            }
            (Some(line), _) => super::table::target(line),
            (None, target) if target.is_empty() => Err(CliError::parameters(
                "no target; name a LUKS file or device, an NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH, zoned:PATH, ram:SIZE, or --table",
            )),
            (None, target) => Ok(Target::parse(target)?),
        }
    }

    /// Returns the source of the encryption parameters; `None` for a table, which is one.
    fn format(&self, target: &Target, keys: &KeyArgs) -> Result<Option<Format>, CliError> {
        let has_no_header =
            matches!(target, Target::Table(_)) || target.is_memory() || self.kind == Some(VolumeType::Plain);
        if has_no_header && !keys.accept_cipher.is_empty() {
            return Err(CliError::parameters(
                "--accept-cipher is for a cipher that a LUKS header names, and there is no header; leave it out",
            ));
        }
        if let Target::Table(_) = target {
            return if keys.is_empty() {
                Ok(None)
            } else {
                Err(CliError::parameters("the key is in the table; leave out --key-file and the other key options"))
            };
        }
        if target.is_memory() {
            return self.random_key(target, keys).map(|it| Some(Format::RandomKey(it)));
        }
        let kind = self.kind.unwrap_or(VolumeType::Luks);
        if kind == VolumeType::Plain {
            return self.plain.to_plain(keys).map(|it| Some(Format::Plain(it)));
        }
        match self.plain.first_given(false) {
            Some(option) => Err(CliError::parameters(format!(
                "{option} is for volumes without a header; leave it out, or use --type plain"
            ))),
            None => Ok(Some(Format::Luks(kind.version()))),
        }
    }

    /// A new volume in memory.
    fn random_key(&self, target: &Target, keys: &KeyArgs) -> Result<RandomKey, CliError> {
        let misplaced = self
            .plain
            .first_given(true)
            .or_else(|| self.header.is_some().then_some("--header"))
            .or_else(|| self.kind.is_some().then_some("--type"))
            .or_else(|| (!keys.is_empty()).then_some("a key"));
        if let Some(option) = misplaced {
            return Err(CliError::parameters(format!(
                "{target} is a new volume under a random key; leave out {option}"
            )));
        }
        let (plain, usual) = (&self.plain, RandomKey::default());
        Ok(RandomKey {
            cipher: plain.cipher.clone().unwrap_or(usual.cipher),
            key_len: plain.key_bytes()?.unwrap_or(usual.key_len),
            sector_size: plain.sector_size.unwrap_or(usual.sector_size),
            iv_large_sectors: plain.iv_large_sectors,
        })
    }
}

impl PlainOptions {
    fn to_plain(&self, keys: &KeyArgs) -> Result<Plain, CliError> {
        let (Some(cipher), Some(key_len)) = (&self.cipher, self.key_bytes()?) else {
            return Err(CliError::parameters(
                "a plain volume has no header to read; use --cipher, --key-size and --hash as it was made (cryptsetup before 2.7: aes-cbc-essiv:sha256, 256, ripemd160; since: aes-xts-plain64, 256, sha256)",
            ));
        };
        if keys.key_slot.is_some() || keys.kdf_time_limit.is_some() {
            return Err(CliError::parameters(
                "a plain volume has no key slots; leave out --key-slot and --kdf-time-limit",
            ));
        }
        Ok(Plain {
            hash: self.hash.clone(),
            start: bytes("--offset", self.offset)?.unwrap_or(0),
            size: bytes("--size", self.size)?,
            sector_size: self.sector_size.unwrap_or(512),
            iv_offset: self.skip.unwrap_or(0),
            iv_large_sectors: self.iv_large_sectors,
            ..Plain::new(cipher, key_len)
        })
    }

    /// The first option that was given, for a message; only of those that make no sense for RAM, where
    /// `of_layout`.
    fn first_given(&self, of_layout: bool) -> Option<&'static str> {
        let cipher = [
            (self.cipher.is_some(), "--cipher"),
            (self.key_size.is_some(), "--key-size"),
            (self.sector_size.is_some(), "--sector-size"),
            (self.iv_large_sectors, "--iv-large-sectors"),
        ];
        let layout = [
            (self.hash.is_some(), "--hash"),
            (self.offset.is_some(), "--offset"),
            (self.skip.is_some(), "--skip"),
            (self.size.is_some(), "--size"),
            (self.force, "--force"),
        ];
        let cipher = cipher.into_iter().filter(|_| !of_layout);
        let mut given = cipher.chain(layout).filter(|(given, _)| *given);
        given.next().map(|(_, name)| name)
    }

    /// `--key-size` in bytes.
    fn key_bytes(&self) -> Result<Option<usize>, CliError> {
        let Some(bits) = self.key_size else {
            return Ok(None);
        };
        let most = KEY_LEN_MAX * 8;
        if bits == 0 || bits % 8 != 0 || bits > most {
            return Err(CliError::parameters(format!(
                "--key-size {bits}: use a multiple of 8 bits up to {most}, such as 512"
            )));
        }
        Ok(usize::try_from(bits / 8).ok())
    }
}

/// Sectors of an option in bytes.
fn bytes(option: &str, sectors: Option<u64>) -> Result<Option<u64>, CliError> {
    let Some(sectors) = sectors else {
        return Ok(None);
    };
    let bytes = sectors.checked_mul(512);
    let bytes = bytes.filter(|&bytes| i64::try_from(bytes).is_ok());
    bytes
        .map(Some)
        .ok_or_else(|| CliError::parameters(format!("{option} {sectors}: more sectors than a disk can have")))
}

/// Checks a rule and keeps its text: a rule counts, so each open makes its own.
fn fault_rule(text: &str) -> Result<String, String> {
    text.parse::<FaultRule>().map(|_| text.to_owned())
}
