//! The fixed newstyle handshake, sans-IO: bytes of the client in, bytes of the server out.
//!
//! | state | input | output and next state |
//! |---|---|---|
//! | `Flags` | known client flags | `Options` |
//! | `Flags` | unknown flags, or without fixed newstyle | closed |
//! | `Options` | an option that is answered | its replies; `Options` |
//! | `Options` | `GO`, `EXPORT_NAME` of the export | its replies; transmission |
//! | `Options` | `EXPORT_NAME` of another name, wrong magic, an endless option | closed |
//! | `Options` | `ABORT` | its reply; closed |
//! | `Skip` | the rest of an option too long to keep | `Options` |
//!
//! TLS would be an option that wraps the connection between two calls of [`Handshake::advance`].

use super::export::{Export, REQUEST_BYTES_MAX};
use super::wire::{self, Reader, handshake_flag, info, option, put_option_reply, reply};

/// Longest data of an option that is looked at. A name has at most 4096 bytes.
pub(crate) const OPTION_BYTES_MAX: usize = 16 << 10;
/// Longest data of an option that is skipped; a client that sends more is not one.
const SKIP_BYTES_MAX: u32 = 1 << 20;
/// Options after which a client that still has not chosen an export is let go.
const OPTIONS_MAX: u32 = 1000;
/// The name of the one metadata context.
pub(crate) const BASE_ALLOCATION: &[u8] = b"base:allocation";
/// Its number.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;
/// Zeroes after the answer to `EXPORT_NAME`, unless both sides do without.
const EXPORT_NAME_ZEROES: usize = 124;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Replies are structured.
    pub(crate) structured: bool,
    /// `base:allocation` may be asked for.
    pub(crate) block_status: bool,
}

/// What follows a call of [`Handshake::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More bytes are needed.
    More,
    /// The transmission phase begins with the next byte.
    Transmission(Agreed),
    /// The connection ends once the output is sent.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flags,
    Options,
    Skip { left: u32, option: u32 },
}

/// One connection's handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    state: State,
    no_zeroes: bool,
    agreed: Agreed,
    options: u32,
}

impl Handshake {
    /// Begins with the server's greeting.
    pub(crate) fn new(out: &mut Vec<u8>) -> Self {
        out.extend(wire::NBDMAGIC.to_be_bytes());
        out.extend(wire::IHAVEOPT.to_be_bytes());
        out.extend((handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
        Self { state: State::Flags, no_zeroes: false, agreed: Agreed::default(), options: 0 }
    }

    /// Takes bytes from the front of `input`; answers how many, and what follows.
    pub(crate) fn advance(&mut self, export: &Export, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        let mut taken = 0;
        loop {
            let (count, step) = self.one(export, &input[taken..], out);
            taken += count;
            if count == 0 || step != Step::More {
                return (taken, step);
            }
        }
    }

    fn one(&mut self, export: &Export, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        match self.state {
            State::Flags => self.client_flags(input),
            State::Options => self.option(export, input, out).unwrap_or((0, Step::More)),
            State::Skip { left, option } => {
                let count = input.len().min(left as usize);
                let left = left - count as u32;
                self.state = State::Skip { left, option };
                if left == 0 {
                    put_option_reply(out, option, reply::ERR_TOO_BIG, &[]);
                    self.state = State::Options;
                }
                (count, Step::More)
            }
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, Step) {
        let Some((bytes, _)) = input.split_first_chunk() else { return (0, Step::More) };
        let flags = u32::from_be_bytes(*bytes);
        let fixed = u32::from(handshake_flag::FIXED_NEWSTYLE);
        let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
        if flags & fixed == 0 || flags & !(fixed | no_zeroes) != 0 {
            return (4, Step::Close);
        }
        self.no_zeroes = flags & no_zeroes != 0;
        self.state = State::Options;
        (4, Step::More)
    }

    /// Nothing if the option has not arrived in full.
    fn option(&mut self, export: &Export, input: &[u8], out: &mut Vec<u8>) -> Option<(usize, Step)> {
        const HEADER_BYTES: usize = 16;
        let mut reader = Reader(input);
        if reader.u64()? != wire::IHAVEOPT {
            return Some((8, Step::Close));
        }
        let (option, length) = (reader.u32()?, reader.u32()?);
        if length as usize > OPTION_BYTES_MAX {
            if length > SKIP_BYTES_MAX || option == option::EXPORT_NAME {
                return Some((HEADER_BYTES, Step::Close));
            }
            self.state = State::Skip { left: length, option };
            return Some((HEADER_BYTES, Step::More));
        }
        let data = reader.bytes(length as usize)?;
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Some((HEADER_BYTES, Step::Close));
        }
        Some((HEADER_BYTES + data.len(), self.answer(export, option, data, out)))
    }

    fn answer(&mut self, export: &Export, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let kind = match option {
            option::EXPORT_NAME => return self.export_name(export, data, out),
            option::ABORT => {
                put_option_reply(out, option, reply::ACK, &[]);
                return Step::Close;
            }
            option::LIST => list(export, data, out),
            option::INFO | option::GO => {
                let kind = go(export, self.agreed.structured, option, data, out);
                if option == option::GO && kind == reply::ACK {
                    put_option_reply(out, option, kind, &[]);
                    return Step::Transmission(self.agreed);
                }
                kind
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.agreed.structured = true;
                reply::ACK
            }
            option::STRUCTURED_REPLY => reply::ERR_INVALID,
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(export, option, data, out)
            }
            _ => reply::ERR_UNSUP,
        };
        put_option_reply(out, option, kind, &[]);
        Step::More
    }

    fn export_name(&self, export: &Export, name: &[u8], out: &mut Vec<u8>) -> Step {
        if !export.is_named(name) {
            // The option has no way to say so.
            return Step::Close;
        }
        out.extend(export.bytes.to_be_bytes());
        out.extend(export.flags(self.agreed.structured).to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; EXPORT_NAME_ZEROES]);
        }
        Step::Transmission(self.agreed)
    }

    fn meta_context(&mut self, export: &Export, option: u32, data: &[u8], out: &mut Vec<u8>) -> u32 {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            // Each selection replaces the one before.
            self.agreed.block_status = false;
            if !self.agreed.structured {
                return reply::ERR_INVALID;
            }
        }
        let Some((name, queries)) = parse_queries(data) else { return reply::ERR_INVALID };
        if !export.is_named(name) {
            return reply::ERR_UNKNOWN;
        }
        let is_wanted = |q: &&[u8]| *q == BASE_ALLOCATION || (!is_set && *q == b"base:");
        if queries.iter().any(is_wanted) || (!is_set && queries.is_empty()) {
            let id = if is_set { BASE_ALLOCATION_ID } else { 0 };
            put_option_reply(out, option, reply::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION]);
            self.agreed.block_status |= is_set;
        }
        reply::ACK
    }
}

