//! Helpers: programs that unwrap the passphrases of tokens of type `cryptline-exec`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::Args;
use cryptline::SecretBuf;
use cryptline::keys::KeyFile;
use cryptline_tokens::{HelperAnswer, HelperCall, Helpers, is_helper_name};
use serde::de::IgnoredAny;

use crate::CliError;
use crate::harden::{FolderGuard, others_change};
use crate::key_program::KeyProgram;

/// Where helpers are, without an option.
const FOLDERS: [&str; 2] = ["/usr/lib/cryptline/helpers", "/usr/local/lib/cryptline/helpers"];
/// Longest settings of one, in bytes.
const SETTINGS_MAX: usize = 32 << 10;

/// Helpers that may run.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct TokenHelperArgs {
    /// Run the helper NAME for tokens of type cryptline-exec, with the settings in FILE, a JSON object. May be given several times
    #[arg(long, value_name = "NAME[=FILE]", value_parser = HelperName::parse)]
    pub token_helper: Vec<HelperName>,

    /// Take helpers from DIR [default: /usr/lib/cryptline/helpers, /usr/local/lib/cryptline/helpers]
    #[arg(long, value_name = "DIR", requires = "token_helper")]
    pub helper_dir: Option<PathBuf>,
}

/// A helper, and the file of its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperName {
    /// Name of the helper.
    pub name: String,
    file: Option<PathBuf>,
}

impl HelperName {
    /// `NAME` or `NAME=FILE`.
    ///
    /// # Errors
    /// Reason why that is no name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, file) = text.split_once('=').map_or((text, None), |(name, file)| (name, Some(file)));
        if !is_helper_name(name) {
            return Err("the name of a helper has 1 to 32 of a to z, 0 to 9 and -".to_owned());
        }
        if file == Some("") {
            return Err("no file is named behind the =".to_owned());
        }
        Ok(Self { name: name.to_owned(), file: file.map(PathBuf::from) })
    }
}

impl TokenHelperArgs {
    /// The helpers that may run; `None` where none is named.
    ///
    /// # Errors
    /// Settings that cannot be read or are no JSON object.
    pub fn helpers(&self) -> Result<Option<Arc<dyn Helpers>>, CliError> {
        if self.token_helper.is_empty() {
            return Ok(None);
        }
        let mut settings = BTreeMap::new();
        for HelperName { name, file } in &self.token_helper {
            let read = file.as_deref().map_or_else(|| SecretBuf::copy_of(b"{}").map_err(no_memory), settings_in)?;
            if settings.insert(name.clone(), read).is_some() {
                return Err(CliError::parameters(format!("--token-helper {name} is used twice; use it once")));
            }
        }
        let folders = self.helper_dir.clone().map_or_else(|| FOLDERS.map(PathBuf::from).to_vec(), |dir| vec![dir]);
        Ok(Some(Arc::new(HelperFolders { settings, folders })))
    }
}

fn no_memory(error: std::io::Error) -> CliError {
    super::keys::no_memory(&error)
}

/// The text of a JSON object, as it is: it may hold credentials.
fn settings_in(file: &Path) -> Result<SecretBuf, CliError> {
    crate::output::warn(crate::harden::exposed_key(file).as_slice());
    let text = KeyFile::new(file).read(true)?;
    let wrong = |why: &str| CliError::parameters(format!("{}: {why}", file.display()));
    if text.len() > SETTINGS_MAX {
        return Err(wrong("settings of a helper have at most 32 KiB"));
    }
    match serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&text) {
        Ok(_) => Ok(text),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            Err(wrong(&format!(
                "the settings of a helper are a JSON object, which ends to be one in line {line}, column {column}"
            )))
        }
    }
}

/// Helpers in folders of this machine.
struct HelperFolders {
    /// The text of a JSON object for each that may run.
    settings: BTreeMap<String, SecretBuf>,
    folders: Vec<PathBuf>,
}

impl fmt::Debug for HelperFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").field("names", &self.settings.keys()).field("folders", &self.folders).finish()
    }
}

