//! Where the environment forbids `io_uring`, files are refused with a clear error and memory works.

mod common;

use common::{files, memory, volume};
use stripewise_engine::level::{Layout, Level};
use stripewise_host::{Array, ArrayConfig, HostError};

/// Makes `io_uring_setup` fail with `EPERM` for the calling thread, as container runtimes do.
fn forbid_io_uring() {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The system call's number is the first word of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the calls take numbers and a pointer to a program that outlives them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

#[test]
fn files_are_refused_clearly_and_memory_works() {
    forbid_io_uring();
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(Level::Raid0, Layout::default_of(Level::Raid0), 2, 16, 4096);
    let mut array = Array::open(ArrayConfig::new(volume.clone(), memory(2))).unwrap();
    array.write_at(8, &[9; 4096]).unwrap();

    let members = files(folder.path(), 2, 4096);
    let mut array = Array::open(ArrayConfig::new(volume, members)).unwrap();
    let error = array.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(matches!(error, HostError::IoUring { errno: libc::EPERM }));
    let text = error.to_string();
    assert!(text.contains("does not permit io_uring") && text.contains("memory members"), "{text}");
}
