//! The user as which a live run goes on, if root started it.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use control::config::{Config, LoadError};
use nix::unistd::{User, getgrouplist};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use crate::failure::Failure;
use crate::{check, pipelines};

/// The user that the package makes.
const OF_PACKAGE: &str = "shadeline";

/// A user and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(super) uid: Uid,
    /// The primary group.
    pub(super) gid: Gid,
    pub(super) groups: Vec<Gid>,
    pub(super) home: PathBuf,
}

/// The user that a run with this configuration changes to; `None` if it stays what it is.
///
/// Without `user`, that is the owner of the configuration's file, who decides about everything anyway; where root owns it,
/// `shadeline`, if there is such a user.
///
/// # Errors
/// `user` names nobody, somebody who is not in this user namespace, or another one than the present user, who is not root.
pub(crate) fn of_run(config: &Config, file: &Path) -> Result<Option<Account>, String> {
    let is_root = geteuid().is_root();
    let Some(name) = &config.system.user else {
        let owner = fs::metadata(file).map_or(0, |file| file.uid());
        let wanted = match owner {
            _ if !is_root || !may_change() => return Ok(None),
            0 => User::from_name(OF_PACKAGE),
            owner => User::from_uid(owner.into()),
        };
        // Whoever has no entry, or cannot be taken, is nobody whom the operator asked for.
        let account = wanted.ok().flatten().map(|user| account(&user)).transpose()?;
        return Ok(account.filter(|account| is_here(account) && !account.uid.is_root()));
    };
    let failed = |why: &str| format!("`user` is `{name}`: {why}");
    let user = User::from_name(name).map_err(|error| failed(error.desc()))?;
    let user = user.ok_or_else(|| failed("this machine has no such user"))?;
    match user.uid.as_raw() {
        uid if uid == geteuid().as_raw() => Ok(None),
        _ if !is_root => Err(failed("only root can start the program as another user")),
        _ => {
            let account = account(&user)?;
            let is_here = is_here(&account);
            let account = is_here.then_some(account);
            account.ok_or_else(|| failed("this user namespace has no such user")).map(Some)
        }
    }
}

/// Whether this process may become another user and give it folders; root of a container may not.
fn may_change() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN;
    capabilities(None).is_ok_and(|own| own.effective.contains(needed))
}

fn account(user: &User) -> Result<Account, String> {
    let failed = |error: &dyn std::fmt::Display| format!("groups of `{}`: {error}", user.name);
    let name = CString::new(user.name.as_str()).map_err(|error| failed(&error))?;
    let groups = getgrouplist(&name, user.gid).map_err(|error| failed(&error))?;
    Ok(Account {
        name: user.name.clone(),
        uid: Uid::from_raw(user.uid.as_raw()),
        gid: Gid::from_raw(user.gid.as_raw()),
        groups: groups.iter().map(|group| Gid::from_raw(group.as_raw())).collect(),
        home: user.dir.clone(),
    })
}

/// Whether the user namespace has this user and its groups, and allows to set groups (`unshare -Urn` has one user only, and
/// does not).
fn is_here(account: &Account) -> bool {
    let read = |name: &str| fs::read_to_string(Path::new("/proc/self").join(name));
    let map = |name: &str| read(name).unwrap_or_default();
    let (users, groups) = (map("uid_map"), map("gid_map"));
    let mut all_groups = account.groups.iter().chain([&account.gid]);
    is_mapped(account.uid.as_raw(), &users)
        && all_groups.all(|group| is_mapped(group.as_raw(), &groups))
        && read("setgroups").map_or(true, |text| text.trim() != "deny")
}

/// Whether a number is in a map of lines `INSIDE OUTSIDE COUNT`.
fn is_mapped(id: u32, map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (inside, _, count) = (numbers.next(), numbers.next(), numbers.next());
        matches!((inside, count), (Some(Ok(inside)), Some(Ok(count))) if id.wrapping_sub(inside) < count && id >= inside)
    })
}

