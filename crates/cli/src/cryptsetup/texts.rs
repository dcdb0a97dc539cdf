//! cryptsetup's sentences, which its callers look for.

use std::process::ExitCode;

use super::line::CryptsetupLine;
use crate::CliError;
use crate::error::Cause;

/// Answer to `--help`.
pub const HELP: &str = "\
cryptline, answering cryptsetup's command line
Usage: cryptsetup [OPTION...] <action> <action-specific>

<action> is one of:
  open <device> <name>       attach the decrypted disk, with the link /dev/mapper/<name>
  close <name>               detach it
  status <name>              what is attached under the name
  resize <name>              wait until it is as large as its device
  luksFormat <device> [<new key file>]
  luksAddKey, luksRemoveKey, luksChangeKey, luksConvertKey <device> [<key file>]
  luksKillSlot <device> <key slot>
  luksErase, luksUUID, luksDump, isLuks, luksHeaderBackup, luksHeaderRestore <device>
  repair, convert, config <device>
  token <add|remove|import|export> <device>

Options and exit codes are cryptsetup's; see `man cryptsetup`. The device is made by ublk or nbd, not by
device-mapper.";

/// The sentence about a failure.
pub fn of(error: &CliError, line: &CryptsetupLine) -> String {
    match (error.cause(), line.header()) {
        (Cause::NotLuks, Some(device)) => format!("Device {} is not a valid LUKS device.", device.display()),
        (Cause::NoKey, _) => "No key available with this passphrase.".to_owned(),
        (Cause::NoKeySlot, _) => "No usable keyslot is available.".to_owned(),
        (Cause::SlotNotInUse(slot), _) => format!("Keyslot {slot} is not active."),
        (Cause::SlotInUse(slot), _) => format!("Key slot {slot} is full, please select another one."),
        (Cause::NoFreeSlot, _) => "All key slots full.".to_owned(),
        _ => error.to_string(),
    }
}

/// Its exit code.
pub fn code_of(error: &CliError) -> u8 {
    match error.cause() {
        Cause::NotLuks => 1,
        _ => error.exit_code(),
    }
}

/// The last line with `--verbose`.
pub fn ended(code: ExitCode) -> String {
    let number = (0..=5).find(|number| ExitCode::from(*number) == code).unwrap_or(1);
    let why = match number {
        0 => return "Command successful.".to_owned(),
        1 => "wrong or missing parameters",
        2 => "no permission or bad passphrase",
        3 => "out of memory",
        4 => "wrong device or file specified",
        5 => "device already exists or device is busy",
        _ => "unknown error",
    };
    format!("Command failed with code -{number} ({why}).")
}
