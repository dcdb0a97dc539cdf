//! The system calls of a server that has everything open: seccomp filters over all threads.
//!
//! System calls that are not on the list fail with EPERM, so that a mistake here fails one request and not everybody's
//! last flush. `strace -f -e status=failed` shows what was refused.
//!
//! Two filters, since one can give only one error: `clone3` does not exist for us (its flags are
//! in memory, where a filter cannot see them; C libraries then use `clone`), and the list.

use std::collections::BTreeMap;

use cryptline_engine::Connections;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

/// Circumstances that the list depends on.
#[derive(Debug, Default)]
pub struct FilterTerms<'a> {
    /// Connections do their I/O over io_uring.
    pub io_uring: bool,
    /// There is a command to end with the server.
    pub command: bool,
    /// Files that are there may be opened, those that Landlock leaves.
    pub opens: bool,
    /// Connections that what lies below makes anew.
    pub connections: Connections,
    /// More system calls, with any arguments.
    pub calls: &'a [i64],
    /// More requests of ioctl(2).
    pub ioctls: &'a [u64],
}

/// For each system call what must hold for its arguments: any of the rules, or nothing.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Allowed with any arguments.
const ALWAYS: &[i64] = &[
    // Files that are open.
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
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_dup,
    // A server in the background leaves its output once it is there.
    libc::SYS_dup3,
    libc::SYS_close,
    // What the server made, removed at the end; Landlock says where.
    libc::SYS_unlinkat,
    // Clients.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_msync,
    libc::SYS_membarrier,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // How much memory there is, for the C library's `qsort`.
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
];

/// The same by the names that older architectures have for them.
#[cfg(target_arch = "x86_64")]
const ALWAYS_HERE: &[i64] =
    &[libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_unlink, libc::SYS_rmdir, libc::SYS_time, libc::SYS_dup2];
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_HERE: &[i64] = &[];

const IO_URING: &[i64] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// For `--run`: the only process whose descriptor there is, is the command's.
const COMMAND: &[i64] = &[libc::SYS_wait4, libc::SYS_waitid, libc::SYS_pidfd_send_signal];

/// For a cluster below: its storage daemons come and go, and so do connections to them.
const CONNECTIONS: &[i64] = &[libc::SYS_connect];

/// Nonblocking or not: how Rust's library sets it. Its type differs between C libraries.
const FIONBIO: u64 = 0x5421;
/// From linux/prctl.h: names of memory areas, which newer C libraries give.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// A filter or more, ready to be installed.
pub struct Filters(Vec<BpfProgram>);

impl Filters {
    /// The filters for a server that needs this.
    pub fn new(allowed: &FilterTerms<'_>) -> Result<Self, seccompiler::Error> {
        let errno = |errno: Errno| SeccompAction::Errno(errno.raw_os_error().cast_unsigned());
        let clone3 = [(libc::SYS_clone3, Vec::new())].into();
        let no_clone3 = compile(clone3, SeccompAction::Allow, errno(Errno::NOSYS))?;
        let list = compile(rules(allowed)?, errno(Errno::PERM), SeccompAction::Allow)?;
        Ok(Self(vec![no_clone3, list]))
    }

    /// From now on, for all threads.
    pub fn install(&self) -> Result<(), seccompiler::Error> {
        self.0.iter().try_for_each(|filter| apply_filter_all_threads(filter))
    }
}

fn compile(rules: Rules, others: SeccompAction, named: SeccompAction) -> Result<BpfProgram, seccompiler::Error> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, others, named, architecture)?.try_into()?)
}

