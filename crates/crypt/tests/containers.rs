//! Containers that are not as they should be: every error names what is wrong, and nothing panics or takes long.

use std::cell::{Cell, RefCell};
use std::io;

use stripewise_crypt::container::{OpenError, Unlocked, read_header, unlock};
use stripewise_crypt::create::{Argon2Costs, FormatError, FormatOptions, FormatVersion, KdfChoice, format};
use stripewise_crypt::hash::Hash;
use stripewise_crypt::kdf::Limits;
use stripewise_crypt::store::Store;
use stripewise_format::luks::{Copies, Decimal, Encryption, Kdf, Luks, Luks2, SegmentSize};

const PASSPHRASE: &[u8] = b"correct horse";
const BYTES: usize = 20 << 20;
const LIMITS: Limits =
    Limits { argon2_memory_kib: 1 << 16, argon2_work_kib: 1 << 18, pbkdf2_iterations: 10_000 };

struct Memory(RefCell<Vec<u8>>);

impl Store for Memory {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.borrow().len() as u64)
    }
    fn read_at(&self, offset_bytes: u64, target: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.borrow();
        let found = bytes.get(offset_bytes as usize..).and_then(|rest| rest.get(..target.len()));
        target.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn write_at(&self, offset_bytes: u64, source: &[u8]) -> io::Result<()> {
        self.0.borrow_mut()[offset_bytes as usize..][..source.len()].copy_from_slice(source);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn container(version: FormatVersion, kdf: KdfChoice) -> Memory {
    let store = Memory(RefCell::new(vec![0; BYTES]));
    make(&store, version, kdf, PASSPHRASE).unwrap();
    store
}

fn make(
    store: &impl Store,
    version: FormatVersion,
    kdf: KdfChoice,
    passphrase: &[u8],
) -> Result<(), FormatError> {
    let options = FormatOptions {
        version,
        encryption: Encryption::AesXtsPlain64,
        key_bytes: 64,
        hash: Hash::Sha256,
        kdf,
        sector_bytes: 512,
        payload_offset_bytes: None,
        label: String::new(),
    };
    format(store, &options, passphrase).map(drop)
}

/// Holds what is written until a flush; power is cut at one of them.
struct Cut {
    disk: Memory,
    waiting: RefCell<Vec<(u64, Vec<u8>)>>,
    flushes_left: Cell<u32>,
}

impl Store for Cut {
    fn len_bytes(&self) -> io::Result<u64> {
        self.disk.len_bytes()
    }
    fn read_at(&self, offset_bytes: u64, target: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset_bytes, target)
    }
    fn write_at(&self, offset_bytes: u64, source: &[u8]) -> io::Result<()> {
        self.waiting.borrow_mut().push((offset_bytes, source.to_vec()));
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        let left = self.flushes_left.get().checked_sub(1).ok_or(io::ErrorKind::Other)?;
        self.flushes_left.set(left);
        self.waiting.borrow_mut().drain(..).try_for_each(|(at, bytes)| self.disk.write_at(at, &bytes))
    }
}

/// Whichever of the writes that were not flushed reached the disk.
#[test]
fn a_format_that_is_cut_off_leaves_no_header_that_opens_with_neither_passphrase() {
    let pbkdf2 = KdfChoice::Pbkdf2 { iterations: 1000 };
    for (old, new) in [(luks2 as fn() -> Memory, FormatVersion::Luks2), (luks2, FormatVersion::Luks1)] {
        for flushes in 0..3 {
            let cut = Cut { disk: old(), waiting: RefCell::default(), flushes_left: Cell::new(flushes) };
            make(&cut, new, pbkdf2, b"new").unwrap_err();
            let waiting = cut.waiting.into_inner();
            for reached in 0..1 << waiting.len() {
                let disk = Memory(RefCell::new(cut.disk.0.borrow().clone()));
                for (_, (at, bytes)) in waiting.iter().enumerate().filter(|(n, _)| reached >> n & 1 == 1) {
                    disk.write_at(*at, bytes).unwrap();
                }
                let opens = |passphrase| open(&disk, passphrase).is_ok();
                let has_header = read_header(&disk).is_ok();
                let case = format!("{new:?}, {flushes} flushes, {reached:b} of the rest");
                assert!(!has_header || opens(PASSPHRASE) || opens(b"new"), "{case}");
            }
        }
    }
}

#[test]
fn a_key_of_a_length_that_the_cipher_has_not_is_refused_before_it_is_made() {
    let store = Memory(RefCell::new(vec![0; BYTES]));
    for key_bytes in [0, 1, 33, usize::MAX] {
        let options = FormatOptions {
            version: FormatVersion::Luks2,
            encryption: Encryption::AesXtsPlain64,
            key_bytes,
            hash: Hash::Sha256,
            kdf: KdfChoice::Pbkdf2 { iterations: 1000 },
            sector_bytes: 512,
            payload_offset_bytes: None,
            label: String::new(),
        };
        let refused = format(&store, &options, PASSPHRASE).unwrap_err().to_string();
        assert!(refused.ends_with("has keys of 32 or 64 bytes"), "{refused}");
    }
}

fn luks1() -> Memory {
    container(FormatVersion::Luks1, KdfChoice::Pbkdf2 { iterations: 1000 })
}

fn luks2() -> Memory {
    container(FormatVersion::Luks2, KdfChoice::Pbkdf2 { iterations: 1000 })
}

fn open(store: &Memory, passphrase: &[u8]) -> Result<Unlocked, OpenError> {
    unlock(store, &read_header(store)?, passphrase, None, LIMITS)
}

fn refused(store: &Memory) -> String {
    open(store, PASSPHRASE).unwrap_err().to_string()
}

/// Puts big-endian words into a LUKS1 header.
fn with_luks1(changes: &[(usize, u32)]) -> Memory {
    let store = luks1();
    for (at, value) in changes {
        store.write_at(*at as u64, &value.to_be_bytes()).unwrap();
    }
    store
}

/// Changes a LUKS2 header and writes both copies with the right checksums.
fn with_luks2(change: impl FnOnce(&mut Luks2)) -> Memory {
    let store = luks2();
    let Luks::V2(mut header, _) = read_header(&store).unwrap() else { panic!("it is LUKS2") };
    change(&mut header);
    store.write_at(0, &header.to_bytes()).unwrap();
    store
}

#[test]
fn a_wrong_passphrase_names_the_keyslots_that_were_tried() {
    for store in [luks1(), luks2()] {
        assert!(open(&store, PASSPHRASE).is_ok());
        for wrong in [&b""[..], b"correct horse\n", b"Correct horse", &[0; 4096]] {
            let told = open(&store, wrong).unwrap_err().to_string();
            assert_eq!(told, "no key with this passphrase or key file (keyslots tried: 0)");
        }
    }
}

#[test]
fn a_keyslot_that_is_not_there_is_named_with_those_that_are() {
    for store in [luks1(), luks2()] {
        let header = read_header(&store).unwrap();
        assert!(unlock(&store, &header, PASSPHRASE, Some(0), LIMITS).is_ok());
        for passphrase in [PASSPHRASE, b"another"] {
            let told = unlock(&store, &header, passphrase, Some(5), LIMITS).unwrap_err().to_string();
            assert_eq!(told, "there is no keyslot 5; there are 0");
        }
    }
}

#[test]
fn fields_of_luks1_that_cannot_be_are_named() {
    for (changes, told) in [
        (&[(104, 0)][..], "payload offset is 0; header and keyslots take"),
        (&[(104, u32::MAX)], "cut off"),
        (&[(108, 0)], "keyBytes is 0"),
        (&[(108, u32::MAX)], "keyBytes is 4294967295"),
        (&[(164, 0)], "mkDigestIterations is 0"),
        (&[(164, u32::MAX)], "digest.iterations is 4294967295; 1 to 10000"),
        (&[(208, 7)], "keyblock[0].active is 7"),
        (&[(208 + 4, 0)], "kdf.iterations is 0"),
        (&[(208 + 4, u32::MAX)], "kdf.iterations is 4294967295; 1 to 10000"),
        (&[(208 + 40, 0)], "keyblock[0].area.offset is 0"),
        (&[(208 + 40, u32::MAX)], "its area from byte 2199023255040 on is behind the end"),
        (&[(208 + 40, (BYTES / 512 - 1) as u32)], "is behind the end"),
        (&[(208 + 44, 4001)], "keyblock[0].af.stripes is 4001"),
        (&[(72, 0x7864_6561)], "hash is 'xdea"),
        (&[(40, 0x6563_6200)], "encryption is 'aes-ecb'"),
        (&[(4, 0xbabe_0009)], "version is 9"),
        (&[(0, 0)], "no LUKS header"),
    ] {
        let found = refused(&with_luks1(changes));
        assert!(found.contains(told), "{changes:?}: '{found}' does not say '{told}'");
    }
}

#[test]
fn fields_of_luks2_that_cannot_be_are_named() {
    type Change = fn(&mut Luks2);
    let cases: [(Change, &str); 12] = [
        (|h| h.keyslots.get_mut(&0).unwrap().area.offset = Decimal(u64::MAX - 511), "keyslots.0.area.size"),
        (|h| h.keyslots.get_mut(&0).unwrap().area.offset = Decimal(1 << 40), "is behind the end"),
        (|h| h.keyslots.get_mut(&0).unwrap().area.offset = Decimal(4096), "keyslots.0.area.offset is 4096"),
        (|h| h.keyslots.get_mut(&0).unwrap().key_size = 1 << 30, "keyslots.0.key_size"),
        (|h| h.digests.get_mut(&0).unwrap().iterations = u32::MAX, "digest.iterations is 4294967295"),
        (|h| h.digests.get_mut(&0).unwrap().digest.0.clear(), "digest is 0 bytes"),
        (|h| h.segments.get_mut(&0).unwrap().sector_size = 513, "segments.0.sector_size is 513"),
        (
            |h| h.segments.get_mut(&0).unwrap().offset = Decimal(u64::MAX - 511),
            "segments.0.offset is 18446744073709551104",
        ),
        (|h| h.segments.get_mut(&0).unwrap().size = SegmentSize::Bytes(1 << 50), "cut off"),
        (|h| h.config.requirements.mandatory.push("online-reencrypt".into()), "online-reencrypt"),
        // The key of the authentication would pass for the second half of a longer cipher key.
        (
            |h| {
                let integrity = serde_json::json!({"type": "hmac(sha256)", "journal_encryption": "none"});
                h.segments.get_mut(&0).unwrap().integrity = Some(integrity);
            },
            "segments.0.integrity is hmac(sha256)",
        ),
        (
            |h| h.segments.get_mut(&0).unwrap().kind = "hw-opal-crypt".into(),
            "segments.0.type is hw-opal-crypt",
        ),
    ];
    for (number, (change, told)) in cases.into_iter().enumerate() {
        let found = refused(&with_luks2(change));
        assert!(found.contains(told), "case {number}: '{found}'");
    }
}

#[test]
fn what_a_keyslot_may_cost_is_bounded() {
    let costs = Argon2Costs { time: 4, memory_kib: 64, cpus: 1 };
    for (time, memory, told) in [
        (4, u32::MAX, "kdf.memory is 4294967295"),
        (u32::MAX, 64, "kdf.time is 4294967295; at most 4096 passes"),
        (4, 0, "no such costs"),
        (0, 64, "no such costs"),
    ] {
        let store = container(FormatVersion::Luks2, KdfChoice::Argon2id(costs));
        assert!(open(&store, PASSPHRASE).is_ok());
        let Luks::V2(mut header, _) = read_header(&store).unwrap() else { panic!("it is LUKS2") };
        let Kdf::Argon2id(found) = &mut header.keyslots.get_mut(&0).unwrap().kdf else {
            panic!("it is Argon2id")
        };
        (found.time, found.memory) = (time, memory);
        store.write_at(0, &header.to_bytes()).unwrap();
        let found = refused(&store);
        assert!(found.contains(told), "'{found}' does not say '{told}'");
    }
}

#[test]
fn the_copy_that_is_whole_is_used_and_two_damaged_ones_are_both_told_of() {
    let store = luks2();
    let (copy, flip) = (16_384, |at: usize| store.0.borrow_mut()[at] ^= 1);
    for at in [0, 6, 8, 16, 72, 256, 448, 4096, 4200] {
        for (place, is_first) in [(at, true), (copy + at, false)] {
            flip(place);
            let unlocked = open(&store, PASSPHRASE).unwrap_or_else(|e| panic!("byte {place}: {e}"));
            assert_eq!(unlocked.payload.offset_bytes, 16 << 20);
            let Luks::V2(_, copies) = read_header(&store).unwrap() else { panic!("it is LUKS2") };
            let is_told = match copies {
                Copies::PrimaryDamaged(_) => is_first,
                Copies::SecondaryDamaged(_) => !is_first,
                _ => false,
            };
            assert!(is_told, "byte {place}: {copies}");
            flip(place);
        }
    }
    flip(4200);
    flip(copy + 4200);
    let told = refused(&store);
    assert!(told.contains("both copies") && told.contains("first: ") && told.contains("second: "), "{told}");
}

#[test]
fn no_flipped_byte_of_a_luks1_header_and_no_cut_panics() {
    let whole = luks1().0.into_inner();
    // Keyslots that are not in use begin at 256.
    for at in (0..256).chain((256..592).step_by(7)) {
        for mask in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= mask;
            match open(&Memory(RefCell::new(bytes)), PASSPHRASE) {
                Ok(unlocked) => assert_eq!(unlocked.keyslot, 0),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    for (store, header_bytes) in [(luks1(), 592), (luks2(), 32_768)] {
        let whole = store.0.into_inner();
        for bytes in [0, 1, 5, 6, 7, 8, 511, header_bytes - 1, header_bytes, 40_000, 200_000] {
            let cut = Memory(RefCell::new(whole[..bytes].to_vec()));
            let told = refused(&cut);
            assert!(!told.is_empty(), "{bytes} bytes");
        }
    }
}
