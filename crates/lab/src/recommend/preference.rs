//! Which of several values is taken where their figures do not differ.

use super::apply::default_of;
use super::{Question, Scored, Tie, must_be_chosen};
use crate::workload::parse_size;

/// The values by preference: the one that arrays have anyway, then the smallest number, which costs the least memory or drives, then
/// those that are no number, as they were given.
pub(super) fn preferred(question: &Question<'_>) -> Vec<usize> {
    let default = default_of(question.subject);
    let key = |value: usize| {
        let name = question.values[value].as_str();
        (Some(name) != default, parse_size(name).unwrap_or(u64::MAX))
    };
    let mut order: Vec<usize> = (0..question.values.len()).collect();
    order.sort_by_key(|&value| key(value));
    order
}

/// Why there is nothing to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nothing {
    /// No value is told from another, of something that arrays have a default for.
    Untold,
    /// What arrays have anyway is tied with the best.
    Default,
}

/// Whether there is nothing to apply, and why.
pub(super) fn nothing_to_apply(ranking: &[Scored], question: &Question<'_>) -> Option<Nothing> {
    if must_be_chosen(question.subject) || ranking.len() < 2 {
        return None;
    }
    // Without an interval a tie by the margin is all that can be said.
    let is_untold = |scored: &Scored| match scored.tie() {
        Some(Tie::Evidence) => true,
        Some(Tie::Margin) => scored.ratio.bounds.is_none(),
        None => false,
    };
    if ranking[1..].iter().all(is_untold) {
        return Some(Nothing::Untold);
    }
    let default = default_of(question.subject)?;
    let is_default = |scored: &Scored| question.values[scored.value] == default;
    let is_tied = |scored: &Scored| scored.tie().is_some();
    let at = ranking.iter().position(is_default)?;
    let has_tie = if at == 0 { is_tied(&ranking[1]) } else { is_tied(&ranking[at]) };
    has_tie.then_some(Nothing::Default)
}
