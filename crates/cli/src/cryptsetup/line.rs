//! A command line of cryptsetup's, taken apart: options stand anywhere, short ones in a bunch.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use cryptline::Target;

use crate::CliError;

/// Treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionUse {
    /// Means the same here.
    Same,
    /// Means nothing here, or is so in any case.
    None,
    /// Cannot be.
    Refused,
}

/// An option.
#[derive(Debug)]
pub struct KnownOption {
    /// Long name.
    pub name: &'static str,
    short: Option<u8>,
    takes_value: bool,
    /// Treatment of it.
    pub used: OptionUse,
}

const fn known(name: &'static str, short: Option<u8>, takes_value: bool, used: OptionUse) -> KnownOption {
    KnownOption { name, short, takes_value, used }
}

const OPTIONS: &[KnownOption] = &[
    known("help", Some(b'?'), false, OptionUse::Same),
    known("usage", None, false, OptionUse::Same),
    known("version", Some(b'V'), false, OptionUse::Same),
    known("verbose", Some(b'v'), false, OptionUse::Same),
    known("batch-mode", Some(b'q'), false, OptionUse::Same),
    known("test-passphrase", None, false, OptionUse::Same),
    known("type", Some(b'M'), true, OptionUse::Same),
    known("header", None, true, OptionUse::Same),
    known("key-file", Some(b'd'), true, OptionUse::Same),
    known("keyfile-offset", None, true, OptionUse::Same),
    known("keyfile-size", Some(b'l'), true, OptionUse::Same),
    known("new-keyfile", None, true, OptionUse::Same),
    known("new-keyfile-offset", None, true, OptionUse::Same),
    known("new-keyfile-size", None, true, OptionUse::Same),
    known("volume-key-file", None, true, OptionUse::Same),
    known("key-slot", Some(b'S'), true, OptionUse::Same),
    known("new-key-slot", None, true, OptionUse::Same),
    known("cipher", Some(b'c'), true, OptionUse::Same),
    known("key-size", Some(b's'), true, OptionUse::Same),
    known("hash", Some(b'h'), true, OptionUse::Same),
    known("sector-size", None, true, OptionUse::Same),
    known("iv-large-sectors", None, false, OptionUse::Same),
    known("offset", Some(b'o'), true, OptionUse::Same),
    known("skip", Some(b'p'), true, OptionUse::Same),
    known("size", Some(b'b'), true, OptionUse::Same),
    known("device-size", None, true, OptionUse::Same),
    known("align-payload", None, true, OptionUse::Same),
    known("iter-time", Some(b'i'), true, OptionUse::Same),
    known("pbkdf", None, true, OptionUse::Same),
    known("pbkdf-memory", None, true, OptionUse::Same),
    known("pbkdf-parallel", None, true, OptionUse::Same),
    known("pbkdf-force-iterations", None, true, OptionUse::Same),
    known("luks2-metadata-size", None, true, OptionUse::Same),
    known("luks2-keyslots-size", None, true, OptionUse::Same),
    known("keyslot-cipher", None, true, OptionUse::Same),
    known("keyslot-key-size", None, true, OptionUse::Same),
    known("uuid", None, true, OptionUse::Same),
    known("label", None, true, OptionUse::Same),
    known("subsystem", None, true, OptionUse::Same),
    known("priority", None, true, OptionUse::Same),
    known("header-backup-file", None, true, OptionUse::Same),
    known("dump-json-metadata", None, false, OptionUse::Same),
    known("dump-volume-key", None, false, OptionUse::Same),
    known("unbound", None, false, OptionUse::Same),
    known("readonly", Some(b'r'), false, OptionUse::Same),
    known("allow-discards", None, false, OptionUse::Same),
    known("perf-same_cpu_crypt", None, false, OptionUse::Same),
    known("perf-submit_from_crypt_cpus", None, false, OptionUse::Same),
    known("perf-no_read_workqueue", None, false, OptionUse::Same),
    known("perf-no_write_workqueue", None, false, OptionUse::Same),
    known("token-id", None, true, OptionUse::Same),
    known("token-type", None, true, OptionUse::Same),
    known("token-only", None, false, OptionUse::Same),
    known("token-replace", None, false, OptionUse::Same),
    known("key-description", None, true, OptionUse::Same),
    known("json-file", None, true, OptionUse::Same),
    // Ours alone.
    known("accept-cipher", None, true, OptionUse::Same),
    known("disable-keyring", None, false, OptionUse::None),
    known("disable-locks", None, false, OptionUse::None),
    known("disable-external-tokens", None, false, OptionUse::None),
    known("disable-blkid", None, false, OptionUse::None),
    known("use-random", None, false, OptionUse::None),
    known("use-urandom", None, false, OptionUse::None),
    known("force-password", None, false, OptionUse::None),
    known("verify-passphrase", Some(b'y'), false, OptionUse::None),
    known("serialize-memory-hard-pbkdf", None, false, OptionUse::None),
    known("tries", Some(b'T'), true, OptionUse::None),
    known("timeout", Some(b't'), true, OptionUse::None),
    known("progress-frequency", None, true, OptionUse::None),
    known("progress-json", None, false, OptionUse::None),
    known("debug", None, false, OptionUse::None),
    known("debug-json", None, false, OptionUse::None),
    known("integrity", Some(b'I'), true, OptionUse::Refused),
    known("integrity-no-wipe", None, false, OptionUse::Refused),
    known("integrity-no-journal", None, false, OptionUse::Refused),
    known("integrity-legacy-padding", None, false, OptionUse::Refused),
    known("integrity-key-size", None, true, OptionUse::Refused),
    known("hw-opal", None, false, OptionUse::Refused),
    known("hw-opal-only", None, false, OptionUse::Refused),
    known("hw-opal-factory-reset", None, false, OptionUse::Refused),
    known("veracrypt", None, false, OptionUse::Refused),
    known("veracrypt-pim", None, true, OptionUse::Refused),
    known("veracrypt-query-pim", None, false, OptionUse::Refused),
    known("disable-veracrypt", None, false, OptionUse::Refused),
    known("tcrypt-hidden", None, false, OptionUse::Refused),
    known("tcrypt-system", None, false, OptionUse::Refused),
    known("tcrypt-backup", None, false, OptionUse::Refused),
    known("persistent", None, false, OptionUse::Refused),
    known("refresh", None, false, OptionUse::Refused),
    known("shared", None, false, OptionUse::Refused),
    known("deferred", None, false, OptionUse::Refused),
    known("cancel-deferred", None, false, OptionUse::Refused),
    known("link-vk-to-keyring", None, true, OptionUse::Refused),
    known("volume-key-keyring", None, true, OptionUse::Refused),
    known("external-tokens-path", None, true, OptionUse::Refused),
];

