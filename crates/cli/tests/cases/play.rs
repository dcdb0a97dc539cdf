//! Plays a case: a folder of its own, its words and commands in their order, and after each what is expected of it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cryptline_testkit::peer::{BackgroundProgram, Run, require, run_with_input, skip, skip_everywhere};
use serde_json::Value;
use tempfile::TempDir;

use crate::check::{Check, Expect, FileState, Seen};
use crate::format::{Action, Case, Step, unescaped};
use crate::header;

/// No command takes longer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Opens every volume made by `volume`, in the file `key`.
const PASSPHRASE: &str = "pass phrase";
/// Helpers of tokens, as `$HELPERS` in commands.
const HELPERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../helpers");
/// Script that asks QEMU again where it could not time its key derivation, as `$AGAIN` in commands.
const AGAIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/again.sh");
/// Key derivation at next to no cost, as `$CHEAP` in commands.
const CHEAP: &str = "--pbkdf=pbkdf2 --pbkdf-force-iterations=1000";

/// The exit code of a command that finds that the case does not apply here, and says why.
const SKIPPED: i32 = 77;
/// The same for what no package brings: no failure with `CI=true` either.
const SKIPPED_EVERYWHERE: i32 = 78;

/// The same for Argon2id, as `$ARGON2`.
const ARGON2: &str = "--pbkdf-force-iterations=4 --pbkdf-memory=32";

struct Player {
    folder: TempDir,
    /// Where the program is that the commands find.
    programs: PathBuf,
    user: bool,
    server: Option<BackgroundProgram>,
    /// The loop device, as `$LOOP` in commands.
    device: String,
}

/// Runs a case; the error is what did not come as expected, with its place.
pub fn play(case: &Case) -> Result<(), String> {
    if case.peers.iter().any(|name| require(name).is_none()) {
        return Ok(());
    }
    let mut player = Player::new();
    for step in &case.steps {
        let files = step.checks.iter().filter_map(|check| match &check.expect {
            Expect::File(name, FileState::Unchanged) => Some(name.clone()),
            _ => None,
        });
        let before: Vec<_> = files.map(|name| (name.clone(), fs::read(player.path(&name)).ok())).collect();
        let run = player.act(step).map_err(|told| format!("{}.case:{}: {told}", case.file, step.line))?;
        let not_here: Option<fn(&str)> = match run.as_ref().and_then(|run| run.status.code()) {
            Some(SKIPPED) => Some(skip),
            Some(SKIPPED_EVERYWHERE) => Some(skip_everywhere),
            _ => None,
        };
        if let Some((say, run)) = not_here.zip(run.as_ref()) {
            say(run.stderr_text().trim());
            return Ok(());
        }
        let seen = Seen { run: run.as_ref(), folder: player.folder.path(), before: &before };
        let told = |check: &Check| Some(format!("{}.case:{}: {}", case.file, check.line, check.told(&seen)?));
        let mut told: Vec<_> = step.checks.iter().filter_map(told).collect();
        if !told.is_empty() {
            told.extend(run.as_ref().map(Run::to_string));
            return Err(format!("{}\n({})", told.join("\n"), case.name));
        }
    }
    Ok(())
}

impl Player {
    fn new() -> Self {
        // Nobody else enters it, so nobody is warned of the key.
        let mut private = tempfile::Builder::new();
        let folder = private.permissions(Permissions::from_mode(0o700)).tempdir().expect("a temporary folder");
        fs::write(folder.path().join("key"), PASSPHRASE).expect("room for a key file");
        let program = Path::new(env!("CARGO_BIN_EXE_cryptline"));
        let programs = program.parent().expect("it is in a folder").to_owned();
        Self { folder, programs, user: false, server: None, device: String::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds the command for a line that goes to the shell, here.
    fn shell(&self, line: &str) -> Command {
        let mut command = if self.user && rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-c", line]).current_dir(self.folder.path());
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.programs.display()));
        command.env("FOLDER", self.folder.path()).env("CHEAP", CHEAP).env("ARGON2", ARGON2);
        command.env("LOOP", &self.device).env("HELPERS", HELPERS).env("AGAIN", AGAIN);
        command.env("LC_ALL", "C").env("TZ", "UTC").env_remove("LISTEN_FDS");
        command
    }

