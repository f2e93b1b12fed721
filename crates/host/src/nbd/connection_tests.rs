//! A connection fed with whatever a client may send, in whatever pieces.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use stripewise_engine::io::Op;

use super::buffers::Buffers;
use super::connection::{BYTES_MAX, Connection, REQUESTS_MAX};
use super::export::Export;
use super::task::Task;
use super::wire::Head;

const HANDSHAKE: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
const WRITE: u8 = 1;

fn export() -> Export {
    Export {
        name: String::new(),
        description: String::new(),
        bytes: 256 << 20,
        min_bytes: 512,
        preferred_bytes: 4096,
        buffered: false,
        volatile: true,
        read_only: false,
        fast_zero: true,
    }
}

fn request(command: u8, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, command];
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn pair() -> (Connection, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    (Connection::new(server.into()), client)
}

/// Takes what can be taken, answers it, and sends; answers the writes' bytes.
fn serve(connection: &mut Connection, buffers: &mut Buffers) -> Vec<Vec<u8>> {
    connection.tell(super::poller::News {
        token: 0,
        readable: true,
        writable: true,
        ended: false,
        gone: false,
    });
    go_on(connection, buffers)
}

/// The same for a client that the poller says nothing of.
fn look_and_serve(connection: &mut Connection, buffers: &mut Buffers) -> Vec<Vec<u8>> {
    let has_come = connection.look();
    let written = go_on(connection, buffers);
    assert!(has_come || written.is_empty(), "what came is said");
    written
}

fn go_on(connection: &mut Connection, buffers: &mut Buffers) -> Vec<Vec<u8>> {
    let mut written = Vec::new();
    while let Some(accepted) = connection.next(&export(), buffers) {
        let op = if let Task::Array { op, .. } = accepted.task { op } else { Op::Flush };
        let bytes = accepted.bytes as usize;
        if let (Op::Write, Some(buffer)) = (op, &accepted.buffer) {
            // SAFETY: the request's buffer, filled and nobody else's.
            written.push(unsafe { std::slice::from_raw_parts(buffer.base(), bytes) }.to_vec());
        }
        let held = accepted.buffer.as_ref().map_or(0, |_| u64::from(accepted.bytes));
        let body = accepted.buffer.filter(|_| op == Op::Read).map(|b| (b, bytes));
        connection.reply(Head::simple(accepted.cookie, None), Vec::new(), body, held);
        connection.send(buffers);
    }
    connection.send(buffers);
    written
}

fn drained(client: &mut UnixStream) -> usize {
    let mut bytes = Vec::new();
    // Ends with "would block" or at the end.
    let _ended = client.read_to_end(&mut bytes);
    bytes.len()
}

#[test]
fn requests_beyond_the_bounds_wait_for_replies() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    client.write_all(HANDSHAKE).unwrap();
    for cookie in 0..u64::from(REQUESTS_MAX) + 10 {
        client.write_all(&request(0, cookie, 0, 512)).unwrap();
    }
    let mut taken = Vec::new();
    while let Some(accepted) = connection.next(&export(), &mut buffers) {
        taken.push(accepted);
    }
    assert_eq!(taken.len() as u32, REQUESTS_MAX);
    for accepted in taken {
        let body = accepted.buffer.map(|b| (b, 512));
        connection.reply(Head::simple(accepted.cookie, None), Vec::new(), body, 512);
    }
    assert!(connection.next(&export(), &mut buffers).is_none(), "answered is not yet sent");
    connection.send(&mut buffers);
    assert!(connection.next(&export(), &mut buffers).is_some());
}

#[test]
fn bytes_beyond_the_bound_wait_for_replies() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    client.write_all(HANDSHAKE).unwrap();
    for cookie in 0..10 {
        client.write_all(&request(0, cookie, 0, 32 << 20)).unwrap();
    }
    let mut taken = Vec::new();
    while let Some(accepted) = connection.next(&export(), &mut buffers) {
        taken.push(accepted);
    }
    assert_eq!(taken.len() as u64, BYTES_MAX / (32 << 20));
}

#[test]
fn a_write_cut_off_at_any_byte_is_forgotten() {
    let whole = [request(WRITE, 1, 0, 512), vec![7; 512]].concat();
    for cut in 0..whole.len() {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        client.write_all(&[HANDSHAKE, &whole[..cut]].concat()).unwrap();
        assert!(serve(&mut connection, &mut buffers).is_empty());
        drop(client);
        assert!(serve(&mut connection, &mut buffers).is_empty());
        assert!(connection.is_over(), "cut at {cut}");
    }
}

