//! Which members are on which controllers, as text.

use crate::rig::ControllerNames;
use std::fmt;
use stripewise_engine::units::Slot;

/// Why a text names no topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// A part without the name of a model.
    NoModel(String),
    /// What stands after the colon is no count of members.
    BadCount(String),
    /// The counts leave members without a controller.
    TooFew {
        /// Members the parts take.
        taken: u32,
        /// Members there are.
        members: u16,
    },
    /// A part without a count is not the last.
    CountMissing(String),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModel(part) => {
                write!(f, "controller \"{part}\" names no model; write MODEL[:COUNT][@BUS], joined by +")
            }
            Self::BadCount(part) => {
                write!(f, "controller \"{part}\": the count of members must be a whole number from 1")
            }
            Self::TooFew { taken, members } => {
                write!(f, "the controllers take {taken} members, but there are {members}; add to a count")
            }
            Self::CountMissing(part) => {
                write!(f, "controller \"{part}\" has no count; only the last may take all members left")
            }
        }
    }
}

impl std::error::Error for TopologyError {}

/// Controllers with their members in turn; see [`crate::RigNames::with_topology`].
pub(crate) fn parse(text: &str, members: u16) -> Result<Vec<ControllerNames<'_>>, TopologyError> {
    let parts: Vec<&str> = text.split('+').map(str::trim).collect();
    let mut controllers = Vec::with_capacity(parts.len());
    let mut next = 0_u32;
    for (index, &part) in parts.iter().enumerate() {
        let (controller, bus) = part.split_once('@').map_or((part, None), |(c, b)| (c, Some(b)));
        let (model, count) = controller.split_once(':').map_or((controller, None), |(m, c)| (m, Some(c)));
        if model.is_empty() || bus.is_some_and(str::is_empty) {
            return Err(TopologyError::NoModel(part.to_owned()));
        }
        let left = u32::from(members) - next;
        let count = match count.map(str::parse::<u16>) {
            Some(Ok(count)) if count > 0 => u32::from(count).min(left),
            Some(_) => return Err(TopologyError::BadCount(part.to_owned())),
            None if index + 1 == parts.len() => left,
            None => return Err(TopologyError::CountMissing(part.to_owned())),
        };
        if count > 0 {
            let slots = (next..next + count).map(|slot| Slot(slot as u16)).collect();
            controllers.push(ControllerNames { model, members: slots, bus });
        }
        next += count;
    }
    if next != u32::from(members) {
        return Err(TopologyError::TooFew { taken: next, members });
    }
    Ok(controllers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller<'a>(
        model: &'a str,
        slots: std::ops::Range<u16>,
        bus: Option<&'a str>,
    ) -> ControllerNames<'a> {
        ControllerNames { model, members: slots.map(Slot).collect(), bus }
    }

    #[test]
    fn members_are_dealt_in_turn() {
        assert_eq!(parse("a", 5).unwrap(), [controller("a", 0..5, None)]);
        let split = [controller("a", 0..4, None), controller("b", 4..6, None)];
        assert_eq!(parse("a:4 + b:2", 6).unwrap(), split);
        assert_eq!(parse("a:4+b", 6).unwrap(), split);
        assert_eq!(
            parse("a:4+b:4", 3).unwrap(),
            [controller("a", 0..3, None)],
            "what has no member is left out"
        );
        let shared = [controller("a", 0..4, Some("p")), controller("a", 4..6, Some("p"))];
        assert_eq!(parse("a:4@p+a@p", 6).unwrap(), shared);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(parse("a:2+b:2", 5), Err(TopologyError::TooFew { taken: 4, members: 5 }));
        assert_eq!(parse("a+b:2", 5), Err(TopologyError::CountMissing("a".to_owned())));
        assert_eq!(parse("a:0+b", 5), Err(TopologyError::BadCount("a:0".to_owned())));
        assert_eq!(parse("a:x", 5), Err(TopologyError::BadCount("a:x".to_owned())));
        assert_eq!(parse("a:1+", 2), Err(TopologyError::NoModel(String::new())));
        assert_eq!(parse("a@", 2), Err(TopologyError::NoModel("a@".to_owned())));
    }
}
