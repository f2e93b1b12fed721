//! Hand-written handshakes, every truncation of them, and random bytes.

use proptest::prelude::*;

use super::export::Export;
use super::handshake::{Agreed, Handshake, Step};
use super::task::{Task, judge};
use super::wire::{Errno, IHAVEOPT, RawRequest, command, command_flag, transmission_flag};
use stripewise_engine::io::Op;
use stripewise_engine::units::SectorRange;

const BYTES: u64 = 1 << 20;

fn export() -> Export {
    Export {
        name: "md0".to_owned(),
        description: "an array".to_owned(),
        bytes: BYTES,
        min_bytes: 512,
        preferred_bytes: 65536,
        buffered: false,
        volatile: true,
        read_only: false,
        fast_zero: true,
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn named(name: &[u8], rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name, rest].concat()
}

fn reply_bytes(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9];
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The handshake after its greeting, and what it answers to a client's bytes in one piece.
fn answers(export: &Export, input: &[u8]) -> (Vec<u8>, usize, Step) {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
    out.clear();
    let (taken, step) = handshake.advance(export, input, &mut out);
    (out, taken, step)
}

const FLAGS: [u8; 4] = [0, 0, 0, 3];

#[test]
fn go_tells_the_export_and_begins_transmission() {
    let infos = [0, 3, 0, 1, 0, 2, 0, 3];
    let input = [&FLAGS[..], &option(8, b""), &option(7, &named(b"md0", &infos)), b"next"].concat();
    let (out, taken, step) = answers(&export(), &input);
    let flags = export().flags(true).to_be_bytes();
    let want = [
        reply_bytes(8, 1, b""),
        reply_bytes(7, 3, &[&[0, 0][..], &BYTES.to_be_bytes(), &flags].concat()),
        reply_bytes(7, 3, b"\0\x01md0"),
        reply_bytes(7, 3, b"\0\x02an array"),
        reply_bytes(7, 3, &[0, 3, 0, 0, 2, 0, 0, 1, 0, 0, 2, 0, 0, 0]),
        reply_bytes(7, 1, b""),
    ];
    assert_eq!(out, want.concat());
    assert_eq!(taken, input.len() - 4, "the transmission's bytes are left");
    assert_eq!(step, Step::Transmission(Agreed { structured: true, block_status: false }));
}

#[test]
fn info_is_go_without_the_transmission_and_an_unknown_name_is_told() {
    let input =
        [&FLAGS[..], &option(6, &named(b"", &[0, 0])), &option(7, &named(b"other", &[0, 0]))].concat();
    let (out, taken, step) = answers(&export(), &input);
    assert!(out.ends_with(&[reply_bytes(6, 1, b""), reply_bytes(7, 0x8000_0006, b"")].concat()));
    assert_eq!((taken, step), (input.len(), Step::More));
}

#[test]
fn export_name_is_answered_with_and_without_zeroes() {
    let name = option(1, b"md0");
    let short = [&BYTES.to_be_bytes()[..], &export().flags(false).to_be_bytes()].concat();
    let (out, _, step) = answers(&export(), &[&FLAGS[..], &name].concat());
    assert_eq!((out.clone(), step), (short.clone(), Step::Transmission(Agreed::default())));
    let (out, _, _) = answers(&export(), &[&[0, 0, 0, 1][..], &name].concat());
    assert_eq!(out, [short, vec![0; 124]].concat());
    let (out, _, step) = answers(&export(), &[&FLAGS[..], &option(1, b"other")].concat());
    assert_eq!((out, step), (Vec::new(), Step::Close));
}

#[test]
fn list_abort_and_unknown_options() {
    let options = [option(3, b""), option(3, b"x"), option(5, b""), option(4711, b"abc"), option(2, b"")];
    let (out, _, step) = answers(&export(), &[&FLAGS[..], &options.concat()].concat());
    let want = [
        reply_bytes(3, 2, b"\0\0\0\x03md0an array"),
        reply_bytes(3, 1, b""),
        reply_bytes(3, 0x8000_0003, b""),
        reply_bytes(5, 0x8000_0001, b""),
        reply_bytes(4711, 0x8000_0001, b""),
        reply_bytes(2, 1, b""),
    ];
    assert_eq!((out, step), (want.concat(), Step::Close));
}

#[test]
fn meta_contexts_are_listed_and_selected() {
    let query = |q: &[u8]| named(b"", &[&[0, 0, 0, 1][..], &named(q, b"")].concat());
    let none = named(b"", &[0, 0, 0, 0]);
    let input = [
        FLAGS.to_vec(),
        option(10, &query(b"base:allocation")),
        option(8, b""),
        option(9, &none),
        option(9, &query(b"base:")),
        option(9, &query(b"qemu:")),
        option(10, &query(b"base:")),
        option(10, &query(b"base:allocation")),
        option(7, &named(b"", &[0, 0])),
    ];
    let (out, _, step) = answers(&export(), &input.concat());
    let context = |id: u8| [&[0, 0, 0, id], &b"base:allocation"[..]].concat();
    let want = [
        reply_bytes(10, 0x8000_0003, b""),
        reply_bytes(8, 1, b""),
        reply_bytes(9, 4, &context(0)),
        reply_bytes(9, 1, b""),
        reply_bytes(9, 4, &context(0)),
        reply_bytes(9, 1, b""),
        reply_bytes(9, 1, b""),
        reply_bytes(10, 1, b""),
        reply_bytes(10, 4, &context(1)),
        reply_bytes(10, 1, b""),
    ];
    assert!(out.starts_with(&want.concat()));
    assert_eq!(step, Step::Transmission(Agreed { structured: true, block_status: true }));
}

#[test]
fn wrong_flags_wrong_magic_and_endless_options_end_the_connection() {
    for flags in [[0, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 7], [0xff; 4]] {
        assert_eq!(answers(&export(), &flags).2, Step::Close);
    }
    assert_eq!(answers(&export(), &[&FLAGS[..], b"GET / HTTP/1.1\r\n"].concat()).2, Step::Close);
    let endless = [&FLAGS[..], &IHAVEOPT.to_be_bytes(), &[0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]].concat();
    assert_eq!(answers(&export(), &endless).2, Step::Close);
}

#[test]
fn an_option_too_long_to_keep_is_skipped_and_refused() {
    let input = [&FLAGS[..], &option(7, &vec![0; 20_000]), &option(2, b"")].concat();
    let (out, taken, step) = answers(&export(), &input);
    assert_eq!(out, [reply_bytes(7, 0x8000_0009, b""), reply_bytes(2, 1, b"")].concat());
    assert_eq!((taken, step), (input.len(), Step::Close));
}

#[test]
fn a_client_that_never_chooses_is_let_go() {
    let input = [&FLAGS[..], &option(3, b"").repeat(1001)].concat();
    assert_eq!(answers(&export(), &input).2, Step::Close);
}

#[test]
fn a_read_only_export_offers_no_writes() {
    use transmission_flag as flag;
    let flags = Export { read_only: true, ..export() }.flags(true);
    assert_ne!(flags & flag::READ_ONLY, 0);
    let writes = flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    assert_eq!(flags & writes, 0);
}

#[test]
fn fragments_are_spoken_of_only_where_replies_are_structured() {
    use transmission_flag as flag;
    assert_eq!(export().flags(true) & !export().flags(false), flag::SEND_DF);
    let go = |before: &[u8]| {
        answers(&export(), &[&FLAGS[..], before, &option(7, &named(b"md0", &[0, 0]))].concat()).0
    };
    let holds = |out: &[u8], flags: u16| {
        out.windows(10).any(|w| w == [&BYTES.to_be_bytes()[..], &flags.to_be_bytes()].concat())
    };
    assert!(holds(&go(b""), export().flags(false)) && holds(&go(&option(8, b"")), export().flags(true)));
}

fn raw(command: u16, flags: u16, offset: u64, length: u32) -> RawRequest {
    RawRequest { flags, command, cookie: 1, offset, length }
}

const ALL: Agreed = Agreed { structured: true, block_status: true };

#[test]
fn requests_are_judged_by_bounds_shape_and_what_was_agreed() {
    let ok = |op, start, count, fua| Ok(Task::Array { op, range: SectorRange::new(start, count), fua });
    let fua = command_flag::FUA;
    let end = BYTES - 512;
    let cases = [
        (raw(command::READ, 0, end, 512), ok(Op::Read, end / 512, 1, false)),
        (raw(command::READ, 0, end, 1024), Err(Errno::Invalid)),
        (raw(command::READ, 0, u64::MAX - 511, 512), Err(Errno::Invalid)),
        (raw(command::READ, 0, 0, 0), Err(Errno::Invalid)),
        (raw(command::READ, 0, 1, 512), Err(Errno::Invalid)),
        (raw(command::READ, 1 << 7, 0, 512), Err(Errno::Invalid)),
        (raw(command::WRITE, fua, 0, 4096), ok(Op::Write, 0, 8, true)),
        (raw(command::WRITE, 0, end, 1024), Err(Errno::NoSpace)),
        (raw(command::WRITE, 0, 0, 33 << 20), Err(Errno::Overflow)),
        (raw(command::TRIM, 0, 512, 512), ok(Op::Discard, 1, 1, false)),
        (raw(command::WRITE_ZEROES, fua | command_flag::NO_HOLE, 0, 512), ok(Op::WriteZeroes, 0, 1, true)),
        (raw(command::FLUSH, 0, 0, 0), ok(Op::Flush, 0, 0, false)),
        (raw(command::FLUSH, 0, 0, 1), Err(Errno::Invalid)),
        (raw(5, 0, 0, 512), Err(Errno::Invalid)),
        (raw(command::BLOCK_STATUS, 0, 0, 512), Ok(Task::BlockStatus { offset: 0, bytes: 512, one: false })),
    ];
    for (request, want) in cases {
        assert_eq!(judge(&request, &export(), ALL), want, "{request:?}");
    }
    let status = raw(command::BLOCK_STATUS, 0, 0, 512);
    assert_eq!(judge(&status, &export(), Agreed::default()), Err(Errno::Invalid));
    let read_only = Export { read_only: true, ..export() };
    for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(judge(&raw(command, 0, 0, 512), &read_only, ALL), Err(Errno::Perm));
    }
    let slow = Export { fast_zero: false, ..export() };
    let fast = raw(command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512);
    assert_eq!(judge(&fast, &slow, ALL), Err(Errno::NotSupported));
}

