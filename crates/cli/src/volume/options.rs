//! The options that say what a target is and how to open it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cryptline_engine::base::DirectMode;
use cryptline_engine::layer::{DelaySpec, FaultRule};

use super::blocks::BlockOptions;
use super::dispatch::DispatchOptions;
use super::table_argument::TableArgument;
use crate::CliError;

/// What `--type` says.
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

/// What `--direct` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Direct {
    /// Where the file system takes it
    #[default]
    Auto,
    /// Always, or fail
    On,
    /// Never: through the page cache
    Off,
}

impl From<Direct> for DirectMode {
    fn from(direct: Direct) -> Self {
        match direct {
            Direct::Auto => Self::Auto,
            Direct::On => Self::On,
            Direct::Off => Self::Off,
        }
    }
}

/// How to open a target.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Volume options")]
pub struct TargetOptions {
    /// A device-mapper crypt line instead of a target: `START LEN crypt CIPHER KEY IVOFFSET DEVICE
    /// OFFSET [OPTS]`; DEVICE is a path, pmem:PATH, btt:PATH, MAJOR:MINOR or ram:SIZE. Other users can read the command
    /// line, and so the key in it: `-` reads the line from standard input, `@FILE` from a file
    #[arg(long, value_name = "LINE", value_parser = TableArgument::parse)]
    pub table: Option<TableArgument>,

    /// Read the LUKS header from FILE; the target holds only data
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub header: Option<PathBuf>,

    /// Open for reading only
    #[arg(long, short = 'r')]
    pub read_only: bool,

    /// Bypass the page cache (O_DIRECT)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub direct: Direct,

    /// Pass discards (TRIM) down; this shows which blocks are unused
    #[arg(long)]
    pub allow_discards: bool,

    /// Accept a header with cipher_null, which encrypts nothing
    #[arg(long)]
    pub allow_null_cipher: bool,

    /// What the target is [default: luks]
    #[arg(
        long = "type",
        value_enum,
        value_name = "TYPE",
        conflicts_with = "table"
    )]
    pub kind: Option<VolumeType>,

    /// Options for volumes without a header.
    #[command(flatten)]
    pub plain: PlainOptions,

    /// Blocks and holes.
    #[command(flatten)]
    pub blocks: BlockOptions,

    /// Who runs the cipher.
    #[command(flatten)]
    pub dispatch: DispatchOptions,

    /// For testing: make requests to the device below fail, such as `read:nth=3` or
    /// `write:after=10:error=ENOSPC`; may be repeated
    #[arg(long, value_name = "RULE", value_parser = fault_rule, help_heading = "Testing options")]
    pub fault: Vec<String>,

    /// For measuring: make the device below as slow as another medium, such as
    /// `read=100us,write=20us..40us,flush=1ms,parallel=32` for an SSD or
    /// `seek=2ms..12ms,rate=150M,parallel=1` for a disk. `A..B` is uniform, `MEAN~DEVIATION`
    /// normal; read, write, flush, discard, seek, parallel, rate and seed can be given
    #[arg(long, value_name = "SPEC", value_parser = delay_spec, help_heading = "Testing options")]
    pub delay: Option<DelaySpec>,
}

/// The name by which command lines flatten [`TargetOptions`].
pub type TargetArgs = TargetOptions;

/// What a header would say, for volumes without one.
#[derive(Args, Clone, Debug, Default)]
#[command(
    next_help_heading = "Options for --type plain (as `cryptsetup open --type plain`) and ram:SIZE"
)]
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
    #[arg(long, value_name = "BYTES", conflicts_with = "table")]
    pub sector_size: Option<u32>,

    /// Count IVs in cipher sectors instead of 512-byte sectors
    #[arg(long, conflicts_with = "table")]
    pub iv_large_sectors: bool,
}

impl TargetOptions {
    /// What contradicts itself whatever the target is.
    pub(super) fn check(&self) -> Result<(), CliError> {
        if self.header.is_some() && self.kind == Some(VolumeType::Plain) {
            return Err(CliError::parameters(
                "a plain volume has no header; leave out --header, or --type plain",
            ));
        }
        Ok(())
    }

    pub(super) fn refuse_plain_options_unless_plain(&self) -> Result<(), CliError> {
        let given = self.plain.first_given();
        match (self.kind, given) {
            (Some(VolumeType::Plain), _) | (_, None) => Ok(()),
            (_, Some(option)) => Err(CliError::parameters(format!(
                "{option} is for volumes without a header; leave it out, or give --type plain"
            ))),
        }
    }

    /// The rules of `--fault`.
    pub(super) fn fault_rules(&self) -> Result<Vec<FaultRule>, CliError> {
        let parse = |rule: &String| {
            let parsed = rule.parse::<FaultRule>();
            parsed.map_err(|why| CliError::parameters(format!("--fault {rule}: {why}")))
        };
        self.fault.iter().map(parse).collect()
    }
}

impl PlainOptions {
    /// The first option that was given, for a message.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.cipher.is_some(), "--cipher"),
            (self.key_size.is_some(), "--key-size"),
            (self.sector_size.is_some(), "--sector-size"),
            (self.iv_large_sectors, "--iv-large-sectors"),
        ];
        let first = given
            .into_iter()
            .find_map(|(given, name)| given.then_some(name));
        first.or_else(|| self.first_given_of_layout())
    }

    /// The first of those that make no sense for RAM.
    pub(super) fn first_given_of_layout(&self) -> Option<&'static str> {
        let given = [
            (self.hash.is_some(), "--hash"),
            (self.offset.is_some(), "--offset"),
            (self.skip.is_some(), "--skip"),
            (self.size.is_some(), "--size"),
        ];
        given
            .into_iter()
            .find_map(|(given, name)| given.then_some(name))
    }

    /// `--key-size` in bytes.
    pub(super) fn key_bytes(&self) -> Result<Option<usize>, CliError> {
        let Some(bits) = self.key_size else {
            return Ok(None);
        };
        let most = cryptline_luks::KEY_LEN_MAX * 8;
        if bits == 0 || bits % 8 != 0 || bits > most {
            return Err(CliError::parameters(format!(
                "--key-size {bits}: give a multiple of 8 bits up to {most}, such as 512"
            )));
        }
        Ok(usize::try_from(bits / 8).ok())
    }
}

fn delay_spec(text: &str) -> Result<DelaySpec, String> {
    text.parse()
}

/// Checks a rule and keeps its text: a rule counts, so each open makes its own.
fn fault_rule(text: &str) -> Result<String, String> {
    text.parse::<FaultRule>().map(|_| text.to_owned())
}
