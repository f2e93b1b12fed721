//! mdadm's options for the flags of devices, each of which is about those that are named after it.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use stripewise_format::device_flags::FlagsChange;

/// What the positional arguments are called that the options are about.
pub(crate) const DEVICES: &str = "devices";

/// An option, its letter, what it asks for and its help.
type Choice = (&'static str, Option<char>, FlagsChange, &'static str);

/// The place of the first in the help, behind those of the command.
const LAST: usize = 900;

const CHOICES: [Choice; 4] = [
    (
        "write-mostly",
        Some('W'),
        FlagsChange { write_mostly: Some(true), failfast: None },
        "Mark the devices after this option as write-mostly: a raid1 reads them only if no other member can answer",
    ),
    (
        "readwrite",
        Some('w'),
        FlagsChange { write_mostly: Some(false), failfast: None },
        "Mark the devices after this option as not write-mostly",
    ),
    (
        "failfast",
        None,
        FlagsChange { write_mostly: None, failfast: Some(true) },
        "Mark the devices after this option as failfast, which Linux respects; stripewise only records it",
    ),
    (
        "nofailfast",
        None,
        FlagsChange { write_mostly: None, failfast: Some(false) },
        "Mark the devices after this option as not failfast",
    ),
];

/// What is asked for of each device's flags, in the order of the devices. To stand before the field of the devices, whose
/// places are gone once they are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlagArgs(Vec<FlagsChange>);

impl FlagArgs {
    /// What is asked for of the device of this place in the list.
    pub(crate) fn of(&self, device: usize) -> FlagsChange {
        self.0.get(device).copied().unwrap_or_default()
    }
}

impl Args for FlagArgs {
    fn augment_args(command: Command) -> Command {
        CHOICES.into_iter().zip(LAST..).fold(command, |command, ((name, letter, _, help), order)| {
            // A flag's places are not kept, those of an option without a value are.
            let arg = Arg::new(name).long(name).help(help).action(ArgAction::Append);
            let arg = arg.num_args(0).default_missing_value("").display_order(order);
            command.arg(letter.into_iter().fold(arg, Arg::short))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FlagArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let places = |name| {
            let given = matches.value_source(name) == Some(ValueSource::CommandLine);
            given.then(|| matches.indices_of(name)).flatten().into_iter().flatten()
        };
        let mut asked: Vec<(usize, FlagsChange)> = CHOICES
            .into_iter()
            .flat_map(|(name, _, change, _)| places(name).map(move |at| (at, change)))
            .collect();
        asked.sort_unstable_by_key(|(at, _)| *at);
        let before = |device: usize| {
            let asked = asked.iter().take_while(|(at, _)| *at < device);
            asked.fold(FlagsChange::default(), |all, (_, change)| all.then(*change))
        };
        Ok(Self(places(DEVICES).map(before).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: FlagArgs,
        #[arg(id = DEVICES, required = true)]
        devices: Vec<PathBuf>,
        #[arg(long, num_args = 1..)]
        array: Vec<PathBuf>,
    }

    #[test]
    fn an_option_is_about_the_devices_after_it_until_its_opposite() {
        let (on, off, keep) = (Some(true), Some(false), None);
        for (line, expected) in [
            ("a b", vec![(keep, keep), (keep, keep)]),
            ("-W a b", vec![(on, keep), (on, keep)]),
            ("a --write-mostly b", vec![(keep, keep), (on, keep)]),
            ("-W a --readwrite b -W c", vec![(on, keep), (off, keep), (on, keep)]),
            ("a -w b --failfast c --nofailfast d", vec![(keep, keep), (off, keep), (off, on), (off, off)]),
            ("--array x y -W a -wW b", vec![(on, keep), (on, keep)]),
            ("a -W b --array x -w", vec![(keep, keep), (on, keep)]),
        ] {
            let line = Line::try_parse_from(["x"].into_iter().chain(line.split(' '))).unwrap();
            let changes = (0..line.devices.len()).map(|device| line.flags.of(device));
            let changes: Vec<_> = changes.map(|change| (change.write_mostly, change.failfast)).collect();
            assert_eq!(changes, expected, "{line:?}");
        }
    }
}
