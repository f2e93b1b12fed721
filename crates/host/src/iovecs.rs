//! Runs of memory of which a part has moved.

/// Takes the first `moved` bytes off runs, of which they may be all. Answers how many runs are used up; the next begins where
/// the bytes end.
pub(crate) fn pass(runs: &mut [libc::iovec], mut moved: usize) -> usize {
    for (index, run) in runs.iter_mut().enumerate() {
        if moved < run.iov_len {
            run.iov_len -= moved;
            run.iov_base = run.iov_base.wrapping_byte_add(moved);
            return index;
        }
        moved -= run.iov_len;
    }
    runs.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_begins_where_the_bytes_end() {
        let memory = [0_u8; 30];
        let run = |from: usize, bytes: usize| libc::iovec {
            iov_base: memory[from..].as_ptr().cast_mut().cast(),
            iov_len: bytes,
        };
        let left = |moved: usize| {
            let mut runs = [run(0, 10), run(20, 4), run(10, 6)];
            let next = pass(&mut runs, moved);
            let place = |v: &libc::iovec| (v.iov_base as usize - memory.as_ptr() as usize, v.iov_len);
            runs[next..].iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(left(0), [(0, 10), (20, 4), (10, 6)]);
        assert_eq!(left(9), [(9, 1), (20, 4), (10, 6)]);
        assert_eq!(left(10), [(20, 4), (10, 6)]);
        assert_eq!(left(13), [(23, 1), (10, 6)]);
        assert_eq!(left(15), [(11, 5)]);
        assert_eq!(left(20), []);
    }
}
