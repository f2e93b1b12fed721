//! The checks a claim may state.

use serde::Deserialize;
use stripewise_sim::models::Model;

use super::Basis;
use super::cells::{Metric, Point, Where, groups, points, trials};
use super::layout::GroupStarts;
use crate::results::CellResult;

/// A check.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Test {
    /// The largest figure over the smallest, over the values of a factor, in every group of the other factors.
    Spread {
        /// The factor.
        over: String,
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// The most the ratio may be.
        at_most: f64,
        /// The share of groups in which it must hold.
        #[serde(default = "all")]
        share: f64,
    },
    /// A figure of all cells lies within bounds.
    Value {
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// Which of them.
        #[serde(default)]
        take: Take,
        /// Lower bound.
        #[serde(default)]
        low: Option<f64>,
        /// Upper bound.
        #[serde(default)]
        high: Option<f64>,
    },
    /// A figure of some cells over that of others that differ only in the factors named in either choice.
    Ratio {
        /// Cells above.
        top: Where,
        /// Cells below.
        bottom: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// Which of the pairs.
        #[serde(default)]
        take: Take,
        /// Lower bound.
        #[serde(default)]
        low: Option<f64>,
        /// Upper bound.
        #[serde(default)]
        high: Option<f64>,
    },
    /// The figure does not fall (or rise) along the values of a factor, in every group.
    Order {
        /// The factor.
        over: String,
        /// Its values in order.
        values: Vec<String>,
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// It must not rise, rather than not fall.
        #[serde(default)]
        falls: bool,
        /// By how much a step may go the wrong way, as a share.
        #[serde(default)]
        slack: f64,
        /// The share of groups in which it must hold.
        #[serde(default = "all")]
        share: f64,
    },
    /// Values of a factor come within some share of the best value, in every group.
    Best {
        /// The factor.
        over: String,
        /// The values.
        values: Vec<String>,
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// How far below the best they may be, as a share.
        within: f64,
        /// The share of groups in which it must hold.
        #[serde(default = "all")]
        share: f64,
        /// Of the geometric mean over all groups, rather than in each.
        #[serde(default)]
        overall: bool,
    },
    /// Each value of a factor falls below a share of the best in some group.
    Pathology {
        /// The factor.
        over: String,
        /// The values, in sets of which one each must.
        sets: Vec<Vec<String>>,
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// The share.
        below: f64,
    },
    /// Replicates of each combination lie within a share of their mean.
    Trials {
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// The largest less the smallest, over the mean.
        at_most: f64,
    },
    /// So many combinations of factors.
    Count {
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// How many.
        equals: usize,
    },
    /// A product of published figures comes to what was published besides.
    Product {
        /// The factors.
        of: Vec<f64>,
        /// What they come to.
        equals: f64,
        /// How far off it may be, as a share.
        within: f64,
    },
    /// A parameter of a model lies within bounds.
    Model {
        /// The model.
        model: String,
        /// The parameter.
        parameter: String,
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// On which members the block groups of a file system begin.
    GroupStarts(GroupStarts),
    /// Nothing here can tell.
    NotCheckable {
        /// Why.
        because: String,
    },
}

/// One of several figures.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// Their mean.
    #[default]
    Mean,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The claim holds.
    Holds(String),
    /// It does not.
    Not(String),
    /// Nothing can be said.
    Unknown(String),
}

impl Found {
    fn of(holds: bool, here: String) -> Self {
        if holds { Self::Holds(here) } else { Self::Not(here) }
    }

    fn no_cells() -> Self {
        Self::Unknown("the cells it needs have not been run; the shortened plan lacks them".to_owned())
    }
}

const fn all() -> f64 {
    1.0
}

impl Take {
    fn of(self, figures: &[f64]) -> f64 {
        match self {
            Self::Mean => figures.iter().sum::<f64>() / figures.len() as f64,
            Self::Least => figures.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Greatest => figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Mean => "",
            Self::Least => "at least ",
            Self::Greatest => "at most ",
        }
    }
}

fn print(figure: f64) -> String {
    if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.2}") }
}

fn is_within(figure: f64, low: Option<f64>, high: Option<f64>) -> bool {
    low.is_none_or(|low| figure >= low) && high.is_none_or(|high| figure <= high)
}

