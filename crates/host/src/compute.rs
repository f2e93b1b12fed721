//! Carries out the engine's computations with the parity kernels, directly on the named bytes.
//!
//! The operands of a computation may be cut into segments at different places; the work is done piece by
//! piece, each as long as no operand is cut. Nothing is copied and, once the scratch lists have grown,
//! nothing is allocated.

use std::sync::Arc;

use stripewise_crypt::cipher::SectorCipher;
use stripewise_engine::io::{ActionQueue, Compute, Kernel, Operand, Role, SegList, Verdict};
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_parity::{Change, Kernels, Lost, Stripe};

use crate::shard::Bytes;

/// Where an operand's next byte is.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    role: Role,
    segs: SegList,
    /// Index of the current segment within `segs`.
    seg: u32,
    /// Bytes of the current segment already used.
    used: u32,
}

/// One piece of an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) role: Role,
    pub(crate) address: *mut u8,
}

/// The parity kernels with the lists they are called with, kept from call to call.
#[derive(Debug)]
pub(crate) struct Computer {
    kernels: &'static Kernels,
    /// That of the layer that names encryptions.
    pub(crate) cipher: Option<Arc<SectorCipher>>,
    cursors: Vec<Cursor>,
    pieces: Vec<Piece>,
    blocks: Vec<&'static [u8]>,
    data: Vec<Option<&'static [u8]>>,
    changes: Vec<Change<'static>>,
}

// SAFETY: the addresses in the scratch lists are only followed during `run`; between calls nothing is in
// use, so the lists may move to another thread.
unsafe impl Send for Computer {}

