//! Members and buffers with bytes, for runs that check what an array keeps.
//!
//! Everything is copied on the way: clear, and slow beside the real loop, which computes in place.

use stripewise_engine::io::{
    ActionQueue, Area, Buf, Compute, Kernel, MemberIo, Op, Operand, RequestId, Role, SegList, Verdict,
};
use stripewise_engine::units::{MemberIndex, PAGE_BYTES, SECTOR_BYTES};
use stripewise_parity::{Change, Kernels, Lost, Stripe};

use crate::data::Data;

/// The bytes of an array's members, its stripe cache and its requests.
#[derive(Debug)]
pub struct BytesStore {
    members: Vec<Vec<u8>>,
    /// Sectors of each member before its data.
    data_offset_sectors: Vec<u64>,
    /// One page for each entry, by slot.
    pages: Vec<Vec<u8>>,
    requests: Vec<Vec<u8>>,
    /// Frames of the page cache, as many as were used.
    frames: Vec<u8>,
    /// What writes are encrypted into, as much as was used.
    crypt_pages: Vec<u8>,
    kernels: Kernels,
}

impl BytesStore {
    /// Members of these sizes in sectors, all zeroes, and a stripe cache of so many entries.
    pub fn new(member_sectors: &[u64], entries: u32) -> Self {
        let page_bytes = (u64::from(entries) * PAGE_BYTES) as usize;
        Self {
            members: member_sectors.iter().map(|s| vec![0; (s * SECTOR_BYTES) as usize]).collect(),
            // One by one, so that no page is touched before it is used.
            pages: member_sectors.iter().map(|_| vec![0; page_bytes]).collect(),
            requests: Vec::new(),
            frames: Vec::new(),
            crypt_pages: Vec::new(),
            data_offset_sectors: vec![0; member_sectors.len()],
            kernels: Kernels::scalar(),
        }
    }

    /// Puts each member's data behind so many sectors, within the size it has.
    #[must_use]
    pub fn with_data_offsets(mut self, sectors: &[u64]) -> Self {
        self.data_offset_sectors.copy_from_slice(sectors);
        self
    }

    /// The bytes of a member.
    pub fn member(&mut self, member: MemberIndex) -> &mut Vec<u8> {
        &mut self.members[member.index()]
    }

    /// The buffer of a request.
    pub fn request(&mut self, id: RequestId) -> &mut Vec<u8> {
        let index = id.0 as usize;
        if self.requests.len() <= index {
            self.requests.resize(index + 1, Vec::new());
        }
        &mut self.requests[index]
    }

    /// The bytes that segments name, in order.
    pub fn gather(&self, list: SegList, out: &ActionQueue) -> Vec<u8> {
        let mut bytes = Vec::new();
        for seg in out.segs(list) {
            let count = seg.bytes as usize;
            match seg.buf {
                Buf::Zero => bytes.resize(bytes.len() + count, 0),
                Buf::Metadata { offset } => {
                    bytes.extend_from_slice(&out.metadata[offset as usize..][..count]);
                }
                Buf::Request { id, offset } => {
                    bytes.extend_from_slice(&self.requests[id.0 as usize][offset as usize..][..count]);
                }
                Buf::Page { entry, slot, offset } => {
                    bytes.extend_from_slice(&self.pages[slot.index()][page_at(entry, offset)..][..count]);
                }
                Buf::CachePage { frame, offset } => {
                    bytes.extend_from_slice(&self.frames[page_at(frame, offset)..][..count]);
                }
                Buf::CryptPage { page, offset } => {
                    bytes.extend_from_slice(&self.crypt_pages[page_at(page, offset)..][..count]);
                }
            }
        }
        bytes
    }

