//! The bytes of the NBD protocol: numbers, and messages to and from bytes.
//!
//! Names and values are those of the protocol's specification
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>). All integers are big-endian.

/// `NBDMAGIC`, the first half of the greeting.
pub(crate) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, the second half, and the start of each option.
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Start of each reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of each request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of each simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of each structured reply chunk.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, both directions.
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options a client asks for.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub(crate) const ERR_INVALID: u32 = 1 << 31 | 3;
    pub(crate) const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub(crate) const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// What `NBD_REP_INFO` tells.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what the export can do.
pub(crate) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks.
pub(crate) mod chunk {
    pub(crate) const FLAG_DONE: u16 = 1 << 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = 1 << 15 | 1;
}

/// Errors as NBD numbers them, whatever the system's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Errno {
    Perm = 1,
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
}

/// Length of a request without its payload.
pub(crate) const REQUEST_BYTES: usize = 28;

/// A request as it arrives, before anything in it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawRequest {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl RawRequest {
    /// Nothing if the bytes do not begin with the request's magic.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u32()?,
        })
    }
}

/// Takes integers and runs of bytes from the front of a message.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length in four bytes before it.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    /// Whether everything was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a reply to an option.
pub(crate) fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[&[u8]]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    let length: usize = data.iter().map(|d| d.len()).sum();
    out.extend((length as u32).to_be_bytes());
    for part in data {
        out.extend(*part);
    }
}

/// The fixed part of a reply in the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    bytes: [u8; Self::BYTES_MAX],
    length: u8,
}

impl Head {
    /// Room for the longest: a block status of one extent.
    const BYTES_MAX: usize = 40;

    fn new(parts: &[&[u8]]) -> Self {
        let mut head = Self { bytes: [0; Self::BYTES_MAX], length: 0 };
        for part in parts {
            let start = usize::from(head.length);
            head.bytes[start..start + part.len()].copy_from_slice(part);
            head.length += part.len() as u8;
        }
        head
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// A simple reply; what was read, if anything, follows.
    pub(crate) fn simple(cookie: u64, error: Option<Errno>) -> Self {
        let error = error.map_or(0, |e| e as u32);
        Self::new(&[&SIMPLE_REPLY_MAGIC.to_be_bytes(), &error.to_be_bytes(), &cookie.to_be_bytes()])
    }

    fn last_chunk(kind: u16, cookie: u64, length: u32, payload: &[&[u8]]) -> Self {
        let mut head = Self::new(&[
            &STRUCTURED_REPLY_MAGIC.to_be_bytes(),
            &chunk::FLAG_DONE.to_be_bytes(),
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
            &length.to_be_bytes(),
        ]);
        for part in payload {
            let start = usize::from(head.length);
            head.bytes[start..start + part.len()].copy_from_slice(part);
            head.length += part.len() as u8;
        }
        head
    }

    /// The only chunk of a read's reply; the bytes follow.
    pub(crate) fn offset_data(cookie: u64, offset: u64, bytes: u32) -> Self {
        Self::last_chunk(chunk::OFFSET_DATA, cookie, bytes + 8, &[&offset.to_be_bytes()])
    }

    /// The only chunk of an error's reply, without a message.
    pub(crate) fn error(cookie: u64, error: Errno) -> Self {
        Self::last_chunk(chunk::ERROR, cookie, 6, &[&(error as u32).to_be_bytes(), &0u16.to_be_bytes()])
    }

    /// The only chunk of a block status; `extents` of eight bytes each follow.
    pub(crate) fn block_status(cookie: u64, context: u32, extents: usize) -> Self {
        let length = 4 + 8 * extents as u32;
        Self::last_chunk(chunk::BLOCK_STATUS, cookie, length, &[&context.to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_field_by_field() {
        let mut bytes = [0u8; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
        bytes[4..8].copy_from_slice(&[0, 1, 0, 6]);
        bytes[8..16].copy_from_slice(b"cookie!!");
        bytes[16..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 2, 0]);
        bytes[24..28].copy_from_slice(&[0, 0, 16, 0]);
        let request = RawRequest::parse(&bytes).unwrap();
        let cookie = u64::from_be_bytes(*b"cookie!!");
        assert_eq!(request, RawRequest { flags: 1, command: 6, cookie, offset: 512, length: 4096 });
        bytes[0] = 0;
        assert_eq!(RawRequest::parse(&bytes), None);
    }

    #[test]
    fn replies_have_the_specifications_bytes() {
        let simple = Head::simple(0x0102_0304_0506_0708, Some(Errno::Invalid));
        assert_eq!(simple.as_bytes(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 1, 2, 3, 4, 5, 6, 7, 8]);
        let data = Head::offset_data(7, 512, 4096);
        let mut want = vec![0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x10, 8];
        want.extend([0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(data.as_bytes(), want);
        let error = Head::error(7, Errno::Io);
        assert_eq!(error.as_bytes()[4..8], [0, 1, 0x80, 1]);
        assert_eq!(error.as_bytes()[16..], [0, 0, 0, 6, 0, 0, 0, 5, 0, 0]);
        let status = Head::block_status(7, 1, 2);
        assert_eq!(status.as_bytes()[16..], [0, 0, 0, 20, 0, 0, 0, 1]);
    }
}
