//! The table: what was measured beside what, the ratio of the two, and whether that is what is asked.

use std::fmt::Write as _;

use serde::Serialize;

/// What figures of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes a second, printed by 10^9.
    #[serde(rename = "bytes-per-second")]
    GbPerSecond,
    /// Bytes a second of every member, printed by 10^6.
    #[serde(rename = "bytes-per-second-per-member")]
    MbPerSecondPerMember,
    /// Requests a second.
    Iops,
    /// Nanoseconds a request; less is better.
    Nanoseconds,
    /// Member I/Os a second.
    MemberIosPerSecond,
    /// Virtual seconds a second.
    TimesRealTime,
}

/// What is asked of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Of the row's ratio.
    RatioAtLeast(f64),
    /// Of the row's ratio, where less is better.
    RatioAtMost(f64),
    /// Of the row's own figure.
    AtLeast(f64),
    /// Of the row's own figure, where less is better.
    Below(f64),
}

/// What the ratio of a row is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatioOf {
    /// The medians of the two sides.
    Medians,
    /// Each round's two samples; their ratios' median. Of a machine with two speeds the medians of two sides that differ by
    /// little may each fall on another speed; the sides of a round are measured at one.
    Rounds,
}

/// Whether a row is what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    Missed,
    /// Nothing is asked of it.
    NothingAsked,
    /// It was not measured.
    Absent,
}

/// The other side of a row: the limit, or a peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// What it is.
    pub name: String,
    /// A sample a round, in the row's unit.
    pub samples: Vec<f64>,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Of all figures of the row.
    pub unit: Unit,
    /// A sample a round; none if it could not be measured.
    pub samples: Vec<f64>,
    /// The figure of the row, of what stands alone: the fastest that was measured. What disturbs slows both sides of a
    /// ratio; here it only takes away.
    pub fastest: Option<f64>,
    /// What it stands beside, in the same rounds.
    pub beside: Option<Beside>,
    /// What the ratio is made of.
    pub ratio_of: RatioOf,
    /// What is asked.
    pub target: Option<Target>,
    /// What else is to be known: why it is absent, what a limit is made of.
    pub note: Option<String>,
}

impl Row {
    /// A row that stands alone and of which nothing is asked.
    pub fn new(name: impl Into<String>, unit: Unit, samples: Vec<f64>) -> Self {
        Self {
            name: name.into(),
            unit,
            samples,
            fastest: None,
            beside: None,
            ratio_of: RatioOf::Medians,
            target: None,
            note: None,
        }
    }

    /// A row that this machine does not give, and why.
    pub fn absent(name: impl Into<String>, unit: Unit, why: impl Into<String>) -> Self {
        Self::new(name, unit, Vec::new()).noted(why)
    }

    /// Puts the row beside something.
    #[must_use]
    pub fn beside(mut self, name: impl Into<String>, samples: Vec<f64>) -> Self {
        self.beside = Some(Beside { name: name.into(), samples });
        self
    }

    /// Makes the ratio of the samples of each round.
    #[must_use]
    pub fn by_rounds(mut self) -> Self {
        self.ratio_of = RatioOf::Rounds;
        self
    }

    /// Names the fastest that was measured, which is the row's figure then.
    #[must_use]
    pub fn fastest(mut self, figure: Option<f64>) -> Self {
        self.fastest = figure;
        self
    }

    /// Asks something of the row.
    #[must_use]
    pub fn asked(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Adds what else is to be known.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The row's own figure: the fastest where it stands alone, else the median of its samples.
    pub fn ours(&self) -> Option<f64> {
        self.fastest.or_else(|| median(&self.samples))
    }

    /// The median of what it stands beside.
    pub fn limit(&self) -> Option<f64> {
        median(&self.beside.as_ref()?.samples)
    }

    /// The ratio of the two sides.
    pub fn ratio(&self) -> Option<f64> {
        match self.ratio_of {
            RatioOf::Medians => Some(self.ours()? / self.limit()?),
            RatioOf::Rounds => {
                let rounds = self.samples.iter().zip(&self.beside.as_ref()?.samples);
                median(&rounds.map(|(ours, beside)| ours / beside).collect::<Vec<_>>())
            }
        }
    }

    /// Whether the row is what is asked.
    pub fn verdict(&self) -> Verdict {
        let Some(ours) = self.ours() else { return Verdict::Absent };
        let is_met = match self.target {
            None => return Verdict::NothingAsked,
            Some(Target::AtLeast(least)) => ours >= least,
            Some(Target::Below(most)) => ours < most,
            Some(Target::RatioAtLeast(least)) => self.ratio().is_some_and(|ratio| ratio >= least),
            Some(Target::RatioAtMost(most)) => self.ratio().is_some_and(|ratio| ratio <= most),
        };
        if is_met { Verdict::Met } else { Verdict::Missed }
    }
}

impl Unit {
    /// A figure of this unit, with it.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::GbPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::MbPerSecondPerMember => format!("{:.0} MB/s a member", value / 1e6),
            Self::Iops => format!("{} IOPS", thousands(value)),
            Self::Nanoseconds => format!("{value:.0} ns"),
            Self::MemberIosPerSecond => format!("{:.2} M member I/Os/s", value / 1e6),
            Self::TimesRealTime => format!("{value:.0} x real time"),
        }
    }
}

