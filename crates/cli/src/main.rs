//! The `stripewise` command: arguments in, the lab's answers out.
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the storage, the store or the machine failed; the message says where |
//! | 2 | the arguments, a plan, a model or a geometry are not possible; nothing was done |
//! | 3 | done, but some cells have no result: they failed, or no I/O completed |
//! | 4 | done, but a check found redundancy that disagrees |
//! | 130 | interrupted; what was measured is kept and the same command goes on from there |

#[macro_use]
mod output;

mod args;
mod array;
mod bench;
mod calibrate;
mod drive;
mod exit;
mod luks;
mod manual;
mod models;
mod progress;
mod sim;
mod study;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use stripewise_host::{AddHow, keep_freed_memory, take_size_limit_as_error};

use args::{Cli, Command};

fn main() -> ExitCode {
    match Cli::try_parse().map_or_else(|said| output::print_said(&said), |cli| run(&cli)) {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}

fn run(cli: &Cli) -> anyhow::Result<exit::Exit> {
    keep_freed_memory();
    // A member file beyond it is a member that fails.
    take_size_limit_as_error();
    match &cli.command {
        Command::Study(command) => study::run(command),
        Command::Bench(args) => bench::run(args),
        Command::Create(args) => array::create::run(args),
        Command::Grow(args) => array::grow::run(args),
        Command::Examine(args) => array::examine::run(args),
        Command::ZeroSuperblock(args) => array::zero::run(args),
        Command::Assemble(args) => array::assemble::run(args),
        Command::Detail(args) => array::detail::run(args),
        Command::Read(args) => array::transfer::read(args),
        Command::Write(args) => array::transfer::write(args),
        Command::Serve(args) => array::serve::run(args),
        Command::Fail(args) => array::manage::fail(args),
        Command::Remove(args) => array::manage::remove(args),
        Command::Add(args) => array::manage::add(args, AddHow::Any),
        Command::ReAdd(args) => array::manage::add(args, AddHow::ReAdd),
        Command::AddSpare(args) => array::manage::add(args, AddHow::Spare),
        Command::Replace(args) => array::manage::replace(args),
        Command::State(args) => array::manage::state(args),
        Command::Check(args) => array::manage::check(args),
        Command::Repair(args) => array::manage::repair(args),
        Command::Action(args) => array::manage::action(args),
        Command::Speed(args) => array::manage::speed(args),
        Command::Stop(args) => array::manage::stop(args),
        Command::Luks(command) => luks::run(command),
        Command::Models(command) => models::run(command),
        Command::Trace(command) => trace::run(command),
        Command::Drive(command) => drive::run(command),
        Command::Sim(command) => sim::run(command),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::pages(args),
    }
}
