//! A drive of constant latency: every command takes the latency, then its bytes cross link and bus.

use super::{Command, CommandOp, Surroundings};
use crate::bus::Link;
use crate::models::ConstantModel;

#[derive(Debug)]
pub(crate) struct Constant {
    latency_ns: u64,
    queue_depth: u32,
    link: Link,
    busy_ns: u64,
}

impl Constant {
    pub(crate) fn new(model: &ConstantModel) -> Self {
        Self {
            latency_ns: model.latency_ns,
            queue_depth: model.queue_depth,
            link: Link::new(model.link_byte_ps),
            busy_ns: 0,
        }
    }

    pub(crate) const fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    pub(crate) const fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    pub(crate) fn submit(&mut self, tag: u8, command: Command, around: &mut Surroundings<'_>) {
        let ready_ns = command.arrival_ns + self.latency_ns;
        let end_ns = match command.op {
            CommandOp::Read | CommandOp::Write | CommandOp::WriteFua => {
                around.transfer(ready_ns, command.bytes(), &mut self.link)
            }
            CommandOp::Flush | CommandOp::Discard => ready_ns,
        };
        self.busy_ns += end_ns - ready_ns;
        around.transferred_at(end_ns, tag);
    }
}
