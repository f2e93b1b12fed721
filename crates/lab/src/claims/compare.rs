//! Checks that compare the cells of a group with each other: cells that agree in every factor but one.

use std::collections::BTreeMap;

use super::cells::{Point, groups};
use super::test::{Found, Take, print};

/// Holds where a share of the groups passes; says so with the group that is furthest off.
pub(super) fn by_groups(judged: &[(String, bool, f64)], share: f64, worst_is_low: bool) -> Found {
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

pub(super) fn spread(points: &[Point], over: &str, at_most: f64, share: f64) -> Found {
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

/// Each combination's replicates, with their range as a share of their mean.
pub(super) fn spread_of_trials(trials: Vec<(BTreeMap<String, String>, Vec<f64>)>, at_most: f64) -> Found {
    let judged: Vec<_> = trials
        .into_iter()
        .filter(|(_, figures)| figures.len() > 1)
        .map(|(factors, figures)| {
            let range = Take::Greatest.of(&figures) - Take::Least.of(&figures);
            let share = range / Take::Mean.of(&figures);
            (Point { factors, figure: share }.name(&[]), share <= at_most, share)
        })
        .collect();
    by_groups(&judged, 1.0, false)
}

/// Ratios of points that agree in every factor but those named.
pub(super) fn ratios(above: &[Point], below: &[Point], named: &[&str]) -> Vec<f64> {
    let below = groups(below, named);
    let mean = |group: &[&Point]| group.iter().map(|p| p.figure).sum::<f64>() / group.len() as f64;
    let above = groups(above, named);
    let pair = |(name, group): &(String, Vec<&Point>)| {
        below.iter().find(|(other, _)| other == name).map(|(_, other)| mean(group) / mean(other))
    };
    above.iter().filter_map(pair).collect()
}

/// The values of a factor in an order in which a figure rises, or falls.
pub(super) struct Course<'a> {
    pub(super) over: &'a str,
    pub(super) values: &'a [String],
    pub(super) falls: bool,
}

impl Course<'_> {
    /// Holds where a share of the groups takes no step back of more than the slack, and all groups together gain so much from the
    /// first value to the last.
    pub(super) fn order(&self, points: &[Point], slack: f64, gain: f64, share: f64) -> Found {
        let groups = groups(points, &[self.over]);
        let figures = groups.iter().map(|(name, group)| (name, self.figures(group)));
        let figures: Vec<_> = figures.filter(|(_, figures)| figures.len() > 1).collect();
        let judged: Vec<_> = figures
            .iter()
            .map(|(name, figures)| {
                let steps = figures.windows(2).map(|w| self.ratio(w[0], w[1]));
                let least = steps.fold(f64::INFINITY, f64::min);
                ((*name).clone(), least >= 1.0 - slack, least)
            })
            .collect();
        let logs = figures.iter().filter_map(|(_, f)| Some(self.ratio(*f.first()?, *f.last()?).ln()));
        let gained = Take::Mean.of(&logs.collect::<Vec<_>>()).exp();
        let found = by_groups(&judged, share, true);
        if gain > 0.0 {
            found.and(gained >= gain, &format!("from first to last {gained:.3} times"))
        } else {
            found
        }
    }

    fn figures(&self, group: &[&Point]) -> Vec<f64> {
        let along = self.values.iter().filter_map(|v| group.iter().find(|p| p.has(self.over, v)));
        along.map(|p| p.figure).collect()
    }

    /// A step, above 1 where it goes the right way.
    fn ratio(&self, from: f64, to: f64) -> f64 {
        if self.falls { from / to } else { to / from }
    }
}

/// The values' least share of the best in a group.
fn least_share(group: &[&Point], over: &str, values: &[String]) -> Option<f64> {
    let top = group.iter().map(|p| p.figure).fold(0.0, f64::max);
    let found: Option<Vec<f64>> =
        values.iter().map(|v| group.iter().find(|p| p.has(over, v)).map(|p| p.figure)).collect();
    found.filter(|_| top > 0.0).map(|figures| Take::Least.of(&figures) / top)
}

pub(super) fn best(points: &[Point], over: &str, values: &[String], within: f64, share: f64) -> Found {
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
fn scores(points: &[Point], over: &str) -> Vec<(String, f64)> {
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
    known.iter().filter_map(|v| score(v).map(|s| (v.clone(), s))).collect()
}

pub(super) fn overall_best(points: &[Point], over: &str, values: &[String], within: f64) -> Found {
    let scores = scores(points, over);
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

/// What was found of values that are to be best, where some other value must lie further below than they may.
pub(super) fn winning(found: Found, points: &[Point], over: &str, values: &[String], within: f64) -> Found {
    let scores = scores(points, over);
    let others = scores.iter().filter(|(name, _)| !values.contains(name));
    let Some((worst, least)) = others.min_by(|a, b| a.1.total_cmp(&b.1)) else { return found };
    found.and(*least < 1.0 - within, &format!("the worst, {worst}, has {} of the best", print(*least)))
}

pub(super) fn middle(points: &[Point], over: &str, value: &str, share: f64, slack: f64) -> Found {
    let judged: Vec<_> = groups(points, &[over])
        .into_iter()
        .filter_map(|(name, group)| {
            let own = group.iter().find(|p| p.has(over, value))?.figure;
            let others: Vec<f64> = group.iter().filter(|p| !p.has(over, value)).map(|p| p.figure).collect();
            let (worst, best) = (Take::Least.of(&others), Take::Greatest.of(&others));
            (!others.is_empty()).then_some((name, worst < own && own < best, own / worst))
        })
        .collect();
    let Some(least) = judged.iter().map(|j| j.2).min_by(f64::total_cmp) else { return Found::no_cells() };
    match by_groups(&judged, share, true) {
        Found::Holds(here) if least < 1.0 - slack => Found::Not(here),
        found => found,
    }
}

pub(super) fn no_winner(points: &[Point], over: &str, share: f64) -> Found {
    let groups = groups(points, &[over]);
    let mut wins: BTreeMap<&str, usize> = BTreeMap::new();
    let mut judged = 0;
    for (_, group) in groups.iter().filter(|(_, group)| group.len() > 1) {
        judged += 1;
        let top = Take::Greatest.of(&group.iter().map(|p| p.figure).collect::<Vec<_>>());
        let mut best = group.iter().filter(|p| p.figure >= top);
        if let (Some(winner), None) = (best.next(), best.next()) {
            *wins.entry(winner.factors.get(over).map_or("", String::as_str)).or_default() += 1;
        }
    }
    if judged == 0 {
        return Found::no_cells();
    }
    let (name, most) = wins.into_iter().max_by_key(|(_, count)| *count).unwrap_or(("none", 0));
    let here = format!("{name} is best in {most} of {judged} workloads");
    Found::of(most as f64 <= share * judged as f64, here)
}

pub(super) fn pathology(points: &[Point], over: &str, sets: &[Vec<String>], below: f64) -> Found {
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
