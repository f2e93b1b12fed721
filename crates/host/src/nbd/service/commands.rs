//! What is asked at the control socket.

use std::sync::atomic::Ordering;

use stripewise_engine::io::SyncAction;

use super::super::change::AskedChange;
use super::super::control::{self, Command};
use super::Service;
use crate::manage::{Manage, ManageError, Managed, look_beneath};
use crate::shard::Context;

impl Service<'_> {
    /// Answers a line of each client; answers whether a client has more.
    pub(super) fn serve_controls(&mut self, context: &Context<'_>) -> bool {
        let mut more = false;
        for place in 0..self.guests.controls.len() {
            let Some(mut control) = self.guests.controls[place].take() else { continue };
            let has_heard = control.serve(|line| self.command(line, place, context));
            if has_heard {
                self.guests.heard += 1;
                control.heard = self.guests.heard;
                more = true;
            }
            if !control.is_over() {
                self.guests.controls[place] = Some(control);
            }
        }
        more
    }

    /// The answer to a line; none yet to one that asks for a change of the array.
    fn command(&mut self, line: &[u8], place: usize, context: &Context<'_>) -> Option<String> {
        Some(match control::parse(line) {
            Ok(Command::Detail) => {
                let status = self.shared.status(self.shard.status());
                let detail = self.shared.config.detail.as_ref();
                let detail = detail.map_or_else(|| status.to_json(), |detail| detail(&status));
                format!(r#"{{"detail":{detail}}}"#)
            }
            Ok(Command::Stop { force: false }) if self.is_mount_in_use() => answer(
                "error",
                "the mounted file is open, by a program or a loop device (`losetup -a` lists them); let go of it first, or \
                 stop with --force, and its users get errors",
            ),
            Ok(Command::Stop { .. }) => {
                self.shared.config.stop.store(true, Ordering::Relaxed);
                r#"{"stopping":true}"#.to_owned()
            }
            Ok(Command::Manage(_) | Command::Grow(_)) if self.shared.dealt.len() > 1 => answer(
                "error",
                "the array is served by several threads; serve it with --shards 1 to manage it",
            ),
            Ok(Command::Manage(_) | Command::Grow(_)) if self.asked.is_some() => {
                answer("error", "a change of the array is under way; ask again when it has ended")
            }
            Ok(Command::Manage(command)) => match self.manage(&command, context) {
                Ok(managed) => answer("done", &managed.to_string()),
                Err(error) => answer("error", &error.to_string()),
            },
            Ok(Command::Grow(_)) if !self.shared.may_change || self.drain_until.is_some() => answer(
                "error",
                "this server cannot change its array; stop it, and change the idle array with `stripewise grow`",
            ),
            Ok(Command::Grow(change)) => {
                let Some(why) = self.own_work() else {
                    self.asked = Some(AskedChange { change, control: place });
                    return None;
                };
                answer("error", &why)
            }
            Err(error) => answer("error", &error),
        })
    }

    /// What the array does by itself, or that it must not, and what to do about it.
    fn own_work(&self) -> Option<String> {
        match self.shard.volume().sync_status()?.action {
            SyncAction::Idle => None,
            SyncAction::Frozen => Some(
                "the array's own work is frozen; let it go on first (`stripewise action idle`)".to_owned(),
            ),
            action => {
                Some(format!("the array is at work ({}); ask again when that has ended", action.word()))
            }
        }
    }

    fn is_mount_in_use(&self) -> bool {
        self.guests.clients.iter().flatten().any(|client| client.link.is_mount_in_use())
    }

    fn manage(&mut self, command: &Manage, context: &Context<'_>) -> Result<Managed, ManageError> {
        let own = self.guests.clients.iter().flatten().find_map(|client| client.link.mount_number());
        look_beneath(command, own, |path| self.shard.is_member(path))?;
        let managed = self.shard.manage(command, context.clock.now(), context)?;
        self.shard.record(context);
        // Who came or went without a word is known before anything happens to it.
        self.tell();
        self.told.look(self.shard);
        Ok(managed)
    }
}

/// An answer of one field.
pub(super) fn answer(name: &str, what: &str) -> String {
    serde_json::json!({ name: what }).to_string()
}
