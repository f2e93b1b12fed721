//! What members did not do, and which of it is the reason that one is out of use.

use stripewise_engine::array::members::Standing;
use stripewise_engine::io::{AdminCommand, Tag};
use stripewise_engine::units::{MemberIndex, Slot};

use super::Shard;
use crate::report::MemberError;

/// Errors of a shard's members. An I/O that ends well leaves nothing here.
#[derive(Debug, Default)]
pub(super) struct MemberErrors {
    /// Of I/Os of which the engine has not been told yet.
    waiting: Vec<(Tag, MemberIndex, MemberError)>,
    /// By member, the last one that the engine was told of while the member was in use.
    last: Vec<Option<MemberError>>,
    /// By member, the one for which it is out of use.
    reasons: Vec<Option<MemberError>>,
    /// Members of levels without redundancy that had one: they stay in use, and one is enough to be told of.
    had: Vec<MemberIndex>,
    /// The first ones of these, for the owner.
    news: Vec<(MemberIndex, MemberError)>,
}

impl MemberErrors {
    /// An I/O ended with an error.
    #[cold]
    pub(super) fn came(&mut self, tag: Tag, member: MemberIndex, error: MemberError) {
        self.waiting.push((tag, member, error));
    }

    fn take(&mut self, tag: Tag) -> Option<(MemberIndex, MemberError)> {
        let at = self.waiting.iter().position(|(of, ..)| *of == tag)?;
        let (_, member, error) = self.waiting.swap_remove(at);
        Some((member, error))
    }

    /// A member is out of use for an error.
    pub(super) fn is_out(&mut self, member: MemberIndex, error: MemberError) {
        put(&mut self.reasons, member, error);
    }

    /// Another member has the place, or what the one there did not do is not why it is out of use.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        for errors in [&mut self.last, &mut self.reasons] {
            if let Some(error) = errors.get_mut(member.index()) {
                *error = None;
            }
        }
    }
}

fn put(errors: &mut Vec<Option<MemberError>>, member: MemberIndex, error: MemberError) {
    if errors.len() <= member.index() {
        errors.resize(member.index() + 1, None);
    }
    errors[member.index()] = Some(error);
}

impl Shard {
    /// Takes note of an error of which the engine is about to be told.
    #[cold]
    pub(super) fn heed(&mut self, tag: Tag) -> Option<(MemberIndex, MemberError)> {
        let (member, error) = self.errors.take(tag)?;
        // What comes in after a failure is not its reason.
        if self.volume().standing(member) != Standing::Failed {
            put(&mut self.errors.last, member, error);
            if self.volume().sync_status().is_none() && !self.errors.had.contains(&member) {
                self.errors.had.push(member);
                self.errors.news.push((member, error));
            }
        }
        Some((member, error))
    }

    /// Forgets the errors of a member that is about to fail by command.
    pub(super) fn heed_command(&mut self, command: &AdminCommand) {
        if let AdminCommand::Fail(slot) = command
            && slot.index() < self.failed.len()
            && let Some(member) = self.volume().member_of(*slot)
        {
            self.errors.forget(member);
        }
    }

    /// The last error of a member while it was in use, unless it failed by command.
    pub(crate) fn last_error(&self, member: MemberIndex) -> Option<MemberError> {
        self.errors.last.get(member.index()).copied().flatten()
    }

    /// The error for which a member is out of use, if it is for one.
    pub(crate) fn reason(&self, member: MemberIndex) -> Option<MemberError> {
        self.errors.reasons.get(member.index()).copied().flatten()
    }

    /// First errors of members that stay in use all the same, once each.
    pub(crate) fn take_first_errors(&mut self) -> Vec<(Slot, MemberError)> {
        let news = std::mem::take(&mut self.errors.news);
        let in_use = |(member, error)| match self.volume().standing(member) {
            Standing::InSlot(slot) => Some((slot, error)),
            _ => None,
        };
        news.into_iter().filter_map(in_use).collect()
    }
}