impl Target {
    fn text(self, unit: Unit) -> String {
        match self {
            Self::RatioAtLeast(least) => format!(">= {least:.2}"),
            Self::RatioAtMost(most) => format!("<= {most:.2}"),
            Self::AtLeast(least) => format!(">= {}", unit.text(least)),
            Self::Below(most) => format!("< {}", unit.text(most)),
        }
    }
}

impl Verdict {
    /// The word in the last column.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NothingAsked => "",
            Self::Absent => "absent",
        }
    }
}

/// The median of samples; the lower one of two in the middle. `None` of none.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// A whole number in groups of three digits.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One row as lines of text: the figures, then its note and, if asked for, all samples.
pub fn row_text(row: &Row, has_samples: bool) -> String {
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| row.unit.text(value));
    let mut text = format!(
        "{:<46} {:>22} {:>22} {:>6} {:>8} {}",
        row.name,
        figure(row.ours()),
        figure(row.limit()),
        row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        row.target.map_or_else(|| "-".to_owned(), |target| target.text(row.unit)),
        row.verdict().word()
    );
    text.truncate(text.trim_end().len());
    text.push('\n');
    if let Some(beside) = &row.beside {
        let _ = writeln!(text, "    beside {}", beside.name);
    }
    if row.ratio_of == RatioOf::Rounds {
        let _ = writeln!(text, "    the ratio is the median of each round's");
    }
    if row.fastest.is_some() {
        let _ = writeln!(
            text,
            "    the fastest; the median of {} rounds is {}",
            row.samples.len(),
            figure(median(&row.samples))
        );
    }
    if let Some(note) = &row.note {
        let _ = writeln!(text, "    {note}");
    }
    if has_samples {
        let list = |samples: &[f64]| {
            samples.iter().map(|sample| row.unit.text(*sample)).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(text, "    samples: {}", list(&row.samples));
        if let Some(beside) = &row.beside {
            let _ = writeln!(text, "    beside:  {}", list(&beside.samples));
        }
    }
    text
}

/// The headings of [`row_text`].
pub fn heading() -> String {
    format!("{:<46} {:>22} {:>22} {:>6} {:>8}\n", "", "ours", "limit or peer", "ratio", "target")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: &[f64], limit: &[f64], target: Target) -> Row {
        Row::new("a row", Unit::Iops, ours.to_vec()).beside("a limit", limit.to_vec()).asked(target)
    }

    #[test]
    fn the_ratio_is_of_medians_or_of_each_rounds_samples() {
        let row = row(&[1.0, 9.0, 3.0], &[2.0, 1.0, 8.0], Target::RatioAtLeast(1.5));
        assert_eq!((row.ours(), row.limit(), row.ratio()), (Some(3.0), Some(2.0), Some(1.5)));
        assert_eq!(row.verdict(), Verdict::Met);
        assert!(!row_text(&row, false).contains("each round's"));
        let row = row.by_rounds();
        assert_eq!((row.ours(), row.limit(), row.ratio()), (Some(3.0), Some(2.0), Some(0.5)));
        assert_eq!(row.verdict(), Verdict::Missed);
        assert!(row_text(&row, false).contains("the median of each round's"));
    }

    #[test]
    fn every_kind_of_target_can_be_met_and_missed() {
        for (target, met, missed) in [
            (Target::RatioAtLeast(0.5), 5.0, 4.9),
            (Target::RatioAtMost(1.2), 12.0, 12.1),
            (Target::AtLeast(3.0), 3.0, 2.9),
            (Target::Below(3.0), 2.9, 3.0),
        ] {
            assert_eq!(row(&[met], &[10.0], target).verdict(), Verdict::Met, "{target:?}");
            assert_eq!(row(&[missed], &[10.0], target).verdict(), Verdict::Missed, "{target:?}");
        }
    }

    #[test]
    fn a_row_without_its_other_side_never_meets_a_ratio() {
        assert_eq!(row(&[1.0], &[], Target::RatioAtLeast(0.0)).verdict(), Verdict::Missed);
        assert_eq!(row(&[1.0], &[], Target::RatioAtLeast(0.0)).by_rounds().verdict(), Verdict::Missed);
        assert_eq!(row(&[], &[1.0], Target::RatioAtLeast(0.0)).verdict(), Verdict::Absent);
        assert_eq!(Row::new("a row", Unit::Iops, vec![1.0]).verdict(), Verdict::NothingAsked);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_lower_of_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.0));
    }

    #[test]
    fn what_stands_alone_is_judged_by_the_fastest_and_says_so() {
        let samples = vec![300.0, 240.0, 320.0];
        let row = Row::new("a row", Unit::Nanoseconds, samples).asked(Target::Below(250.0));
        assert_eq!(row.verdict(), Verdict::Missed);
        let row = row.fastest(Some(240.0));
        assert_eq!((row.ours(), row.verdict()), (Some(240.0), Verdict::Met));
        assert!(row_text(&row, false).contains("the fastest; the median of 3 rounds is 300 ns"));
    }

    #[test]
    fn figures_are_in_their_units() {
        assert_eq!(Unit::Iops.text(1_234_567.4), "1,234,567 IOPS");
        assert_eq!(Unit::Iops.text(999.0), "999 IOPS");
        assert_eq!(Unit::GbPerSecond.text(8.816e9), "8.82 GB/s");
        assert!(row_text(&row(&[1.0], &[2.0], Target::RatioAtLeast(0.4)), true).contains(">= 0.40 met"));
    }
}
