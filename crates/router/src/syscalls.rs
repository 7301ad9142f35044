//! System calls that a running router has no use for, and that the kernel refuses it from its start on (seccomp(2)).
//!
//! What is refused starts other programs and processes, reads or traces other processes, and changes mounts, modules, users, the
//! clock and the host's name: each fails with EPERM, and ends nothing. A list of what is refused, not of what is allowed: C
//! libraries and the kernel's own calls change, and a router that forwards is not to fail over a new one. The service unit adds
//! a list of what is allowed.
//!
//! Cost: some 40 ns a call: Linux 5.11 and newer decide calls that are allowed whatever their arguments once, by number. Older
//! ones run the list for each call, which was not measured.

use std::io;

use libc::sock_filter;

use crate::sys;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Low word of the first argument: the processors below are little-endian.
const FIRST: u32 = 16;

/// `AUDIT_ARCH_*` of this program; calls by other conventions are refused.
#[cfg(target_arch = "x86_64")]
const OWN: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const OWN: u32 = 0xc000_00f3;
/// First number of the x32 convention.
#[cfg(target_arch = "x86_64")]
const OTHERS: u32 = 0x4000_0000;
#[cfg(not(target_arch = "x86_64"))]
const OTHERS: u32 = u32::MAX;

/// Flags of namespaces; the others of unshare(2) are a thread's own matter.
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWTIME;

const REFUSED: &[libc::c_long] = &[
    // Programs and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_personality,
    // Users.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // The kernel and the host.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Has the kernel refuse the process all system calls of [`REFUSED`]. The calling thread gets `no_new_privs`.
///
/// # Errors
/// Error of the kernel; then nothing is refused.
pub(crate) fn refuse_unused() -> io::Result<()> {
    sys::filter_system_calls(&program(), true)
}

/// The filter: a classic BPF program of `struct seccomp_data`.
fn program() -> Vec<sock_filter> {
    let code = |code: u32| u16::try_from(code).expect("codes have 16 bits");
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let at_least = code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
    let any_of = code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K);
    let give = code(libc::BPF_RET | libc::BPF_K);
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let error = |number: i32| {
        let number = number.cast_unsigned();
        step(give, libc::SECCOMP_RET_ERRNO | number, 0, 0)
    };
    let (refuse, allow) = (error(libc::EPERM), step(give, libc::SECCOMP_RET_ALLOW, 0, 0));
    let of = |number: libc::c_long| u32::try_from(number).expect("numbers of calls are small");
    let mut program = vec![
        step(load, ARCHITECTURE, 0, 0),
        step(equal, OWN, 1, 0),
        refuse,
        step(load, NUMBER, 0, 0),
        step(at_least, OTHERS, 0, 1),
        refuse,
        // Its flags lie in memory, which a filter does not read: C libraries then call clone(2).
        step(equal, of(libc::SYS_clone3), 0, 1),
        error(libc::ENOSYS),
        // Threads, and no processes.
        step(equal, of(libc::SYS_clone), 0, 4),
        step(load, FIRST, 0, 0),
        step(any_of, libc::CLONE_THREAD.cast_unsigned(), 1, 0),
        refuse,
        allow,
        step(equal, of(libc::SYS_unshare), 0, 4),
        step(load, FIRST, 0, 0),
        step(any_of, NAMESPACES.cast_unsigned(), 0, 1),
        refuse,
        allow,
    ];
    for &number in REFUSED {
        program.extend([step(equal, of(number), 0, 1), refuse]);
    }
    program.push(allow);
    program
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    /// On a thread of its own, as other tests start programs.
    fn filtered<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(|| {
            sys::keep_capabilities(sys::capabilities().unwrap()).unwrap();
            sys::filter_system_calls(&program(), false).unwrap();
            f()
        });
        thread.join().unwrap()
    }

    #[test]
    fn programs_are_refused_and_threads_are_not() {
        filtered(|| {
            let refused = Command::new("true").status().unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{refused}");
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            // A file for its owner alone takes a thread with a mode mask of its own.
            sys::for_owner_alone(|| Ok(())).unwrap();
            sys::keep_capabilities(0).unwrap();
        });
        assert!(Command::new("true").status().is_ok(), "other threads are as they were");
    }

    #[test]
    fn namespaces_are_refused() {
        filtered(|| {
            for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_NEWNS] {
                assert_eq!(sys::unshare(flag).unwrap_err().raw_os_error(), Some(libc::EPERM));
            }
        });
    }

    /// Prints what a call costs with the filter and without: the least of many short rounds, as other tests run beside it.
    #[test]
    fn the_cost_of_a_call_is_printed() {
        let cost = || {
            let calls = 1_000;
            let began = Instant::now();
            (0..calls).for_each(|_| {
                sys::poll(&[], std::time::Duration::ZERO);
            });
            began.elapsed().as_nanos() / calls
        };
        let without = (0..300).map(|_| cost()).min().unwrap();
        let with = filtered(move || (0..300).map(|_| cost()).min().unwrap());
        println!("{without} ns a call without the filter, {with} ns with it");
    }
}
