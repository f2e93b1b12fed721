//! The recommendation in sentences.

use stripewise_engine::level::Level;

use super::apply::default_of;
use super::preference::{Nothing, nothing_to_apply};
use super::{EQUAL, Group, MARGIN, MKFS, PACED, Question, Scored, Tie};

/// How many replicates are advised where there was one.
const REPLICATES: u32 = 5;

/// One sentence or two: best, tie, or no winner. The warning, if any, stands behind the name of what is best.
pub(super) fn summary(
    ranking: &[Scored],
    question: &Question<'_>,
    groups: &[Group],
    warning: &str,
) -> String {
    let name = |s: &Scored| question.values[s.value].as_str();
    let subject = question.subject;
    let Some(best) = ranking.first() else { return format!("No {subject} can be recommended yet.") };
    let is_time = |group: &Group| [MKFS, PACED].contains(&group.family);
    let of = if groups.iter().all(is_time) { "speed, the inverse of the time," } else { "throughput" };
    let reaches = format!(
        "It reaches {:.0} % of the best {of} of each workload on average, {:.0} % in the worst.",
        best.score() * 100.0,
        best.worst.0 * 100.0
    );
    let Some(next) = ranking.get(1) else {
        return format!("{subject} {}{warning} is the only value studied.", name(best));
    };
    if next.ratio.bounds.is_none() {
        return format!("{} {reaches}", without_interval(ranking, question, groups, warning));
    }
    let tied = |why: Tie| {
        ranking[1..].iter().filter(|s| s.tie() == Some(why)).map(name).collect::<Vec<_>>().join(", ")
    };
    let (untold, alike) = (tied(Tie::Evidence), tied(Tie::Margin));
    let within = |verb: &str| {
        format!("{alike} {verb} within {:.0} % of it, which the study counts as alike", MARGIN * 100.0)
    };
    let nothing = nothing_to_apply(ranking, question);
    let verb = if alike.contains(", ") { "are" } else { "is" };
    let why = match (untold.is_empty(), alike.is_empty()) {
        (true, true) => {
            let (low, high) = next.ratio.bounds.unwrap_or_default();
            return format!(
                "{subject} {}{warning} is best; the next, {}, is {:.1} % slower (95 % interval {:.1} to {:.1} %). {reaches}",
                name(best),
                name(next),
                slower(next.ratio.value),
                slower(high),
                slower(low)
            );
        }
        (false, true) if nothing == Some(Nothing::Untold) => {
            "the evidence does not tell them apart, and there is nothing to apply".to_owned()
        }
        (false, true) => "the evidence does not tell them apart".to_owned(),
        (true, false) => within(verb),
        (false, false) => format!("the evidence does not tell {untold} from it, and {}", within(verb)),
    };
    let tied: Vec<&Scored> = ranking[1..].iter().filter(|s| s.tie().is_some()).collect();
    let all: Vec<&str> = tied.iter().map(|s| name(s)).collect();
    // Where all are equal none is highest.
    let is_equal = tied.iter().all(|s| s.ratio.value.abs() < EQUAL);
    let is_tied = if is_equal { "is tied" } else { "scores highest, but is tied" };
    format!(
        "{subject} {}{warning} {is_tied} with {}: {why}.{} {reaches}",
        name(best),
        all.join(", "),
        of_default(nothing, subject)
    )
}

/// A sentence on the default, where that is why there is nothing to apply.
fn of_default(nothing: Option<Nothing>, subject: &str) -> String {
    let default = default_of(subject).filter(|_| nothing == Some(Nothing::Default));
    match default {
        Some("default") => " The default is among them, so there is nothing to apply.".to_owned(),
        Some(value) => format!(" The default, {value}, is among them, so there is nothing to apply."),
        None => String::new(),
    }
}

/// By how many per cent what stands at this logarithm of a ratio is slower.
fn slower(log: f64) -> f64 {
    (1.0 - log.exp()) * 100.0
}

