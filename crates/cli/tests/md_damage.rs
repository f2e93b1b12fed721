//! Damage at random over whole images: every command ends with a code of its own, and refusals write nothing.

mod common;

use std::fs;
use std::path::Path;

use common::{blanks, ok, pattern, run, stderr};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
const SEEDS: u64 = 240;
const SHAPES: [&str; 4] = [
    "-l 5 -c 16K --data-offset 1M -b internal",
    "-l 1 -e 0.90 -b internal",
    "-l 5 -c 4K -e 1.0 --consistency-policy ppl",
    "-l 10 -p f2 -c 16K -e 1.1",
];
const COMMANDS: [&str; 5] = [
    "examine a.img b.img c.img",
    "detail a.img b.img c.img",
    "read a.img b.img c.img --run",
    "assemble --scan . --run",
    "assemble a.img b.img c.img --run --force",
];

/// Marsaglia's xorshift: the seed is all that a case is made of.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A place in an image, more often than not near the metadata.
fn place(draw: &mut Draw, length: usize) -> usize {
    let length = length as u64;
    let at = match draw.below(4) {
        0 => draw.below(length),
        1 => length - 1 - draw.below(length.min(128 << 10)),
        // The superblock of 1.2 and what follows it.
        2 => 4096 + draw.below(256),
        _ => draw.below(length.min(64 << 10)),
    };
    at.min(length - 1) as usize
}

fn damage(draw: &mut Draw, image: &mut Vec<u8>) {
    for _ in 0..=draw.below(3) {
        if image.is_empty() {
            return;
        }
        let at = place(draw, image.len());
        match draw.below(8) {
            0 => image.truncate(at),
            1 | 2 => {
                let end = (at + draw.below(8192) as usize).min(image.len());
                image[at..end].fill(0);
            }
            3 => {
                let end = (at + 8).min(image.len());
                image[at..end].fill(0xFF);
            }
            _ => image[at] ^= 1 << draw.below(8),
        }
    }
}

fn read_all(folder: &Path) -> Vec<Vec<u8>> {
    MEMBERS.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect()
}

#[test]
fn images_damaged_at_random_end_no_command_badly() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let whole: Vec<Vec<Vec<u8>>> = SHAPES.iter().map(|shape| make(folder, shape)).collect();
    let mut codes = [0; 3];
    for seed in 1..=SEEDS {
        let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut images = whole[seed as usize % SHAPES.len()].clone();
        let hit = draw.below(3) as usize;
        damage(&mut draw, &mut images[hit]);
        if draw.below(3) == 0 {
            damage(&mut draw, &mut images[(hit + 1) % 3]);
        }
        for (name, image) in MEMBERS.iter().zip(&images) {
            fs::write(folder.join(name), image).unwrap();
        }
        for command in COMMANDS {
            let output = run(folder, command, b"");
            let said = stderr(&output);
            let code = output.status.code().filter(|code| (0..=2).contains(code));
            let code = code.unwrap_or_else(|| panic!("seed {seed}: {command}: {:?}: {said}", output.status));
            codes[code as usize] += 1;
            assert!(!said.contains("panicked"), "seed {seed}: {command}: {said}");
            assert!(
                code == 0 || said.contains("stripewise: "),
                "seed {seed}: {command}: ended with {code} and no word"
            );
            if code == 2 || !command.starts_with("assemble") {
                assert!(read_all(folder) == images, "seed {seed}: {command} wrote");
            } else {
                images = read_all(folder);
            }
        }
    }
    assert!(codes[0] > 0 && codes[2] > 0, "some are refused, some are not: {codes:?}");
}

/// The images of an array that holds something.
fn make(folder: &Path, shape: &str) -> Vec<Vec<u8>> {
    for name in MEMBERS {
        fs::remove_file(folder.join(name)).unwrap_or_default();
    }
    blanks(folder, &MEMBERS, 3 << 20);
    ok(folder, &format!("create {shape} -n 3 --assume-clean a.img b.img c.img"), b"");
    ok(folder, "write --scan .", &pattern(500_000));
    read_all(folder)
}
