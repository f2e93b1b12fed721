"""Clients that do what tools do not: limits, misuse, death. `clients.py SCENARIO SOCKET [PID]`."""

import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

scenario, path = sys.argv[1], sys.argv[2]

IHAVEOPT = 0x49484156454F5054
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES = 0, 1, 2, 3, 4, 5, 6


def connected():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(path)
    return s


def receive(s, count):
    data = b""
    while len(data) < count:
        more = s.recv(count - len(data))
        if not more:
            raise EOFError(f"{len(data)} of {count} bytes")
        data += more
    return data


def transmission():
    """A connection past the handshake, with simple replies; answers the size, too."""
    s = connected()
    assert receive(s, 18)[:16] == b"NBDMAGICIHAVEOPT"
    s.sendall(struct.pack(">IQII", 3, IHAVEOPT, 1, 0))
    size, _flags = struct.unpack(">QH", receive(s, 10))
    return s, size


def request(command, cookie, offset, length, flags=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length)


def reply(s):
    magic, error, cookie = struct.unpack(">IIQ", receive(s, 16))
    assert magic == 0x67446698, hex(magic)
    return error, cookie


def is_closed(s):
    """Whether the server ends the connection, whatever it sends before."""
    try:
        while s.recv(65536):
            pass
        return True
    except (ConnectionResetError, BrokenPipeError):
        return True
    except socket.timeout:
        return False


def works():
    s, size = transmission()
    s.sendall(request(READ, 1, size - 512, 512))
    assert reply(s) == (0, 1)
    receive(s, 512)
    s.close()