/// Older names of options.
const OLDER: [(&str, &str); 3] =
    [("master-key-file", "volume-key-file"), ("dump-master-key", "dump-volume-key"), ("new-key-file", "new-keyfile")];

/// Words with the same meaning, first the one that is used here; the places that each takes, as cryptsetup tells them.
const WORDS: &[(&[&str], [usize; 2], &str)] = &[
    (&["open", "luksOpen", "plainOpen"], [1, 2], "<device> <name>"),
    (&["close", "luksClose", "plainClose", "remove"], [1, 1], "<name>"),
    (&["status"], [1, 1], "<name>"),
    (&["resize"], [1, 1], "<name>"),
    (&["luksFormat"], [1, 2], "<device> [<new key file>]"),
    (&["luksAddKey"], [1, 2], "<device> [<new key file>]"),
    (&["luksRemoveKey"], [1, 2], "<device> [<key file>]"),
    (&["luksChangeKey"], [1, 2], "<device> [<key file>]"),
    (&["luksConvertKey"], [1, 2], "<device> [<key file>]"),
    (&["luksKillSlot"], [2, 2], "<device> <key slot>"),
    (&["luksErase", "erase"], [1, 1], "<device>"),
    (&["luksUUID"], [1, 1], "<device>"),
    (&["isLuks"], [1, 1], "<device>"),
    (&["luksDump"], [1, 1], "<device>"),
    (&["luksHeaderBackup"], [1, 1], "<device>"),
    (&["luksHeaderRestore"], [1, 1], "<device>"),
    (&["repair"], [1, 1], "<device>"),
    (&["convert"], [1, 1], "<device>"),
    (&["config"], [1, 1], "<device>"),
    (&["token"], [2, 2], "<add|remove|import|export> <device>"),
];

