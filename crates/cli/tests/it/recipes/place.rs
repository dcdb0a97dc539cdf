//! Where a recipe is tried: a folder with what it begins with, and the program on its path.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cryptline_testkit::peer::{self, Peer, Run};

use crate::common::{LoopDevice, PASSPHRASE, command};
use crate::recipes::page::{Block, Step};

const TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes of the decrypted disk.
pub const SIZE: u64 = 8 << 20;
/// Where the program lies, on the path of the recipe.
const PROGRAMS: &str = ".bin";
/// A boot sector: it says "The guest has booted." and writes itself into the second sector of its disk, and switches the
/// machine off. It speaks through the BIOS (int 10h), which holds the end of its own text back for a while: written to
/// the serial port directly, ours could come in between. The end of ours may be lost, thus the second line.
pub const BOOT: &[u8] =
    b"\x31\xc0\x8e\xd8\x8e\xd0\xbc\x00\x7c\x52\xbe\x3e\x7c\xac\x84\xc0\x74\x09\xb4\x0e\xbb\x07\x00\xcd\x10\
\xeb\xf2\x5a\xb8\x00\x43\xbe\x2e\x7c\xcd\x13\xba\x04\x06\xb8\x00\x20\xef\xf4\xeb\xfd\
\x10\x00\x01\x00\x00\x7c\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\
The guest has booted.\r\nIt switches itself off.\r\n\0";

/// Makes deriving keys cheap where the page says nothing of it, and tells when clients can connect.
const PROGRAM: &str = r#"#!/bin/bash
words=("$@")
case "$1" in
    create|encrypt) verb=1 ;;
    key) verb=2; [[ $2 == add || $2 == change ]] || verb= ;;
    serve|vhost-user) [[ " $* " == *" --pidfile"* ]] || words+=(--pidfile "$PIDFILES/$BASHPID") ;;
esac
if [[ -n $verb && " $* " != *" --pbkdf"* ]]; then
    words=("${words[@]:0:verb}" --pbkdf=pbkdf2 --pbkdf-force-iterations=1000 "${words[@]:verb}")
fi
exec PROGRAM "${words[@]}"
"#;

