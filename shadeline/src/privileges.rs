//! The rights of a live run: what it keeps of those with which it was started.
//!
//! ```text
//!   root, or a user with capabilities
//!     │  folders of the socket and the settings ──▶ the user's
//!     │  bounding set, groups, user, permitted set   (root only, where another user is found)
//!     │  no_new_privs, filter of system calls
//!     ▼
//!   CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_IPC_LOCK: ports open with these, at the start and at each reload
//! ```
//!
//! Everything happens before the first thread is started, because Linux keeps these rights for each thread. So whatever is
//! opened at the start can be opened again by a reload.

mod account;
mod system_calls;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use control::api::place;
use control::config::Config;
use rustix::fs::{Access, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::failure::Failure;
pub(crate) use account::{Account, folder_of, of_run};

/// What a run needs: interfaces, twins and packet filters; packet sockets; XDP programs; locked memory of AF_XDP.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Where compiled kernels are kept for the service, and below its user's name for another user without a home: the kernels
/// of one user are never loaded from the folder of another.
const CACHES: &str = "/var/cache";
const SERVICE: &str = "shadeline";

/// Gives up what a live run does not need. `file` is the configuration.
///
/// Returns what is left, in words for the log.
///
/// # Errors
/// The configured user is unknown or cannot be taken, a folder cannot be given to it, or the kernel refuses a step. Rights
/// may be gone by then, so the program ends.
pub(crate) fn limit(config: &Config, file: &Path) -> Result<String, Failure> {
    let account = account::of_run(config, file).map_err(Failure::other)?;
    let before = capabilities(None).map_err(|error| refused("reading capabilities", error))?;
    let kept = before.permitted & needed();
    give_folders(config, account.as_ref().map_or_else(present, |own| (own.uid, own.gid)))?;
    let of_kernels = |error| Failure::other(format!("folder of compiled kernels: {error}"));
    let caches = account.as_ref().map(Caches::of).transpose().map_err(of_kernels)?;
    if before.effective.contains(CapabilitySet::SETPCAP) {
        limit_bounding_set(kept).map_err(|error| refused("the bounding set", error))?;
    }
    if before.effective.contains(CapabilitySet::SETPCAP) {
        // Programs that root starts have no rights for that alone.
        let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
        set_capabilities_secure_bits(bits).map_err(|error| refused("the rights of root", error))?;
    }
    if let Some(account) = &account {
        become_user(account)
            .map_err(|error| refused(&format!("changing to user `{}`", account.name), error))?;
    }
    if let (Some(account), Some(caches)) = (&account, &caches) {
        caches.take(account).map_err(of_kernels)?;
    }
    // The ambient set goes first: what is not permitted any more cannot be in it.
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {} // before Linux 4.3 there is none
        Err(error) => return Err(refused("the ambient set", error)),
    }
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|error| refused("capabilities", error))?;
    set_no_new_privs(true).map_err(|error| refused("no_new_privs", error))?;
    let filter = system_calls::filter(config.system.seccomp).map_err(Failure::other)?;
    if let Some(account) = &account {
        account::check_files(file, account)?;
    }
    let user = match &account {
        Some(account) => format!("user {}", account.name),
        None => account::present(),
    };
    Ok(format!("{user}, {}, system calls {filter}", words(kept)))
}

/// What a run keeps on this kernel: before Linux 5.8 there was `CAP_SYS_ADMIN` in the place of `CAP_BPF`.
fn needed() -> CapabilitySet {
    match capability_is_in_bounding_set(CapabilitySet::BPF) {
        Err(Errno::INVAL) => (KEPT - CapabilitySet::BPF) | CapabilitySet::SYS_ADMIN,
        _ => KEPT,
    }
}

fn refused(what: &str, error: Errno) -> Failure {
    Failure::other(format!("giving up rights: {what}: {}", io::Error::from(error)))
}

/// Capabilities by their names; `no capability` for none.
fn words(set: CapabilitySet) -> String {
    let names: Vec<String> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    match names.is_empty() {
        true => "no capability".into(),
        false => names.join(" "),
    }
}

/// No program that is executed gets more than `kept`, whatever its file says.
fn limit_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            Err(Errno::INVAL) => break, // the kernel knows no more of them
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Groups first: who is not root any more cannot change them. The permitted capabilities stay, for [`set_capabilities`].
fn become_user(account: &Account) -> Result<(), Errno> {
    set_keep_capabilities(true)?;
    set_thread_groups(&account.groups)?;
    set_thread_res_gid(account.gid, account.gid, account.gid)?;
    set_thread_res_uid(account.uid, account.uid, account.uid)?;
    set_keep_capabilities(false)
}

/// A user and its group.
type Owner = (Uid, Gid);

fn present() -> Owner {
    (geteuid(), getegid())
}

/// Root gives the folders of the socket and of the interfaces' settings to the user. They are made if they are missing. A
/// folder of somebody else's choice, which is there already, stays as it is.
///
/// Root that stays root takes them back from the user of an earlier run: without its other capabilities it may not write
/// into folders of others.
fn give_folders(config: &Config, owner: Owner) -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let socket = &config.system.socket;
    let settings = place::settings_folder();
    let own = Path::new(place::SYSTEM).parent();
    for folder in [socket.parent(), settings.parent()].into_iter().flatten() {
        let is_new = !folder.exists() && owner != present();
        let is_ours = Some(folder) == own && folder.exists();
        if folder != Path::new("") && (is_new || is_ours) {
            let of_another = |about: fs::Metadata| about.uid() != owner.0.as_raw();
            if folder.metadata().is_ok_and(of_another) && is_in_use(&settings) {
                return Err(Failure::other(format!(
                    "{}: an instance of another user is running; instances of one machine need the same user (`user` under \
                     `[system]`)",
                    folder.display()
                )));
            }
            let given = make(folder).and_then(|()| give_folder(folder, owner));
            given.map_err(|error| Failure::file(folder, error))?;
        }
    }
    // Of an instance that was killed: what to put back.
    match give_files(&settings, owner) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::file(&settings, error))
        }
        _ => Ok(()),
    }
}

