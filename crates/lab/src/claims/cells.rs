//! Cells as claims see them: chosen by their factors, grouped by the rest, averaged over replicates.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::results::CellResult;

/// Which cells: for each factor named, the values meant. `target` counts as a factor and means the array unless it is
/// named; `all` takes every value.
pub type Where = BTreeMap<String, OneOrMore>;

/// One text or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl OneOrMore {
    pub(super) fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
        }
    }
}

/// A figure of a cell.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "String")]
pub enum Metric {
    /// MB/s, reads and writes together.
    #[default]
    MegabytesPerSecond,
    /// I/Os a second.
    Iops,
    /// Seconds it took.
    Seconds,
    /// Bytes members move for each byte asked.
    MemberBytes,
    /// Member I/Os for each request.
    MemberIos,
    /// A figure by its name.
    Figure(String),
}

impl From<String> for Metric {
    fn from(name: String) -> Self {
        match name.as_str() {
            "mb_s" => Self::MegabytesPerSecond,
            "iops" => Self::Iops,
            "seconds" => Self::Seconds,
            "member_bytes" => Self::MemberBytes,
            "member_ios" => Self::MemberIos,
            _ => Self::Figure(name),
        }
    }
}

impl Metric {
    /// The unit, with a space before it.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::MegabytesPerSecond => " MB/s",
            Self::Iops => " IOPS",
            Self::Seconds => " s",
            Self::MemberBytes | Self::MemberIos => " for each",
            Self::Figure(name) if name.ends_with("_kib_s") => " KiB/s",
            Self::Figure(name) if name.ends_with("_mb_s") => " MB/s",
            Self::Figure(_) => "",
        }
    }

    fn of(&self, cell: &CellResult) -> Option<f64> {
        let ios = cell.member_ios.filter(|m| m.requests > 0);
        match self {
            Self::MegabytesPerSecond => Some(cell.bytes_per_second() / 1e6),
            Self::Iops => Some(cell.iops()),
            Self::Seconds => Some(cell.seconds),
            Self::MemberBytes => ios.map(|m| (m.read_bytes + m.write_bytes) as f64 / m.request_bytes as f64),
            Self::MemberIos => ios.map(|m| (m.reads + m.writes) as f64 / m.requests as f64),
            Self::Figure(name) => cell.figures.get(name).copied(),
        }
    }
}

/// A combination of factors with its figure, the mean over replicates.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) factors: BTreeMap<String, String>,
    pub(super) figure: f64,
}

impl Point {
    /// The factors but those, as a name.
    pub(super) fn name(&self, but: &[&str]) -> String {
        let kept = self.factors.iter().filter(|(name, _)| !but.contains(&name.as_str()));
        let words: Vec<String> = kept
            .filter(|(name, value)| !(*name == "target" && *value == "array"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }

    pub(super) fn has(&self, factor: &str, value: &str) -> bool {
        self.factors.get(factor).is_some_and(|v| v == value)
    }
}

fn matches(factors: &BTreeMap<String, String>, wanted: &Where) -> bool {
    let is_array_meant = !wanted.contains_key("target");
    let named = wanted.iter().all(|(name, values)| {
        let texts = values.texts();
        texts.iter().any(|text| text == "all" || factors.get(name) == Some(text))
    });
    named && (!is_array_meant || factors.get("target").is_some_and(|t| t == "array"))
}

/// Whether a cell of those factors is among the ones chosen.
pub(super) fn is_chosen(factors: &BTreeMap<String, String>, target: &str, wanted: &Where) -> bool {
    let mut factors = factors.clone();
    factors.insert("target".to_owned(), target.to_owned());
    matches(&factors, wanted)
}

/// The figures of every combination of factors, one for each replicate, in the order of the study.
pub(super) fn trials(
    cells: &[CellResult],
    wanted: &Where,
    metric: &Metric,
) -> Vec<(BTreeMap<String, String>, Vec<f64>)> {
    let mut found: Vec<(BTreeMap<String, String>, Vec<f64>)> = Vec::new();
    let mut places = BTreeMap::new();
    for cell in cells.iter().filter(|c| c.error.is_none()) {
        let mut factors = cell.factors.clone();
        factors.insert("target".to_owned(), cell.target.clone());
        let Some(figure) = metric.of(cell).filter(|_| matches(&factors, wanted)) else { continue };
        let place = *places.entry(factors.clone()).or_insert_with(|| {
            found.push((factors, Vec::new()));
            found.len() - 1
        });
        found[place].1.push(figure);
    }
    found
}

/// The cells chosen, in the order of the study.
pub(super) fn points(cells: &[CellResult], wanted: &Where, metric: &Metric) -> Vec<Point> {
    let mean = |figures: Vec<f64>| figures.iter().sum::<f64>() / figures.len() as f64;
    let found = trials(cells, wanted, metric).into_iter();
    found.map(|(factors, figures)| Point { factors, figure: mean(figures) }).collect()
}

/// Points apart by every factor but those.
pub(super) fn groups<'a>(points: &'a [Point], but: &[&str]) -> Vec<(String, Vec<&'a Point>)> {
    let mut groups: Vec<(String, Vec<&Point>)> = Vec::new();
    for point in points {
        let name = point.name(but);
        match groups.iter_mut().find(|(n, _)| *n == name) {
            Some((_, group)) => group.push(point),
            None => groups.push((name, vec![point])),
        }
    }
    groups
}
