//! Knowledge about each attached device: one small file each, in a folder of the running system.
//!
//! No key is in it, nor anything that helps to find one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::words::{name, names};
use crate::CliError;

/// Root's devices; another user's are in that user's runtime folder.
const FOLDER: &str = "/run/cryptline";
/// Sockets that others may use lie there, too (`systemd/`). The files of devices are private by themselves.
const FOLDER_MODE: u32 = 0o755;
const OWN_FOLDER_MODE: u32 = 0o700;
/// File that is locked: nobody else can open it, unlike the folder.
const LOCK: &str = ".lock";
/// Locks of those who take a device away.
const ALONE: &str = ".detach-";
const PREFIX: &str = "attach-";
const SUFFIX: &str = ".json";

/// Maker of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachDriver {
    /// The kernel's NBD client.
    Nbd,
    /// ublk.
    Ublk,
}

impl AttachDriver {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nbd => "nbd",
            Self::Ublk => "ublk",
        }
    }
}

/// One attached device. docs/attach.md promises these members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its path.
    pub device: PathBuf,
    /// Maker of the device.
    pub driver: AttachDriver,
    /// Name of what is attached.
    pub target: String,
    /// Value that no other volume has, where that can be told: a server that takes over must have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Nobody can write to it.
    pub read_only: bool,
    /// Hardware queues, each with a thread of the server's.
    pub queues: u16,
    /// Set if it has zones, so that it is gone as soon as its server is.
    #[serde(default)]
    pub zoned: bool,
    /// Set if it was made without privileges, and so is gone as soon as its server is.
    #[serde(default)]
    pub unprivileged: bool,
    /// The server's process.
    pub pid: u32,
    /// The same, as the driver knows it: in a container, that can be another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// When that process was started, in the kernel's ticks since boot: a number can come again.
    pub started: u64,
    /// The command line that made it, for a server that takes over, and where it was given. None, if that line had
    /// a key in it.
    #[serde(default, with = "names")]
    pub arguments: Vec<OsString>,
    /// Where it was given.
    #[serde(with = "name")]
    pub folder: PathBuf,
    /// Why the server could not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// A write or flush has failed since the device was made: no server of it lets a flush succeed any more.
    #[serde(default)]
    pub lost: bool,
}

impl DeviceRecord {
    /// Keeps it, instead of what was kept of that device before.
    ///
    /// # Errors
    /// Exit code 4 where the folder takes nothing.
    pub fn write(&self) -> Result<(), CliError> {
        self.write_in(&folder(), |_| true)
    }

    /// The same, unless another server has a device of that name by now.
    ///
    /// # Errors
    /// As [`write`](Self::write)'s.
    pub fn rewrite(&self) -> Result<(), CliError> {
        self.write_in(&folder(), |known| self.is_known_as(known))
    }

    // Guard: what is not understood may be of another server, whose device nobody would find again.
    fn is_known_as(&self, known: Option<&Self>) -> bool {
        known.is_some_and(|known| self.is_of_same_server(known))
    }

    /// `may` says whether it may take the place of what is kept already, which may not be understood.
    fn write_in(&self, folder: &Path, may: impl Fn(Option<&Self>) -> bool) -> Result<(), CliError> {
        let failed = |error: io::Error| CliError::device(format!("{}: {error}", folder.display()));
        make(folder).map_err(failed)?;
        let text = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        writeln!(file, "{text}").map_err(failed)?;
        let path = path_of(folder, &self.device);
        let _alone = lock(folder).map_err(failed)?;
        let may_be_replaced = match fs::read(&path) {
            Ok(text) => may(serde_json::from_slice(&text).ok().as_ref()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed(error)),
        };
        if may_be_replaced {
            file.persist(path).map_err(|error| failed(error.error))?;
        }
        Ok(())
    }

    /// Forgets it, unless another server has a device of that name by now.
    pub fn remove(&self) {
        self.remove_from(&folder());
    }

    fn remove_from(&self, folder: &Path) {
        let path = path_of(folder, &self.device);
        let _alone = lock(folder);
        if read(&path).is_some_and(|known| self.is_of_same_server(&known)) {
            // What is gone already need not be removed.
            let _ = fs::remove_file(path);
        }
    }