/// What single runs say of the best: that it is tied with others, or scored highest.
fn without_interval(ranking: &[Scored], question: &Question<'_>, groups: &[Group], warning: &str) -> String {
    let name = |s: &Scored| question.values[s.value].as_str();
    let (subject, best, next) = (question.subject, name(&ranking[0]), &ranking[1]);
    let is_single = groups.iter().all(|g| g.logs[0].len() == 1);
    let runs = if is_single {
        "in a single run"
    } else {
        "where some workloads were compared in one replicate only"
    };
    let take = format!("take {REPLICATES} replicates (--replicates {REPLICATES})");
    let alike: Vec<&str> = ranking[1..].iter().filter(|s| s.tie().is_some()).map(name).collect();
    if alike.is_empty() {
        return format!(
            "{subject} {best}{warning} scored highest {runs}, the next, {}, {:.1} % lower, but no winner can be told without an \
             interval: {take} before you apply it.",
            name(next),
            slower(next.ratio.value)
        );
    }
    let nothing = nothing_to_apply(ranking, question);
    let apply = match nothing {
        Some(Nothing::Untold) => format!("there is nothing to apply; {take} for an interval"),
        Some(Nothing::Default) => format!("{take} for an interval"),
        None => format!("{take} for an interval before you apply one"),
    };
    format!(
        "{subject} {best}{warning} is tied with {} {runs}: they differ by less than {:.0} %, which the study counts as alike; \
         {apply}.{}",
        alike.join(", "),
        MARGIN * 100.0,
        of_default(nothing, subject)
    )
}

/// What levels differ in besides their speed.
pub(super) fn survival(levels: &[String]) -> String {
    let survives = |level: &String| match level.parse() {
        Ok(Level::Raid0 | Level::Linear) => "no lost member",
        Ok(Level::Raid1) => "all lost members but one",
        Ok(Level::Raid4 | Level::Raid5) => "one lost member",
        Ok(Level::Raid6) => "two lost members",
        Ok(Level::Raid10) => "one lost member, and more where a copy of each block is left",
        Err(_) => "what its redundancy allows",
    };
    let each: Vec<String> =
        levels.iter().map(|level| format!("{level} survives {}", survives(level))).collect();
    format!("Levels are compared by throughput alone: {}.", each.join(", "))
}

/// What mkfs differs in besides its time.
pub(super) fn mkfs_sizes(subject: &str) -> String {
    format!(
        "mkfs is compared by its time alone: arrays of another {subject} hold more or less, and a larger file system takes \
         longer to make."
    )
}

/// Why nothing is recommended although there are figures.
pub(super) fn no_weight<'a>(families: impl Iterator<Item = &'a str>) -> String {
    format!(
        "Every workload family of the study ({}) has weight 0, so that nothing can be recommended; give one of them \
         weight.",
        families.collect::<Vec<_>>().join(", ")
    )
}

/// How values were compared.
pub(super) fn method(ranking: &[Scored], groups: &[Group]) -> String {
    let count = |family: &str| groups.iter().filter(|group| group.family == family).count();
    let what = match (count(MKFS), count(PACED)) {
        (0, 0) => "Throughput relative to the best value",
        (all, 0) if all == groups.len() => "The least seconds of a value as a share of each one's",
        (0, all) if all == groups.len() => "The least mean latency of a value as a share of each one's",
        (_, 0) => "Throughput, and of mkfs the inverse of its seconds, relative to the best value",
        (0, _) => {
            "Throughput, and of paced traces the inverse of the mean latency, relative to the best value"
        }
        _ => {
            "Throughput, and of mkfs and paced traces the inverse of seconds and of the mean latency, relative to the best value"
        }
    };
    let margin = MARGIN * 100.0;
    let interval = if ranking.iter().any(|s| s.ratio.bounds.is_none()) {
        "some workloads were compared in one replicate only, so there is no interval, and values are tied if they differ by less than"
    } else {
        "a value is tied with the best if the Student-t interval of their ratio includes 1 (paired over replicates, the \
         narrower of that from their own scatter and that from all values'; all of them, for all pairs of values, hold \
         together with 95 %, by Bonferroni), or if they differ by less than"
    };
    format!(
        "{what} of the same workload, as the geometric mean over workloads, \
         each family counting by its weight; {interval} {margin:.0} %."
    )
}