impl Helpers for HelperFolders {
    fn operator(&self, helper: &str) -> Option<&[u8]> {
        self.settings.get(helper).map(|text| &**text)
    }

    fn run(&self, call: &HelperCall<'_>) -> Result<HelperAnswer, String> {
        let mut command = Command::new(self.find(call.helper)?);
        command.arg(call.action);
        let program = KeyProgram::new(command, call.request, call.limit, call.time);
        let ended = program.run().map_err(|why| why.to_string())?;
        Ok(HelperAnswer { status: ended.status.code(), output: ended.output })
    }
}

impl HelperFolders {
    /// The program of a helper, which nobody else can have put there or can replace.
    fn find(&self, helper: &str) -> Result<PathBuf, String> {
        let file = format!("cryptline-key-{helper}");
        let path = self.folders.iter().map(|folder| folder.join(&file)).find(|path| path.exists());
        let Some(path) = path else {
            let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(format!("is not there: no {file} in {}", folders.join(" or ")));
        };
        let failed = |error| format!("cannot be run: {}: {error}", path.display());
        let path = path.canonicalize().map_err(failed)?;
        // With its folders: whoever may write to one of them may put something else there.
        match others_change(&path, FolderGuard::Sticky).map_err(failed)? {
            Some((place, why)) => {
                Err(format!("is not run: {} {why}; only its user and root may be able to change it", place.display()))
            }
            None => Ok(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn call(limit: usize) -> HelperCall<'static> {
        HelperCall::new("test", "check", b"{}", limit, Duration::from_secs(100))
    }

    fn helpers(folder: &Path) -> Arc<dyn Helpers> {
        let token_helper = vec![HelperName::parse("test").unwrap()];
        TokenHelperArgs { token_helper, helper_dir: Some(folder.to_owned()) }.helpers().unwrap().unwrap()
    }

    #[test]
    fn program_that_others_can_change_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cryptline-key-test");
        fs::write(&path, "#!/bin/sh\necho \"$1\"; cat\n").unwrap();
        for (of_file, of_folder, why) in [
            (0o755, 0o700, None),
            (0o700, 0o755, None),
            (0o755, 0o1777, None),
            (0o775, 0o700, Some("can be written by others")),
            (0o757, 0o700, Some("can be written by others")),
            (0o755, 0o770, Some("can be written by others")),
            (0o644, 0o700, Some("cannot be run")),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(of_file)).unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(of_folder)).unwrap();
            match (helpers(folder.path()).run(&call(100)), why) {
                (Ok(answer), None) => assert_eq!(*answer.output, *b"check\n{}"),
                (Err(said), Some(why)) => assert!(said.contains(why), "{of_file:o} {of_folder:o}: {said}"),
                (done, _) => panic!("{of_file:o} {of_folder:o}: {:?}", done.err()),
            }
        }
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let said = helpers(folder.path()).run(&call(3)).err().unwrap();
        assert!(said.contains("more than 3 bytes"), "{said}");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            let said = helpers(folder.path()).run(&call(100)).err().unwrap();
            assert!(said.contains("belongs to another user"), "{said}");
        }
        fs::remove_file(&path).unwrap();
        let said = helpers(folder.path()).run(&call(100)).err().unwrap();
        assert!(said.contains("no cryptline-key-test in"), "{said}");
    }

    #[test]
    fn settings_are_an_object_that_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings");
        for (text, is_one) in [("{\"a\": [1]}\n", true), ("{}", true), ("", false), ("[]", false), ("{} {}", false)] {
            fs::write(&file, text).unwrap();
            match settings_in(&file) {
                Ok(read) => assert!(is_one && *read == *text.as_bytes(), "{text}"),
                Err(error) => assert!(!is_one && error.exit_code() == 1, "{text}: {error}"),
            }
        }
        for name in ["", "A", "a/b", "..", "a=", "=x"] {
            assert!(HelperName::parse(name).is_err(), "{name}");
        }
    }
}