    /// Tells if both are about one server: once a device is gone, its number is another's.
    pub fn is_of_same_server(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// Tells if the driver's owner of the device is another process than this server was.
    pub fn is_taken_by(&self, owner: Option<u32>) -> bool {
        owner.is_some_and(|owner| owner != self.owner.unwrap_or(self.pid))
    }

    /// The server's process, unless it is gone.
    pub fn server(&self) -> Option<rustix::fd::OwnedFd> {
        self.server_among(start_of)
    }

    /// Tells if the process that has the server's number was started when the server was. Only then is it to be told
    /// anything.
    pub fn is_known_server(&self) -> bool {
        start_of(self.pid) == Some(self.started)
    }

    // Guard: a device that is taken from a server that lives loses what that has under way.
    fn server_among(&self, start_of: impl Fn(u32) -> Option<u64>) -> Option<rustix::fd::OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Asked after it was opened, so it is that process.
        match start_of(self.pid) {
            Some(start) => (start == self.started).then_some(process),
            // Unknown is alive. Whoever waits for one that has just ended does not wait.
            None => Some(process),
        }
    }

    /// Verifies that a new server may go on with a volume of this identity.
    ///
    /// # Errors
    /// Exit code 4 for any but the volume that was attached, and where that cannot be told.
    pub fn accept(&self, identity: &Option<String>) -> Result<(), CliError> {
        let device = self.device.display();
        if self.identity.is_none() {
            return Err(CliError::device(format!(
                "{device} cannot be recovered: only a volume with a LUKS header can be told from another, and \
                 {} has none; `cryptline detach` removes the device",
                self.target
            )));
        }
        if self.identity != *identity {
            return Err(CliError::device(format!(
                "{} is another volume than the one that {device} was attached with, so what waits for that was \
                 not written to it; put that one back in its place, or remove the device with `cryptline detach`",
                self.target
            )));
        }
        Ok(())
    }

    /// In a word.
    pub fn condition(&self) -> &'static str {
        match (&self.failure, self.server()) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "serving",
            (None, None) => "orphaned",
        }
    }
}

/// Returns what is known of one device.
///
/// # Errors
/// Exit code 4 where it is nothing.
pub fn of(device: &Path) -> Result<DeviceRecord, CliError> {
    let device = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
    read(&path_of(&folder(), &device)).ok_or_else(|| {
        CliError::device(format!(
            "{} is no device of `cryptline attach`; `cryptline devices` lists those",
            device.display()
        ))
    })
}

/// All devices, by path.
pub fn all() -> Vec<DeviceRecord> {
    let entries = fs::read_dir(folder()).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(PREFIX) && name.ends_with(SUFFIX)
    });
    let mut states: Vec<_> = ours.filter_map(|entry| read(&entry.path())).collect();
    states.sort_by(|one, other| one.device.cmp(&other.device));
    states
}

fn read(path: &Path) -> Option<DeviceRecord> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// Where all of it is kept.
pub fn folder() -> PathBuf {
    let is_root = rustix::process::geteuid().is_root();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| !is_root && path.is_absolute()) {
        Some(runtime) => runtime.join("cryptline"),
        None => PathBuf::from(FOLDER),
    }
}

/// Makes the folder, for as many as may look into it, whatever the umask is.
fn make(folder: &Path) -> io::Result<()> {
    let mode = if folder == Path::new(FOLDER) { FOLDER_MODE } else { OWN_FOLDER_MODE };
    make_with(folder, mode)
}