impl Computer {
    pub(crate) fn new() -> Self {
        Self {
            kernels: stripewise_parity::kernels(),
            cipher: None,
            cursors: Vec::new(),
            pieces: Vec::new(),
            blocks: Vec::new(),
            data: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Carries out one computation; answers what a comparison found.
    ///
    /// # Panics
    /// If the operands do not fit the kernel: the engine asked for what cannot be computed.
    pub(crate) fn run(&mut self, compute: &Compute, queue: &ActionQueue, bytes: &Bytes<'_>) -> Verdict {
        let (sources, targets) = (queue.operands(compute.sources), queue.operands(compute.targets));
        self.cursors.clear();
        self.cursors.extend(sources.iter().chain(targets).map(|o: &Operand| Cursor {
            role: o.role,
            segs: o.segs,
            seg: 0,
            used: 0,
        }));
        let mut left = compute.bytes;
        let (mut verdict, mut sum) = (Verdict::Consistent, 0);
        while left > 0 {
            let length = self.next_piece(left, queue, bytes);
            let (sources, targets) = self.pieces.split_at(sources.len());
            let mut lists =
                Lists { blocks: &mut self.blocks, data: &mut self.data, changes: &mut self.changes };
            // SAFETY: `next_piece` resolved every piece to `length` bytes that live until the computation
            // is answered; the engine gives targets that no source and no other action in flight shares.
            let found =
                unsafe { run_piece(self.kernels, compute.kernel, sources, targets, length, &mut lists) };
            verdict = match (verdict, found) {
                (all, one) if all == one => all,
                (Verdict::Consistent, other) | (other, Verdict::Consistent) => other,
                _ => Verdict::Unlocated,
            };
            if let (Kernel::Checksum, [piece]) = (compute.kernel, sources) {
                // SAFETY: as above.
                sum = crc32c::crc32c_append(sum, unsafe { block(*piece, length) });
                verdict = Verdict::Checksum(sum);
            }
            if let (Some(cipher), [source], [target]) = (&self.cipher, sources, targets) {
                let done = (compute.bytes - left) / SECTOR_BYTES;
                // SAFETY: as above.
                unsafe { run_cipher(cipher, compute.kernel, done, *source, *target, length) };
            }
            left -= length as u64;
        }
        verdict
    }

    /// Resolves the longest piece of at most `left` bytes that no operand cuts, and moves past it.
    fn next_piece(&mut self, left: u64, queue: &ActionQueue, bytes: &Bytes<'_>) -> usize {
        let mut length = left.min(Bytes::RUN_BYTES_MAX) as u32;
        for cursor in &mut self.cursors {
            let segs = queue.segs(cursor.segs);
            while cursor.used == segs[cursor.seg as usize].bytes {
                cursor.seg += 1;
                cursor.used = 0;
            }
            let seg = segs[cursor.seg as usize];
            length = bytes.contiguous(seg.buf, cursor.used, length.min(seg.bytes - cursor.used));
        }
        self.pieces.clear();
        for cursor in &mut self.cursors {
            let seg = queue.segs(cursor.segs)[cursor.seg as usize];
            let address = bytes.address(seg.buf, cursor.used, length);
            self.pieces.push(Piece { role: cursor.role, address });
            cursor.used += length;
        }
        length as usize
    }
}

struct Lists<'a> {
    blocks: &'a mut Vec<&'static [u8]>,
    data: &'a mut Vec<Option<&'static [u8]>>,
    changes: &'a mut Vec<Change<'static>>,
}

/// # Safety
/// Every piece is `length` bytes long and lives through the call; targets are shared with nothing.
unsafe fn run_piece(
    kernels: &Kernels,
    kernel: Kernel,
    sources: &[Piece],
    targets: &[Piece],
    length: usize,
    lists: &mut Lists<'_>,
) -> Verdict {
    // SAFETY: upheld by the caller; the lists are cleared before each use, so that no slice is used after
    // the call it was made for.
    unsafe {
        match kernel {
            Kernel::Copy => {
                for (source, target) in sources.iter().zip(targets) {
                    target.address.copy_from_nonoverlapping(source.address, length);
                }
            }
            Kernel::Generate => generate(kernels, sources, targets, length, lists),
            Kernel::Update => update(kernels, sources, targets, length, lists),
            Kernel::Recover => recover(kernels, sources, targets, length, lists.data, false),
            Kernel::Check => return check(kernels, sources, length, lists),
            Kernel::Checksum | Kernel::Encrypt { .. } | Kernel::Decrypt { .. } => {}
        }
    }
    Verdict::Consistent
}

/// Encrypts or decrypts a piece that begins so many sectors into the computation.
///
/// # Safety
/// As [`run_piece`], but that source and target may be the same.
unsafe fn run_cipher(
    cipher: &SectorCipher,
    kernel: Kernel,
    done: u64,
    source: Piece,
    onto: Piece,
    length: usize,
) {
    let is_in_place = source.address == onto.address;
    // SAFETY: upheld by the caller; a source that is the target is not looked at by itself.
    unsafe {
        let onto = target(onto, length);
        match kernel {
            Kernel::Encrypt { sector } => cipher.encrypt(sector + done, block(source, length), onto),
            Kernel::Decrypt { sector } if is_in_place => cipher.decrypt_in_place(sector + done, onto),
            Kernel::Decrypt { sector } => cipher.decrypt(sector + done, block(source, length), onto),
            _ => {}
        }
    }
}

/// # Safety
/// As [`run_piece`].
unsafe fn check(kernels: &Kernels, sources: &[Piece], length: usize, lists: &mut Lists<'_>) -> Verdict {
    // SAFETY: upheld by the caller.
    unsafe {
        let of_role = |role| sources.iter().find(|s| s.role == role).map(|s| block(*s, length));
        let (p, q) = match (of_role(Role::P), of_role(Role::Q)) {
            (None, None) => {
                let alike = sources.windows(2).all(|s| block(s[0], length) == block(s[1], length));
                return if alike { Verdict::Consistent } else { Verdict::Unlocated };
            }
            parities => parities,
        };
        place_data(sources, &[], length, lists.data);
        let Some(p) = p else {
            // An array that lost P: rare enough to compute both anew.
            let (mut p, mut computed) = (vec![0; length], vec![0; length]);
            kernels.pq(&mut p, &mut computed, lists.data);
            let is_right = q == Some(&computed);
            return if is_right { Verdict::Consistent } else { Verdict::Unlocated };
        };
        let found = kernels.check(lists.data, p, q);
        match found {
            stripewise_parity::Verdict::Consistent => Verdict::Consistent,
            stripewise_parity::Verdict::P => Verdict::P,
            stripewise_parity::Verdict::Q => Verdict::Q,
            stripewise_parity::Verdict::Data(index) => Verdict::Data(index),
            stripewise_parity::Verdict::Unlocated => Verdict::Unlocated,
        }
    }
}

/// # Safety
/// The address holds `length` readable bytes that nothing writes during the call the slice is used in.
unsafe fn block(piece: Piece, length: usize) -> &'static [u8] {
    // SAFETY: upheld by the caller.
    unsafe { std::slice::from_raw_parts(piece.address, length) }
}