/// Words of cryptsetup's that are not to be had, and what is instead.
const REFUSED: &[(&str, &str)] = &[
    ("luksSuspend", "a volume is not suspended here: detach it, and open it again"),
    ("luksResume", "a volume is not suspended here"),
    ("refresh", "close the volume, and open it with other options"),
    ("reencrypt", "use `cryptline copy` into a new volume"),
    ("tcryptDump", "TrueCrypt and VeraCrypt volumes are not supported"),
    ("tcryptOpen", "TrueCrypt and VeraCrypt volumes are not supported"),
    ("bitlkDump", "BitLocker volumes are not supported"),
    ("bitlkOpen", "BitLocker volumes are not supported"),
    ("fvault2Dump", "FileVault2 volumes are not supported"),
    ("fvault2Open", "FileVault2 volumes are not supported"),
    ("loopaesOpen", "loop-AES volumes are not supported"),
];

/// A command line.
#[derive(Debug)]
pub struct CryptsetupLine {
    word: &'static str,
    /// The word as it was typed.
    pub typed: String,
    /// Devices, names and files.
    pub places: Vec<OsString>,
    options: Vec<(&'static KnownOption, Option<OsString>)>,
}

impl CryptsetupLine {
    /// Takes it apart.
    ///
    /// # Errors
    /// Exit code 1 for what cryptsetup does not know either, and for what cannot be had here.
    pub fn parse(arguments: Vec<OsString>) -> Result<Self, CliError> {
        let (mut options, mut places) = (Vec::new(), Vec::new());
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let bytes = argument.as_bytes();
            if bytes == b"--" {
                places.extend(arguments);
                break;
            }
            match bytes {
                [b'-', b'-', rest @ ..] => options.push(long(rest, &mut arguments)?),
                [b'-', rest @ ..] if !rest.is_empty() => short(rest, &mut arguments, &mut options)?,
                _ => places.push(argument),
            }
        }
        let asks = options.iter().any(|(option, _)| matches!(option.name, "help" | "usage" | "version"));
        if places.is_empty() {
            let typed = String::new();
            return if asks {
                Ok(Self { word: "", typed, places, options })
            } else {
                Err(CliError::parameters("Argument <action> missing."))
            };
        }
        let typed = places.remove(0).to_string_lossy().into_owned();
        let word = word_of(&typed)?;
        Ok(Self { word, typed, places, options })
    }