fn make_with(folder: &Path, mode: u32) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(mode).create(folder)?;
    let now = fs::metadata(folder)?.permissions().mode();
    if now & mode == mode {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

/// Kept by whoever takes a device away: others wait, since two signals would end its server at once. `None` where there
/// can be none.
pub fn alone_with(device: &Path) -> Option<Alone> {
    Alone::in_folder(&folder(), device)
}

/// See [`alone_with`].
pub struct Alone {
    _file: File,
    path: PathBuf,
}

impl Alone {
    fn in_folder(folder: &Path, device: &Path) -> Option<Self> {
        let name = device.file_name()?.to_string_lossy();
        let path = folder.join(format!("{ALONE}{name}"));
        let identity = |of: io::Result<fs::Metadata>| of.map(|it| (it.dev(), it.ino())).ok();
        loop {
            let file = locked(&path).ok()?;
            // Whoever had it has removed it: others will lock another file of this name.
            if identity(file.metadata()) == identity(fs::symlink_metadata(&path)) {
                return Some(Self { _file: file, path });
            }
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // While it is locked. One that stays is locked by the next.
        let _ = fs::remove_file(&self.path);
    }
}

/// Nobody else changes anything in the folder while this is kept.
fn lock(folder: &Path) -> io::Result<File> {
    locked(&folder.join(LOCK))
}

/// Makes a file where there is none, and waits until nobody else has it locked.
fn locked(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
    Ok(file)
}

fn path_of(folder: &Path, device: &Path) -> PathBuf {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    folder.join(format!("{PREFIX}{name}{SUFFIX}"))
}

/// The number at the end of a device's name.
pub fn number_of(device: &Path) -> Option<u32> {
    device.file_name()?.to_str()?.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// When a process was started (proc_pid_stat(5), field 22).
pub fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name, which can have spaces and brackets, and may be cut in the middle of a character.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn ours() -> DeviceRecord {
        let pid = std::process::id();
        DeviceRecord {
            device: "/dev/nbd7".into(),
            driver: AttachDriver::Nbd,
            target: "disk.img".to_owned(),
            identity: None,
            size: 1 << 20,
            read_only: false,
            queues: 1,
            zoned: false,
            unprivileged: false,
            pid,
            owner: None,
            started: start_of(pid).unwrap(),
            arguments: Vec::new(),
            folder: PathBuf::new(),
            failure: None,
            lost: false,
        }
    }

    #[test]
    fn process_that_was_started_at_another_time_is_not_the_server() {
        let mut state = ours();
        assert!(state.server().is_some());
        assert_eq!(state.condition(), "serving");
        assert!(state.server_among(|_| None).is_some(), "nobody knows when it was started");
        state.started += 1;
        assert!(state.server().is_none());
        assert_eq!(state.condition(), "orphaned");
    }

    #[test]
    fn only_the_volume_that_was_attached_is_accepted() {
        let identity = |text: &str| Some(text.to_owned());
        let mut state = ours();
        assert!(state.accept(&None).is_err());
        assert!(state.accept(&identity("one")).is_err());
        state.identity = identity("one");
        assert!(state.accept(&identity("one")).is_ok());
        assert!(state.accept(&identity("other")).is_err());
        let refused = state.accept(&None).unwrap_err();
        assert_eq!(refused.exit_code(), 4);
        assert!(refused.to_string().contains("another volume"), "{refused}");
    }

    #[test]
    fn state_of_another_server_of_that_number_stays() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (ended, mut later) = (ours(), ours());
        later.started += 1;
        let kept = || read(&path_of(folder, &later.device));
        later.write_in(folder, |_| true).unwrap();
        ended.remove_from(folder);
        ended.write_in(folder, |known| ended.is_known_as(known)).unwrap();
        assert_eq!(kept().as_ref(), Some(&later));
        later.remove_from(folder);
        assert_eq!(kept(), None);
        // As a newer program may have written it.
        let path = path_of(folder, &later.device);
        for odd in [&b"{\"device\": 7}"[..], b"\xff"] {
            fs::write(&path, odd).unwrap();
            ended.write_in(folder, |known| ended.is_known_as(known)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), odd);
            ended.write_in(folder, |_| true).unwrap();
            assert_eq!(kept().as_ref(), Some(&ended));
        }
    }

    #[test]
    fn others_reach_sockets_in_the_folder_and_no_file_of_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cryptline");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // As a umask of 077 leaves it.
        make_with(&folder, 0o700).unwrap();
        make_with(&folder, FOLDER_MODE).unwrap();
        assert_eq!(mode(&folder), 0o755);
        ours().write_in(&folder, |_| true).unwrap();
        assert_eq!(mode(&folder), 0o755);
        for entry in fs::read_dir(&folder).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "a state and the lock");
    }

    #[test]
    fn device_is_taken_where_its_owner_is_neither_the_server_nor_gone() {
        let mut state = ours();
        assert!(!state.is_taken_by(None));
        assert!(!state.is_taken_by(Some(state.pid)));
        assert!(state.is_taken_by(Some(state.pid + 1)));
        state.owner = Some(7);
        assert!(!state.is_taken_by(Some(7)));
        assert!(state.is_taken_by(Some(state.pid.max(8))));
    }

    #[test]
    fn names_that_are_no_text_are_read_back_as_well() {
        let name = || OsString::from_vec(b"/d/\xff".to_vec());
        let state = DeviceRecord { arguments: vec!["attach".into(), name()], folder: name().into(), ..ours() };
        let text = serde_json::to_string(&state).unwrap();
        assert!(text.contains(r#"["attach",[47,100,47,255]]"#), "{text}");
        assert_eq!(serde_json::from_str::<DeviceRecord>(&text).unwrap(), state);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let state = ours();
        let text = serde_json::to_string(&state).unwrap();
        assert!(!text.contains("failure"), "{text}");
        assert_eq!(serde_json::from_str::<DeviceRecord>(&text).unwrap(), state);
    }
}
