#!/usr/bin/env python3
"""Kills a server in the middle of a verifying load, again and again, and looks for what it acknowledged.

Each round serves an array over NBD, reads back everything that earlier rounds wrote, writes from several clients and
kills the server with SIGKILL at a random moment. A sector must hold the version of its last acknowledged write, or one
of those that were sent after it and not answered. In the end the array is put together, and `check` must find no
redundancy that disagrees.

With --cache the array has a page cache in front, and an acknowledged write may be lost until a flush that was sent after
its answer, or its own FUA, is acknowledged; not afterwards.

What this proves: the order of what the server tells the kernel, and that what survives in the files is found again,
resynced and right. What it does not: a killed process loses nothing that the kernel has, so that a missing flush goes
unnoticed here; power cuts, with what drives lose, are the simulator's (`stripewise sim crash`).
"""

import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SECTOR = 512
MEMBER_MIB = 5
CLIENTS = 3
IN_FLIGHT = 4
ZONE_SECTORS = 1024
READ, WRITE, FLUSH = 0, 1, 3
FUA = 1
# Less than the clients write to, and written back all the time.
CACHE = "--cache 1M --dirty-expire-centisecs 3 --dirty-writeback-centisecs 3 --readahead 64".split()

# Name, arguments of `create`, slots.
SHAPES = [
    ("raid5-bitmap", "--level 5 --chunk 64K --bitmap internal --bitmap-chunk 64K", 4),
    ("raid5-ppl", "--level 5 --chunk 64K --consistency-policy ppl", 4),
    ("raid5-journal", "--level 5 --chunk 64K --write-journal journal", 4),
    ("raid6-journal", "--level 6 --chunk 16K --write-journal journal", 5),
    ("raid6", "--level 6 --chunk 64K", 5),
    ("raid1", "--level 1 --bitmap internal --bitmap-chunk 64K", 2),
    ("raid10", "--level 10 --chunk 64K", 4),
]
# Members that a kill may take along.
WITHOUT_WRITE_HOLE = {"raid5-ppl": 1, "raid5-journal": 1, "raid6-journal": 2}


