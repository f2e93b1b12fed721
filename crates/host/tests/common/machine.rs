//! A virtual machine as far as its disk sees it: memory, a queue, and the messages of vhost-user.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vhost::vhost_user::message::{
    VHOST_USER_CONFIG_OFFSET, VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
/// The feature `VIRTIO_BLK_F_FLUSH`.
const FLUSHES: u64 = 1 << 9;

const QUEUE_SIZE: u16 = 64;
const MEMORY_BYTES: usize = 4 << 20;
/// Where the machine's process has its memory.
const PROCESS: u64 = 0x7000_0000;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Of each request in flight: a header and a status.
const HEADERS: u64 = 0x4000;
const STATUSES: u64 = 0x5000;
const DATA: u64 = 0x10_000;
const DATA_BYTES: u64 = 0x8000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const VERSION_1: u64 = 1 << 32;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    Failed,
    Unsupported,
}

fn wait_for(told: &EventFd) {
    let since = Instant::now();
    while told.read().is_err() {
        assert!(since.elapsed() < ANSWERED_WITHIN, "the machine is not told");
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub struct Machine {
    frontend: Frontend,
    memory: GuestMemoryMmap,
    kick: EventFd,
    call: EventFd,
    error: EventFd,
    begun: u16,
    /// Whether the disk says that it takes flushes.
    pub offers_flushes: bool,
    /// How long the last request took.
    pub elapsed: Duration,
}

impl Machine {
    pub fn new(path: &Path) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MEMORY_BYTES as u64).unwrap();
        Self::with_memory(path, &file).unwrap()
    }

    /// A machine with this memory; it says that there is as much as always.
    pub fn with_memory(path: &Path, file: &File) -> vhost::Result<Self> {
        let place = FileOffset::new(file.try_clone().unwrap(), 0);
        let memory =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), MEMORY_BYTES, Some(place))]).unwrap();
        let mut frontend = Frontend::connect(path, 1)?;
        frontend.set_owner()?;
        let features = frontend.get_features()?;
        let wanted = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | VERSION_1;
        assert_eq!(features & wanted, wanted);
        frontend.set_features(wanted)?;
        let protocol = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK;
        assert!(frontend.get_protocol_features()?.contains(protocol));
        frontend.set_protocol_features(protocol)?;
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES as u64,
            userspace_addr: PROCESS,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        }])?;
        let kick = EventFd::new(0).unwrap();
        let [call, error] = [(); 2].map(|()| EventFd::new(libc::EFD_NONBLOCK).unwrap());
        frontend.set_vring_num(0, QUEUE_SIZE)?;
        frontend.set_vring_base(0, 0)?;
        frontend.set_vring_addr(
            0,
            &VringConfigData {
                queue_max_size: QUEUE_SIZE,
                queue_size: QUEUE_SIZE,
                flags: 0,
                desc_table_addr: PROCESS + DESCRIPTORS,
                used_ring_addr: PROCESS + USED,
                avail_ring_addr: PROCESS + AVAILABLE,
                log_addr: None,
            },
        )?;
        frontend.set_vring_call(0, &call)?;
        frontend.set_vring_err(0, &error)?;
        frontend.set_vring_kick(0, &kick)?;
        frontend.set_vring_enable(0, true)?;
        let offers_flushes = features & FLUSHES != 0;
        Ok(Self { frontend, memory, kick, call, error, begun: 0, offers_flushes, elapsed: Duration::ZERO })
    }

    pub fn capacity(&mut self) -> u64 {
        u64::from_le_bytes(self.config(0, 8).try_into().unwrap())
    }

    /// Bytes of the disk's configuration.
    pub fn config(&mut self, from: u32, bytes: u32) -> Vec<u8> {
        let asked = vec![0; bytes as usize];
        let (_, config) = self
            .frontend
            .get_config(from, bytes, VhostUserConfigFlags::WRITABLE, &asked)
            .unwrap_or_else(|e| {
                panic!("the configuration from {VHOST_USER_CONFIG_OFFSET} + {from}: {e}");
            });
        config
    }

    fn put<T: vm_memory::ByteValued>(&self, value: T, at: u64) {
        self.memory.write_obj(value, GuestAddress(at)).unwrap();
    }

    fn get<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn descriptor(&self, index: u16, at: u64, bytes: u32, flags: u16) {
        let place = DESCRIPTORS + 16 * u64::from(index);
        self.put(at, place);
        self.put(bytes, place + 8);
        self.put(flags, place + 12);
        self.put(index + 1, place + 14);
    }

    /// Puts a request on the queue with its data at a place.
    fn begin(&mut self, kind: u32, sector: u64, bytes: u32, data: u64) {
        let place = u64::from(self.begun % (QUEUE_SIZE / 3));
        let first = place as u16 * 3;
        self.put(kind, HEADERS + 16 * place);
        self.put(sector, HEADERS + 16 * place + 8);
        self.put(255_u8, STATUSES + place);
        self.descriptor(first, HEADERS + 16 * place, 16, NEXT);
        let status = if bytes > 0 {
            let direction = if kind == OUT { 0 } else { WRITE };
            self.descriptor(first + 1, data, bytes, NEXT | direction);
            first + 2
        } else {
            first + 1
        };
        self.descriptor(status, STATUSES + place, 1, WRITE);
        self.put(first, AVAILABLE + 4 + 2 * u64::from(self.begun % QUEUE_SIZE));
        self.begun += 1;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.put(self.begun, AVAILABLE + 2);
    }

    /// Waits until all that was begun is answered.
    fn finish(&mut self) {
        let since = Instant::now();
        self.kick.write(1).unwrap();
        while self.get::<u16>(USED + 2) != self.begun {
            assert!(since.elapsed() < ANSWERED_WITHIN, "no answer");
            std::thread::sleep(Duration::from_micros(50));
        }
        self.elapsed = since.elapsed();
        wait_for(&self.call);
    }

    /// Says that there are more requests than the queue holds, and waits until that is refused.
    pub fn overrun(&mut self) {
        self.put(self.begun + QUEUE_SIZE + 1, AVAILABLE + 2);
        self.kick.write(1).unwrap();
        wait_for(&self.error);
    }

    /// Asks for the disk's name over and over while `meanwhile` runs, and gives up in the end.
    pub fn insist(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        self.begin(GET_ID, 0, 20, DATA);
        let head: u16 = self.get(AVAILABLE + 4 + 2 * u64::from((self.begun - 1) % QUEUE_SIZE));
        (0..QUEUE_SIZE).for_each(|place| self.put(head, AVAILABLE + 4 + 2 * u64::from(place)));
        let memory = self.memory.clone();
        let enough = AtomicBool::new(false);
        let since = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) && since.elapsed() < ANSWERED_WITHIN {
                    let answered: u16 = memory.read_obj(GuestAddress(USED + 2)).unwrap();
                    let more = answered.wrapping_add(QUEUE_SIZE / 2);
                    memory.write_obj(more, GuestAddress(AVAILABLE + 2)).unwrap();
                }
            });
            self.kick.write(1).unwrap();
            meanwhile(self);
            enough.store(true, Ordering::Relaxed);
        });
        assert!(since.elapsed() < ANSWERED_WITHIN, "nothing else until the machine gave up");
    }

    /// Says that there are as many as there are, and sets the queue up again.
    pub fn start_again(&mut self) {
        self.put(self.begun, AVAILABLE + 2);
        self.frontend.set_vring_kick(0, &self.kick).unwrap();
    }

    fn status(&self) -> Status {
        let place = u64::from((self.begun - 1) % (QUEUE_SIZE / 3));
        match self.get::<u8>(STATUSES + place) {
            0 => Status::Done,
            1 => Status::Failed,
            2 => Status::Unsupported,
            other => panic!("status {other}"),
        }
    }

    /// A request with the data that is in the machine's memory.
    pub fn submit(&mut self, kind: u32, sector: u64, bytes: u32) -> Status {
        self.begin(kind, sector, bytes, DATA);
        self.finish();
        self.status()
    }

    /// A request with its data where the machine has no memory.
    pub fn elsewhere(&mut self, kind: u32) -> Status {
        self.begin(kind, 0, 512, MEMORY_BYTES as u64);
        self.finish();
        self.status()
    }

    pub fn write(&mut self, sector: u64, bytes: &[u8]) -> Status {
        self.memory.write_slice(bytes, GuestAddress(DATA)).unwrap();
        self.submit(OUT, sector, bytes.len() as u32)
    }

    pub fn read(&mut self, sector: u64, bytes: usize) -> (Status, Vec<u8>) {
        self.memory.write_slice(&vec![0xee; bytes], GuestAddress(DATA)).unwrap();
        let status = self.submit(IN, sector, bytes as u32);
        (status, self.data(bytes))
    }

    /// What the last request left in the machine's memory.
    pub fn data(&self, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read_slice(&mut data, GuestAddress(DATA)).unwrap();
        data
    }

    pub fn begin_reads(&mut self, count: u64) {
        for index in 0..count {
            self.begin(IN, index * 8, 4096, DATA + index * DATA_BYTES);
        }
        self.kick.write(1).unwrap();
    }

    /// Reads that many places side by side.
    pub fn reads_at_once(&mut self, count: u64) -> Duration {
        let since = Instant::now();
        self.begin_reads(count);
        self.finish();
        since.elapsed()
    }
}
