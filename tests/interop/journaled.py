"""Arrays with a write journal, cut off with writes in it: what the kernel makes of them, stripewise must, and the reverse."""
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import time

import compare
from case import SECTOR, Content, Wrong
from shapes import MIB, Shape, equal
from uml import RequestFailed
from unfinished import Unfinished

BLOCK = 4096
BLOCK_SECTORS = 8
MAGIC = 0x6433C509
DATA, PARITY, FLUSH = range(3)
JOURNAL_KIB = 8 * MIB


class Log:
    """The rows that a journal's log has, by their sectors; its checksums are stripewise's to look at."""

    def __init__(self, journal, superblock_sector, shape):
        with open(journal, "rb") as image:
            image.seek(superblock_sector * SECTOR)
            superblock = image.read(BLOCK)
            self.offset, self.sectors = struct.unpack_from("<QQ", superblock, 128)
            self.sectors -= self.sectors % BLOCK_SECTORS
            self.chunk = shape.chunk * 2
            self.data_disks = len(shape.members) - (2 if shape.level == "6" else 1)
            self.data, self.complete = {}, set()
            self.blocks = []  # of all kinds, by the device's sectors
            at, = struct.unpack_from("<Q", superblock, 152)
            sequence = None
            while True:
                image.seek((self.offset + at) * SECTOR)
                block = image.read(BLOCK)
                magic, _, _, size, found, position = struct.unpack_from("<IIIIQQ", block)
                if magic != MAGIC or position != at or found != (sequence or found):
                    return
                sequence = found + 1
                for _ in range(1 + self._follow(block, size)):
                    self.blocks.append(self.offset + at)
                    at = (at + BLOCK_SECTORS) % self.sectors

    def _follow(self, block, size):
        place, blocks = 32, 0
        while place < size:
            kind, _, length, location = struct.unpack_from("<HHIQ", block, place)
            if kind == FLUSH:
                for row in struct.unpack_from(f"<{length // 8}Q", block, place + 8):
                    self.data.pop(row, None)
                    self.complete.discard(row)
                place += 8 + length
                continue
            if kind == DATA:
                stripe, offset = location // (self.chunk * self.data_disks), location % self.chunk
                row = stripe * self.chunk + offset
                if row in self.complete:
                    self.complete.discard(row)
                    self.data[row] = set()
                self.data.setdefault(row, set()).add(location)
            else:
                self.complete.add(location)
            place += 16 + 4 * (length // BLOCK_SECTORS)
            blocks += length // BLOCK_SECTORS
        return blocks

    def whole_rows(self):
        """Rows of which the log has every block of data: nothing on the members is needed of them."""
        return [row for row, data in self.data.items() if len(data) == self.data_disks]

    def rows_of_data_alone(self):
        return [row for row in self.data if row not in self.complete and self.data[row]]


class Journaled(Unfinished):
    """`how` is the method; `mode` the `journal_mode`."""

    def __init__(self, how, shape, mode, number):
        super().__init__(how, shape, number)
        self.mode = mode
        self.name = f"{how}-{shape.name}-{mode}"

    def _make_images(self):
        super()._make_images()
        # With 1.0 mdadm 4.2 makes only a journal that is as large as a member.
        self.journal = self._image("journal.img", self.shape.members[0] if self.shape.metadata == "1.0" else JOURNAL_KIB)

    def _crashed(self):
        """Everything is written once, then some stripes and parts of stripes; in between the log went round its device."""
        self.step = "the kernel"
        stripe = self.shape.chunk * 1024 * (len(self.members) - (2 if self.shape.level == "6" else 1))
        ranges = [[0, stripe], [3 * stripe + 4096, 4096], [5 * stripe + 8192, 12288], [5 * stripe + 512, 1024], [40 * stripe, 2 * stripe],
                  [41 * stripe + 4096, 4096]]
        answer = self.guest.request("crash", members=self.members, create=self.shape.words(), ranges=ranges, seed=self.seed,
                                    journal=self.journal, mode=self.mode)
        self.content = Content(answer["size"])
        self.content.write(self.seed, [[0, answer["size"]]])
        self.content.write(self.seed + 1, ranges)
        self._same(answer["sha256"], "the kernel's own reading")
        for path in [*self.members, self.journal]:
            os.replace(path + ".crashed", path)
        self._looks(answer)
        self._tear()

    def _looks(self, kernels):
        self.step = "examine and detail"
        everyone = [*self.members, self.journal]
        for path in everyone:
            for words, compared in (([], compare.texts), (["--export"], compare.examined)):
                for difference in compared(compare.mdadm("--examine", *words, path), self._host("examine", *words, path).decode()):
                    self._found(f"{path} {' '.join(words)}: {difference}")
        theirs, ours = compare.mdadm("--examine", "--brief", *everyone), self._host("examine", "--brief", *everyone).decode()
        if theirs != ours:
            self._found(f"--brief: {ours!r} where mdadm says {theirs!r}")
        detail = self._host("detail", *self._shuffled(everyone)).decode()
        for difference in compare.details(kernels["detail"], detail):
            self._found(difference)
        if [line for line in detail.splitlines() if " journal " in line and self.journal in line] == []:
            self._found(f"no line of the journal in {detail}")
        for difference in compare.exports(kernels["detail_export"], self._host("detail", "--export", *everyone).decode()):
            self._found(f"--export: {difference}")
        for difference in compare.json_detail(kernels, self._host("detail", "--json", *everyone)):
            self._found(f"--json: {difference}")

    def _tear(self):
        """As if the last writes had reached no member, or had been torn, wherever the log has all of a row."""
        log = self._log()
        rows = log.whole_rows()
        if not rows:
            raise Wrong("the log has no whole row")
        if (self.mode == "write-back") != bool(log.rows_of_data_alone()):
            raise Wrong(f"rows of data alone: {log.rows_of_data_alone()}")
        for path in self.members:
            start = self._data_sector(path)
            with open(path, "r+b") as image:
                for row in rows:
                    image.seek(SECTOR * (start + row))
                    image.write(self.draw.randbytes(BLOCK))

    def _log(self):
        superblock = json.loads(self._host("examine", "--json", self.journal))["devices"][0]["superblocks"][0]["offset_bytes"] // SECTOR
        return Log(self.journal, superblock, self.shape)

    def _damage(self, sector):
        with open(self.journal, "r+b") as image:
            image.seek(SECTOR * sector + self.draw.randrange(BLOCK))
            byte, = image.read(1)
            image.seek(-1, os.SEEK_CUR)
            image.write(bytes([byte ^ 0x10]))

    def _copied(self):
        """The images as they are, elsewhere."""
        folder = self.folder / "copy"
        folder.mkdir(exist_ok=True)
        return [shutil.copy(path, folder) for path in [*self.members, self.journal]]

    def _kernel_recovers(self, everyone, lost=0):
        answer = self.guest.request("assemble", members=self._shuffled(everyone), partial=lost > 0, check=True)
        self._same(answer["sha256"], "the kernel's reading")
        if answer["consistency_policy"] != "journal" or answer["resync_start"] not in (None, "none"):
            raise Wrong(f"the kernel has policy {answer['consistency_policy']}, resync_start {answer['resync_start']}")
        if answer["mismatch_cnt"]:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        return answer

    def md_crash_journal(self):
        """Both bring the log to the members, each on its own copy; then each has what the other left."""
        self._crashed()
        everyone = [*self.members, self.journal]
        copies = self._copied()
        self.step = "the kernel recovers a copy"
        self._kernel_recovers(copies)
        self.step = "stripewise reads what the kernel recovered"
        self._same_reading(copies)
        self.step = "stripewise reads before the log is brought to the members"
        self._host("read", *everyone, exits=(2,))
        self._host("read", "--readonly", *everyone)
        self._by_overlay(everyone)
        self.step = "stripewise recovers"
        done = json.loads(self._host("assemble", "--json", *self._shuffled(everyone)))
        if not done["journal"]["rows"] or bool(done["journal"]["data_only_rows"]) != (self.mode == "write-back"):
            raise Wrong(f"journal is {done['journal']}")
        self._same_reading(everyone)
        again = json.loads(self._host("assemble", "--json", *self._shuffled(everyone)))
        if again["journal"]["rows"] or again["journal"]["data_only_rows"]:
            raise Wrong(f"the second time journal is {again['journal']}")
        self.step = "members lost after it"
        lost = self.draw.sample(self.members, 2 if self.shape.level == "6" else 1)
        self._same_reading([path for path in everyone if path not in lost], "--run")
        self.step = "the kernel after it"
        self._kernel_recovers(everyone)
        self.step = "stripewise after the kernel"
        self._same_reading(everyone)

    def _by_overlay(self, everyone):
        self.step = "stripewise under an overlay"
        before = [hashlib.sha256(pathlib.Path(path).read_bytes()).digest() for path in everyone]
        words = [*everyone, f"--overlay={self.folder / 'overlay'}"]
        self._host("assemble", *words)
        self._same_reading(words)
        self._host("write", *words, "--offset=4096B", stdin=b"x" * 8192)
        read = self._host("read", *words)
        if read != self.content.bytes[:4096] + b"x" * 8192 + self.content.bytes[12288:]:
            raise Wrong("what was written under the overlay is not read")
        if before != [hashlib.sha256(pathlib.Path(path).read_bytes()).digest() for path in everyone]:
            raise Wrong("a device was written to under an overlay")

    def md_crash_journal_degraded(self):
        """As many members are lost with the crash as the level survives: stripewise, and then the kernel, go on without them."""
        self._crashed()
        lost = self.draw.sample(self.members, 2 if self.shape.level == "6" else 1)
        rest = [path for path in [*self.members, self.journal] if path not in lost]
        self.step = "stripewise recovers"
        self._host("assemble", *self._shuffled(rest), exits=(2,))
        self._host("assemble", "--run", *self._shuffled(rest))
        self._same_reading(rest, "--run")
        self.step = "what was lost is out of date"
        detail = json.loads(self._host("detail", "--json", *self._shuffled([*rest, *lost])))
        if sorted(one["path"] for one in detail["left_out"]) != sorted(lost):
            raise Wrong(f"left_out is {detail['left_out']}")
        self.step = "the kernel after it, degraded"
        self._kernel_recovers(rest, lost=len(lost))
        self._same_reading(rest, "--run")
        self.step = "the kernel recovers the members"
        answer = self.guest.request("assemble", members=self._shuffled(rest), partial=True, add=lost, check=True)
        self._same(answer["sha256"], "the kernel's reading")
        if answer["mismatch_cnt"]:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        self._same_reading([*self.members, self.journal])

    def md_crash_journal_killed(self):
        """stripewise is killed in the middle of it, and the kernel recovers what that left."""
        self._crashed()
        everyone = [*self.members, self.journal]
        self.step = "stripewise is killed"
        for attempt in range(5):
            process = subprocess.Popen([self.stripewise, "assemble", *everyone], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.draw.random() * 0.03 * (1 + attempt))
            process.kill()
            process.wait()
        self.step = "the kernel after it"
        self._kernel_recovers(everyone)
        self._same_reading(everyone)

    def md_journal_torn(self):
        """A block in the midst of the log is damaged: both take the log to end there, and have the same bytes after it."""
        self._crashed()
        blocks = self._log().blocks
        self._damage(self.draw.choice(blocks[1:]))
        self.step = "the kernel recovers a copy"
        answer = self.guest.request("assemble", members=self._copied(), partial=False)
        self.step = "stripewise recovers"
        everyone = [*self.members, self.journal]
        self._host("assemble", *everyone)
        if hashlib.sha256(self._host("read", *everyone)).hexdigest() != answer["sha256"]:
            raise Wrong("the kernel and stripewise read different bytes")
        self.step = "the kernel after it"
        again = self.guest.request("assemble", members=everyone, partial=False)
        if again["sha256"] != answer["sha256"]:
            raise Wrong("the kernel reads different bytes")

    def md_journal_begins_torn(self):
        """The log's first block is damaged. The kernel starts the array, and what the log had is lost; stripewise does not start it."""
        self._crashed()
        self._damage(self._log().blocks[0])
        self.step = "the kernel"
        answer = self.guest.request("assemble", members=self._copied(), partial=False)
        if answer["sha256"] == self.content.digest():
            raise Wrong("the kernel has what the log had")
        self.step = "stripewise"
        everyone = [*self.members, self.journal]
        for words in (["assemble"], ["read"]):
            self._host(*words, *everyone, exits=(2,))
        done = json.loads(self._host("assemble", "--force", "--json", *everyone))
        if not done["journal"]["given_up"] or [one["result"] for one in done["synced"]] != ["done"]:
            raise Wrong(f"journal is {done['journal']}, synced {done['synced']}")
        self._kernel_without_journal()

    def md_journal_left(self):
        """stripewise brings the log to the members and leaves the array without its journal, which it then writes to."""
        self._crashed()
        self._host("grow", "--consistency-policy=resync", *self.members, self.journal)
        self._same_reading(self.members)
        self.content.write(self.seed + 2, [[8192, 300_032]])
        self._host("write", *self.members, "--offset=8192B", stdin=bytes(self.content.bytes[8192:8192 + 300_032]))
        answer = self._kernel_without_journal()
        self._same(answer["sha256"], "the kernel's reading")
        self.step = "the kernel has the former journal as well"
        answer = self.guest.request("assemble", members=[*self.members, self.journal], partial=True)
        if answer["consistency_policy"] != "resync" or answer["degraded"] != "0":
            raise Wrong(f"the kernel: {answer}")
        self._same(answer["sha256"], "the kernel's reading")

    def _kernel_without_journal(self):
        self.step = "the kernel without the journal"
        answer = self.guest.request("assemble", members=self._shuffled(self.members), partial=False, check=True)
        if answer["mismatch_cnt"] or answer["consistency_policy"] != "resync" or answer["resync_start"] != "none":
            raise Wrong(f"the kernel: {answer}")
        return answer

    def md_journal_lost(self):
        """The journal is missing or stale: neither starts the array; by force stripewise gives it up, and has parity resynced."""
        self._crashed()
        self.step = "the kernel without the journal"
        try:
            answer = self.guest.request("assemble", members=self._copied()[:-1], partial=True)
            raise Wrong(f"the kernel starts it: {answer['said']}")
        except RequestFailed as refused:
            if "Not safe to assemble with missing or stale journal device" not in str(refused):
                raise
        self.step = "stripewise without the journal"
        for words in (["assemble"], ["assemble", "--run"], ["read"], ["write"]):
            self._host(*words, *self.members, exits=(2,))
        self._host("read", "--readonly", *self.members)
        done = json.loads(self._host("assemble", "--force", "--json", *self._shuffled(self.members)))
        if not done["journal"]["given_up"] or [one["result"] for one in done["synced"]] != ["done"]:
            raise Wrong(f"journal is {done['journal']}, synced {done['synced']}")
        self.step = "both after it"
        digest = hashlib.sha256(self._host("read", *self.members)).hexdigest()
        answer = self.guest.request("assemble", members=self._shuffled(self.members), partial=False, check=True)
        if answer["sha256"] != digest or answer["mismatch_cnt"] or answer["consistency_policy"] != "resync":
            raise Wrong(f"the kernel: {answer}")
        self.step = "the journal is back"
        detail = json.loads(self._host("detail", "--json", *self.members, self.journal))
        if [one["path"] for one in detail["left_out"]] != [self.journal]:
            raise Wrong(f"left_out is {detail['left_out']}")


    def md_journal_written(self):
        """stripewise writes through the journal and is killed in the midst of it, with members lost at the same moment or not: the
        kernel has the same bytes of its log either way, and so has stripewise."""
        self._crashed()
        everyone = [*self.members, self.journal]
        self.step = "stripewise writes"
        size = len(self.content.bytes)
        for number, (offset, length) in enumerate([[8192, 300_032], [size // 3 // BLOCK * BLOCK + 512, 1024], [size - 70_144, 70_144]]):
            self.content.write(self.seed + 2 + number, [[offset, length]])
            self._host("write", *self._shuffled(everyone), f"--offset={offset}B", stdin=bytes(self.content.bytes[offset:offset + length]))
        self._same_reading(everyone)
        self.step = "the kernel after it"
        self._kernel_recovers(everyone)
        lost = []
        for attempt in range(3):
            self._killed_while_written([path for path in everyone if path not in lost], (attempt + 1) * 0.4)
            if attempt == 1:
                # From now on without members, which the log keeps no less right.
                lost = self.draw.sample(self.members, 2 if self.shape.level == "6" else 1)
        self.step = "the kernel recovers the members"
        rest = [path for path in everyone if path not in lost]
        answer = self.guest.request("assemble", members=self._shuffled(rest), partial=True, add=lost, check=True)
        self._same(answer["sha256"], "the kernel's reading")
        if answer["mismatch_cnt"]:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        self._same_reading(everyone)

    def md_journal_created(self):
        """stripewise creates the array with its journal and writes to it; the kernel goes on, and stripewise after it."""
        self.step = "stripewise creates"
        everyone = [*self.members, self.journal]
        made = json.loads(self._host("create", *self.shape.words(), f"--write-journal={self.journal}", "--json", *self.members))
        if made["consistency_policy"] != "journal":
            raise Wrong(f"create: {made}")
        for path in everyone:
            for difference in compare.texts(compare.mdadm("--examine", path), self._host("examine", path).decode()):
                self._found(f"{path}: {difference}")
        self._host("assemble", *self._shuffled(everyone))
        self.content = Content(made["array_size_bytes"])
        self.content.write(self.seed, [[0, made["array_size_bytes"]]])
        self._host("write", *self._shuffled(everyone), stdin=bytes(self.content.bytes))
        self.step = "the kernel goes on"
        ranges = [[4096, 300_032], [1_000_448, 512]]
        answer = self.guest.request("assemble", members=self._shuffled(everyone), partial=False, check=True, ranges=ranges, seed=self.seed + 1)
        self.content.write(self.seed + 1, ranges)
        self._same(answer["sha256"], "the kernel's reading")
        if answer["mismatch_cnt"] or answer["consistency_policy"] != "journal":
            raise Wrong(f"the kernel: {answer}")
        self.step = "stripewise goes on"
        self._host("assemble", *self._shuffled(everyone))
        self._same_reading(everyone)
        self._killed_while_written(everyone, 0.5)

    def _killed_while_written(self, present, seconds):
        """Small writes to the last two thirds, cut off; whoever follows the log has the same bytes, and the first third as it was."""
        self.step = f"killed after {seconds} s"
        is_degraded = len(present) <= len(self.members)
        quiet = len(self.content.bytes) // 3 // BLOCK * BLOCK
        socket = self.folder / "nbd.sock"
        server = subprocess.Popen([self.stripewise, "serve", *present, "--socket", socket, *(["--run"] if is_degraded else [])],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        client = subprocess.Popen(["/usr/bin/python3", "-c", CLIENT, socket, str(quiet), str(self.seed + int(10 * seconds))], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        begun = client.stdout.readline()
        time.sleep(seconds)
        server.kill()
        said = server.communicate()[1].decode(errors="replace")
        client.wait()
        if begun != b"begun\n":
            raise Wrong(f"the server: {said}")
        socket.unlink(missing_ok=True)
        self.step = "the kernel follows the log"
        copies = self._copies(present)
        lost = [] if is_degraded else self.draw.sample(copies[:-1], 2 if self.shape.level == "6" else 1)
        answer = self.guest.request("assemble", members=self._shuffled(copies), partial=is_degraded, check=not is_degraded)
        if answer.get("mismatch_cnt") or answer["consistency_policy"] != "journal":
            raise Wrong(f"the kernel: {answer}")
        if lost:
            self.step = "the kernel follows the log without members"
            rest = [path for path in self._copies(present) if path not in lost]
            without = self.guest.request("assemble", members=self._shuffled(rest), partial=True)
            if without["sha256"] != answer["sha256"]:
                raise Wrong(f"without {lost} the kernel reads other bytes")
        self.step = "stripewise follows the log"
        words = ["--run"] if is_degraded else []
        self._host("assemble", *self._shuffled(present), *words)
        read = self._host("read", *self._shuffled(present), *words)
        if hashlib.sha256(read).hexdigest() != answer["sha256"]:
            raise Wrong("the kernel and stripewise read different bytes")
        if read[:quiet] != self.content.bytes[:quiet]:
            raise Wrong("bytes that were not being written have changed")
        if read[quiet:] == self.content.bytes[quiet:]:
            raise Wrong("nothing was written")
        self.content.bytes[:] = read

    def _copies(self, present):
        folder = self.folder / "copy"
        folder.mkdir(exist_ok=True)
        return [shutil.copy(path, folder) for path in present]


# Writes of some sectors to some pages, eight under way, until the server is gone.
CLIENT = """
import nbd, random, sys
socket, start, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw, server = random.Random(seed), nbd.NBD()
for _ in range(200):
    try:
        server.connect_unix(socket)
        break
    except nbd.Error:
        import time
        server = nbd.NBD()
        time.sleep(0.05)
sectors = (server.get_size() - start) // 512
print("begun", flush=True)
while True:
    while server.aio_in_flight() < 8:
        count = draw.choice([1, 3, 8, 8, 8, 16, 64, 200])
        place = draw.randrange(sectors - count)
        server.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(draw.randbytes(512 * count))), start + 512 * place)
    server.poll(-1)
"""


def cases():
    made = []

    def add(how, *shapes):
        for shape in shapes:
            made.extend(Journaled(how, shape, mode, len(made)) for mode in ("write-through", "write-back"))

    plain = Shape("5", equal(4, 12 * MIB), chunk=64)
    add("md-crash-journal", plain, Shape("6", equal(5, 12 * MIB), chunk=32, metadata="1.0"),
        Shape("6", equal(5, 12 * MIB), chunk=16, layout="ddf-zero-restart"), Shape("4", equal(3, 12 * MIB), chunk=64, metadata="1.1"),
        Shape("5", equal(4, 12 * MIB), chunk=4, layout="right-asymmetric"))
    add("md-crash-journal-degraded", plain, Shape("6", equal(5, 12 * MIB), chunk=32))
    add("md-crash-journal-killed", plain)
    add("md-journal-lost", plain)
    add("md-journal-torn", plain, Shape("6", equal(5, 12 * MIB), chunk=32))
    add("md-journal-begins-torn", plain)
    add("md-journal-written", plain, Shape("6", equal(5, 12 * MIB), chunk=32), Shape("4", equal(3, 12 * MIB), chunk=16),
        Shape("6", equal(6, 12 * MIB), chunk=64, layout="ddf-zero-restart"))
    for shape in [plain, Shape("6", equal(5, 12 * MIB), chunk=32, metadata="1.1")]:
        made.append(Journaled("md-journal-created", shape, "write-through", len(made)))
    add("md-journal-left", plain, Shape("6", equal(5, 12 * MIB), chunk=32))
    return made
