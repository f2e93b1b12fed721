//! Clients that are looked at instead of heard of.
//!
//! A client that sends one short request after another is what takes the time: each of its sends, and each answer that it
//! receives, has the system tell the poller, and the client pays for that. So while the shard is awake anyway such a client
//! is taken from the poller and looked at. And while it has answers that it has not received, nothing that it sends is
//! urgent: the shard leaves it alone for up to [`PAUSE`], and then takes and answers several requests at once, which costs
//! both sides fewer calls. A client that received all before that time passed has too few requests under way for this, and
//! is looked at without a pause for a while.
//!
//! Before the shard sleeps all are back at the poller, which says what came meanwhile.

use stripewise_engine::units::Nanos;

use super::super::connection::Connection;
use super::super::poller::Poller;
use super::{Client, Link, Service, token};
use crate::clock::Clock;

/// How long a client with unread answers is left alone.
const PAUSE: Nanos = Nanos::from_micros(30);
/// Clients that are looked at; of more, most looks would be in vain.
const NEAR_MAX: usize = 4;
/// Turns of waiting between two looks at what is unread: half a microsecond.
const SPINS: u32 = 32;

/// Looks without a pause after a client ran out of answers; twice as many each time that it does so again.
const LOOKS_MIN: u32 = 16;
const LOOKS_MAX: u32 = 1024;

/// Whether a client may be left alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ease {
    /// Looks until the next pause.
    looks_left: u32,
    /// How many there were after the client last ran out of answers.
    looks: u32,
}

impl Ease {
    const fn may_pause(self) -> bool {
        self.looks_left == 0
    }

    /// A pause ended with answers left.
    const fn lasted(&mut self) {
        self.looks = 0;
    }

    /// The client ran out of answers.
    fn ran_out(&mut self) {
        self.looks = (self.looks * 2).clamp(LOOKS_MIN, LOOKS_MAX);
        self.looks_left = self.looks;
    }

    /// The client was looked at and had something.
    const fn looked(&mut self) {
        self.looks_left = self.looks_left.saturating_sub(1);
    }
}

impl Client {
    /// The connection of a client that is looked at.
    fn near(&mut self) -> Option<(&mut Connection, &mut Ease)> {
        match &mut self.link {
            Link::Nbd(connection) if self.is_near => Some((connection, &mut self.ease)),
            _ => None,
        }
    }

    /// The poller says what comes again, and what has come. A client that it cannot take would never be heard of, and is
    /// given up.
    fn go_back(&mut self, poller: &Poller, place: usize) {
        let was_near = std::mem::take(&mut self.is_near);
        if was_near && poller.add(self.link.fd(), token::new(token::CLIENT, place)).is_err() {
            self.link.kill();
        }
    }
}

impl Service<'_> {
    /// Looks for news of clients for a while, and then waits for them at most that long.
    pub(super) fn look_and_hear(&mut self, timeout: Nanos, clock: Clock) {
        let (start, look) = (clock.now(), self.patience.time().min(timeout));
        let mut waited = Nanos::default();
        let are_all_near = self.draw_near();
        while are_all_near && waited < look && waited < PAUSE && self.may_pause() {
            (0..SPINS).for_each(|_| std::hint::spin_loop());
            waited = clock.now().since(start);
        }
        if waited >= PAUSE {
            self.near().for_each(|(_, ease)| ease.lasted());
        }
        while waited < look {
            if self.look_at_near() | self.hear(Nanos::default()) {
                return self.patience.learn(waited);
            }
            waited = clock.now().since(start);
        }
        self.part();
        if self.hear(timeout - waited) {
            self.patience.learn(clock.now().since(start));
        }
    }

    /// Takes clients that have short requests one after another from the poller, and gives others back. Answers whether all
    /// who asked for something since the last time are looked at, so that nobody else waits for them.
    fn draw_near(&mut self) -> bool {
        let (is_worth_it, mut count) = (self.patience.is_full(), self.near().count());
        let mut are_all_near = true;
        for (place, client) in self.guests.clients.iter_mut().enumerate() {
            let Some(client) = client else { continue };
            let has_asked = std::mem::take(&mut client.has_asked);
            let may_be_near = matches!(&client.link, Link::Nbd(connection) if connection.may_be_near());
            if client.is_near && !may_be_near {
                client.go_back(&self.guests.poller, place);
                count -= 1;
            } else if !client.is_near && may_be_near && has_asked && is_worth_it && count < NEAR_MAX {
                client.is_near = self.guests.poller.remove(client.link.fd()).is_ok();
                count += usize::from(client.is_near);
            }
            are_all_near &= client.is_near || !has_asked;
        }
        are_all_near
    }

    /// Gives all clients back to the poller.
    fn part(&mut self) {
        for (place, client) in self.guests.clients.iter_mut().enumerate() {
            if let Some(client) = client {
                client.go_back(&self.guests.poller, place);
            }
        }
    }

    fn near(&mut self) -> impl Iterator<Item = (&mut Connection, &mut Ease)> {
        self.guests.clients.iter_mut().flatten().filter_map(Client::near)
    }

    /// Whether all clients that are looked at have answers to receive.
    fn may_pause(&mut self) -> bool {
        let mut near = self.near().peekable();
        near.peek().is_some()
            && near.all(|(connection, ease)| {
                if !ease.may_pause() {
                    return false;
                }
                let has_unread = connection.has_unread();
                if !has_unread {
                    ease.ran_out();
                }
                has_unread
            })
    }

    /// Receives from the clients that are looked at; answers whether something came.
    pub(super) fn look_at_near(&mut self) -> bool {
        self.near().fold(false, |has_come, (connection, ease)| {
            let comes = connection.look();
            if comes {
                ease.looked();
            }
            has_come | comes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_runs_out_of_answers_is_left_alone_ever_more_rarely() {
        let mut ease = Ease::default();
        assert!(ease.may_pause());
        let mut looks = Vec::new();
        for _ in 0..9 {
            ease.ran_out();
            let mut count = 0;
            while !ease.may_pause() {
                ease.looked();
                count += 1;
            }
            looks.push(count);
        }
        assert_eq!(looks, [16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        ease.lasted();
        ease.ran_out();
        assert_eq!(ease.looks_left, LOOKS_MIN, "one pause that lasted, and it is tried as at first");
    }
}