/// # Safety
/// The address holds `length` bytes that nothing else uses during the call the slice is used in.
unsafe fn target(piece: Piece, length: usize) -> &'static mut [u8] {
    // SAFETY: upheld by the caller.
    unsafe { std::slice::from_raw_parts_mut(piece.address, length) }
}

/// # Safety
/// As [`run_piece`].
unsafe fn generate(
    kernels: &Kernels,
    sources: &[Piece],
    targets: &[Piece],
    length: usize,
    lists: &mut Lists<'_>,
) {
    // SAFETY: upheld by the caller.
    unsafe {
        match *targets {
            [p] if p.role == Role::P && !sources.is_empty() => {
                lists.blocks.clear();
                lists.blocks.extend(sources.iter().map(|s| block(*s, length)));
                kernels.xor(target(p, length), lists.blocks);
            }
            [first, second] if first.role == Role::P && second.role == Role::Q => {
                place_data(sources, targets, length, lists.data);
                kernels.pq(target(first, length), target(second, length), lists.data);
            }
            _ => recover(kernels, sources, targets, length, lists.data, false),
        }
    }
}

/// # Safety
/// As [`run_piece`].
unsafe fn update(
    kernels: &Kernels,
    sources: &[Piece],
    targets: &[Piece],
    length: usize,
    lists: &mut Lists<'_>,
) {
    // SAFETY: upheld by the caller.
    unsafe {
        lists.changes.clear();
        lists.changes.extend(sources.chunks_exact(2).map(|pair| {
            let Role::Data(index) = pair[0].role else {
                panic!("{:?} has no old and new bytes", pair[0].role)
            };
            assert_eq!(pair[0].role, pair[1].role, "old and new bytes are of one block");
            Change { index, old: block(pair[0], length), new: block(pair[1], length) }
        }));
        let of_role = |role| targets.iter().find(|t| t.role == role).map(|t| target(*t, length));
        kernels.pq_update(of_role(Role::P), of_role(Role::Q), lists.changes);
    }
}

/// Recovers the targets; past the caches if that is asked for.
///
/// # Safety
/// As [`run_piece`].
pub(crate) unsafe fn recover(
    kernels: &Kernels,
    sources: &[Piece],
    targets: &[Piece],
    length: usize,
    data: &mut Vec<Option<&'static [u8]>>,
    is_past_caches: bool,
) {
    let run = if is_past_caches { Kernels::recover_streaming } else { Kernels::recover };
    // SAFETY: upheld by the caller.
    unsafe {
        place_data(sources, targets, length, data);
        let of_role = |role| sources.iter().find(|s| s.role == role).map(|s| block(*s, length));
        let stripe = Stripe { data, p: of_role(Role::P), q: of_role(Role::Q) };
        let lost = |t: Piece| Lost::wanted(parity_role(t.role), target(t, length));
        let result = match *targets {
            [one] => run(kernels, &stripe, &mut [lost(one)]),
            [one, two] => run(kernels, &stripe, &mut [lost(one), lost(two)]),
            _ => panic!("{} blocks cannot be recovered at once", targets.len()),
        };
        if let Err(error) = result {
            panic!("the engine asked to recover what cannot be: {error}");
        }
    }
}

/// Lists the data blocks by index, with gaps for those that are targets or zero.
///
/// # Safety
/// As [`run_piece`].
unsafe fn place_data(
    sources: &[Piece],
    targets: &[Piece],
    length: usize,
    data: &mut Vec<Option<&'static [u8]>>,
) {
    let index_of = |piece: &Piece| match piece.role {
        Role::Data(index) => Some(usize::from(index)),
        Role::P | Role::Q => None,
    };
    let count = sources.iter().chain(targets).filter_map(index_of).max().map_or(0, |most| most + 1);
    data.clear();
    data.resize(count, None);
    for source in sources {
        if let Some(index) = index_of(source) {
            // SAFETY: upheld by the caller.
            data[index] = Some(unsafe { block(*source, length) });
        }
    }
}

/// The same in the words of the kernels.
pub(crate) const fn parity_role(role: Role) -> stripewise_parity::Role {
    match role {
        Role::Data(index) => stripewise_parity::Role::Data(index),
        Role::P => stripewise_parity::Role::P,
        Role::Q => stripewise_parity::Role::Q,
    }
}