fn rules(allowed: &FilterTerms<'_>) -> Result<Rules, seccompiler::Error> {
    let mut always = [ALWAYS, ALWAYS_HERE, allowed.calls].concat();
    if allowed.io_uring {
        always.extend(IO_URING);
    }
    if allowed.command {
        always.extend(COMMAND);
    }
    if allowed.connections.are_any() {
        always.extend(CONNECTIONS);
    }
    if allowed.connections.unix {
        // Whether the process of a server has ended.
        always.push(libc::SYS_pidfd_open);
    }
    let mut rules: Rules = always.into_iter().map(|call| (call, Vec::new())).collect();
    // Threads of this process, in its own namespaces; no processes.
    let thread = libc::CLONE_THREAD;
    let watched = thread
        | libc::CLONE_VFORK
        | libc::CLONE_PTRACE
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    rules.insert(libc::SYS_clone, vec![masked(0, bits(watched), bits(thread))?]);
    if allowed.opens {
        let changes = libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE | libc::O_DIRECTORY | libc::O_PATH;
        rules.insert(libc::SYS_openat, vec![masked(2, bits(changes), 0)?]);
    }
    // No memory becomes code.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![masked(2, bits(libc::PROT_EXEC), 0)?]);
    }
    if allowed.connections.are_any() {
        let mut families = Vec::new();
        if allowed.connections.tcp {
            families.extend([bits(libc::AF_INET), bits(libc::AF_INET6)]);
        }
        if allowed.connections.unix {
            families.push(bits(libc::AF_UNIX));
        }
        rules.insert(libc::SYS_socket, words(0, &families)?);
    }
    // Sockets are bound or connected: no address with a message.
    rules.insert(libc::SYS_sendto, vec![equal(4, SeccompCmpArgLen::Qword, 0)?]);
    rules.insert(libc::SYS_ioctl, words(1, &[&[FIONBIO], allowed.ioctls].concat())?);
    // Limits are looked at, and set no more.
    rules.insert(libc::SYS_prlimit64, vec![equal(2, SeccompCmpArgLen::Qword, 0)?]);
    let names = [bits(libc::PR_SET_NAME), bits(libc::PR_GET_NAME), PR_SET_VMA];
    rules.insert(libc::SYS_prctl, words(0, &names)?);
    let commands = [
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_OFD_GETLK,
        libc::F_OFD_SETLK,
    ];
    rules.insert(libc::SYS_fcntl, words(1, &commands.map(bits))?);
    // A panic or a second SIGTERM ends this process; no other is signalled.
    rules.insert(libc::SYS_tgkill, words(0, &[std::process::id().into()])?);
    Ok(rules)
}

/// One of these values in an argument of 32 bits.
fn words(index: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    values.iter().map(|&value| equal(index, SeccompCmpArgLen::Dword, value)).collect()
}

fn equal(index: u8, len: SeccompCmpArgLen, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition = SeccompCondition::new(index, len, SeccompCmpOp::Eq, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn masked(index: u8, mask: u64, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn bits(value: i32) -> u64 {
    value.cast_unsigned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_for_every_server_and_forbid_what_must_be() {
        for (io_uring, command) in [(false, false), (true, false), (false, true), (true, true)] {
            let allowed = FilterTerms { io_uring, command, ..FilterTerms::default() };
            assert_eq!(Filters::new(&allowed).unwrap().0.len(), 2);
            let rules = super::rules(&allowed).unwrap();
            for call in [
                libc::SYS_openat,
                libc::SYS_openat2,
                libc::SYS_execve,
                libc::SYS_execveat,
                libc::SYS_socket,
                libc::SYS_connect,
                libc::SYS_bind,
                libc::SYS_ptrace,
                libc::SYS_process_vm_writev,
                libc::SYS_kill,
                libc::SYS_setns,
                libc::SYS_unshare,
                libc::SYS_mount,
                libc::SYS_bpf,
                libc::SYS_pidfd_open,
                libc::SYS_pidfd_getfd,
                libc::SYS_ftruncate,
                libc::SYS_memfd_create,
            ] {
                assert!(!rules.contains_key(&call), "system call {call}");
            }
            assert_eq!(rules.contains_key(&libc::SYS_io_uring_setup), io_uring);
            let opens = FilterTerms { opens: true, ..allowed };
            assert!(super::rules(&opens).unwrap().contains_key(&libc::SYS_openat));
            assert_eq!(rules.contains_key(&libc::SYS_pidfd_send_signal), command);
        }
    }

    #[test]
    fn what_a_front_needs_beyond_that_is_allowed() {
        let allowed = FilterTerms { calls: &[libc::SYS_umount2], ioctls: &[1, 2], ..FilterTerms::default() };
        let rules = rules(&allowed).unwrap();
        assert!(rules.contains_key(&libc::SYS_umount2));
        assert_eq!(rules[&libc::SYS_ioctl].len(), 3);
    }
}