/// Advances by pieces as a connection does, keeping what was not taken.
fn in_pieces(export: &Export, pieces: &[&[u8]]) -> (Vec<u8>, Step) {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    out.clear();
    let mut input = Vec::new();
    let mut step = Step::More;
    for piece in pieces {
        input.extend(*piece);
        if step != Step::More {
            break;
        }
        let taken;
        (taken, step) = handshake.advance(export, &input, &mut out);
        input.drain(..taken);
    }
    (out, step)
}

fn whole_handshake() -> Vec<u8> {
    let query = named(b"", &[&[0, 0, 0, 1][..], &named(b"base:allocation", b"")].concat());
    let go = named(b"md0", &[0, 2, 0, 1, 0, 3]);
    let options =
        [option(8, b""), option(3, b""), option(10, &query), option(99, &vec![7; 17_000]), option(7, &go)];
    [&FLAGS[..], &options.concat()].concat()
}

#[test]
fn every_truncation_waits_and_every_cut_gives_the_same_answer() {
    let export = export();
    let input = whole_handshake();
    let whole = in_pieces(&export, &[&input]);
    assert!(matches!(whole.1, Step::Transmission(_)));
    for cut in 0..input.len() {
        assert_eq!(answers(&export, &input[..cut]).2, Step::More, "cut at {cut}");
        assert_eq!(in_pieces(&export, &[&input[..cut], &input[cut..]]), whole, "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        answers(&export(), &bytes);
        answers(&export(), &[&FLAGS[..], &bytes].concat());
    }

    #[test]
    fn random_options_never_panic(
        options in proptest::collection::vec(
            (0u32..12, proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..60)), 0..8),
    ) {
        let options: Vec<u8> = options.iter().flat_map(|(kind, data)| option(*kind, data)).collect();
        answers(&export(), &[&FLAGS[..], &options].concat());
    }

    #[test]
    fn a_changed_byte_of_a_handshake_never_panics(at in 0usize..200, byte in any::<u8>()) {
        let mut input = whole_handshake();
        input[at] = byte;
        answers(&export(), &input);
    }

    #[test]
    fn whatever_is_accepted_is_whole_sectors_of_the_export(
        bytes in any::<[u8; 24]>(), offset in 0u64..3 << 19, length in 0u32..3 << 19, shaped in any::<bool>(),
    ) {
        let mut request = [&[0x25, 0x60, 0x95, 0x13][..], &bytes].concat();
        if shaped {
            request[4..6].fill(0);
            request[6..8].copy_from_slice(&[0, bytes[3] % 8]);
            request[16..24].copy_from_slice(&(offset & !511).to_be_bytes());
            request[24..28].copy_from_slice(&(length & !511).to_be_bytes());
        }
        let raw = RawRequest::parse(&request.try_into().unwrap()).unwrap();
        if let Ok(Task::Array { op, range, .. }) = judge(&raw, &export(), ALL)
            && op != Op::Flush
        {
            prop_assert!(range.count > 0 && range.end() * 512 <= BYTES);
        }
    }
}
