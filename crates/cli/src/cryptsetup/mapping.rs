//! Mappings: a volume attached under a name, as callers expect device-mapper to have it.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cryptline::{Open, SecretBuf};
use cryptline_serve::device::is_claimed;
use cryptline_sys::{block_device_size, loop_backing_file};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::line::{CryptsetupLine, OptionUse};
use super::names::{self, ClaimedName, NamedMapping};
use super::words::joined;
use crate::CliError;
use crate::attached::background;
use crate::attached::state::{self, AttachDriver, DeviceRecord};
use crate::cmd::detach;
use crate::error::Kind;
use crate::output::print;

/// Options of `open` that `attach` has by the same name, or another.
const OF_ATTACH: &[(&str, &str)] = &[
    ("type", "type"),
    ("header", "header"),
    ("key-file", "key-file"),
    ("keyfile-offset", "keyfile-offset"),
    ("keyfile-size", "keyfile-size"),
    ("volume-key-file", "volume-key-file"),
    ("key-slot", "key-slot"),
    ("readonly", "read-only"),
    ("allow-discards", "allow-discards"),
    ("perf-same_cpu_crypt", "perf-same_cpu_crypt"),
    ("perf-submit_from_crypt_cpus", "perf-submit_from_crypt_cpus"),
    ("perf-no_read_workqueue", "perf-no_read_workqueue"),
    ("perf-no_write_workqueue", "perf-no_write_workqueue"),
    ("token-id", "token-id"),
    ("token-type", "token-type"),
    ("token-only", "token-only"),
    ("accept-cipher", "accept-cipher"),
];
/// The same for a volume without a header.
const OF_PLAIN: &[(&str, &str)] = &[
    ("cipher", "cipher"),
    ("key-size", "key-size"),
    ("hash", "hash"),
    ("offset", "offset"),
    ("skip", "skip"),
    ("size", "size"),
    ("sector-size", "sector-size"),
    ("iv-large-sectors", "iv-large-sectors"),
];
/// Those that say nothing here, or where the volume says it itself.
const NOTHING: [&str; 3] = ["verbose", "batch-mode", "key-size"];
/// How long a server takes at most to see that its file has grown.
const GROWTH: Duration = Duration::from_secs(5);