    /// Puts bytes where segments name them.
    ///
    /// # Panics
    /// If the segments are not as long as the bytes, or name what is never written to.
    pub fn scatter(&mut self, list: SegList, out: &ActionQueue, mut bytes: &[u8]) {
        for seg in out.segs(list) {
            let (now, rest) = bytes.split_at(seg.bytes as usize);
            bytes = rest;
            let target = match seg.buf {
                Buf::Zero | Buf::Metadata { .. } => panic!("{:?} is not written to", seg.buf),
                Buf::Request { id, offset } => &mut self.requests[id.0 as usize][offset as usize..],
                Buf::Page { entry, slot, offset } => &mut self.pages[slot.index()][page_at(entry, offset)..],
                Buf::CachePage { frame, offset } => {
                    reach(&mut self.frames, page_at(frame, offset), now.len())
                }
                Buf::CryptPage { page, offset } => {
                    reach(&mut self.crypt_pages, page_at(page, offset), now.len())
                }
            };
            target[..now.len()].copy_from_slice(now);
        }
        assert!(bytes.is_empty(), "segments are as long as their bytes");
    }

    fn generate(&mut self, sources: &[(Role, Vec<u8>)], targets: &[Operand], out: &ActionQueue) {
        let length = sources[0].1.len();
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        let data = by_index(sources);
        if targets.iter().any(|t| t.role == Role::Q) {
            self.kernels.pq(&mut p, &mut q, &data);
        } else {
            let blocks: Vec<&[u8]> = data.into_iter().flatten().collect();
            self.kernels.xor(&mut p, &blocks);
        }
        for target in targets {
            self.scatter(target.segs, out, if target.role == Role::Q { &q } else { &p });
        }
    }

    fn update(&mut self, sources: &[(Role, Vec<u8>)], targets: &[Operand], out: &ActionQueue) {
        let changes: Vec<Change<'_>> = sources
            .chunks(2)
            .map(|pair| {
                assert_eq!(pair[0].0, pair[1].0, "old and new bytes are of one block");
                let Role::Data(index) = pair[0].0 else { panic!("only data is updated") };
                Change { index, old: &pair[0].1, new: &pair[1].1 }
            })
            .collect();
        for target in targets {
            let mut bytes = self.gather(target.segs, out);
            let block = Some(bytes.as_mut_slice());
            let (p, q) = if target.role == Role::Q { (None, block) } else { (block, None) };
            self.kernels.pq_update(p, q, &changes);
            self.scatter(target.segs, out, &bytes);
        }
    }

    fn recover(&mut self, sources: &[(Role, Vec<u8>)], targets: &[Operand], out: &ActionQueue) {
        let length = sources[0].1.len();
        let mut data = by_index(sources);
        let highest =
            targets.iter().filter_map(|t| if let Role::Data(i) = t.role { Some(i) } else { None }).max();
        data.resize(data.len().max(highest.map_or(0, |h| usize::from(h) + 1)), None);
        let parity = |role| sources.iter().find(|(r, _)| *r == role).map(|(_, b)| b.as_slice());
        let stripe = Stripe { data: &data, p: parity(Role::P), q: parity(Role::Q) };
        let mut rebuilt = vec![vec![0; length]; targets.len()];
        let mut lost: Vec<Lost<'_>> = targets
            .iter()
            .zip(&mut rebuilt)
            .map(|(t, bytes)| Lost::wanted(parity_role(t.role), bytes.as_mut_slice()))
            .collect();
        self.kernels.recover(&stripe, &mut lost).expect("the engine asks only for what can be rebuilt");
        for (target, bytes) in targets.iter().zip(&rebuilt) {
            self.scatter(target.segs, out, bytes);
        }
    }
}

impl BytesStore {
    fn check(&self, sources: &[(Role, Vec<u8>)]) -> Verdict {
        let parity = |role| sources.iter().find(|(r, _)| *r == role).map(|(_, b)| b.as_slice());
        let data = by_index(sources);
        match (parity(Role::P), parity(Role::Q)) {
            (Some(p), q) => verdict(self.kernels.check(&data, p, q)),
            (None, Some(q)) => {
                let (mut p, mut computed) = (vec![0; q.len()], vec![0; q.len()]);
                self.kernels.pq(&mut p, &mut computed, &data);
                if computed == q { Verdict::Consistent } else { Verdict::Unlocated }
            }
            (None, None) if sources.iter().all(|(_, b)| *b == sources[0].1) => Verdict::Consistent,
            (None, None) => Verdict::Unlocated,
        }
    }
}