    /// The word, by the first of its names.
    pub fn word(&self) -> &'static str {
        self.word
    }

    /// Tells if an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| option.name == name)
    }

    /// The value of an option, the last that was given.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.options.iter().rev().find(|(option, _)| option.name == name)?.1.as_deref()
    }

    /// All that means something here, in their order.
    pub fn options(&self) -> impl Iterator<Item = (&'static KnownOption, Option<&OsStr>)> {
        self.options.iter().map(|(option, value)| (*option, value.as_deref()))
    }

    /// Finds what cannot be, before anything is done.
    ///
    /// # Errors
    /// Exit code 1, or 4 where there is no device.
    pub fn check(&self) -> Result<(), CliError> {
        if let Some((option, _)) = self.options.iter().find(|(option, _)| option.used == OptionUse::Refused) {
            return Err(CliError::parameters(format!("Option --{} is not supported by cryptline.", option.name)));
        }
        let kind = self.value("type").map(|kind| kind.to_string_lossy().to_lowercase()).unwrap_or_default();
        if !matches!(kind.as_str(), "" | "luks" | "luks1" | "luks2" | "plain") {
            return Err(CliError::parameters(format!("Device type {kind} is not supported by cryptline.")));
        }
        let (_, [least, most], usage) = self.row();
        let least = if self.word == "open" && !self.has("test-passphrase") { most } else { least };
        if !(least..=most).contains(&self.places.len()) {
            let word = &self.typed;
            return Err(CliError::parameters(format!("cryptsetup: {word}: requires {usage} as arguments")));
        }
        let names_command =
            |place: &OsString| matches!(Target::parse(place), Ok(Target::Keyed(it)) if it.passphrase_command.is_some());
        // Callers name devices, and mean nothing else.
        if let Some(place) = self.places.iter().find(|place| names_command(place)) {
            return Err(CliError::device(missing(Path::new(place))));
        }
        match self.device() {
            Some(device) if std::fs::metadata(device).is_err() => Err(CliError::device(missing(device))),
            _ => Ok(()),
        }
    }

    /// The device, where the word is about one.
    pub fn device(&self) -> Option<&Path> {
        let place = match self.word {
            "close" | "status" | "resize" => return None,
            "token" => self.places.get(1),
            _ => self.places.first(),
        };
        place.map(Path::new)
    }

    /// Place of the header.
    pub fn header(&self) -> Option<&Path> {
        self.value("header").map(Path::new).or_else(|| self.device())
    }

    fn row(&self) -> (&'static [&'static str], [usize; 2], &'static str) {
        WORDS.iter().find(|(names, ..)| names[0] == self.word).copied().unwrap_or((&[], [0, usize::MAX], ""))
    }
}

/// cryptsetup's sentence about a device that is not there.
fn missing(device: &Path) -> String {
    format!("Device {} does not exist or access denied.", device.display())
}

fn word_of(typed: &str) -> Result<&'static str, CliError> {
    if let Some((names, ..)) = WORDS.iter().find(|(names, ..)| names.contains(&typed)) {
        return Ok(names[0]);
    }
    Err(CliError::parameters(match REFUSED.iter().find(|(word, _)| *word == typed) {
        Some((word, why)) => format!("{word} is not supported by cryptline: {why}"),
        None => "cryptsetup: Unknown action.".to_owned(),
    }))
}

