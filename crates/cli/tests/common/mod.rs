//! The command run in a folder of small images.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

use tempfile::TempDir;

/// The command with arguments that are separated by spaces.
pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
    command.args(arguments.split_whitespace()).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(folder: &Path, arguments: &str, input: &[u8]) -> Output {
    finish(command(folder, arguments).spawn().unwrap(), input)
}

/// A server that says it is ready at a place.
pub(crate) fn server(folder: &Path, arguments: &str, place: &str) -> Child {
    let mut child = command(folder, arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(&format!("Ready at {place}")), "{line}");
    child
}

/// Feeds a child its input and waits for its end.
pub(crate) fn finish(mut child: Child, input: &[u8]) -> Output {
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // A command that refuses does not read its input.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input).unwrap_or_default()));
        child.wait_with_output().unwrap()
    })
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command says that ends well.
pub(crate) fn ok(folder: &Path, arguments: &str, input: &[u8]) -> Vec<u8> {
    let output = run(folder, arguments, input);
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    output.stdout
}

pub(crate) fn json(folder: &Path, arguments: &str) -> serde_json::Value {
    serde_json::from_slice(&ok(folder, arguments, b"")).unwrap()
}

/// What a command says that ends with a code of its own.
pub(crate) fn fails(folder: &Path, arguments: &str, input: &[u8], code: i32) -> String {
    let output = run(folder, arguments, input);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {}", stderr(&output));
    stderr(&output)
}

pub(crate) fn refused(folder: &Path, arguments: &str) -> String {
    fails(folder, arguments, b"", 2)
}

/// Makes sparse files.
pub(crate) fn blanks(folder: &Path, names: &[&str], bytes: u64) {
    for name in names {
        fs::File::create(folder.join(name)).unwrap().set_len(bytes).unwrap();
    }
}

/// Bytes of which no two stripes are alike.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i / 3 % 253) as u8 ^ (i >> 13) as u8).collect()
}

/// Every file's bytes, and when they were written.
pub(crate) fn images(folder: &Path, names: &[&str]) -> Vec<(Vec<u8>, SystemTime)> {
    let one = |name: &&str| {
        let path = folder.join(name);
        (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap())
    };
    names.iter().map(one).collect()
}

/// Sends a signal, such as `INT`.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// An array on members of so many MiB, and what it holds.
pub(crate) fn made(options: &str, count: usize, mib: u64) -> (TempDir, String, Vec<u8>) {
    let folder = TempDir::new().unwrap();
    let mut names = String::new();
    for index in 0..count {
        let file = fs::File::create(folder.path().join(format!("{index}.img"))).unwrap();
        file.set_len(mib << 20).unwrap();
        let _ = write!(names, " {index}.img");
    }
    let path = folder.path();
    ok(path, &format!("create --assume-clean {options}{names}"), b"");
    let bytes = json(path, &format!("detail --json{names}"))["array_bytes"].as_u64().unwrap();
    let content: Vec<u8> = (0..bytes / 8)
        .flat_map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    ok(path, &format!("write{names}"), &content);
    (folder, names, content)
}

/// Every file's bytes.
pub(crate) fn all(folder: &Path, names: &str) -> Vec<Vec<u8>> {
    names.split_whitespace().map(|name| fs::read(folder.join(name)).unwrap()).collect()
}
