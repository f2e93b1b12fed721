//! The checks a claim may state.

use std::collections::BTreeMap;

use serde::Deserialize;
use stripewise_sim::models::Model;

use super::Basis;
use super::cells::{Metric, Where, is_chosen, points, trials};
use super::compare::{
    Course, best, middle, no_winner, overall_best, pathology, ratios, spread, spread_of_trials, winning,
};
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
    /// The figure does not fall (or rise) along the values of a factor, in every group, and is higher (or lower) at the last than at
    /// the first over all groups.
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
        /// How many times the lower of first and last the higher must be, by geometric mean over the groups: without it, an order
        /// would be found among figures that are all the same.
        #[serde(default)]
        gain: f64,
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
        /// Some other value must lie further below by that mean: where all are alike none is best.
        #[serde(default)]
        wins: bool,
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
    /// A value of a factor is neither the best nor the worst, nor tied with them, in a share of the groups, and never far below the
    /// others.
    Middle {
        /// The factor.
        over: String,
        /// The value.
        value: String,
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// The share of groups.
        share: f64,
        /// How far below the worst of the others it may be in any group, as a share.
        slack: f64,
    },
    /// No value of a factor is alone the best in more than a share of the groups.
    NoWinner {
        /// The factor.
        over: String,
        /// Cells.
        #[serde(rename = "where", default)]
        cells: Where,
        /// Figure.
        #[serde(default)]
        metric: Metric,
        /// The share.
        share: f64,
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
    pub(super) fn of(holds: bool, here: String) -> Self {
        if holds { Self::Holds(here) } else { Self::Not(here) }
    }

    /// What was found, and something else that must hold as well.
    pub(super) fn and(self, holds: bool, also: &str) -> Self {
        match self {
            Self::Holds(here) => Self::of(holds, format!("{here}; {also}")),
            Self::Not(here) => Self::Not(format!("{here}; {also}")),
            Self::Unknown(reason) => Self::Unknown(reason),
        }
    }

    pub(super) fn no_cells() -> Self {
        Self::Unknown("the cells it needs have not been run; the shortened plan lacks them".to_owned())
    }
}

const fn all() -> f64 {
    1.0
}

impl Take {
    pub(super) fn of(self, figures: &[f64]) -> f64 {
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

pub(super) fn print(figure: f64) -> String {
    if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.2}") }
}

fn is_within(figure: f64, low: Option<f64>, high: Option<f64>) -> bool {
    low.is_none_or(|low| figure >= low) && high.is_none_or(|high| figure <= high)
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

    /// Whether its outcome depends on the figures of a cell with those factors.
    pub fn looks_at(&self, factors: &BTreeMap<String, String>, target: &str) -> bool {
        let is_chosen = |wanted| is_chosen(factors, target, wanted);
        match self {
            Self::Ratio { top, bottom, .. } => is_chosen(top) || is_chosen(bottom),
            Self::Spread { cells, .. }
            | Self::Value { cells, .. }
            | Self::Order { cells, .. }
            | Self::Best { cells, .. }
            | Self::Pathology { cells, .. }
            | Self::Middle { cells, .. }
            | Self::NoWinner { cells, .. }
            | Self::Trials { cells, .. } => is_chosen(cells),
            Self::Count { .. }
            | Self::Product { .. }
            | Self::Model { .. }
            | Self::GroupStarts(_)
            | Self::NotCheckable { .. } => false,
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
            Self::Order { over, values, cells: wanted, metric, falls, slack, gain, share } => {
                let course = Course { over, values, falls: *falls };
                course.order(&points(cells, wanted, metric), *slack, *gain, *share)
            }
            Self::Best { over, values, cells: wanted, metric, within, share, overall, wins } => {
                let points = points(cells, wanted, metric);
                let found = if *overall {
                    overall_best(&points, over, values, *within)
                } else {
                    best(&points, over, values, *within, *share)
                };
                if *wins { winning(found, &points, over, values, *within) } else { found }
            }
            Self::Pathology { over, sets, cells: wanted, metric, below } => {
                pathology(&points(cells, wanted, metric), over, sets, *below)
            }
            Self::Middle { over, value, cells: wanted, metric, share, slack } => {
                middle(&points(cells, wanted, metric), over, value, *share, *slack)
            }
            Self::NoWinner { over, cells: wanted, metric, share } => {
                no_winner(&points(cells, wanted, metric), over, *share)
            }
            Self::Trials { cells: wanted, metric, at_most } => {
                spread_of_trials(trials(cells, wanted, metric), *at_most)
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
