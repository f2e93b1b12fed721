//! The CPU: cores that serve requests and commands as they come, and md's one thread of the array, which on the first core
//! computes parity and sends what passes the stripe cache, one piece after another; with workers (`group_thread_cnt`), these
//! take pieces on the next cores.
//!
//! Requests of one stream come from one thread: what the kernel does for them until their commands are issued is done on
//! that thread's time, one request after another; but what passes the stripe cache is md's thread's to send, and what dm-crypt
//! has encrypted its own writer's. What follows an interrupt is done on any core. Copies pass the memory, which the cores share.

use crate::models::CpuModel;
use stripewise_engine::io::{ActionQueue, Compute, Kernel, Op, Request, Role};
use stripewise_engine::units::{PAGE_BYTES, PAGE_SECTORS};

/// A thread whose work is done one piece after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Submits the requests of a stream.
    Stream(u16),
    /// Sends what dm-crypt has encrypted: one for a device (`dmcrypt_write` since Linux 4.0; before, the one that encrypts).
    CryptWriter,
}

impl Thread {
    const fn index(self) -> usize {
        match self {
            Self::CryptWriter => 0,
            Self::Stream(stream) => 1 + stream as usize,
        }
    }
}

/// The cores and their counters.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    model: CpuModel,
    free_ns: Vec<u64>,
    /// The first cores: md's thread and its workers.
    array_cores: usize,
    /// When each thread that submits is free.
    threads: Vec<u64>,
    /// The thread on whose time the world acts; none in an interrupt.
    thread: Option<Thread>,
    memory_free_ns: u64,
    busy_ns: u64,
    parity_ns: u64,
}

impl Cpu {
    pub(crate) fn new(model: &CpuModel, group_thread_cnt: usize) -> Self {
        Self {
            model: model.clone(),
            free_ns: vec![0; model.cores],
            array_cores: group_thread_cnt.saturating_add(1).min(model.cores),
            busy_ns: 0,
            parity_ns: 0,
            threads: Vec::new(),
            thread: None,
            memory_free_ns: 0,
        }
    }

    /// Prepares a request on the thread of its stream; returns when it is ready. One through the page cache builds no bio
    /// and pins nothing: what it has to read or to write is told of as I/Os to members. One that asks for more than there are
    /// `array_sectors` is refused, and no longer than all of them until then.
    pub(crate) fn submit(&mut self, now_ns: u64, request: &Request, array_sectors: u64) -> u64 {
        let pages = request.range.count.min(array_sectors).div_ceil(PAGE_SECTORS);
        let m = &self.model;
        let cost = if request.flags.buffered && request.op != Op::Flush {
            m.cached_request_ns + pages * m.cached_page_ns
        } else {
            m.request_submit_ns + pages * m.page_ns
        };
        self.enter(Some(Thread::Stream(request.flags.stream)));
        let end = self.serve_thread(now_ns, cost);
        self.enter(None);
        end
    }

    /// What follows is done on a thread, or on none.
    pub(crate) fn enter(&mut self, thread: Option<Thread>) {
        self.thread = thread;
        if let Some(index) = thread.map(Thread::index).filter(|index| *index >= self.threads.len()) {
            self.threads.resize(index + 1, 0);
        }
    }

    /// Completes a request; returns when its submitter knows.
    pub(crate) fn complete(&mut self, now_ns: u64) -> u64 {
        self.serve(now_ns, self.model.request_complete_ns)
    }

    /// Hands over I/Os to members by the thread acted for; returns when the drives can have them.
    pub(crate) fn member_ios(&mut self, now_ns: u64, ios: u64) -> u64 {
        self.serve_thread(now_ns, ios * self.model.member_io_ns)
    }

    /// The same for those that pass the stripe cache, by the array's thread; `pages` are all of theirs.
    pub(crate) fn stripe_ios(&mut self, now_ns: u64, ios: u64, pages: u64) -> u64 {
        let more = pages.saturating_sub(ios);
        self.serve_array(now_ns, ios * self.model.member_io_ns + more * self.model.row_io_ns)
    }