/// Tells the exports; answers the kind of the last reply.
fn list(export: &Export, data: &[u8], out: &mut Vec<u8>) -> u32 {
    if !data.is_empty() {
        return reply::ERR_INVALID;
    }
    let length = (export.name.len() as u32).to_be_bytes();
    let entry = [&length, export.name.as_bytes(), export.description.as_bytes()];
    put_option_reply(out, option::LIST, reply::SERVER, &entry);
    reply::ACK
}

/// Tells what `INFO` and `GO` tell; answers the kind of the last reply.
fn go(export: &Export, structured: bool, option: u32, data: &[u8], out: &mut Vec<u8>) -> u32 {
    let Some((name, infos)) = parse_go(data) else { return reply::ERR_INVALID };
    if !export.is_named(name) {
        return reply::ERR_UNKNOWN;
    }
    let mut tell = |kind: u16, data: &[&[u8]]| {
        let data: Vec<u8> = kind.to_be_bytes().into_iter().chain(data.concat()).collect();
        put_option_reply(out, option, reply::INFO, &[&data]);
    };
    tell(info::EXPORT, &[&export.bytes.to_be_bytes(), &export.flags(structured).to_be_bytes()]);
    if infos.contains(&info::NAME) {
        tell(info::NAME, &[export.name.as_bytes()]);
    }
    if infos.contains(&info::DESCRIPTION) && !export.description.is_empty() {
        tell(info::DESCRIPTION, &[export.description.as_bytes()]);
    }
    // Told unasked too, as the specification allows: not every client that keeps to it asks.
    let sizes = [export.min_bytes, export.preferred_bytes, REQUEST_BYTES_MAX];
    tell(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).each_ref().map(<[u8; 4]>::as_slice));
    reply::ACK
}

fn parse_go(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u16()?;
    let infos = (0..count).map(|_| reader.u16()).collect::<Option<_>>()?;
    reader.is_empty().then_some((name, infos))
}

fn parse_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u32()?;
    // Not sized by the client: each query takes at least four of the bytes that are there.
    let queries = (0..count).map(|_| reader.string()).collect::<Option<_>>()?;
    reader.is_empty().then_some((name, queries))
}
