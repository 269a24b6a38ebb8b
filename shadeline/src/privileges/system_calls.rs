//! The system calls of a live run. All others fail with `EPERM`, or are logged by the kernel (`seccomp = "log"`).
//!
//! The list has what the program itself uses, and what the drivers of devices use: CUDA, and OpenCL platforms, of which PoCL
//! starts a linker for its kernels. It has nothing that changes the machine (mounts, modules, clocks, swap), looks into
//! other processes, types into terminals, makes namespaces, changes users, or opens kernel interfaces known for their defects (`io_uring`,
//! `userfaultfd`, keys). Since a library may try a call and go on without it, a call that is not in the list is an error
//! to the caller, and never the end of the program.

use std::collections::BTreeMap;

use control::config::Seccomp;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Kinds of sockets: control, metrics, interfaces, packets, XDP.
const SOCKETS: &[i32] = &[
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
    libc::AF_PACKET,
    libc::AF_XDP,
];

/// Flags of `clone` that make namespaces.
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Installs the filter for this thread and those that it starts. Returns, in words, what the filter does.
///
/// # Errors
/// The kernel takes no filter.
pub(super) fn filter(mode: Seccomp) -> Result<&'static str, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!(
            "filter of system calls: {error}; `seccomp = \"off\"` under `[system]` goes without"
        )
    };
    let (action, said) = match mode {
        Seccomp::Off => return Ok("not filtered"),
        Seccomp::Log => (SeccompAction::Log, "logged"),
        Seccomp::Enforce => (SeccompAction::Errno(libc::EPERM.cast_unsigned()), "filtered"),
    };
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok("not filtered on this architecture");
    };
    // `clone3` has its flags in memory, where no filter sees them. Told that there is no such call, libraries use `clone`.
    let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let no_clone3 = program(
        no_clone3,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS.cast_unsigned()),
        arch,
    );
    let listed = rules().and_then(|rules| program(rules, action, SeccompAction::Allow, arch));
    let programs = [no_clone3, listed].into_iter().collect::<Result<Vec<_>, _>>();
    for program in programs.map_err(|error| failed(&error))? {
        apply_filter(&program).map_err(|error| failed(&error))?;
    }
    Ok(said)
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    on_match: SeccompAction,
    arch: TargetArch,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, otherwise, on_match, arch)?.try_into()
}

/// Calls and what they may be called with; an empty list is anything.
fn rules() -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = COMMON.iter().chain(OF_X86).map(|call| (*call, Vec::new())).collect();
    let first_is = |op, value| SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, value);
    let of_kind = |kind: &i32| {
        SeccompRule::new(vec![first_is(SeccompCmpOp::Eq, u64::from(kind.cast_unsigned()))?])
    };
    rules.insert(libc::SYS_socket, SOCKETS.iter().map(of_kind).collect::<Result<_, _>>()?);
    let is_thread = SeccompCmpOp::MaskedEq(u64::from(NAMESPACES.cast_unsigned()));
    // Input for the terminal that the program was started from, which whoever started it would read.
    let request_is_not =
        |value: u64| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
    let refused = TERMINAL.iter().map(|request| request_is_not(*request));
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(refused.collect::<Result<_, _>>()?)?]);
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![first_is(is_thread, 0)?])?]);
    Ok(rules)
}

/// Requests of `ioctl` that put characters into a terminal's input, or paste a selection there.
const TERMINAL: &[u64] = &[libc::TIOCSTI, libc::TIOCLINUX];

/// On every architecture.
const COMMON: &[c_long] = &[
    // Reading and writing.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_pipe2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    // Files.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_utimensat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    libc::SYS_memfd_create,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    // Threads and processes: a linker that a driver starts, too.
    libc::SYS_clone3, // see `filter`
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_times,
    libc::SYS_getrandom,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    // Network. `socket` is in `rules`.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_bpf,
];

/// Of x86-64 only: older forms of the calls above.
#[cfg(target_arch = "x86_64")]
const OF_X86: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_inotify_init,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_arch_prctl,
    libc::SYS_pause,
    libc::SYS_alarm,
    libc::SYS_time,
    libc::SYS_signalfd,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
];

#[cfg(not(target_arch = "x86_64"))]
const OF_X86: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    /// In a thread of its own, which alone has the filter.
    fn filtered<T: Send>(mode: Seccomp, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let work = || {
                filter(mode).unwrap();
                work()
            };
            scope.spawn(work).join().unwrap()
        })
    }

    #[test]
    fn what_is_not_in_the_list_is_refused() {
        filtered(Seccomp::Enforce, || {
            // Threads, processes, files and sockets work.
            std::thread::spawn(|| ()).join().unwrap();
            assert!(Command::new("true").status().unwrap().success());
            assert!(
                std::fs::read_to_string("/proc/thread-self/status")
                    .unwrap()
                    .contains("Seccomp:\t2")
            );
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // Other kinds of sockets and namespaces do not, with whatever rights, and in processes that are started.
            let bluetooth = socket(AddressFamily::BLUETOOTH, SocketType::RAW, None);
            assert_eq!(bluetooth.unwrap_err(), Errno::PERM);
            // Nobody types into the terminal of whoever started the program; other requests pass.
            let typed = format!("import fcntl; fcntl.ioctl(0, {}, b'x')", libc::TIOCSTI);
            let size = "import fcntl; fcntl.ioctl(0, 0x541b, bytes(4))"; // FIONREAD, of any pipe
            for (program, errno) in [(typed.as_str(), "[Errno 1]"), (size, "")] {
                let mut command = Command::new("python3");
                let Ok(output) = command.args(["-c", program]).stdin(Stdio::piped()).output()
                else {
                    continue;
                };
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() == errno.is_empty(), "{text}");
                assert!(text.contains(errno), "{text}");
            }
            let by_child = Command::new("unshare").args(["-U", "true"]).output().unwrap();
            assert!(!by_child.status.success());
            let text = String::from_utf8_lossy(&by_child.stderr).into_owned();
            assert!(text.contains("not permitted"), "{text}");
        });
    }

    #[test]
    fn without_enforcement_nothing_is_refused() {
        for mode in [Seccomp::Log, Seccomp::Off] {
            let bluetooth = || socket(AddressFamily::BLUETOOTH, SocketType::RAW, None);
            assert_ne!(filtered(mode, bluetooth).err(), Some(Errno::PERM), "{mode:?}");
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        let all: Vec<_> = COMMON
            .iter()
            .chain(OF_X86)
            .chain([&libc::SYS_socket, &libc::SYS_ioctl, &libc::SYS_clone])
            .collect();
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