/// Holds where a share of the groups passes; says so with the group that is furthest off.
fn by_groups(judged: &[(String, bool, f64)], share: f64, worst_is_low: bool) -> Found {
    if judged.is_empty() {
        return Found::no_cells();
    }
    let passed = judged.iter().filter(|(_, holds, _)| *holds).count();
    let worst = judged.iter().min_by(|a, b| {
        let order = a.2.total_cmp(&b.2);
        if worst_is_low { order } else { order.reverse() }
    });
    let mut here = format!("{passed} of {} workloads", judged.len());
    if let Some((name, _, figure)) = worst {
        here = format!("{here}; furthest off {figure:.3} at {name}");
    }
    Found::of(passed as f64 >= share * judged.len() as f64, here)
}

impl Test {
    /// What its verdict rests on.
    pub(super) const fn basis(&self) -> Basis {
        match self {
            Self::Count { .. } => Basis::Plan,
            Self::Model { .. } => Basis::Model,
            Self::Product { .. } | Self::GroupStarts(_) => Basis::Arithmetic,
            _ => Basis::Run,
        }
    }

    /// Runs it on a study's cells.
    pub fn run(&self, cells: &[CellResult]) -> Found {
        match self {
            Self::Spread { over, cells: wanted, metric, at_most, share } => {
                spread(&points(cells, wanted, metric), over, *at_most, *share)
            }
            Self::Value { cells: wanted, metric, take, low, high } => {
                let figures: Vec<f64> = points(cells, wanted, metric).iter().map(|p| p.figure).collect();
                if figures.is_empty() {
                    return Found::no_cells();
                }
                let figure = take.of(&figures);
                let here = format!("{}{}{}", take.word(), print(figure), metric.unit());
                Found::of(is_within(figure, *low, *high), here)
            }
            Self::Ratio { top, bottom, metric, take, low, high } => {
                let (above, below) = (points(cells, top, metric), points(cells, bottom, metric));
                let named: Vec<&str> = top.keys().chain(bottom.keys()).map(String::as_str).collect();
                let ratios = ratios(&above, &below, &named);
                if ratios.is_empty() {
                    return Found::no_cells();
                }
                let figure = take.of(&ratios);
                let here = format!("{}{} times", take.word(), print(figure));
                Found::of(is_within(figure, *low, *high), here)
            }
            Self::Order { over, values, cells: wanted, metric, falls, slack, share } => {
                order(&points(cells, wanted, metric), over, values, *falls, *slack, *share)
            }
            Self::Best { over, values, cells: wanted, metric, within, share, overall } => {
                let points = points(cells, wanted, metric);
                if *overall {
                    overall_best(&points, over, values, *within)
                } else {
                    best(&points, over, values, *within, *share)
                }
            }
            Self::Pathology { over, sets, cells: wanted, metric, below } => {
                pathology(&points(cells, wanted, metric), over, sets, *below)
            }
            Self::Trials { cells: wanted, metric, at_most } => {
                let judged: Vec<_> = trials(cells, wanted, metric)
                    .into_iter()
                    .filter(|(_, figures)| figures.len() > 1)
                    .map(|(factors, figures)| {
                        let range = Take::Greatest.of(&figures) - Take::Least.of(&figures);
                        let share = range / Take::Mean.of(&figures);
                        (Point { factors, figure: share }.name(&[]), share <= *at_most, share)
                    })
                    .collect();
                by_groups(&judged, 1.0, false)
            }
            Self::Count { cells: wanted, equals } => {
                let found = points(cells, wanted, &Metric::Seconds).len();
                if found == 0 && (*equals > 0 || cells.is_empty()) {
                    return Found::no_cells();
                }
                Found::of(found == *equals, format!("{found} cells"))
            }
            Self::Product { of, equals, within } => {
                let found: f64 = of.iter().product();
                Found::of((found / equals - 1.0).abs() <= *within, print(found))
            }
            Self::Model { model, parameter, low, high } => model_value(model, parameter, *low, *high),
            Self::GroupStarts(starts) => starts.run(),
            Self::NotCheckable { because } => Found::Unknown(because.clone()),
        }
    }
}

fn model_value(name: &str, parameter: &str, low: f64, high: f64) -> Found {
    let model = match Model::load(name) {
        Ok(model) => model,
        Err(error) => return Found::Unknown(error.to_string()),
    };
    match model.parameters.iter().find(|p| p.name == parameter) {
        Some(found) => {
            let holds = found.value.numbers().iter().all(|n| (low..=high).contains(n));
            Found::of(holds, format!("{} {}", found.value, found.unit))
        }
        None => Found::Unknown(format!("the model {name} has no parameter {parameter}")),
    }
}