/// `contained HOST:INSIDE... -- COMMAND`: runs it with what a container leaves it: a root of its own that nobody can
/// write to, but for these folders; no capability and no way to one; no network.
const CONTAINED: &str = r#"#!/bin/bash
set -eu
export binds= root=$(mktemp -d)
while [[ $1 != -- ]]; do binds+=" $1"; shift; done
shift
exec unshare --user --map-root-user --mount --net --ipc bash -c '
    set -e
    mount -t tmpfs none $root
    for bind in /usr:/usr /lib:/lib /lib64:/lib64 /proc:/proc ${0%/*}:/app $binds; do
        mkdir -p $root${bind#*:}
        mount --rbind ${bind%%:*} $root${bind#*:}
    done
    mkdir $root/dev
    for node in null zero urandom; do
        : > $root/dev/$node
        mount --bind /dev/$node $root/dev/$node
    done
    mount -o remount,bind,ro $root
    export PATH=/app:/usr/bin
    exec unshare --user --map-user=65534 --map-group=65534 --root=$root --wd=/ setpriv --no-new-privs "$@"
' REAL "$@"
"#;

/// `docker`: Podman, whose options are the same, with images and containers of the place's own. It is told what it must
/// know where this machine is itself a container: no control groups, no limits above its own. A server is waited for,
/// which a person's next command leaves time for.
const DOCKER: &str = r#"#!/bin/bash
set -eu
folder='FOLDER'
export CONTAINERS_CONF="$folder/containers.conf"
unset CONTAINER_HOST CONTAINER_CONNECTION
# crun refuses machines with control groups of both versions, even where it is to leave them alone.
docker() {
    unshare --mount sh -c 'umount /sys/fs/cgroup/unified 2> /dev/null; exec "$@"' sh \
        podman --root "$folder/images" --runroot "$folder/run" --tmpdir "$folder/run" --storage-driver vfs "$@"
}
docker "$@"
if [[ $1 == run ]]; then
    until docker logs disk 2>&1 | grep -q ^ready:; do
        state=$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.State.Error}}' disk)
        if [[ $state != running* ]]; then
            echo "the container is $state, and has said:" >&2
            docker logs disk >&2
            exit 1
        fi
        sleep 0.05
    done
fi
"#;
const PODMAN: &str = r#"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "crun"
"#;

/// A network of the recipe's own, where the ports are free; with a web server, if there is something to serve.
const NETWORK: &str = r#"
busybox ip link set lo up || exit 1
if test -d www; then
    busybox httpd -f -p 127.0.0.1:8080 -h www & echo $! > "$PIDFILES/web"
    until busybox wget -q --spider "$url"; do sleep 0.01; done
fi
exec "$@"
"#;

/// Before the commands. A command in the background is waited for until it listens at its socket (a socket has its name
/// a moment before), and a server of ours until it says so.
pub const BEGIN: &str = r#"
set -eu -o pipefail
finish() {
    "$PIDFILES/../.bin/docker" rm --force disk || true
    kill -9 $(jobs -p) $(cat "$PIDFILES/web" *.pid) || true
    fusermount3 -uz files || true
    fusermount3 -uz clear || true
    fusermount3 -uz mnt || true
}
trap 'finish > /dev/null 2>&1' EXIT
listens() {
    local flags name
    [[ -n $1 ]] || return 1
    while read -r _ _ _ flags _ _ _ name; do
        if [[ $flags == 00010000 && ( $name == "$1" || $name == "$PWD/$1" ) ]]; then return 0; fi
    done < /proc/net/unix
    return 1
}
ready() {
    for ((tries = 0; tries < 6000; tries++)); do
        if [[ -s $PIDFILES/$! ]] || listens "${1:-}"; then return 0; fi
        kill -0 $! || return 1
        sleep 0.01
    done
    return 1
}
"#;

/// Where recipes mount.
const MOUNTED: [&str; 3] = ["files", "clear", "mnt"];
/// Command that makes a container, as far as the system may forbid it.
const NAMESPACES: [&str; 6] = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--ipc"];
/// For root: the user who has no rights.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A folder for one recipe.
pub struct Place {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
    device: Option<(Peer, LoopDevice)>,
}

impl Drop for Place {
    /// A recipe that was late has cleaned up nothing, and a container goes on by itself. A device of the system keeps its flag when it is detached, for
    /// whoever gets it next.
    fn drop(&mut self) {
        for name in MOUNTED {
            let mut unmount = Command::new("fusermount3");
            unmount.arg("-uz").arg(self.path(name));
            // There may be nothing.
            let _ = unmount.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let docker = self.path(PROGRAMS).join("docker");
        if docker.exists() {
            let mut remove = Command::new(docker);
            remove.args(["rm", "--force", "--time", "0", "disk"]);
            peer::run(&mut remove, TIMEOUT);
        }
        if let Some((blockdev, device)) = &self.device {
            blockdev.run(["--setrw", &device.0]);
        }
    }
}

impl Place {
    /// A folder with a key and the program.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Self { folder, variables: Vec::new(), device: None };
        let programs = place.path(PROGRAMS);
        fs::create_dir(&programs).expect("a folder");
        // Where the program was built, nobody may look.
        let program = place.path(".bin/real");
        let built = env!("CARGO_BIN_EXE_cryptline");
        if fs::hard_link(built, &program).is_err() {
            fs::copy(built, &program).expect("room for the program");
        }
        let path = program.to_str().expect("a temporary path");
        place.program("cryptline", &PROGRAM.replace("PROGRAM", path));
        place.program("contained", &CONTAINED.replace("REAL", path));
        place.program("sudo", "#!/bin/sh\nexec \"$@\"\n");
        for folder in [".pids", ".tmp"] {
            fs::create_dir(place.path(folder)).expect("a folder");
        }
        place.write("key", PASSPHRASE.as_bytes());
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("room");
        let private = Permissions::from_mode(0o600);
        fs::set_permissions(self.path(name), private).expect("our own file");
    }

    /// Puts a program on the path.
    pub fn program(&self, name: &str, text: &str) {
        let path = self.path(PROGRAMS).join(name);
        fs::write(&path, text).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("our own file");
    }

    /// Sets a variable of the recipe.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.push((name, value.into()));
    }

    /// Provides what the comment before the block asks for. `None` where it cannot be had.
    pub fn prepare(&mut self, block: &Block) -> Option<()> {
        for mark in &block.marks {
            match mark.as_str() {
                "key" | "nothing" | "as nobody" => {}
                "a network" => may_run(own_network())?,
                "a container" if is_root() => may_run(&[&AS_NOBODY[..], &NAMESPACES].concat())?,
                "a container" => may_run(&NAMESPACES)?,
                "an image" => self.image()?,
                "web" => self.web()?,
                "README" => self.readme(),
                "disk" => self.disk("disk.img")?,
                "device" => self.device()?,
                "as root" if !is_root() => {
                    peer::skip("it takes root");
                    return None;
                }
                "as root" => {}
                other => panic!("{}: nobody knows how to prepare {other:?}", block.title),
            }
        }
        Some(())
    }

    /// An encrypted disk that boots, with a file system (ext4, which leaves the first kilobyte alone).
    pub fn disk(&self, name: &str) -> Option<()> {
        let mkfs = peer::require("mkfs.ext4")?;
        let (clear, files) = (self.path("clear.ext4"), self.path("inside"));
        fs::create_dir(&files).expect("a folder");
        fs::write(files.join("hello.txt"), "hello from inside\n").expect("room");
        let file = fs::File::create(&clear).expect("room");
        file.set_len(SIZE).expect("room");
        let mut made = mkfs.command();
        made.args(["-q", "-O", "^has_journal", "-d"]).args([&files, &clear]);
        peer::run(&mut made, TIMEOUT).success();
        file.write_all_at(&boot_sector(), 0).expect("room");
        let mut create = command();
        create.arg("create").arg(self.path(name)).arg("--from").arg(&clear);
        create.arg("--key-file").arg(self.path("key"));
        create.args(["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"]);
        peer::run(&mut create, TIMEOUT).success();
        fs::remove_file(clear).expect("our own file");
        fs::remove_dir_all(files).expect("our own folder");
        Some(())
    }

    /// The disk as a block device, in `$device`.
    fn device(&mut self) -> Option<()> {
        let blockdev = peer::require("blockdev")?;
        self.disk("disk.img")?;
        let device = LoopDevice::over(&self.path("disk.img"))?;
        self.set("device", &*device.0);
        self.device = Some((blockdev, device));
        Some(())
    }

    /// Sets up what the examples of README.md begin with. Each command is answered with a passphrase, as on a terminal.
    fn readme(&mut self) {
        self.write("disk.raw", &[0x5a; 1 << 20]);
        for folder in ["site", "mnt"] {
            fs::create_dir(self.path(folder)).expect("a folder");
        }
        fs::write(self.path("site/index.html"), "<h1>hello</h1>").expect("room");
        self.set("typed", format!("{PASSPHRASE}\n{PASSPHRASE} 2\n"));
    }

    /// The image that `Containerfile` makes, and a `docker` that has it.
    fn image(&mut self) -> Option<()> {
        peer::require_all(["podman", "crun", "unshare"])?;
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if !workspace.join("target/static/cryptline").is_file() {
            peer::skip("there is no static program: cargo xtask static");
            return None;
        }
        let folder = self.path(".tmp");
        let configuration = folder.join("containers.conf");
        fs::write(configuration, PODMAN).expect("room");
        let folder = folder.to_str().expect("a temporary path");
        self.program("docker", &DOCKER.replace("FOLDER", folder));
        let mut build = Command::new(self.path(PROGRAMS).join("docker"));
        build.args(["build", "--isolation=chroot", "--tag=cryptline"]);
        peer::run(build.arg(workspace), TIMEOUT).success();
        Some(())
    }

    /// The disk on a web server that knows ranges.
    fn web(&mut self) -> Option<()> {
        fs::create_dir(self.path("www")).expect("a folder");
        self.disk("www/disk.img")?;
        self.set("url", "http://127.0.0.1:8080/disk.img");
        Some(())
    }

    /// Runs the commands of a block as they are written, and looks at what they print.
    #[track_caller]
    pub fn follow(&self, block: &Block) -> Run {
        let steps = block.steps();
        self.write(".script", script(&steps).as_bytes());
        let mut command = self.shell(block, &["bash", ".script"]);
        let run = peer::run(&mut command, TIMEOUT);
        let said = run.stdout_text();
        let mut parts = said.split("\n@@\n");
        parts.next();
        for step in &steps {
            let Some(part) = parts.next() else {
                panic!("{}: {} was not reached:\n{run}", block.title, step.command);
            };
            assert!(step.is_what(part), "{}: {} prints\n{part}\nand not {:?}", block.title, step.command, step.prints);
        }
        run.success()
    }

    /// A program of the place's, as whom and where the block says.
    pub fn shell(&self, block: &Block, program: &[&str]) -> Command {
        let mut words: Vec<&str> = Vec::new();
        if block.says("a network") {
            words.extend(own_network());
            words.extend(["sh", "-c", NETWORK, "sh"]);
        }
        if is_root() && block.says("as nobody") {
            self.give_away(self.folder.path());
            words.extend(AS_NOBODY);
        }
        words.extend(program);
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.path(PROGRAMS);
        let path = format!("{}:{path}:/usr/sbin:/sbin", programs.display());
        // Not by the path of this process, which has no programs of the place's.
        let mut command = Command::new("env");
        command.arg(format!("PATH={path}")).args(words);
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        command.env("PIDFILES", self.path(".pids"));
        command.env("TMPDIR", self.path(".tmp"));
        for inherited in ["LISTEN_FDS", "NOTIFY_SOCKET", "XDG_RUNTIME_DIR"] {
            command.env_remove(inherited);
        }
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command
    }

    /// Gives a folder and what is in it to the user nobody; but not the program, which is a link.
    fn give_away(&self, path: &Path) {
        if path.ends_with(PROGRAMS) {
            return;
        }
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root may");
        if path.is_dir() {
            for entry in fs::read_dir(path).expect("a folder") {
                self.give_away(&entry.expect("an entry").path());
            }
        }
    }

    /// Contents of the decrypted disk.
    pub fn clear(&self) -> Vec<u8> {
        let mut copy = command();
        copy.arg("copy").arg(self.path("disk.img"));
        copy.arg(self.path("now.raw")).arg("--key-file").arg(self.path("key"));
        peer::run(&mut copy, TIMEOUT).success();
        fs::read(self.path("now.raw")).expect("it was copied")
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns what a command is run with in a network of its own.
fn own_network() -> &'static [&'static str] {
    const NETWORK: &[&str] = &["unshare", "--net", "--user", "--map-root-user"];
    if is_root() { &NETWORK[..2] } else { NETWORK }
}

/// Tells if a command can be run so. `None` where the system forbids it, and then the test is skipped.
fn may_run(words: &[&str]) -> Option<()> {
    let mut command = Command::new(words[0]);
    let run = peer::run(command.args(&words[1..]).arg("true"), TIMEOUT);
    if !run.status.success() {
        peer::skip("users may make no namespaces here");
        return None;
    }
    Some(())
}

/// [`BOOT`] with the mark that makes it one.
pub fn boot_sector() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[..BOOT.len()].copy_from_slice(BOOT);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// The commands one after the other, with a line before what each prints. A server in the foreground runs until clients
/// can connect.
fn script(steps: &[Step]) -> String {
    let mut script = format!("{BEGIN}exec 2>&1 </dev/null\n");
    for step in steps {
        let command = &step.command;
        script += "printf '\\n@@\\n'\n";
        let verbs = ["cryptline serve ", "cryptline vhost-user "];
        let serves = verbs.iter().any(|verb| command.starts_with(verb));
        let returns = ["--run", "--background"].iter().any(|option| command.contains(option));
        let _ = if command.ends_with('&') {
            let words = command.split([' ', '=']);
            let options = ["--unix", "--socket", "--socket-path"];
            let socket = words.skip_while(|word| !options.contains(word)).nth(1);
            writeln!(script, "{command}\nready {}", socket.unwrap_or_default())
        } else if serves && !returns {
            writeln!(script, "{command} <<< \"${{typed:-}}\" &\nready\nkill $!\nwait $!")
        } else {
            writeln!(script, "{{ {command}\n}} <<< \"${{typed:-}}\"")
        };
    }
    script
}
