//! A page cache and an encrypted payload above arrays of real members: what is written through them is read back
//! through them, past them, and by whoever opens the members later.

mod common;

use std::sync::Arc;

use common::{SECTOR, Verify, assert_same, files, memory, volume};
use stripewise_crypt::cipher::SectorCipher;
use stripewise_engine::cache::{CacheConfig, CachePolicy, WriteMode};
use stripewise_engine::io::{Flags, IoError};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::{SectorRange, Slot};
use stripewise_format::luks::Encryption;
use stripewise_host::{Array, ArrayConfig, CryptLayer, HostError, Layers, MemberSpec};

const MEMBER_SECTORS: u64 = 8192;
const START: u64 = 1000;
const SECTORS: u64 = 20_000;
const BUFFERED: Flags = Flags { fua: false, more: false, sync: false, buffered: true, stream: 0 };

fn open(members: Vec<MemberSpec>, shards: u32, layers: &Layers) -> Array {
    let layout = Layout::default_of(Level::Raid5);
    let volume = volume(Level::Raid5, layout, members.len(), 64, MEMBER_SECTORS);
    let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap();
    array.raise(layers).unwrap();
    array
}

/// So small that most of the zone is not there.
fn cache() -> CacheConfig {
    CacheConfig::new(CachePolicy::stripewise(), 2 << 20)
}

fn cipher(encryption: Encryption, unit: u32) -> Arc<SectorCipher> {
    let key: Vec<u8> = (0..64).collect();
    let key = if encryption == Encryption::AesXtsPlain64 { &key[..] } else { &key[..32] };
    Arc::new(SectorCipher::new(encryption, key, unit, 0).unwrap())
}

fn crypt(unit: u32) -> CryptLayer {
    let cipher = cipher(Encryption::AesXtsPlain64, unit);
    CryptLayer { cipher, start_sector: START, sectors: SECTORS }
}

fn verify(depth: usize, flags: Flags, seed: u64) -> Verify {
    let mut verify = Verify::new(SectorRange::new(0, SECTORS), 300, 2000, depth, seed);
    verify.flags = flags;
    verify
}

fn run(array: &mut Array, verify: Verify) -> Verify {
    let (_, mut done) = array.run_with_payload(vec![verify]).unwrap();
    let done = done.remove(0);
    assert_eq!(done.errors, []);
    assert!(done.reads > 100);
    done
}

#[test]
fn what_goes_through_a_page_cache_is_on_the_members_after_a_flush() {
    for mode in [WriteMode::Back, WriteMode::Through] {
        let folder = tempfile::tempdir().unwrap();
        let members = files(folder.path(), 4, MEMBER_SECTORS);
        let layers = Layers { cache: Some(CacheConfig { mode, ..cache() }), crypt: None };
        let mut array = open(members.clone(), 1, &layers);
        let done = run(&mut array, verify(16, BUFFERED, 1));
        let status = array.cache_status().unwrap();
        assert!(status.stats.hits > 0 && status.stats.misses > 0, "{status:?}");
        assert_eq!(status.dirty_bytes > 0, mode == WriteMode::Back, "{status:?}");
        done.verify(&mut array);
        assert_eq!(array.cache_status().unwrap().dirty_bytes, 0, "reads past the cache see what it holds");
        let done = run(&mut array, done.again(500));
        array.flush().unwrap();
        drop(array);
        done.verify(&mut open(members, 1, &Layers::default()));
    }
}

#[test]
fn an_array_with_a_lost_member_is_cached_as_well() {
    let mut array = open(memory(4), 1, &Layers { cache: Some(cache()), crypt: None });
    let done = run(&mut array, verify(8, BUFFERED, 2));
    array.fail(Slot(2)).unwrap();
    let done = run(&mut array, done.again(1000));
    done.verify(&mut array);
}

#[test]
fn a_write_back_that_fails_fails_the_flush() {
    let mut array = open(memory(4), 1, &Layers { cache: Some(cache()), crypt: None });
    let done = run(&mut array, verify(8, BUFFERED, 3));
    assert!(array.cache_status().unwrap().dirty_bytes > 0);
    for slot in [0, 2] {
        array.fail(Slot(slot)).unwrap();
    }
    assert!(array.flush().is_err());
    assert!(array.close().is_err());
    drop(done);
}

#[test]
fn an_encrypted_payload_is_ciphered_in_place_on_every_number_of_shards() {
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let members = files(folder.path(), 4, MEMBER_SECTORS);
        let layers = Layers { crypt: Some(crypt(512)), cache: None };
        let mut array = open(members.clone(), shards, &layers);
        assert_eq!(array.sectors(), SECTORS);
        array.write_zeroes(SectorRange::new(0, SECTORS)).unwrap();
        let done = run(&mut array, verify(16, Flags::default(), 4));
        done.verify(&mut array);
        drop(array);
        let mut below = open(members, 1, &Layers::default());
        let mut bytes = vec![0; SECTORS as usize * SECTOR];
        below.read_at(START, &mut bytes).unwrap();
        cipher(Encryption::AesXtsPlain64, 512).decrypt_in_place(0, &mut bytes);
        assert_same(&bytes, &done.expected(SectorRange::new(0, SECTORS)), 0);
    }
}