const fn verdict(verdict: stripewise_parity::Verdict) -> Verdict {
    match verdict {
        stripewise_parity::Verdict::Consistent => Verdict::Consistent,
        stripewise_parity::Verdict::P => Verdict::P,
        stripewise_parity::Verdict::Q => Verdict::Q,
        stripewise_parity::Verdict::Data(index) => Verdict::Data(index),
        stripewise_parity::Verdict::Unlocated => Verdict::Unlocated,
    }
}

/// The bytes from a place on of memory that grows as it is used.
fn reach(memory: &mut Vec<u8>, start: usize, length: usize) -> &mut [u8] {
    let end = (start + length).next_multiple_of(PAGE_BYTES as usize);
    if memory.len() < end {
        memory.resize(end, 0xEE);
    }
    &mut memory[start..]
}

fn page_at(entry: u32, offset: u32) -> usize {
    (u64::from(entry) * PAGE_BYTES) as usize + offset as usize
}

const fn parity_role(role: Role) -> stripewise_parity::Role {
    match role {
        Role::Data(index) => stripewise_parity::Role::Data(index),
        Role::P => stripewise_parity::Role::P,
        Role::Q => stripewise_parity::Role::Q,
    }
}

fn by_index(sources: &[(Role, Vec<u8>)]) -> Vec<Option<&[u8]>> {
    let mut data: Vec<Option<&[u8]>> = Vec::new();
    for (role, bytes) in sources {
        if let Role::Data(index) = role {
            let index = usize::from(*index);
            data.resize(data.len().max(index + 1), None);
            assert!(data[index].replace(bytes).is_none(), "an index stands for one block");
        }
    }
    data
}

impl Data for BytesStore {
    fn io(&mut self, io: &MemberIo, out: &ActionQueue) {
        let before = if io.area == Area::Data { self.data_offset_sectors[io.member.index()] } else { 0 };
        let start = ((before + io.range.start) * SECTOR_BYTES) as usize;
        let member = io.member.index();
        let count = (io.range.count * SECTOR_BYTES) as usize;
        match io.op {
            Op::Read => {
                let bytes = self.members[member][start..start + count].to_vec();
                self.scatter(io.segs, out, &bytes);
            }
            Op::Write => {
                let bytes = self.gather(io.segs, out);
                self.members[member][start..start + count].copy_from_slice(&bytes);
            }
            Op::Discard | Op::WriteZeroes => self.members[member][start..start + count].fill(0),
            Op::Flush => {}
        }
    }

    fn compute(&mut self, compute: &Compute, out: &ActionQueue) -> Verdict {
        let sources: Vec<(Role, Vec<u8>)> =
            out.operands(compute.sources).iter().map(|o| (o.role, self.gather(o.segs, out))).collect();
        assert!(sources.iter().all(|(_, b)| b.len() as u64 == compute.bytes), "operands are of one length");
        let targets = out.operands(compute.targets).to_vec();
        let only_looks = matches!(compute.kernel, Kernel::Check | Kernel::Checksum);
        assert_eq!(targets.is_empty(), only_looks, "{:?} is computed into something", compute.kernel);
        match compute.kernel {
            Kernel::Copy => {
                for (target, (_, bytes)) in targets.iter().zip(&sources) {
                    self.scatter(target.segs, out, bytes);
                }
            }
            Kernel::Generate => self.generate(&sources, &targets, out),
            Kernel::Update => self.update(&sources, &targets, out),
            Kernel::Recover => self.recover(&sources, &targets, out),
            Kernel::Check => return self.check(&sources),
            Kernel::Checksum => {
                return Verdict::Checksum(stripewise_format::ppl::parity_checksum(&sources[0].1));
            }
            // A key stream of the sector's number: enough to tell a sector that was ciphered as another, or not
            // at all or twice, from a right one.
            Kernel::Encrypt { sector } | Kernel::Decrypt { sector } => {
                let mut bytes = sources[0].1.clone();
                for (at, byte) in bytes.iter_mut().enumerate() {
                    let number = sector + at as u64 / SECTOR_BYTES + 1;
                    *byte ^= (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1;
                }
                self.scatter(targets[0].segs, out, &bytes);
            }
        }
        Verdict::Consistent
    }
}