def run_libnbd():
    import errno
    import nbd

    def handle():
        h = nbd.NBD()
        h.add_meta_context("base:allocation")
        # The server is to find the fault, not the library.
        h.set_strict_mode(0)
        h.connect_unix(path)
        return h

    def refused(number, call, *arguments):
        try:
            call(*arguments)
        except nbd.Error as e:
            assert e.errnum == number, (e.errnum, number, str(e))
            return
        raise AssertionError(f"{call} {arguments} was not refused")

    h = handle()
    size = h.get_size()
    refused(errno.EINVAL, h.pread, 512, size)
    refused(errno.EINVAL, h.pread, 100, 0)
    refused(errno.EINVAL, h.pread, 512, 7)
    refused(errno.EINVAL, h.pread, 512, (1 << 63) - 512)
    refused(errno.ENOSPC, h.pwrite, b"x" * 512, size)
    refused(errno.ENOSPC, h.zero, 1024, size - 512)
    refused(errno.EINVAL, h.trim, 1024, size - 512)
    refused(errno.EINVAL, h.cache, 512, 0)
    block = random.randbytes(1 << 20)
    h.pwrite(block, 4096, nbd.CMD_FLAG_FUA)
    assert h.pread(1 << 20, 4096) == block
    assert h.pread(1 << 20, 4096, nbd.CMD_FLAG_DF) == block
    h.zero(1 << 19, 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
    h.zero(512, 4096 + (1 << 19), nbd.CMD_FLAG_FAST_ZERO)
    assert h.pread((1 << 19) + 512, 4096) == bytes((1 << 19) + 512)
    h.zero(size, 0)
    h.flush()
    largest = random.randbytes(32 << 20)
    h.pwrite(largest, 512)
    assert h.pread(32 << 20, 512) == largest
    extents = []
    h.block_status(size, 0, lambda _c, _o, entries, _e: extents.extend(entries) or 0)
    assert sum(extents[::2]) <= size and extents[0] > 0
    # What one connection was told is written, another reads, and may flush.
    others = [handle() for _ in range(7)]
    for number, other in enumerate(others):
        other.pwrite(bytes([number]) * 65536, number << 16)
    for number in range(7):
        assert others[-1 - number].pread(65536, number << 16) == bytes([number]) * 65536
        others[number].flush()
    for other in others + [h]:
        other.shutdown()


def run_raw():
    rng = random.Random(1)
    # Garbage at once, garbage after the flags, garbage after the handshake.
    for count in range(40):
        s = connected()
        if count % 2:
            s.sendall(struct.pack(">I", 3))
        s.sendall(rng.randbytes(1 + rng.randrange(2000)))
        s.shutdown(socket.SHUT_WR)
        assert is_closed(s)
    for _ in range(20):
        s, _ = transmission()
        s.sendall(rng.randbytes(28 + rng.randrange(100)))
        assert is_closed(s), "a wrong magic ends the connection"
    # An option of 2^32 - 1 bytes, a name that lies about its length, unknown options.
    s = connected()
    s.sendall(struct.pack(">IQII", 3, IHAVEOPT, 77, 0xFFFFFFFF))
    assert is_closed(s)
    s = connected()
    receive(s, 18)
    s.sendall(struct.pack(">IQII", 3, IHAVEOPT, 77, 0) + struct.pack(">QIIIH", IHAVEOPT, 7, 6, 0xFFFFFFFF, 9))
    assert struct.unpack(">QIII", receive(s, 20))[2] == 0x80000001
    assert struct.unpack(">QIII", receive(s, 20))[2] == 0x80000003
    s.close()
    # A request cut off at every byte.
    for cut in range(29):
        s, _ = transmission()
        s.sendall((request(WRITE, 1, 0, 4096) + bytes(10))[:cut])
        s.close()
    # Refused writes are skipped, whatever their length says, and the next request is understood.
    s, size = transmission()
    s.sendall(request(WRITE, 1, size, 65536) + bytes(65536) + request(WRITE, 2, 1, 512) + bytes(512))
    s.sendall(request(99, 3, 0, 0) + request(READ, 4, 0, 33 << 20) + request(FLUSH, 5, 0, 0, 1 << 9))
    answers = {cookie: error for error, cookie in (reply(s) for _ in range(5))}
    assert answers == {1: 28, 2: 22, 3: 22, 4: 75, 5: 22}, answers
    # DISC is obeyed after the answers that are due.
    s.sendall(request(READ, 6, 0, 512) + request(DISC, 0, 0, 0))
    assert reply(s) == (0, 6)
    receive(s, 512)
    assert is_closed(s)
    # Clients that read nothing, or write one byte a time, keep nobody waiting.
    idle = []
    for _ in range(8):
        s, _ = transmission()
        s.settimeout(0.2)
        try:
            for _ in range(400):
                s.sendall(request(READ, 7, 0, 1 << 20))
        except socket.timeout:
            pass
        idle.append(s)
    start = time.monotonic()
    for _ in range(20):
        works()
    assert time.monotonic() - start < 5, "idle clients hold others up"
    s, _ = transmission()
    for byte in request(WRITE, 8, 0, 512) + bytes(512):
        s.sendall(bytes([byte]))
    assert reply(s) == (0, 8)
    # A client that was idle gets every byte in the end.
    idle[0].settimeout(20)
    for _ in range(100):
        assert reply(idle[0]) == (0, 7)
        receive(idle[0], 1 << 20)


def run_killed():
    for round in range(10):
        child = os.fork()
        if child == 0:
            s, size = transmission()
            while True:
                for cookie in range(64):
                    s.send(request(READ, cookie, cookie << 16, 1 << 20))
                s.send(request(WRITE, 1, 0, 1 << 20) + bytes(1000))
                time.sleep(1)
        time.sleep(0.02 * round)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        works()


def run_sigterm():
    pid = int(sys.argv[3])
    s, _ = transmission()
    block = random.randbytes(65536)
    counts = {"sent": 0, "answered": 0}

    def writer():
        try:
            while True:
                s.sendall(request(WRITE, counts["sent"], counts["sent"] % 1000 << 16, 65536) + block)
                counts["sent"] += 1
        except OSError:
            pass

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        while True:
            error, _ = reply(s)
            assert error == 0, error
            counts["answered"] += 1
            if counts["answered"] == 500:
                os.kill(pid, signal.SIGTERM)
    except (EOFError, ConnectionResetError):
        pass
    thread.join(20)
    assert counts["answered"] >= 500, counts
    print(counts)


def run_readonly():
    s, size = transmission()
    s.sendall(request(WRITE, 1, 0, 512) + bytes(512) + request(TRIM, 2, 0, 512) + request(ZEROES, 3, 0, 512))
    s.sendall(request(READ, 4, 0, 512) + request(FLUSH, 5, 0, 0))
    answers = {}
    for _ in range(5):
        error, cookie = reply(s)
        answers[cookie] = error
        if cookie == 4:
            receive(s, 512)
    assert answers == {1: 1, 2: 1, 3: 1, 4: 0, 5: 0}, answers


def run_lost():
    """Members whose write-back fails: every flush that covers it must say so, on any connection."""
    clients = [transmission()[0] for _ in range(4)]
    for number, s in enumerate(clients[:2]):
        for cookie in range(24):
            s.sendall(request(WRITE, cookie, (number * 24 + cookie) << 20, 1 << 20) + random.randbytes(1 << 20))
            assert reply(s) == (0, cookie), "the page cache takes it"
    for s in clients:
        for cookie in range(3):
            s.sendall(request(FLUSH, cookie, 0, 0))
    for number, s in enumerate(clients):
        errors = [reply(s)[0] for _ in range(3)]
        assert all(errors), f"connection {number} was told that lost writes are durable: {errors}"
    late = transmission()[0]
    late.sendall(request(FLUSH, 1, 0, 0) + request(WRITE, 2, 0, 512) + bytes(512))
    assert all(reply(late)[0] for _ in range(2))


def ask(s, line):
    s.sendall(line + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += s.recv(65536)
    return json.loads(answer)


def run_control():
    s = connected()
    detail = ask(s, b'{"command":"detail"}')["detail"]
    assert detail["requests"] > 0 and detail["failed"] == []
    assert "error" in ask(s, b"\xff{")
    assert "error" in ask(s, b'{"command":"format"}')
    long = connected()
    try:
        long.sendall(b"x" * 100000)
    except OSError:
        pass
    assert is_closed(long)
    assert "detail" in ask(s, b'{"command":"detail"}')


def run_stop():
    assert ask(connected(), b'{"command":"stop"}') == {"stopping": True}


globals()["run_" + scenario]()