/// `open`: attaches the volume under a name.
///
/// # Errors
/// Exit code 5 where the name or the volume is taken; as `attach`.
pub fn open(line: &CryptsetupLine) -> Result<ExitCode, CliError> {
    let [target, name] = [0, 1].map(|at| line.places.get(at).map_or_else(OsString::new, OsString::clone));
    let name = name.to_string_lossy().into_owned();
    let attach = attach_line(line, &target)?;
    let target = fs::canonicalize(&target).unwrap_or_else(|_| PathBuf::from(&target));
    let described = described(line, &target)?;
    let taken = ClaimedName::take(&name)?;
    let device = match background::begin(attach)? {
        Ok(device) => PathBuf::from(device),
        Err(code) => {
            taken.release(Path::new(""));
            return Ok(ExitCode::from(code));
        }
    };
    let named = state::of(&device).and_then(|known| {
        let mapping = NamedMapping { device: device.clone(), pid: known.pid, started: known.started, ..described };
        taken.give(&mapping)
    });
    if let Err(error) = named {
        // Nobody would find it by its name.
        let _ = detach::remove(&device, false);
        taken.release(&device);
        return Err(error);
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line of `attach`.
fn attach_line(line: &CryptsetupLine, target: &OsStr) -> Result<Vec<OsString>, CliError> {
    let is_plain = is_plain(line);
    let mut arguments: Vec<OsString> = vec!["attach".into()];
    if is_plain && line.value("type").is_none() {
        arguments.push("--type=plain".into());
    }
    for (option, value) in line.options().filter(|(option, _)| option.used == OptionUse::Same) {
        let plain = OF_PLAIN.iter().filter(|_| is_plain);
        let known = OF_ATTACH.iter().chain(plain).find(|(name, _)| *name == option.name);
        match known {
            Some((_, name)) => {
                let argument = joined(name, value);
                if value.is_some() || !arguments.contains(&argument) {
                    arguments.push(argument);
                }
            }
            None if NOTHING.contains(&option.name) => {}
            None => {
                let (name, word) = (option.name, &line.typed);
                return Err(CliError::parameters(format!("Option --{name} is not allowed with {word} action.")));
            }
        }
    }
    arguments.extend(["--".into(), target.to_owned()]);
    Ok(arguments)
}

fn is_plain(line: &CryptsetupLine) -> bool {
    line.typed == "plainOpen" || line.value("type").is_some_and(|kind| kind.eq_ignore_ascii_case("plain"))
}

/// Facts about the volume that `status` will tell. Another process may change the header meanwhile: it is read again, and checked,
/// by whoever opens it.
fn described(line: &CryptsetupLine, target: &Path) -> Result<NamedMapping, CliError> {
    let number = |name| line.value(name).and_then(|value| value.to_str()?.parse::<u64>().ok());
    let mapping = NamedMapping {
        target: target.to_owned(),
        read_only: line.has("readonly"),
        discards: line.has("allow-discards"),
        ..NamedMapping::default()
    };
    if is_plain(line) {
        let text = |name| line.value(name).unwrap_or_default().to_string_lossy().into_owned();
        return Ok(NamedMapping {
            kind: "PLAIN".to_owned(),
            cipher: text("cipher"),
            key_bits: number("key-size").and_then(|bits| u32::try_from(bits).ok()).unwrap_or(0),
            sector_size: number("sector-size").and_then(|size| u32::try_from(size).ok()).unwrap_or(512),
            offset: Some(number("offset").unwrap_or(0)),
            is_fixed: line.has("size"),
            ..mapping
        });
    }
    let open = Open::new(target);
    let found = match line.value("header") {
        Some(header) => open.header(header).inspect()?,
        None => open.inspect()?,
    };
    let info = found.header.info();
    let segment = info.segments.first();
    Ok(NamedMapping {
        kind: found.kind.to_string(),
        cipher: segment.and_then(|it| it.cipher.clone()).unwrap_or_default(),
        key_bits: info.keyslots.first().map_or(0, |slot| slot.key_bits),
        sector_size: segment.and_then(|it| it.sector_size).unwrap_or(512),
        offset: segment.map(|it| it.offset / 512),
        is_fixed: segment.is_some_and(|it| it.size.is_some()),
        ..mapping
    })
}

/// `close`: detaches what has the name.
///
/// # Errors
/// Exit code 4 where nothing has it, 5 where it is in use, 4 where something was lost.
pub fn close(line: &CryptsetupLine) -> Result<ExitCode, CliError> {
    let text = name_in(line);
    let Some((name, mapping)) = ClaimedName::find(&text)? else {
        return Err(not_active(&text));
    };
    if mapping.state().is_none() {
        name.release(&mapping.device);
        return Err(not_active(&text));
    }
    match detach::remove(&mapping.device, false) {
        Err(error) if error.kind() == Kind::Busy => Err(CliError::busy(format!("Device {text} is still in use."))),
        ended => {
            if mapping.state().is_none() {
                name.release(&mapping.device);
            }
            ended.map(|()| ExitCode::SUCCESS)
        }
    }
}

/// `status`: tells what has the name.
///
/// # Errors
/// Where standard output takes no more; a name that nothing has is exit code 4, and no error.
pub fn status(line: &CryptsetupLine) -> Result<ExitCode, CliError> {
    let text = name_in(line);
    let active = names::look(&text).and_then(|mapping| Some((mapping.state()?, mapping)));
    let Some((state, mapping)) = active else {
        print(&format!("{} is inactive.\n", names::path(&text)))?;
        return Ok(ExitCode::from(4));
    };
    let in_use = is_claimed(&mapping.device);
    print(&told(&names::path(&text), &mapping, &state, in_use))?;
    Ok(ExitCode::SUCCESS)
}

fn told(path: &str, mapping: &NamedMapping, state: &DeviceRecord, in_use: bool) -> String {
    let mut text = format!("{path} is active{}.\n", if in_use { " and is in use" } else { "" });
    let is_there = state.server().is_some() && mapping.target.exists();
    let kind = if is_there { &mapping.kind } else { "n/a" };
    let device = if is_there { mapping.target.display().to_string() } else { "(null)".to_owned() };
    let backing = loop_file(&mapping.target).map(|file| format!("  loop:    {file}\n"));
    let mode = if mapping.read_only || state.read_only { "readonly" } else { "read/write" };
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "  type:    {kind}\n  cipher:  {}\n  keysize: {} bits\n  key location: cryptline\n  device:  {device}\n{}  sector size:  {}\n  offset:  {} sectors\n  size:    {} sectors\n  mode:    {mode}\n",
        mapping.cipher,
        mapping.key_bits,
        backing.filter(|_| is_there).unwrap_or_default(),
        mapping.sector_size,
        mapping.offset.unwrap_or(0),
        state.size / 512,
    );
    if mapping.discards {
        text += "  flags:   discards \n";
    }
    text
}

/// The file of a loop device.
fn loop_file(target: &Path) -> Option<String> {
    let name = target.file_name()?.to_str()?;
    let file = loop_backing_file(&Path::new("/sys/block").join(name))?;
    Some(file.display().to_string())
}

/// `resize`: a device grows by itself; waits until it has. Reads what a caller may pipe in as a passphrase, and needs
/// none.
///
/// # Errors
/// Exit code 4 where nothing has the name; 1 for another size than that of the volume's device, and where the driver
/// cannot change it.
pub fn resize(line: &CryptsetupLine) -> Result<ExitCode, CliError> {
    drain();
    let text = name_in(line);
    let mapping = names::look(&text).ok_or_else(|| not_active(&text))?;
    let began = Instant::now();
    loop {
        let state = mapping.state().ok_or_else(|| not_active(&text))?;
        let wanted = wanted_size(line, &mapping)?.unwrap_or(state.size);
        if state.size == wanted {
            return Ok(ExitCode::SUCCESS);
        }
        if wanted < state.size || state.driver == AttachDriver::Nbd || began.elapsed() > GROWTH {
            let (has, is) = (state.size / 512, wanted / 512);
            return Err(CliError::parameters(format!(
                "Device {text} has {has} sectors and not {is}: close it and open it again (it grows while it is open \
                 where ublk serves it, from Linux 6.16 on)"
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Reads what a caller pipes in, so that its pipe does not break; a pipe that stays open and brings nothing is not waited for.
fn drain() {
    let stdin = io::stdin();
    // It may be a passphrase.
    let (false, Ok(mut room)) = (stdin.is_terminal(), SecretBuf::zeroed(4096)) else { return };
    let (began, mut left) = (Instant::now(), 8_usize << 20);
    let quiet = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    while left > 0 && began.elapsed() < GROWTH {
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut watched, Some(&quiet)) {
            Err(Errno::INTR) => continue,
            Ok(1..) => {}
            _ => return,
        }
        match rustix::io::read(&stdin, &mut room[..]) {
            Err(Errno::INTR) => {}
            Ok(count @ 1..) => left = left.saturating_sub(count),
            _ => return,
        }
    }
}

/// Bytes that the device is to have; `None` where the volume says that itself.
fn wanted_size(line: &CryptsetupLine, mapping: &NamedMapping) -> Result<Option<u64>, CliError> {
    let given = |name: &str| line.value(name).map(|value| value.to_string_lossy().into_owned());
    if let Some(sectors) = given("size") {
        let sectors: Option<u64> = sectors.parse().ok();
        let bytes = sectors.and_then(|sectors| sectors.checked_mul(512));
        return bytes.map(Some).ok_or_else(|| CliError::parameters("--size: invalid numeric value"));
    }
    if let Some(bytes) = given("device-size") {
        return crate::size::parse(&bytes)
            .map(Some)
            .map_err(|why| CliError::parameters(format!("--device-size: {why}")));
    }
    // A volume without a header ends with its device, whatever size it was opened with; so does cryptsetup say.
    let is_fixed = mapping.is_fixed && mapping.kind != "PLAIN";
    let (Some(offset), false) = (mapping.offset, is_fixed) else { return Ok(None) };
    let size = size_of(&mapping.target)
        .map_err(|why| CliError::device(format!("Cannot get the size of {}: {why}.", mapping.target.display())))?;
    let room = size.saturating_sub(offset * 512);
    Ok(Some(room - room % u64::from(mapping.sector_size.max(512))))
}

/// Bytes of a file or a block device.
fn size_of(target: &Path) -> io::Result<u64> {
    // Somebody may have put a pipe there.
    let file = fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(target)?;
    let known = file.metadata()?;
    if known.file_type().is_block_device() {
        return Ok(block_device_size(&file)?.0);
    }
    Ok(known.len())
}

fn name_in(line: &CryptsetupLine) -> String {
    line.places.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn not_active(text: &str) -> CliError {
    CliError::device(format!("Device {text} is not active."))
}
