//! Where the keys of containers come from.

mod common;

use common::{blanks, fails, ok};

#[test]
fn a_passphrase_is_a_line_and_a_key_may_come_from_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &["image"], 20 << 20);
    let format = "luks format --destroy image --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    // A command that failed leaves no passphrase.
    let nothing = fails(folder, format, b"", 2);
    assert!(nothing.contains("ends before a passphrase"), "{nothing}");
    ok(folder, format, b"secret\n");
    ok(folder, "luks test image", b"secret");
    let by_pipe = "luks test image --luks-key-file /dev/stdin";
    ok(folder, by_pipe, b"secret");
    ok(folder, &format!("{by_pipe} --luks-keyfile-offset 2 --luks-keyfile-size 6"), b"a secret key");
}