def sector_bytes(sector, version):
    """What a sector holds: zeroes before its first write."""
    if version == 0:
        return bytes(SECTOR)
    return struct.pack("<QQ", sector ^ 0x5374726970655769, version) * (SECTOR // 16)


class Gone(Exception):
    """The server is."""


class Client:
    """One NBD connection with simple replies."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.take(18)
        self.socket.sendall(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
        self.size = struct.unpack(">QH", self.take(10))[0]

    def take(self, count):
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionError as error:
                raise Gone from error
            if not piece:
                raise Gone
            data += piece
        return data

    def send(self, command, flags, cookie, offset, length, data=b""):
        head = struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length)
        try:
            self.socket.sendall(head + data)
        except ConnectionError as error:
            raise Gone from error

    def reply(self):
        magic, error, cookie = struct.unpack(">IIQ", self.take(16))
        if magic != 0x67446698 or error:
            raise AssertionError(f"a reply with magic {magic:#x} and error {error}")
        return cookie

    def read(self, offset, length):
        self.send(READ, 0, 0, offset, length)
        self.reply()
        return self.take(length)


class Part:
    """The sectors that one client writes, and what they may hold."""

    def __init__(self, first, count, is_cached=False):
        self.first, self.count, self.is_cached = first, count, is_cached
        # The version that must be there, or a later one.
        self.acknowledged = [0] * count
        self.unanswered = [set() for _ in range(count)]
        self.version = 0
        self.writes = 0
        self.error = None

    def load(self, path, rng):
        """Writes until the server is gone."""
        try:
            client = Client(path)
            pending = {}
            cookie = 0
            # Whether the answer of a write says that it is kept; the versions that the answer of a flush keeps.
            kept_by = {}
            in_cache = list(self.acknowledged)
            while True:
                while len(pending) < IN_FLIGHT:
                    length = min(rng.choice([1, 1, 8, 8, 8, 24, 128, 384]), self.count)
                    start = rng.randrange(self.count - length + 1)
                    busy = any(start < s + n and s < start + length for s, n, _ in pending.values())
                    if busy:
                        break
                    self.version += 1
                    cookie += 1
                    flags = FUA if rng.random() < 0.2 else 0
                    pending[cookie] = (start, length, self.version)
                    kept_by[cookie] = bool(flags) or not self.is_cached
                    for sector in range(start, start + length):
                        self.unanswered[sector].add(self.version)
                    data = b"".join(sector_bytes(self.first + s, self.version) for s in range(start, start + length))
                    client.send(WRITE, flags, cookie, (self.first + start) * SECTOR, len(data), data)
                if rng.random() < 0.05:
                    cookie += 1
                    pending[cookie] = (0, 0, 0)
                    kept_by[cookie] = list(in_cache)
                    client.send(FLUSH, 0, cookie, 0, 0)
                answered = client.reply()
                start, length, version = pending.pop(answered)
                kept = kept_by.pop(answered)
                for sector in range(start, start + length):
                    in_cache[sector] = version
                    if kept:
                        self.keep(sector, version)
                for sector, version in enumerate(kept if length == 0 else []):
                    if version > self.acknowledged[sector]:
                        self.keep(sector, version)
                self.writes += length > 0
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self.error = error

    def keep(self, sector, version):
        """From now on this version is there, or a later one."""
        self.acknowledged[sector] = version
        # What was sent before it and not answered is no longer to be seen.
        self.unanswered[sector] = {v for v in self.unanswered[sector] if v > version}

    def verify(self, read):
        """Compares with what is there, which is then what it must stay."""
        data = read(self.first * SECTOR, self.count * SECTOR)
        for sector in range(self.count):
            have = data[sector * SECTOR:(sector + 1) * SECTOR]
            allowed = {self.acknowledged[sector]} | self.unanswered[sector]
            version = next((v for v in allowed if sector_bytes(self.first + sector, v) == have), None)
            if version is None:
                raise AssertionError(
                    f"sector {self.first + sector}: holds {have[:16].hex()}, not version "
                    f"{self.acknowledged[sector]} that was acknowledged nor one of {sorted(self.unanswered[sector])}"
                )
            self.acknowledged[sector] = version
            self.unanswered[sector] = set()


class Array:
    """An array of one shape in a folder of its own."""

    def __init__(self, stripewise, folder, shape, options=()):
        self.name, arguments, slots = shape
        self.options = options
        self.stripewise, self.folder = stripewise, os.path.join(folder, self.name)
        os.mkdir(self.folder)
        self.slots = [f"m{slot}" for slot in range(slots)]
        self.members = self.slots + (["journal"] if "--write-journal" in arguments else [])
        for member in self.members:
            with open(os.path.join(self.folder, member), "wb") as file:
                file.truncate(MEMBER_MIB << 20)
        self.run("create", *arguments.split(), "--assume-clean", "--raid-devices", str(slots), *self.slots)
        self.socket = os.path.join(self.folder, "nbd")

    def run(self, *arguments, folder=None, code=0):
        ended = subprocess.run(
            [self.stripewise, *arguments], cwd=folder or self.folder, capture_output=True, timeout=120
        )
        if ended.returncode != code:
            told = (ended.stdout[:2000] + ended.stderr[:2000]).decode(errors="replace")
            raise AssertionError(f"{' '.join(arguments)}: exit code {ended.returncode}\n{told}")
        return ended.stdout

    def serve(self):
        server = subprocess.Popen(
            [self.stripewise, "serve", *self.members, "--socket", self.socket, *self.options],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        told = b""
        while b"Ready" not in told:
            line = server.stdout.readline()
            if not line:
                raise AssertionError(f"serve: {told.decode(errors='replace')}")
            told += line
        return server

    def round(self, parts, rng):
        """Verifies, loads, kills."""
        server = self.serve()
        try:
            client = Client(self.socket)
            for part in parts:
                part.verify(client.read)
            threads = [
                threading.Thread(target=part.load, args=(self.socket, random.Random(rng.random()))) for part in parts
            ]
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0.02, 0.25))
        finally:
            server.send_signal(signal.SIGKILL)
            server.wait()
            server.stdout.close()
        for thread in threads:
            thread.join()
        for part in parts:
            if part.error:
                raise part.error

    def lose(self, count, parts, rng):
        """A copy of the array that loses members at once after the kill holds as much."""
        with tempfile.TemporaryDirectory(dir=self.folder) as copy:
            for member in self.members:
                shutil.copy(os.path.join(self.folder, member), copy)
            lost = rng.sample(self.slots, count)
            left = [member for member in self.members if member not in lost]
            self.run("assemble", "--run", *left, folder=copy)
            for part in parts:
                offset, length = part.first * SECTOR, part.count * SECTOR
                data = self.run("read", "--run", *left, "--offset", str(offset), "--length", str(length), folder=copy)
                seen = Part(part.first, part.count)
                seen.acknowledged = list(part.acknowledged)
                seen.unanswered = [set(versions) for versions in part.unanswered]
                seen.verify(lambda _offset, _length, data=data: data)


def parts_of(array):
    server = array.serve()
    size = Client(array.socket).size // SECTOR
    server.send_signal(signal.SIGTERM)
    server.wait()
    server.stdout.close()
    count = ZONE_SECTORS
    # The ends of the array among them.
    firsts = [0, size // 2 - count // 2, size - count]
    return [Part(first, count, bool(array.options)) for first in firsts[:CLIENTS]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", required=True, help="the command")
    parser.add_argument("--kills", type=int, default=25, help="kills of each shape [default: 25]")
    parser.add_argument("--seed", type=int, default=None, help="of everything random [default: the time]")
    parser.add_argument("--shape", choices=[shape[0] for shape in SHAPES], help="only this one")
    parser.add_argument("--cache", action="store_true", help="with a page cache in front of the array")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else int(time.time())
    stripewise = os.path.abspath(arguments.stripewise)
    total, writes = 0, 0
    print(f"seed {seed}")
    for shape in SHAPES:
        if arguments.shape not in (None, shape[0]):
            continue
        rng = random.Random(f"{seed} {shape[0]}")
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
            array = Array(stripewise, folder, shape, CACHE if arguments.cache else ())
            parts = parts_of(array)
            started = time.time()
            for kill in range(arguments.kills):
                try:
                    array.round(parts, rng)
                    if shape[0] in WITHOUT_WRITE_HOLE and kill % 5 == 4:
                        array.lose(WITHOUT_WRITE_HOLE[shape[0]], parts, rng)
                except Exception as error:
                    sys.exit(f"{shape[0]}, kill {kill + 1} of seed {seed}: {error!r}")
                total += 1
            try:
                array.run("assemble", *array.members)
                array.run("check", *array.members)
                server = array.serve()
                client = Client(array.socket)
                for part in parts:
                    part.verify(client.read)
                server.send_signal(signal.SIGTERM)
                server.wait()
                server.stdout.close()
            except Exception as error:
                sys.exit(f"{shape[0]}, after {arguments.kills} kills of seed {seed}: {error!r}")
            acknowledged = sum(part.writes for part in parts)
            writes += acknowledged
            print(f"ok {shape[0]}: {arguments.kills} kills, {acknowledged} acknowledged writes, {time.time() - started:.0f} s")
    lost = "nothing flushed is lost" if arguments.cache else "nothing lost"
    print(f"{total} kills, {writes} acknowledged writes, {lost}")


if __name__ == "__main__":
    main()