    fn act(&mut self, step: &Step) -> Result<Option<Run>, String> {
        let (word, rest) = match &step.action {
            Action::Run(line) => return Ok(Some(run_with_input(&mut self.shell(line), TIMEOUT, &step.input))),
            Action::Word(word, rest) => (*word, rest.as_str()),
        };
        let (name, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let path = self.path(name);
        match word {
            "volume" => self.volume(name, after)?,
            "file" => fs::write(path, [unescaped(after)?, step.input.clone()].concat()).map_err(told)?,
            "fill" => {
                let (size, bytes) = after.split_once(' ').unwrap_or((after, ""));
                fill(&path, size_of(size)?, &unescaped(bytes)?)?;
            }
            "poke" => {
                let (offset, bytes) = after.split_once(' ').ok_or("poke FILE OFFSET BYTES")?;
                let file = File::options().write(true).open(path).map_err(told)?;
                file.write_all_at(&unescaped(bytes)?, size_of(offset)?).map_err(told)?;
            }
            "edit" => edit(&path, after)?,
            "json" => header::set_metadata(&path, &fs::read(self.path(after)).map_err(told)?),
            "header" => {
                let (offset, bytes) = after.split_once(' ').ok_or("header FILE OFFSET BYTES")?;
                let (offset, bytes) = (usize::try_from(size_of(offset)?).map_err(told)?, unescaped(bytes)?);
                header::rewrite(&path, |copy| copy[offset..][..bytes.len()].copy_from_slice(&bytes));
            }
            "loop" => {
                let line = format!(
                    "losetup --find --show {after} {name} || {{ echo 'no loop device here' >&2; exit {SKIPPED}; }}"
                );
                let made = run_with_input(&mut self.shell(&line), TIMEOUT, &[]);
                made.stdout_text().trim().clone_into(&mut self.device);
                return Ok(Some(made));
            }
            "user" => self.become_a_user()?,
            "server" => {
                let server = BackgroundProgram::spawn(&mut self.shell(&format!("exec {after}")));
                self.server = Some(server.wait_for_socket(&path, TIMEOUT));
            }
            "stop" => return Ok(Some(self.server.take().ok_or("there is no server")?.stop())),
            _ => unreachable!("the format knows the words"),
        }
        Ok(None)
    }

    /// `volume NAME luks1|luks2 OPTIONS`, of 20 MiB and next to no cost unless the options say otherwise.
    fn volume(&self, name: &str, kind: &str) -> Result<(), String> {
        let (kind, options) = kind.split_once(' ').unwrap_or((kind, ""));
        let (kind, cost) = match kind {
            "luks1" => ("--luks1", "--pbkdf-force-iterations=1000"),
            "luks2" => ("", ARGON2),
            _ => return Err(format!("`{kind}` is no kind of volume")),
        };
        let cost = if options.contains("--pbkdf") || options.contains("$CHEAP") { "" } else { cost };
        let size = if options.contains("--size") || options.contains("--from") { "" } else { "--size=20M" };
        let mut line = format!("cryptline create {name} --key-file key {kind} {cost} {size} {options}");
        if options.is_empty() {
            // One that was made before, by this program, is as good.
            let kept =
                format!("{}/{}.volume", env!("CARGO_TARGET_TMPDIR"), if kind.is_empty() { "luks2" } else { "luks1" });
            let (copy, program) = ("cp --sparse=always", env!("CARGO_BIN_EXE_cryptline"));
            let keep = format!("{copy} {name} '{kept}'.$$ && mv '{kept}'.$$ '{kept}'");
            line = format!(
                "[ '{kept}' -nt '{program}' ] && {copy} '{kept}' {name} 2>/dev/null || {{ {line} && {{ {keep} || :; }}; }}"
            );
        }
        let made = run_with_input(&mut self.shell(&line), TIMEOUT, &[]);
        if made.status.success() { Ok(()) } else { Err(made.to_string()) }
    }

    /// File permissions hold this one, who may read what is in the folder.
    fn become_a_user(&mut self) -> Result<(), String> {
        let bin = self.path("bin");
        fs::create_dir(&bin).map_err(told)?;
        // By another process: while this one has the copy open for writing, a test beside it may fork and make it busy.
        let line = format!(
            "cp '{}/cryptline' bin/ && chmod a+rx . bin bin/cryptline && chmod 444 key",
            self.programs.display()
        );
        let copied = run_with_input(&mut self.shell(&line), TIMEOUT, &[]);
        self.user = true;
        self.programs = bin;
        if copied.status.success() { Ok(()) } else { Err(copied.to_string()) }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Who still has it open is ended first.
        drop(self.server.take());
        if !self.device.is_empty() {
            let _detached = Command::new("losetup").args(["--detach", &self.device]).status();
        }
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A number with `K`, `M` or `G`.
fn size_of(text: &str) -> Result<u64, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[end..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("`{text}` is no size")),
    };
    text[..end].parse::<u64>().map(|number| number << shift).map_err(|_| format!("`{text}` is no size"))
}

/// Makes a file of so many bytes: holes, or these bytes again and again.
fn fill(path: &Path, size: u64, bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return File::create(path).and_then(|file| file.set_len(size)).map_err(told);
    }
    let len = usize::try_from(size).map_err(told)?;
    let repeated: Vec<u8> = bytes.iter().copied().cycle().take(len).collect();
    fs::write(path, repeated).map_err(told)
}

/// `PATH VALUE`, where the value is JSON, or `@PATH` for what is there.
fn edit(image: &Path, line: &str) -> Result<(), String> {
    let (path, value) = line.split_once(' ').ok_or("edit FILE PATH VALUE")?;
    let pointer = |path: &str| format!("/{}", path.replace('.', "/"));
    let mut json = header::metadata(image);
    let value = match value.strip_prefix('@') {
        Some(from) => json.pointer(&pointer(from)).cloned().ok_or_else(|| format!("nothing is at {from}"))?,
        None => serde_json::from_str(value).map_err(told)?,
    };
    let (parent, name) =
        pointer(path).rsplit_once('/').map(|(parent, name)| (parent.to_owned(), name.to_owned())).expect("a slash");
    match json.pointer_mut(&parent) {
        Some(Value::Object(members)) => drop(members.insert(name, value)),
        _ => return Err(format!("nothing has members at {parent}")),
    }
    header::set_metadata(image, json.to_string().as_bytes());
    Ok(())
}