    /// Issues a command to a drive, its interrupt included, by either; returns when the drive has it.
    pub(crate) fn command(&mut self, now_ns: u64, by_array: bool) -> u64 {
        self.serve_by(by_array, now_ns, self.model.command_ns)
    }

    /// Computes on the array's thread; returns the end.
    pub(crate) fn compute(&mut self, now_ns: u64, compute: &Compute, queue: &ActionQueue) -> u64 {
        let (parity, handling) = self.compute_ns(compute, queue);
        self.parity_ns += parity;
        self.serve_array(now_ns, parity + handling)
    }

    fn serve_by(&mut self, array: bool, now_ns: u64, cost_ns: u64) -> u64 {
        if array { self.serve_array(now_ns, cost_ns) } else { self.serve_thread(now_ns, cost_ns) }
    }

    fn serve_array(&mut self, now_ns: u64, cost_ns: u64) -> u64 {
        let free_ns = self.free_ns[..self.array_cores].iter_mut().min().expect("a CPU has a core");
        *free_ns = (*free_ns).max(now_ns) + cost_ns;
        self.busy_ns += cost_ns;
        *free_ns
    }

    /// Copies between a caller's buffer and cached pages, on the thread acted for, and through the memory that all cores
    /// share; returns the end.
    pub(crate) fn copy(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let end = self.serve_thread(now_ns, bytes * self.model.copy_byte_ps / 1000);
        let passing = bytes * self.model.copy_passing_ps / 1000;
        self.memory_free_ns = self.memory_free_ns.max(now_ns) + passing;
        end.max(self.memory_free_ns)
    }

    pub(crate) fn cores(&self) -> usize {
        self.free_ns.len()
    }

    pub(crate) const fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Of that, for parity itself.
    pub(crate) const fn parity_ns(&self) -> u64 {
        self.parity_ns
    }

    /// As [`serve`](Self::serve), after what the thread does already.
    fn serve_thread(&mut self, now_ns: u64, cost_ns: u64) -> u64 {
        let Some(thread) = self.thread.map(Thread::index) else { return self.serve(now_ns, cost_ns) };
        let end = self.serve(now_ns.max(self.threads[thread]), cost_ns);
        self.threads[thread] = end;
        end
    }

    /// The core that is free first; the last of equals, to leave the first to the array's thread.
    pub(crate) fn serve(&mut self, now_ns: u64, cost_ns: u64) -> u64 {
        let mut core = self.free_ns.len() - 1;
        // No other can be free before now.
        let others = if self.free_ns[core] <= now_ns { 0 } else { core };
        for other in (0..others).rev() {
            if self.free_ns[other].max(now_ns) < self.free_ns[core].max(now_ns) {
                core = other;
            }
        }
        let end = self.free_ns[core].max(now_ns) + cost_ns;
        self.free_ns[core] = end;
        self.busy_ns += cost_ns;
        end
    }

    /// For parity the slower of arithmetic and memory; and copies, or the handling of each row.
    fn compute_ns(&self, compute: &Compute, queue: &ActionQueue) -> (u64, u64) {
        let m = &self.model;
        let sources = u64::from(compute.sources.count);
        let touched = sources + u64::from(compute.targets.count);
        if compute.kernel == Kernel::Copy {
            return (0, compute.bytes * sources * m.copy_byte_ps / 1000);
        }
        let roles = |list| queue.operands(list).iter().any(|o| o.role == Role::Q);
        let arithmetic_ps = if roles(compute.targets) || roles(compute.sources) {
            sources * m.pq_byte_ps
        } else {
            sources.saturating_sub(1) * m.xor_byte_ps
        };
        let rows = compute.bytes.div_ceil(PAGE_BYTES);
        let row_ns = if compute.kernel == Kernel::Update { m.row_update_ns } else { m.row_ns };
        (compute.bytes * arithmetic_ps.max(touched * m.memory_byte_ps) / 1000, rows * row_ns)
    }
}
