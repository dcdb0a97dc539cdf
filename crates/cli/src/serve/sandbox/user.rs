//! `--user` and `--group`: who the server is once it has what it needs.

use nix::unistd::{Gid, Group, Uid, User, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, capabilities};

use crate::CliError;

/// User and group to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAndGroup {
    uid: Option<Uid>,
    gid: Gid,
    /// For people.
    name: String,
}

impl UserAndGroup {
    /// Looks names and numbers up; `None` where neither was given. With a user alone, the group
    /// is that user's. Supplementary groups are given up in any case.
    pub fn find(user: Option<&str>, group: Option<&str>) -> Result<Option<Self>, CliError> {
        let (user, group) = match (user, group) {
            (None, None) => return Ok(None),
            (user, group) => (user.map(find_user).transpose()?, group.map(find_group).transpose()?),
        };
        let gid = match (&user, group) {
            (_, Some(gid)) => gid,
            (Some((uid, None)), None) => {
                return Err(CliError::parameters(format!(
                    "--user {uid}: no such user is known, so neither is the group; use --group too"
                )));
            }
            (Some((_, Some(primary))), None) => *primary,
            (None, None) => Gid::current(),
        };
        let identity = Self { uid: user.map(|(uid, _)| uid), gid, name: describe(user.map(|(uid, _)| uid), gid) };
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
        if !may {
            return Err(CliError::parameters(
                "--user and --group need the right to change to another user: start as root",
            ));
        }
        Ok(Some(identity))
    }

    /// The user's number; `None` where it stays as it is.
    pub fn uid(&self) -> Option<u32> {
        self.uid.map(Uid::as_raw)
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.gid.as_raw()
    }

    /// `name (uid:gid)`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Becomes it, on all threads and for good.
    pub fn assume(&self) -> Result<(), CliError> {
        let changed =
            setgroups(&[]).and_then(|()| setresgid(self.gid, self.gid, self.gid)).and_then(|()| match self.uid {
                Some(uid) => setresuid(uid, uid, uid),
                None => Ok(()),
            });
        changed.map_err(|error| CliError::parameters(format!("cannot become {}: {}", self.name, error.desc())))
    }
}

/// A name before a number, as chown(1) has it; with the primary group where it is known.
fn find_user(text: &str) -> Result<(Uid, Option<Gid>), CliError> {
    let failed = |why: &str| CliError::parameters(format!("--user {text}: {why}"));
    let by_name = User::from_name(text).map_err(|error| failed(error.desc()))?;
    if let Some(user) = by_name {
        return Ok((user.uid, Some(user.gid)));
    }
    let uid = number(text).ok_or_else(|| failed("no such user"))?;
    let uid = Uid::from_raw(uid);
    let user = User::from_uid(uid).map_err(|error| failed(error.desc()))?;
    Ok((uid, user.map(|user| user.gid)))
}

fn find_group(text: &str) -> Result<Gid, CliError> {
    let failed = |why: &str| CliError::parameters(format!("--group {text}: {why}"));
    let by_name = Group::from_name(text).map_err(|error| failed(error.desc()))?;
    match by_name {
        Some(group) => Ok(group.gid),
        None => number(text).map(Gid::from_raw).ok_or_else(|| failed("no such group")),
    }
}

/// The highest number means "leave as it is" to the kernel.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number != u32::MAX)
}

fn describe(uid: Option<Uid>, gid: Gid) -> String {
    let uid = uid.unwrap_or_else(Uid::current);
    match User::from_uid(uid) {
        Ok(Some(user)) => format!("{} ({uid}:{gid})", user.name),
        _ => format!("{uid}:{gid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_and_others_are_named() {
        assert_eq!(find_user("root").unwrap(), (Uid::from_raw(0), Some(Gid::from_raw(0))));
        assert_eq!(find_user("0").unwrap().0, Uid::from_raw(0));
        assert_eq!(find_group("0").unwrap(), Gid::from_raw(0));
        let unknown = find_user("4123456789").unwrap();
        assert_eq!(unknown, (Uid::from_raw(4_123_456_789), None));
        for wrong in ["nobody-has-this-name", "-1", "4294967295", ""] {
            let error = find_user(wrong).unwrap_err();
            assert!(error.to_string().contains("--user"), "{error}");
            assert_eq!(error.exit_code(), 1);
            assert_eq!(find_group(wrong).unwrap_err().exit_code(), 1);
        }
        assert_eq!(UserAndGroup::find(None, None).unwrap(), None);
    }
}