#[test]
fn a_client_is_near_while_it_asks_for_little_and_takes_its_answers() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    assert!(!connection.may_be_near(), "it has not even been greeted");
    client.write_all(HANDSHAKE).unwrap();
    serve(&mut connection, &mut buffers);
    assert!(connection.may_be_near());
    drained(&mut client);
    assert!(!connection.has_unread());
    client.write_all(&request(0, 1, 0, 4096)).unwrap();
    look_and_serve(&mut connection, &mut buffers);
    assert!(connection.has_unread() && connection.may_be_near());
    assert!(!connection.look(), "nothing has come");
    drained(&mut client);
    assert!(!connection.has_unread());

    client.write_all(&request(0, 2, 0, 4 << 20)).unwrap();
    look_and_serve(&mut connection, &mut buffers);
    assert!(!connection.may_be_near(), "what is long is heard of");
    while drained(&mut client) > 0 {
        serve(&mut connection, &mut buffers);
    }
    for cookie in 0..100 {
        client.write_all(&request(0, cookie, 0, 16384)).unwrap();
        serve(&mut connection, &mut buffers);
    }
    assert!(!connection.may_be_near(), "it does not take its answers");
    let mut answered = 0;
    while answered < 100 * (16 + 16384) {
        let some = drained(&mut client);
        assert!(some > 0, "{answered} bytes of the answers");
        answered += some;
        look_and_serve(&mut connection, &mut buffers);
    }
    assert!(connection.may_be_near());
    drop(client);
    assert!(connection.look(), "its end is news");
    assert!(serve(&mut connection, &mut buffers).is_empty());
    assert!(connection.is_over() && !connection.may_be_near());
}

#[test]
fn requests_that_wait_for_others_are_not_received_over() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    client.write_all(HANDSHAKE).unwrap();
    let requests: Vec<u8> = (0..3000).flat_map(|cookie| request(0, cookie, 0, 512)).collect();
    client.write_all(&requests).unwrap();
    let mut taken = Vec::new();
    while let Some(accepted) = connection.next(&export(), &mut buffers) {
        taken.push(accepted);
    }
    for _ in 0..3 {
        assert!(!connection.look(), "there is no room for more");
        assert!(connection.next(&export(), &mut buffers).is_none());
    }
    assert!(!connection.is_over());
    assert_eq!(taken.len() as u32, REQUESTS_MAX);
}

proptest! {
    #[test]
    fn random_bytes_after_the_handshake_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400), chosen in any::<bool>(),
    ) {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        let start = if chosen { HANDSHAKE } else { b"" };
        client.write_all(&[start, &bytes].concat()).unwrap();
        serve(&mut connection, &mut buffers);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        serve(&mut connection, &mut buffers);
        drained(&mut client);
        serve(&mut connection, &mut buffers);
        prop_assert!(connection.is_over());
    }

    #[test]
    fn writes_arrive_whole_in_whatever_pieces_they_come(
        lengths in proptest::collection::vec(1u32..200, 1..6),
        pieces in proptest::collection::vec(1usize..70_000, 1..40),
        is_near in any::<bool>(),
    ) {
        let serve = if is_near { look_and_serve } else { serve };
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        let mut input = HANDSHAKE.to_vec();
        let mut want = Vec::new();
        for (cookie, length) in (1u8..).zip(&lengths) {
            input.extend(request(WRITE, u64::from(cookie), 0, length * 512));
            let bytes: Vec<u8> = (0..length * 512).map(|i| (i % 251) as u8 ^ cookie).collect();
            input.extend(&bytes);
            want.push(bytes);
        }
        let mut have = Vec::new();
        let mut rest = &input[..];
        let mut pieces = pieces.iter().cycle();
        while !rest.is_empty() {
            let piece = rest.len().min(*pieces.next().unwrap());
            let sent = client.write(&rest[..piece]).unwrap_or(0);
            rest = &rest[sent..];
            have.extend(serve(&mut connection, &mut buffers));
        }
        prop_assert_eq!(have, want);
        prop_assert_eq!(drained(&mut client), 18 + 10 + 16 * lengths.len());
        prop_assert_eq!(connection.requests(), 0);
    }
}