/// Whether an instance runs whose interfaces have their settings in this folder.
fn is_in_use(settings: &Path) -> bool {
    let files = fs::read_dir(settings).into_iter().flatten().flatten();
    files.into_iter().any(|file| {
        let file = open(&file.path(), OFlags::NONBLOCK);
        file.is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
    })
}

fn make(folder: &Path) -> io::Result<()> {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::create_dir_all(parent)?,
        _ => {}
    }
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Where compiled kernels go: the user's home, or a folder in [`CACHES`].
struct Caches<'a> {
    home: &'a Path,
    /// What `XDG_CACHE_HOME` is by default.
    base: PathBuf,
    is_home: bool,
}

impl<'a> Caches<'a> {
    /// Makes the folder that only root can make.
    fn of(account: &'a Account) -> io::Result<Caches<'a>> {
        let home = &account.home;
        let is_own = |home: fs::Metadata| home.is_dir() && home.uid() == account.uid.as_raw();
        if fs::metadata(home).is_ok_and(is_own) {
            return Ok(Caches { home, base: home.join(".cache"), is_home: true });
        }
        let mut base = Path::new(CACHES).to_owned();
        if account.name != SERVICE {
            base.push(format!("{SERVICE}-{}", account.name));
            own_folder(&base, account)?;
        }
        own_folder(&base.join(SERVICE), account)?;
        Ok(Caches { home, base, is_home: false })
    }

    /// Sets the variables, as the new user. Folders that the operator named stay, if this user can write there.
    fn take(&self, account: &Account) -> io::Result<()> {
        let mut variables = vec![("HOME", self.home.to_owned())];
        let pocl = match self.is_home {
            true => self.base.join("pocl"),
            false => self.base.join(SERVICE).join("pocl"),
        };
        for (name, own) in [("XDG_CACHE_HOME", self.base.clone()), ("POCL_CACHE_DIR", pocl)] {
            match std::env::var_os(name) {
                None if self.is_home => {}
                None => variables.push((name, own)),
                Some(named) if can_write(Path::new(&named)) => {}
                Some(named) => {
                    tracing::warn!(
                        "{name} is {}, where user {} cannot write: {} in its place",
                        Path::new(&named).display(),
                        account.name,
                        own.display()
                    );
                    // PoCL makes no folders above its own.
                    own.parent().map_or(Ok(()), fs::create_dir_all)?;
                    variables.push((name, own));
                }
            }
        }
        device::environment::set(&variables)
    }
}

/// Whether this user can write into a folder, or make it.
fn can_write(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    let needed = Access::WRITE_OK | Access::EXEC_OK;
    there.is_some_and(|folder| rustix::fs::access(folder, needed).is_ok())
}

fn own_folder(folder: &Path, account: &Account) -> io::Result<()> {
    make(folder)?;
    give_folder(folder, (account.uid, account.gid))
}

/// A folder itself. A symbolic link is refused: its target may be anything.
fn give_folder(folder: &Path, owner: Owner) -> io::Result<()> {
    give(&open(folder, OFlags::DIRECTORY)?, owner)
}

/// A folder and the files in it.
fn give_files(folder: &Path, owner: Owner) -> io::Result<()> {
    give_folder(folder, owner)?;
    for entry in fs::read_dir(folder)? {
        let file = open(&entry?.path(), OFlags::NONBLOCK)?;
        let about = file.metadata()?;
        // The former owner of the folder may have linked files of others into it.
        if about.is_file() && about.nlink() == 1 {
            give(&file, owner)?;
        }
    }
    Ok(())
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn give(file: &File, (uid, gid): Owner) -> io::Result<()> {
    let about = file.metadata()?;
    match (about.uid(), about.gid()) == (uid.as_raw(), gid.as_raw()) {
        true => Ok(()), // root of a container may not change it
        false => fchown(file, Some(uid.as_raw()), Some(gid.as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_names() {
        assert_eq!(words(KEPT), "CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_BPF");
        assert_eq!(words(CapabilitySet::empty()), "no capability");
    }

    #[test]
    fn folders_and_files_become_the_users_but_not_what_links_name() {
        if !geteuid().is_root() {
            return;
        }
        let scratch = testkit::Scratch::new();
        let folder = scratch.join("ports");
        make(&folder).unwrap();
        make(&folder).unwrap(); // there already
        let [own, linked, other] =
            ["ports/1-2", "ports/1-3", "other"].map(|name| scratch.write(name, "x"));
        fs::remove_file(&linked).unwrap();
        fs::hard_link(&other, &linked).unwrap();
        let nobody = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        give_files(&folder, nobody).unwrap();
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        assert_eq!((owner(&folder), owner(&own), owner(&other)), (65_534, 65_534, 0));
        // A link in the place of the folder, or in it.
        let link = scratch.join("link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(give_folder(&link, nobody).is_err());
        std::os::unix::fs::symlink(&other, folder.join("1-4")).unwrap();
        assert!(give_files(&folder, nobody).is_err());
        assert_eq!(owner(&other), 0);
    }
}
