//! The table of `stripewise bench --self`, longer and with every sample.
//!
//! `cargo bench -p stripewise-lab --bench table -- [--quick | --table] [WORD]`: the rows of the benches whose name contains
//! the word; as long as figures that are written down need, a first look, or as `bench --self` does. With `--requests=N` the
//! growth rows compare the last of N requests with the first.

use std::process::Command;

use anyhow::Context;
use stripewise_lab::environment::{host_cpu, host_kernel};
use stripewise_lab::selfbench::{self, Scale, table};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    // `cargo test` asks with `--test` only that benches build.
    if arguments.iter().any(|argument| argument == "--test") {
        return Ok(());
    }
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let mut scale = if has("--quick") {
        Scale::QUICK
    } else if has("--table") {
        Scale::TABLE
    } else {
        Scale::LONG
    };
    if let Some(number) = arguments.iter().find_map(|argument| argument.strip_prefix("--requests=")) {
        scale.requests = Some(number.parse().context("--requests takes a number")?);
    }
    let word = arguments.iter().find(|argument| !argument.starts_with("--")).cloned().unwrap_or_default();
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("{}, {}, commit {}", host_cpu(), host_kernel(), commit.unwrap_or_else(|_| "unknown".to_owned()));
    println!(
        "kernels: {}; {} rounds of {} ms a side, or as long in more rounds",
        stripewise_parity::kernels(),
        scale.rounds,
        scale.sample.as_millis()
    );
    print!("{}", table::heading());
    selfbench::run(&word, &scale, |row| print!("{}", table::row_text(row, true)))?;
    Ok(())
}
