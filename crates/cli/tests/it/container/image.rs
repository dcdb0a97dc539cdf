//! An image as `Containerfile` says, and a container of it: unpacked and described here, run by crun.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cryptline_testkit::peer::Peer;
use serde_json::{Value, json};

/// The workspace's folder, which the file's paths are relative to.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Parts of an image.
pub struct Image {
    /// Its files.
    pub root: PathBuf,
    user: (u32, u32),
    entry: Vec<String>,
}

impl Image {
    /// Does what `Containerfile` says, in an empty folder.
    #[track_caller]
    pub fn build(root: PathBuf) -> Self {
        let text = fs::read_to_string(workspace().join("Containerfile")).unwrap();
        let mut image = Self { root, user: (0, 0), entry: Vec::new() };
        fs::create_dir(&image.root).unwrap();
        let mut words = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (instruction, rest) = line.split_once(' ').unwrap();
            words.push(instruction);
            match instruction {
                "FROM" => assert_eq!(rest, "scratch"),
                "COPY" => image.copy(rest),
                "USER" => {
                    let (user, group) = rest.split_once(':').unwrap();
                    image.user = (user.parse().unwrap(), group.parse().unwrap());
                }
                "ENTRYPOINT" => image.entry = serde_json::from_str(rest).unwrap(),
                "CMD" => assert!(serde_json::from_str::<Vec<String>>(rest).is_ok()),
                other => panic!("this test knows no {other}"),
            }
        }
        assert_eq!(words[0], "FROM");
        image
    }

    fn copy(&self, words: &str) {
        let (sources, to) = words.rsplit_once(' ').unwrap();
        let to = self.root.join(to.trim_start_matches('/'));
        let is_folder = words.ends_with('/');
        fs::create_dir_all(if is_folder { &to } else { to.parent().unwrap() }).unwrap();
        for source in sources.split(' ') {
            let from = workspace().join(source);
            let files = if source.ends_with('/') {
                let entries = fs::read_dir(&from).unwrap();
                entries.map(|entry| entry.unwrap().path()).collect()
            } else {
                vec![from]
            };
            for file in files {
                let to = if is_folder { to.join(file.file_name().unwrap()) } else { to.clone() };
                fs::copy(&file, &to).unwrap();
            }
        }
    }
}

/// Restrictions of a container compared with others.
#[derive(Clone, Copy, Default)]
pub struct Limits {
    pub without_io_uring: bool,
    pub without_locked_memory: bool,
    pub read_only: bool,
}

/// A container that has not been started.
pub struct Container<'image> {
    pub image: &'image Image,
    /// A folder that is the same inside and outside.
    pub shared: &'image Path,
    pub limits: Limits,
}

impl Container<'_> {
    /// The command that runs the program in it with these arguments, in the foreground.
    pub fn command(&self, [unshare, crun]: [&Peer; 2], arguments: &[&str]) -> Command {
        let bundle = self.image.root.parent().unwrap();
        let config = self.config(arguments).to_string();
        fs::write(bundle.join("config.json"), config).unwrap();
        // crun refuses machines with control groups of both versions, even where it is to leave them alone.
        let script = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"";
        let mut command = unshare.command();
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(crun.path()).arg("--root").arg(bundle.join("state"));
        command.args(["--cgroup-manager=disabled", "run", "--no-new-keyring", "--bundle"]);
        command.arg(bundle).arg(bundle.file_name().unwrap());
        command
    }

    fn config(&self, arguments: &[&str]) -> Value {
        let Limits { without_io_uring, without_locked_memory, read_only } = self.limits;
        let mut command = self.image.entry.clone();
        command.extend(arguments.iter().map(|&one| one.to_owned()));
        let (uid, gid) = self.image.user;
        let none: [&str; 0] = [];
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": uid, "gid": gid },
                "args": command,
                "env": ["PATH=/usr/bin"],
                "cwd": "/",
                "capabilities": {
                    "bounding": none, "effective": none, "permitted": none, "inheritable": none, "ambient": none,
                },
                "noNewPrivileges": true,
            },
            "root": { "path": self.image.root, "readonly": read_only },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                {
                    "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
                },
                { "destination": self.shared, "type": "none", "source": self.shared, "options": ["bind", "rw"] },
            ],
            "linux": { "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }] },
        });
        if without_locked_memory {
            let limit = json!([{ "type": "RLIMIT_MEMLOCK", "soft": 0, "hard": 0 }]);
            config["process"]["rlimits"] = limit;
        }
        if without_io_uring {
            // As the profiles of Docker, Podman and containerd do it.
            config["linux"]["seccomp"] = json!({
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{
                    "names": ["io_uring_setup", "io_uring_enter", "io_uring_register"],
                    "action": "SCMP_ACT_ERRNO",
                    "errnoRet": 1,
                }],
            });
        }
        config
    }
}