/// Whether the new user can read the configuration and what it names: a reload reads it again.
///
/// # Errors
/// What it cannot read, and what to do.
pub(super) fn check_files(file: &Path, account: &Account) -> Result<(), Failure> {
    if files::is_standard(file) {
        return Ok(());
    }
    let name = &account.name;
    let what = match control::config::load(file, &pipelines::known()) {
        Ok(_) => return Ok(()),
        // It had no errors for root: files that it names cannot be read.
        Err(LoadError::Invalid(_)) => {
            let _ = check::load(file); // says which
            format!("{}: a file that it names cannot be read", file.display())
        }
        Err(error) => error.to_string(),
    };
    Err(Failure::other(format!(
        "{what}: the program runs as user `{name}`, and a reload reads the file again; let `{name}` read it, or set `user` under \
         `[system]` (`\"root\"` keeps root)"
    )))
}

impl Account {
    /// Whether the user may read a file, by the modes of the file and of the folders on the way to it. Access control lists
    /// are not looked at.
    pub(crate) fn may_read(&self, file: &Path) -> bool {
        let Ok(path) = fs::canonicalize(file) else { return false };
        self.has(&path, 4) && self.may_pass(&path)
    }

    /// Whether the user may write a file, or make it where there is none, by the same modes.
    pub(crate) fn may_write(&self, file: &Path) -> bool {
        if let Ok(path) = fs::canonicalize(file) {
            return self.has(&path, 2) && self.may_pass(&path);
        }
        let folder = fs::canonicalize(folder_of(file));
        folder.is_ok_and(|folder| self.has(&folder, 3) && self.may_pass(&folder))
    }

    /// Whether the user has these rights to a file or folder.
    fn has(&self, path: &Path, rights: u32) -> bool {
        let Ok(about) = fs::metadata(path) else { return false };
        let shift = if about.uid() == self.uid.as_raw() {
            6
        } else if self.is_in(about.gid()) {
            3
        } else {
            0
        };
        about.mode() >> shift & rights == rights
    }

    /// Whether the user may go through the folders above.
    fn may_pass(&self, path: &Path) -> bool {
        path.ancestors().skip(1).all(|folder| self.has(folder, 1))
    }

    fn is_in(&self, gid: u32) -> bool {
        self.groups.iter().chain([&self.gid]).any(|own| own.as_raw() == gid)
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The user that the program has now.
pub(super) fn present() -> String {
    let uid = geteuid().as_raw();
    match User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("user {}", user.name),
        _ => format!("user {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_user_may_read() {
        let scratch = testkit::Scratch::new();
        let file = scratch.write("file", "x");
        let (own, group) = (fs::metadata(&file).unwrap().uid(), fs::metadata(&file).unwrap().gid());
        let account = |uid: u32, gid: u32| Account {
            name: "x".to_owned(),
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            groups: Vec::new(),
            home: PathBuf::new(),
        };
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        let (stranger, member) = (account(own + 7, group + 7), account(own + 7, group));
        for (folder, mode, of_own, of_member, of_stranger) in [
            (0o755, 0o644, true, true, true),
            (0o755, 0o640, true, true, false),
            (0o755, 0o600, true, false, false),
            (0o750, 0o644, true, true, false),
            (0o700, 0o604, true, false, false),
            (0o755, 0o044, false, true, true),
        ] {
            set(scratch.path(), folder);
            set(&file, mode);
            let found = [&account(own, group), &member, &stranger].map(|user| user.may_read(&file));
            assert_eq!(found, [of_own, of_member, of_stranger], "{folder:o} {mode:o}");
        }
        assert!(!account(own, group).may_read(&scratch.join("none")));
    }

    #[test]
    fn a_map_has_users_within_its_lines() {
        let machine = "         0          0 4294967295\n";
        let own = "0 1000 1\n";
        let container = "0 100000 65536\n70000 5 2\n";
        assert!(is_mapped(0, machine) && is_mapped(65_534, machine));
        assert!(is_mapped(0, own) && !is_mapped(1, own) && !is_mapped(1000, own));
        assert!(is_mapped(65_535, container) && !is_mapped(65_536, container));
        assert!(
            is_mapped(70_001, container)
                && !is_mapped(70_002, container)
                && !is_mapped(69_999, container)
        );
        assert!(!is_mapped(0, "") && !is_mapped(0, "a b c"));
    }
}
