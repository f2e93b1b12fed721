//! What becomes of signals, where neither a server nor the system's default should decide.

/// Signals that a parent may have had ignored: `nohup` does it with the first, a shell that starts a program in the
/// background with the second.
const OF_THE_PARENT: [i32; 2] = [libc::SIGHUP, libc::SIGINT];

/// Those of SIGHUP and SIGINT that are ignored, as the parent wished.
#[derive(Clone, Copy, Debug)]
pub struct IgnoredSignals([bool; 2]);

impl IgnoredSignals {
    /// Those that are ignored now.
    pub fn look() -> Self {
        Self(OF_THE_PARENT.map(|signal| {
            // SAFETY: all-zero is a valid action.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: nothing is changed, and the pointer is to a local.
            let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            result == 0 && action.sa_sigaction == libc::SIG_IGN
        }))
    }

    /// Ignores them again, whoever handles them now.
    pub fn ignore(self) {
        for (signal, _) in OF_THE_PARENT.into_iter().zip(self.0).filter(|(_, is_ignored)| *is_ignored) {
            ignore(signal);
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
    fn what_was_ignored_is_ignored_again_and_a_size_limit_is_an_error() {
        ignore(libc::SIGHUP);
        let before = IgnoredSignals::look();
        assert_eq!(before.0, [true, false]);
        // SAFETY: the default runs no code of this process.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        assert_eq!(IgnoredSignals::look().0, [false, false]);
        before.ignore();
        assert_eq!(IgnoredSignals::look().0, [true, false]);
    }
}
