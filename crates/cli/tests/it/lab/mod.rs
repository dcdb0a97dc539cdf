//! A volume made here, and both programs that know it.

pub mod tang;

use std::fs;
use std::path::PathBuf;

use crate::common::*;
use cryptline_testkit::peer::{self, Peer, Run, TIMEOUT_DEFAULT, run};
use serde_json::Value;

/// A volume, and both programs.
pub struct Lab {
    pub folder: Folder,
    pub cryptsetup: Peer,
    pub disk: PathBuf,
}

impl Lab {
    pub fn new() -> Option<Self> {
        let cryptsetup = peer::require("cryptsetup")?;
        let folder = Folder::new();
        let disk = folder.luks2();
        Some(Self { folder, cryptsetup, disk })
    }

    /// `cryptline VERBS DISK OPTIONS`.
    pub fn ours(&self, verbs: &[&str], options: &[&str]) -> Run {
        let disk = self.disk.to_str().unwrap();
        cryptline([verbs, &[disk], options].concat())
    }

    /// The same with input.
    pub fn ours_reading(&self, verbs: &[&str], options: &[&str], input: &str) -> Run {
        let disk = self.disk.to_str().unwrap();
        cryptline_with_input([verbs, &[disk], options].concat(), input.as_bytes())
    }

    /// `cryptsetup VERBS DISK OPTIONS`.
    pub fn theirs(&self, verbs: &[&str], options: &[&str]) -> Run {
        let mut command = self.cryptsetup.command();
        command.arg("--batch-mode").args(verbs).arg(&self.disk);
        run(command.args(options), TIMEOUT_DEFAULT)
    }

    /// All tokens, as cryptsetup reads them.
    pub fn tokens(&self) -> Value {
        let dump = self.theirs(&["luksDump"], &["--dump-json-metadata"]);
        let dump: Value = serde_json::from_slice(&dump.success().stdout).unwrap();
        assert_eq!(dump, metadata(&self.disk));
        dump["tokens"].clone()
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Another passphrase, in the key slot of this number.
    pub fn add(&self, passphrase: &str, slot: u32) {
        let new = format!("--new-key-file={}", self.file("new", passphrase));
        let slot = format!("--new-key-slot={slot}");
        let options = [&[&*new, &*slot][..], &CHEAP].concat();
        self.folder.run(&["key", "add"], &self.disk, &options).success();
    }
}