fn spread(points: &[Point], over: &str, at_most: f64, share: f64) -> Found {
    let judged: Vec<_> = groups(points, &[over])
        .into_iter()
        .filter(|(_, group)| group.len() > 1)
        .map(|(name, group)| {
            let figures: Vec<f64> = group.iter().map(|p| p.figure).collect();
            let ratio = Take::Greatest.of(&figures) / Take::Least.of(&figures);
            (name, ratio <= at_most, ratio)
        })
        .collect();
    by_groups(&judged, share, false)
}

/// Ratios of points that agree in every factor but those named.
fn ratios(above: &[Point], below: &[Point], named: &[&str]) -> Vec<f64> {
    let below = groups(below, named);
    let mean = |group: &[&Point]| group.iter().map(|p| p.figure).sum::<f64>() / group.len() as f64;
    let above = groups(above, named);
    let pair = |(name, group): &(String, Vec<&Point>)| {
        below.iter().find(|(other, _)| other == name).map(|(_, other)| mean(group) / mean(other))
    };
    above.iter().filter_map(pair).collect()
}

fn order(points: &[Point], over: &str, values: &[String], falls: bool, slack: f64, share: f64) -> Found {
    let judged: Vec<_> = groups(points, &[over])
        .into_iter()
        .filter_map(|(name, group)| {
            let along = values.iter().filter_map(|v| group.iter().find(|p| p.has(over, v)));
            let figures: Vec<f64> = along.map(|p| p.figure).collect();
            let steps = figures.windows(2).map(|w| if falls { w[0] / w[1] } else { w[1] / w[0] });
            let least = steps.fold(f64::INFINITY, f64::min);
            (figures.len() > 1).then_some((name, least >= 1.0 - slack, least))
        })
        .collect();
    by_groups(&judged, share, true)
}

/// The values' least share of the best in a group.
fn least_share(group: &[&Point], over: &str, values: &[String]) -> Option<f64> {
    let top = group.iter().map(|p| p.figure).fold(0.0, f64::max);
    let found: Option<Vec<f64>> =
        values.iter().map(|v| group.iter().find(|p| p.has(over, v)).map(|p| p.figure)).collect();
    found.filter(|_| top > 0.0).map(|figures| Take::Least.of(&figures) / top)
}

fn best(points: &[Point], over: &str, values: &[String], within: f64, share: f64) -> Found {
    let judged: Vec<_> = groups(points, &[over])
        .into_iter()
        .filter_map(|(name, group)| {
            let least = least_share(&group, over, values)?;
            Some((name, least >= 1.0 - within, least))
        })
        .collect();
    by_groups(&judged, share, true)
}

/// Geometric mean over groups of each value's share of the best.
fn overall_best(points: &[Point], over: &str, values: &[String], within: f64) -> Found {
    let mut known: Vec<String> = Vec::new();
    for value in points.iter().filter_map(|p| p.factors.get(over)) {
        if !known.contains(value) {
            known.push(value.clone());
        }
    }
    let groups = groups(points, &[over]);
    let score = |value: &String| {
        let shares = groups.iter().filter_map(|(_, g)| least_share(g, over, std::slice::from_ref(value)));
        let logs: Vec<f64> = shares.map(|s| s.max(1e-6).ln()).collect();
        (!logs.is_empty()).then(|| Take::Mean.of(&logs).exp())
    };
    let scores: Vec<(String, f64)> = known.iter().filter_map(|v| score(v).map(|s| (v.clone(), s))).collect();
    let Some((winner, top)) = scores.iter().max_by(|a, b| a.1.total_cmp(&b.1)).cloned() else {
        return Found::no_cells();
    };
    let found: Option<Vec<f64>> =
        values.iter().map(|v| scores.iter().find(|(name, _)| name == v).map(|(_, s)| *s)).collect();
    let Some(found) = found else { return Found::no_cells() };
    let least = Take::Least.of(&found) / top;
    let here = format!("{} of the best, which is {winner}", print(least));
    Found::of(least >= 1.0 - within, here)
}

fn pathology(points: &[Point], over: &str, sets: &[Vec<String>], below: f64) -> Found {
    let groups = groups(points, &[over]);
    let mut found = Vec::new();
    for set in sets {
        let shares = set.iter().flat_map(|value| {
            groups.iter().filter_map(move |(name, group)| {
                let share = least_share(group, over, std::slice::from_ref(value))?;
                Some((share, format!("{value} at {name}")))
            })
        });
        match shares.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some(least) => found.push(least),
            None => return Found::no_cells(),
        }
    }
    let words: Vec<String> =
        found.iter().map(|(share, name)| format!("{share:.2} of the best: {name}")).collect();
    Found::of(found.iter().all(|(share, _)| *share < below), words.join("; "))
}
