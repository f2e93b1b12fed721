//! Time as benchmarks take it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Seconds the calling thread is on a CPU: what others do on the machine then counts less. On an idle machine they are
/// those of the wall clock, for work that does not sleep.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Duration,
}

impl Stopwatch {
    /// Starts on the calling thread.
    pub fn start() -> Self {
        Self { started: on_cpu() }
    }

    /// Seconds since; to be asked for on the thread that started it.
    pub fn seconds(&self) -> f64 {
        on_cpu().saturating_sub(self.started).as_secs_f64()
    }
}

fn on_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Repeats `step` for about `time`; returns how often a second. The clock is read once in `batch` steps.
pub fn steps_per_second(time: Duration, batch: u32, mut step: impl FnMut()) -> f64 {
    let (began, watch) = (Instant::now(), Stopwatch::start());
    let mut steps = 0_u64;
    loop {
        for _ in 0..batch {
            step();
        }
        steps += u64::from(batch);
        if began.elapsed() >= time {
            return steps as f64 / watch.seconds();
        }
    }
}

/// Runs the contenders in turns and returns the samples of each. A round before the first warms up and is not kept. A
/// contender is told the number of the round.
pub fn interleaved<const N: usize>(
    rounds: u64,
    mut contenders: [&mut dyn FnMut(u64) -> f64; N],
) -> [Vec<f64>; N] {
    let mut samples = [const { Vec::new() }; N];
    for round in 0..=rounds {
        for (contender, samples) in contenders.iter_mut().zip(&mut samples) {
            let sample = contender(round);
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_and_the_first_round_is_not_kept() {
        let turns = std::cell::RefCell::new(Vec::new());
        let samples = interleaved(
            2,
            [
                &mut |round| {
                    turns.borrow_mut().push('a');
                    round as f64
                },
                &mut |round| {
                    turns.borrow_mut().push('b');
                    -(round as f64)
                },
            ],
        );
        assert_eq!(samples, [vec![1.0, 2.0], vec![-1.0, -2.0]]);
        assert_eq!(turns.into_inner(), ['a', 'b', 'a', 'b', 'a', 'b']);
    }

    #[test]
    fn time_off_the_cpu_does_not_count() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(50));
        assert!(watch.seconds() < 0.045);
        assert!(steps_per_second(Duration::from_millis(1), 4, || {}) > 0.0);
    }
}
