//! The copy-on-write overlay: what it takes, what it keeps, and what it refuses.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stripewise_host::md::overlay::{Overlay, OverlayProblem};
use stripewise_host::{HostError, MemberProblem};

/// Not a multiple of the overlay's blocks.
const MEMBER_BYTES: usize = (40 << 10) + 512;

fn member(folder: &Path, name: &str) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..MEMBER_BYTES).map(|i| (i / 7 % 251) as u8).collect();
    let path = folder.join(name);
    fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

fn problem(result: Result<impl Sized, HostError>) -> OverlayProblem {
    match result {
        Err(HostError::Overlay { problem, .. }) => problem,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is taken"),
    }
}

#[test]
fn writes_of_any_shape_are_read_back_now_and_later_and_members_keep_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("overlay");
    let (paths, mut expected): (Vec<_>, Vec<_>) =
        ["a", "b"].iter().map(|name| member(folder.path(), name)).unzip();
    let original = expected[0].clone();
    let mut state = 7_usize;
    for round in 0..5 {
        let overlay = Overlay::open(&at).unwrap();
        for (index, path) in paths.iter().enumerate() {
            let member = overlay.member(path).unwrap();
            for _ in 0..20 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let start = (state >> 33) % MEMBER_BYTES;
                let length = ((state >> 20) % 9000).min(MEMBER_BYTES - start);
                let bytes = vec![(state >> 40) as u8; length];
                member.write_at(start as u64, &bytes).unwrap();
                expected[index][start..start + length].copy_from_slice(&bytes);
            }
            member.flush().unwrap();
            let mut back = vec![0; MEMBER_BYTES];
            member.read_at(0, &mut back).unwrap();
            assert!(back == expected[index], "round {round}, member {index}");
        }
    }
    for path in &paths {
        assert!(fs::read(path).unwrap() == original);
    }
    let overlay = Overlay::open_readonly(&at).unwrap();
    let member = overlay.member(&paths[1]).unwrap();
    let mut back = vec![0; MEMBER_BYTES];
    member.read_at(0, &mut back).unwrap();
    assert!(back == expected[1]);
    assert_eq!(member.write_at(0, &[1]).unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert!(member.read_at(1, &mut back).is_err(), "beyond the member's end");
}

#[test]
fn a_crash_before_the_flush_leaves_what_the_last_flush_left() {
    let folder = tempfile::tempdir().unwrap();
    let (path, original) = member(folder.path(), "a");
    let at = folder.path().join("overlay");
    let overlay = Overlay::open(&at).unwrap();
    let written = overlay.member(&path).unwrap();
    written.write_at(0, &[1; 4096]).unwrap();
    written.flush().unwrap();
    written.write_at(8192, &[2; 4096]).unwrap();
    // The file as a crash would leave it: data may be there, the bits that say so are not.
    let crashed = folder.path().join("crashed");
    fs::copy(&at, &crashed).unwrap();
    let again = Overlay::open(&crashed).unwrap();
    let mut back = vec![0; 12288];
    again.member(&path).unwrap().read_at(0, &mut back).unwrap();
    assert_eq!(back[..4096], [1; 4096]);
    assert_eq!(back[4096..], original[4096..12288]);
}

#[test]
fn what_is_no_overlay_or_damaged_or_in_use_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = member(folder.path(), "a");
    assert_eq!(problem(Overlay::open(&path)), OverlayProblem::NotAnOverlay);
    let at = folder.path().join("overlay");
    let overlay = Overlay::open(&at).unwrap();
    overlay.member(&path).unwrap();
    assert_eq!(problem(Overlay::open(&at)), OverlayProblem::Busy);
    drop(overlay);
    for damaged in [20, 4096 + 3, 4096 + 30] {
        let file = fs::OpenOptions::new().read(true).write(true).open(&at).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, damaged).unwrap();
        file.write_all_at(&[byte[0] ^ 1], damaged).unwrap();
        assert!(matches!(problem(Overlay::open(&at)), OverlayProblem::Damaged { .. }), "byte {damaged}");
        file.write_all_at(&byte, damaged).unwrap();
    }
    let length = fs::metadata(&at).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&at).unwrap();
    file.set_len(length - 1).unwrap();
    assert!(matches!(problem(Overlay::open(&at)), OverlayProblem::Damaged { .. }));
    file.set_len(length).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
    let overlay = Overlay::open(&at).unwrap();
    assert!(matches!(problem(overlay.member(&path)), OverlayProblem::SizeChanged { was_bytes: 41472, .. }));
    let missing = overlay.member(&folder.path().join("none"));
    assert!(matches!(missing, Err(HostError::Member { problem: MemberProblem::NotFound, .. })));
}

#[test]
fn an_overlay_that_got_no_member_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("overlay");
    let overlay = Overlay::open(&at).unwrap();
    assert!(overlay.member(&folder.path().join("absent")).is_err());
    drop(overlay);
    assert!(!at.exists());
    // One that is kept is not made anew, nor removed when it is found without a member.
    let (path, _) = member(folder.path(), "a");
    drop(Overlay::open(&at).unwrap().member(&path).unwrap());
    Overlay::open(&at).unwrap().reset().unwrap();
    drop(Overlay::open(&at).unwrap());
    assert!(at.exists());
    // Who waited for one that is removed has one of its own.
    let away = folder.path().join("another");
    let first = Overlay::open(&away).unwrap();
    let second = std::thread::scope(|scope| {
        let waits = scope.spawn(|| Overlay::open(&away).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(first);
        waits.join().unwrap()
    });
    drop(second.member(&path).unwrap());
    drop(second);
    assert_eq!(Overlay::open_readonly(&away).unwrap().paths().len(), 1);
    // What a link points to is made, and both stay.
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    drop(Overlay::open(&link).unwrap());
    assert!(target.exists() && link.is_symlink());
    // What was there before stays, even if it cannot be one.
    let full = PathBuf::from("/dev/full");
    assert!(Overlay::open(&full).is_err() && full.exists());
}

/// Places of the file that one had may become another's.
#[test]
fn members_that_are_open_when_an_overlay_is_reset_are_shut_out() {
    let folder = tempfile::tempdir().unwrap();
    let (paths, original): (Vec<_>, Vec<_>) =
        ["a", "b"].iter().map(|name| member(folder.path(), name)).unzip();
    let overlay = Overlay::open(&folder.path().join("overlay")).unwrap();
    let first = overlay.member(&paths[0]).unwrap();
    first.write_at(0, &[1; 4096]).unwrap();
    overlay.reset().unwrap();
    let second = overlay.member(&paths[1]).unwrap();
    second.write_at(0, &[2; 4096]).unwrap();
    let mut bytes = [0; 4096];
    for shut_out in [
        first.read_at(0, &mut bytes),
        first.write_at(0, &[3; 4096]),
        first.flush(),
        first.any_written(|_| true).map(drop),
    ] {
        assert_eq!(shut_out.unwrap_err().raw_os_error(), Some(libc::ESTALE));
    }
    second.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 4096]);
    let again = overlay.member(&paths[0]).unwrap();
    again.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..] == original[0][..4096], "what was written is forgotten");
}
