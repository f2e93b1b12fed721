//! How much of what is freed a process keeps.

/// Kept at most, beyond what is in use; larger pieces go back to the kernel at once.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 32 << 20;

/// Has the allocator keep what is freed for the next piece of its size.
///
/// glibc returns all but 128 KiB to the kernel, page by page, and gets it back the same way: where pieces of a megabyte come and go that
/// takes more time than what they are for. For a program to say at its start; other allocators are left as they are.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these set numbers that the allocator looks at, under its own lock.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BYTES);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_kept() {
        keep_freed_memory();
        let bytes = 8 << 20;
        drop(std::hint::black_box(vec![1_u8; bytes]));
        // SAFETY: it only looks.
        let free = unsafe { libc::mallinfo2() }.fordblks;
        assert!(free >= bytes / 2, "{free} bytes are kept");
    }
}