type GivenOptions = (&'static KnownOption, Option<OsString>);

fn long(rest: &[u8], next: &mut impl Iterator<Item = OsString>) -> Result<GivenOptions, CliError> {
    let (name, value) = match rest.iter().position(|&byte| byte == b'=') {
        Some(at) => (&rest[..at], Some(OsString::from_vec(rest[at + 1..].to_vec()))),
        None => (rest, None),
    };
    let name = String::from_utf8_lossy(name);
    let name = OLDER.iter().find(|(older, _)| *older == name).map_or(&*name, |(_, newer)| *newer);
    let unknown = || CliError::parameters(format!("--{name}: unknown option"));
    let option = OPTIONS.iter().find(|option| option.name == name).ok_or_else(unknown)?;
    if !option.takes_value && value.is_some() {
        return Err(CliError::parameters(format!("--{name}: option does not take an argument")));
    }
    with_value(option, value, &format!("--{name}"), next)
}

fn short(
    bunch: &[u8],
    next: &mut impl Iterator<Item = OsString>,
    options: &mut Vec<GivenOptions>,
) -> Result<(), CliError> {
    for (at, letter) in bunch.iter().enumerate() {
        let typed = format!("-{}", char::from(*letter));
        let option = OPTIONS.iter().find(|option| option.short == Some(*letter));
        let option = option.ok_or_else(|| CliError::parameters(format!("{typed}: unknown option")))?;
        if !option.takes_value {
            options.push((option, None));
            continue;
        }
        let rest = &bunch[at + 1..];
        let rest = rest.strip_prefix(b"=").unwrap_or(rest);
        let value = (!rest.is_empty()).then(|| OsString::from_vec(rest.to_vec()));
        options.push(with_value(option, value, &typed, next)?);
        break;
    }
    Ok(())
}

fn with_value(
    option: &'static KnownOption,
    value: Option<OsString>,
    typed: &str,
    next: &mut impl Iterator<Item = OsString>,
) -> Result<GivenOptions, CliError> {
    let value = if option.takes_value { value.or_else(|| next.next()) } else { None };
    if option.takes_value && value.is_none() {
        return Err(CliError::parameters(format!("{typed}: missing argument")));
    }
    Ok((option, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<CryptsetupLine, CliError> {
        CryptsetupLine::parse(text.split(' ').map(OsString::from).collect())
    }

    fn told(text: &str) -> String {
        let line = parsed(text).unwrap();
        let options = line.options().map(|(option, value)| match value {
            Some(value) => format!("{}={}", option.name, value.display()),
            None => option.name.to_owned(),
        });
        let options: Vec<_> = options.collect();
        let places: Vec<_> = line.places.iter().map(|place| place.to_str().unwrap()).collect();
        format!("{} [{}] {}", line.word(), places.join(" "), options.join(" "))
    }

    #[test]
    fn options_stand_before_and_behind_the_word() {
        for (line, expected) in [
            ("-q luksFormat --type luks2 d -d -", "luksFormat [d] batch-mode type=luks2 key-file=-"),
            ("-v --type=luks2 --batch-mode luksOpen d n", "open [d n] verbose type=luks2 batch-mode"),
            ("--header h -d- open d n", "open [d n] header=h key-file=-"),
            ("-qvS1 luksKillSlot d 1", "luksKillSlot [d 1] batch-mode verbose key-slot=1"),
            ("remove -- -n", "close [-n] "),
            ("luksOpen d n --master-key-file=k", "open [d n] volume-key-file=k"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }

    #[test]
    fn unknown_and_refused_lines_are_named() {
        for (line, why) in [
            ("bogus", "Unknown action."),
            ("--foo luksOpen d n", "--foo: unknown option"),
            ("luksOpen d n -Z", "-Z: unknown option"),
            ("luksOpen d n --key-file", "missing argument"),
            ("-v", "<action> missing"),
            ("luksOpen d n --batch-mode=1", "does not take an argument"),
            ("luksSuspend n", "not supported by cryptline"),
            ("reencrypt d", "cryptline copy"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.to_string().contains(why) && refused.exit_code() == 1, "{line}: {refused}");
        }
        for (line, why, code) in [
            ("luksOpen / n --veracrypt", "--veracrypt", 1),
            ("close n --deferred", "--deferred", 1),
            ("open --type bitlk / n", "bitlk", 1),
            ("luksFormat", "requires <device> [<new key file>]", 1),
            ("luksOpen /", "requires <device> <name>", 1),
            ("luksOpen /no/such n", "does not exist or access denied.", 4),
        ] {
            let refused = parsed(line).unwrap().check().unwrap_err();
            assert!(refused.to_string().contains(why) && refused.exit_code() == code, "{line}: {refused}");
        }
        parsed("luksOpen --test-passphrase /").unwrap().check().unwrap();
    }

    #[test]
    fn no_option_and_no_letter_is_there_twice() {
        for (at, option) in OPTIONS.iter().enumerate() {
            let mut others = OPTIONS[at + 1..].iter();
            assert!(others.all(|other| other.name != option.name), "{}", option.name);
            let mut others = OPTIONS[at + 1..].iter();
            assert!(option.short.is_none() || others.all(|other| other.short != option.short), "{}", option.name);
        }
    }
}
