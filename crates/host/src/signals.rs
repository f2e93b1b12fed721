//! What becomes of signals, where neither a server nor the system's default should decide.

/// Whether a hang-up is ignored, as `nohup` has it.
#[derive(Clone, Copy, Debug)]
pub struct IgnoredHangup(bool);

impl IgnoredHangup {
    /// As it is now.
    pub fn look() -> Self {
        // SAFETY: all-zero is a valid action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is changed, and the pointer is to a local.
        let result = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) };
        Self(result == 0 && action.sa_sigaction == libc::SIG_IGN)
    }

    /// Ignores it again if it was ignored, whoever handles it now.
    pub fn keep(self) {
        if self.0 {
            ignore(libc::SIGHUP);
        }
    }
}

/// Lets a write beyond the limit on a file's size (`ulimit -f`) be an error, as others are, and not the process's end.
pub fn take_size_limit_as_error() {
    ignore(libc::SIGXFSZ);
}

fn ignore(signal: i32) {
    // SAFETY: ignoring runs no code of this process in a signal's place.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_that_was_ignored_is_ignored_again() {
        ignore(libc::SIGHUP);
        let before = IgnoredHangup::look();
        assert!(before.0);
        // SAFETY: the default runs no code of this process.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        assert!(!IgnoredHangup::look().0);
        before.keep();
        assert!(IgnoredHangup::look().0);
    }
}