#[test]
fn a_page_cache_above_a_cipher_of_large_sectors_takes_small_requests() {
    for (encryption, unit) in [(Encryption::AesXtsPlain64, 4096), (Encryption::AesCbcEssivSha256, 512)] {
        let cipher = cipher(encryption, unit);
        let crypt = CryptLayer { cipher: Arc::clone(&cipher), start_sector: START, sectors: SECTORS };
        let folder = tempfile::tempdir().unwrap();
        let members = files(folder.path(), 4, MEMBER_SECTORS);
        let layers = Layers { crypt: Some(crypt), cache: Some(cache()) };
        let mut array = open(members.clone(), 1, &layers);
        array.write_zeroes(SectorRange::new(0, SECTORS)).unwrap();
        let done = run(&mut array, verify(16, BUFFERED, 5));
        array.fail(Slot(1)).unwrap();
        let done = run(&mut array, done.again(500));
        array.flush().unwrap();
        drop(array);
        let mut members = members;
        members[1] = MemberSpec::Missing;
        let mut below = open(members, 1, &Layers::default());
        let mut bytes = vec![0; SECTORS as usize * SECTOR];
        below.read_at(START, &mut bytes).unwrap();
        cipher.decrypt_in_place(0, &mut bytes);
        assert_same(&bytes, &done.expected(SectorRange::new(0, SECTORS)), 0);
    }
}

#[test]
fn a_page_cache_above_a_cipher_of_large_sectors_zeroes_parts_of_them() {
    let layers = Layers { crypt: Some(crypt(4096)), cache: Some(cache()) };
    let mut array = open(memory(4), 1, &layers);
    let pattern: Vec<u8> = (0..64 * SECTOR).map(|byte| (byte / SECTOR) as u8 + 1).collect();
    for range in [(8, 16), (1, 1), (9, 7), (3, 40), (63, 1), (0, 64)]
        .map(|(start, count)| SectorRange::new(start, count))
    {
        array.write_at(0, &pattern).unwrap();
        array.write_zeroes(range).unwrap();
        array.flush().unwrap();
        let mut bytes = vec![0; pattern.len()];
        array.read_at(0, &mut bytes).unwrap();
        let mut expected = pattern.clone();
        expected[range.start as usize * SECTOR..range.end() as usize * SECTOR].fill(0);
        assert_same(&bytes, &expected, 0);
    }
}

#[test]
fn requests_that_cut_encrypted_sectors_or_leave_the_payload_are_refused() {
    let mut array = open(memory(4), 1, &Layers { crypt: Some(crypt(4096)), cache: None });
    let mut page = [0; 4096];
    let refused = |result: Result<(), HostError>| matches!(result, Err(HostError::Io(IoError::Range)));
    assert!(refused(array.read_at(1, &mut page)));
    assert!(refused(array.write_at(0, &page[..512])));
    assert!(refused(array.read_at(SECTORS, &mut page)), "the array goes on behind the payload");
    assert!(refused(array.read_at(u64::MAX - 7, &mut page)));
    array.write_at(SECTORS - 8, &page).unwrap();
    // Nor is the part carried out that could be.
    for shards in [1, 2] {
        let mut array = open(memory(4), shards, &Layers { crypt: Some(crypt(4096)), cache: None });
        let mut bytes = vec![7; 5000 * SECTOR];
        array.write_at(0, &bytes).unwrap();
        assert!(refused(array.write_at(0, &vec![9; 4999 * SECTOR])));
        assert!(refused(array.write_zeroes(SectorRange::new(0, 4999))));
        bytes.fill(0);
        array.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7), "{shards} shards");
    }
}

#[test]
fn layers_that_cannot_be_had_leave_the_array_as_it_was_and_others_can_be_put_above_it_once() {
    for shards in [1, 2] {
        let layout = Layout::default_of(Level::Raid5);
        let volume = volume(Level::Raid5, layout, 4, 64, MEMBER_SECTORS);
        let config = ArrayConfig { shards, ..ArrayConfig::new(volume, memory(4)) };
        let mut array = Array::open(config).unwrap();
        let sectors = array.sectors();
        let too_much = CacheConfig { memory_bytes: 1 << 42, ..cache() };
        let crypt = Some(CryptLayer { start_sector: 1024, ..crypt(512) });
        array.raise(&Layers { crypt: crypt.clone(), cache: Some(too_much) }).unwrap_err();
        assert_eq!((array.sectors(), array.cache_status(), array.block_bytes()), (sectors, None, 512));
        array.write_at(sectors - 8, &[7; 8 * SECTOR]).unwrap();
        array.raise(&Layers { crypt, cache: None }).unwrap();
        array.write_at(0, &[8; 8 * SECTOR]).unwrap();
        let again = array.raise(&Layers::default()).unwrap_err().to_string();
        assert!(again.contains("open the array again"), "{again}");
        let mut read = [0; 8 * SECTOR];
        array.read_at(0, &mut read).unwrap();
        assert_eq!((read, array.sectors()), ([8; 8 * SECTOR], SECTORS));
    }
}

#[test]
fn impossible_layers_are_refused_and_say_what_would_be_right() {
    let refused = |shards, layers: &Layers| {
        let layout = Layout::default_of(Level::Raid5);
        let volume = volume(Level::Raid5, layout, 4, 64, MEMBER_SECTORS);
        let config = ArrayConfig { shards, ..ArrayConfig::new(volume, memory(4)) };
        Array::open(config).unwrap().raise(layers).unwrap_err().to_string()
    };
    let cached = |cache| Layers { cache: Some(cache), crypt: None };
    assert!(refused(2, &cached(cache())).contains("runs on 1"));
    assert!(
        refused(1, &cached(CacheConfig { memory_bytes: 1 << 42, ..cache() }))
            .contains("no memory for the page cache")
    );
    assert!(
        refused(1, &cached(CacheConfig { readahead_sectors: Some(0), ..cache() })).contains("readahead of 0")
    );
    let crypt = Some(CryptLayer { sectors: 1 << 40, ..crypt(512) });
    assert!(refused(1, &Layers { crypt, cache: None }).contains("the array has"));
}
