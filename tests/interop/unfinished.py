"""Arrays handed over in the middle of something: recovery, resync, replacement, a crash. Whoever takes one finishes it."""
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import threading
import time

import compare
from case import SECTOR, Case, Content, Wrong
from shapes import MIB, Shape, equal
from uml import GuestFailed

HELD_AT = 4096  # sectors of each member: a multiple of every chunk here
PIECE = 5000
WRITTEN = 512 << 10  # a short write, beside which the work of a large array does not end
ATTEMPTS = 6  # at being in the middle of something, which a machine that is busy elsewhere can miss


def progress(detail):
    """State, what is going on, and how far in percent (which md counts in jobs begun)."""
    found = [line for line in compare.lines(detail) if line.startswith(("State :", "Rebuild", "Resync"))]
    # The kernel has not been told yet that writes ended.
    state = found[0].replace("active", "clean")
    percent = int(re.search(r"(\d+)% complete", found[-1]).group(1)) if len(found) > 1 else 0
    return [state, *(line.split(" : ")[0] for line in found[1:]), percent]


class Unfinished(Case):
    """`how` is the method that brings the array about and ends it."""

    def __init__(self, how, shape, number):
        super().__init__(how, shape, number)
        self.how = how

    def run(self, guest, stripewise, folder):
        self.guest, self.stripewise, self.folder = guest, stripewise, pathlib.Path(folder)
        self.step = "images"
        self.seed = self.draw.randrange(1 << 32)
        try:
            self._make_images()
            getattr(self, self.how.replace("-", "_"))()
        except GuestFailed:  # another kernel is booted for the next case
            raise
        except Exception as error:  # told as the case's finding, with the step
            self._found(f"{type(error).__name__}: {error}")
        return self.findings

    # From md.
    def md_part_way(self, **more):
        """The kernel is stopped in the middle of its first resync or recovery; stripewise goes on from there."""
        self._held(self.guest.request("part_way", members=self.words, create=self.shape.words(), at=self._at(), seed=self.seed, **more))

    def md_part_way_add(self):
        self.step = "the kernel"
        spare = self._image("added.img", self.shape.members[0])
        self.md_part_way(add=spare)

    def md_part_way_replace(self):
        spare = self._image("added.img", self.shape.members[0])
        self.replaced = True
        self.md_part_way(replace=spare)

    def _at(self):
        return HELD_AT * (self.shape.copies if self.shape.level == "10" and not self.shape.missing else 1)

    def _held(self, answer):
        self.content = Content(answer["size"])
        self.content.write(self.seed, [[0, answer["size"]]])
        self._same(answer["sha256"], "the kernel's own reading")
        everyone = sorted(map(str, self.folder.glob("*.img")))
        self.step = "detail"
        detail = json.loads(self._host("detail", "--json", *everyone))
        is_counted = not (self.shape.metadata == "0.90" and "degraded" in detail["state"])  # 0.90 has no recovery_offset
        if is_counted and not (detail["sync"] and 0 < detail["sync"]["percent"] < 100):
            raise Wrong(f"sync is {detail['sync']}, state {detail['state']}")
        theirs, ours = progress(answer["detail"]), progress(self._host("detail", *everyone).decode())
        if is_counted and (theirs[:-1] != ours[:-1] or abs(theirs[-1] - ours[-1]) > 4):
            self._found(f"mdadm -D says {theirs}, stripewise {ours}")
        self._finish(everyone, how_far=True)

    def _finish(self, members, how_far=False, by_log=False):
        """stripewise does what is due; then nothing is due, for either side."""
        self.step = "stripewise finishes"
        done = json.loads(self._host("assemble", "--json", *self._shuffled(members)))
        if how_far and [one["result"] for one in done["synced"]] != ["done"]:
            raise Wrong(f"synced is {done['synced']}")
        if by_log and (done["synced"] or not done["logs"]["entries"]):
            raise Wrong(f"logs is {done['logs']}, synced {done['synced']}")
        if done["state"] != ["clean"]:
            raise Wrong(f"the state is {done['state']}")
        self.members = [device["path"] for device in done["devices"] if device["slot"] is not None]
        self.shape = dataclasses.replace(self.shape, missing=())
        self._same_reading(self.members)
        self._without_some()
        self._kernel("the kernel after it", check=True)

    def _same_reading(self, members, *words):
        self._same(hashlib.sha256(self._host("read", *self._shuffled(members), *words)).hexdigest(), f"stripewise reads {members}")

    def _without_some(self):
        """The redundancy is worth something."""
        lost = self.draw.sample(self.members, self.shape.copies - 1 if self.shape.level in ("1", "10") else 2 if self.shape.level == "6" else 1)
        self._same_reading([path for path in self.members if path not in lost], "--run")

    def md_crash(self):
        """The kernel is cut off with writes just done, whose redundancy did not make it."""
        chunk = (self.shape.chunk or 64) * 1024
        length = chunk * (len(self.members) - {"5": 1, "6": 2}.get(self.shape.level, 0)) if self.shape.level in ("5", "6") else chunk
        self._crashed([[0, length]])
        self._finish(self.members)

    def md_crash_ppl(self):
        self._crashed([[0, 4096]])
        self._finish(self.members, by_log=True)

    def md_crash_ppl_degraded(self):
        """And a member that was not being written is lost with it: the write hole."""
        self._crashed([[0, 4096]])
        lost = self.members[1]
        rest = [path for path in self.members if path != lost]
        self.step = "stripewise follows the log"
        done = json.loads(self._host("assemble", "--json", "--run", *self._shuffled(rest)))
        if done["logs"]["entries"] == 0 or done["logs"]["unusable"]:
            raise Wrong(f"logs is {done['logs']}")
        self._same_reading(rest, "--run")
        self._kernel("the kernel after it, degraded", members=rest)
        self._kernel("the kernel recovers", members=rest, add=[lost], check=True)

    def _crashed(self, ranges):
        self.step = "the kernel"
        answer = self.guest.request("crash", members=self.members, create=self.shape.words(), ranges=ranges, seed=self.seed)
        self.content = Content(answer["size"])
        self.content.write(self.seed, [[0, answer["size"]]])
        self.content.write(self.seed + 1, ranges)
        for path in self.members:
            os.replace(path + ".crashed", path)
        detail = json.loads(self._host("detail", "--json", *self.members))
        if detail["is_clean"]:
            raise Wrong("the array is clean")
        # Of the first stripe the last member holds the parity, or the second copy.
        with open(self.members[-1], "r+b") as image:
            image.seek(SECTOR * self._data_sector(self.members[-1]))
            torn = bytearray(image.read(4096))
            for index in range(0, len(torn), 3):
                torn[index] ^= 0xA7
            image.seek(-4096, os.SEEK_CUR)
            image.write(torn)

    def _data_sector(self, path):
        return json.loads(self._host("examine", "--json", path))["devices"][0]["superblocks"][0]["data_offset_bytes"] // SECTOR

    def md_stale(self):
        """A member missed what the kernel wrote, and comes back by the bitmap."""
        self.step = "the kernel"
        answer = self.guest.request("create", words=self.shape.words(), members=self.words, spares=[], seed=self.seed, wait=True)
        self.content = Content(answer["size"])
        self.content.write(self.seed, [[0, answer["size"]]])
        stale = self.draw.choice(self.members)
        whole, self.members = self.members, [path for path in self.members if path != stale]
        answer = self.guest.request("assemble", members=self.members, partial=True, seed=self.seed + 1, ranges=[[1 << 20, 300_032]])
        self.content.write(self.seed + 1, [[1 << 20, 300_032]])
        self._finish(whole, how_far=True)

    # From stripewise.
    def host_part_way(self):
        """stripewise begins a long resync or recovery beside a short write, and leaves it."""
        self._in_the_middle(self._left_part_way)
        self._kernel_finishes()

    def _in_the_middle(self, attempt):
        """`attempt` answers whether it got there; each has new images."""
        for left in reversed(range(ATTEMPTS)):
            found = attempt()
            if found is None:
                return
            if not left:
                raise Wrong(f"{found}, {ATTEMPTS} times")
            self._make_images()

    def _left_part_way(self):
        self.step = "stripewise"
        self._host("create", *self.shape.words(), *(["--force"] if self.shape.level == "5" and not self.shape.missing and self.number % 2 else []),
                   *self.words, *self.spares)
        self.content = Content(json.loads(self._host("detail", "--json", *self.members, *self.spares))["array_bytes"])
        self.content.write(self.seed, [[0, WRITTEN]])
        self._host("write", *self.members, *self.spares, "--run", stdin=bytes(self.content.bytes[:WRITTEN]))
        detail = json.loads(self._host("detail", "--json", *self.members, *self.spares))
        if not detail["sync"] or detail["sync"]["done_bytes"] >= detail["sync"]["total_bytes"]:
            return f"sync is {detail['sync']}, state {detail['state']}"
        return None

    def _kernel_finishes(self, exact=True):
        everyone = self.members + self.spares
        self.step = "the kernel finishes"
        answer = self.guest.request("assemble", members=self._shuffled(everyone), partial=False, check=True, settle=True)
        if answer["mismatch_cnt"] != 0:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        if exact:
            self._same(answer["sha256"], "the kernel's reading")
        self._learn_roles()
        detail = json.loads(self._host("detail", "--json", *everyone))
        if detail["state"] != ["clean"]:
            raise Wrong(f"the kernel leaves it {detail['state']}")
        return answer

    def host_crash(self):
        """stripewise is killed while it writes; the kernel makes the redundancy right."""
        self._in_the_middle(self._killed)
        answer = self._kernel_finishes(exact=False)
        self._settled(answer["sha256"], self.members)

    def host_crash_degraded(self):
        """As before, with a member lost at once after: the partial parity log is all there is."""
        self._in_the_middle(self._killed)
        lost = self.members[self.draw.randrange(len(self.members))]
        rest = [path for path in self.members if path != lost]
        self.step = "the kernel takes it degraded"
        answer = self.guest.request("assemble", members=self._shuffled(rest), partial=True, force=True)
        # Where nothing was in flight when it was cut off the kernel leaves the array dirty: its logs are followed again.
        self._host("assemble", "--run", *self._shuffled(rest))
        self._settled(answer["sha256"], rest, "--run")

    def _killed(self):
        self.step = "stripewise is killed"
        self._host("create", *self.shape.words(), *self.words)
        writer = subprocess.Popen([self.stripewise, "write", *self.members], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        fed = []

        def feed():
            source = random.Random(self.seed)
            try:
                while True:
                    piece = source.randbytes(PIECE)
                    writer.stdin.write(piece)
                    writer.stdin.flush()
                    fed.append((time.monotonic(), piece))
                    time.sleep(0.0005)
            except BrokenPipeError:
                return

        feeder = threading.Thread(target=feed)
        feeder.start()
        time.sleep(1.2)
        killed_at = time.monotonic()
        writer.kill()
        writer.wait()
        feeder.join()
        # A piece is written within half a second; what comes later may be there or not.
        self.certain = b"".join(piece for at, piece in fed if at < killed_at - 0.6)
        if not self.certain:
            return "nothing was fed in time"
        return "the array is clean" if json.loads(self._host("detail", "--json", *self.members))["is_clean"] else None

    def _settled(self, digest, members, *words):
        """Both read the same, and what was certain is in it."""
        self.step = "bytes after the kill"
        read = self._host("read", *self._shuffled(members), *words)
        if hashlib.sha256(read).hexdigest() != digest:
            raise Wrong("the kernel and stripewise read different bytes")
        if read[:len(self.certain)] != self.certain:
            at = next(i for i, (a, b) in enumerate(zip(read, self.certain)) if a != b)
            raise Wrong(f"byte {at} of {len(self.certain)} that were written differs")

    def host_loses_a_member(self):
        """A member is failed while clients write, and stripewise is killed: by force the kernel may take any member that it thinks
        up to date, and this one is not."""
        self.step = "stripewise"
        self._host("create", *self.shape.words(), *self.words)
        self.content = Content(json.loads(self._host("detail", "--json", *self.members))["array_bytes"])
        self.content.write(self.seed, [[0, len(self.content.bytes)]])
        self._host("write", *self.members, stdin=bytes(self.content.bytes))
        socket, control = self.folder / "nbd.sock", self.folder / "control.sock"
        server = subprocess.Popen([self.stripewise, "serve", *self.members, "--socket", socket, "--control", control],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.01)
            for number in (1, 2):
                if number == 2:
                    self._host("fail", self.members[1], "--control", str(control))
                self.content.write(self.seed + number, [[0, WRITTEN]])
                source = self.folder / "written"
                source.write_bytes(self.content.bytes[:WRITTEN])
                subprocess.run(["nbdcopy", "--flush", source, f"nbd+unix:///?socket={socket}"], check=True)
        finally:
            server.kill()
            server.wait()
        self.step = "the kernel takes it by force"
        answer = self.guest.request("assemble", members=self._shuffled(self.members), partial=True, force=True)
        self._same(answer["sha256"], "the kernel's reading")
        if f"started with {len(self.members) - 1} drives" not in answer["said"]:
            raise Wrong(answer["said"])

    def host_returns(self):
        """stripewise takes a member back and leaves the rest to the kernel, which needs only the bitmap."""
        self.step = "stripewise"
        self._host("create", *self.shape.words(), *self.words)
        self.content = Content(json.loads(self._host("detail", "--json", *self.members))["array_bytes"])
        self.content.write(self.seed, [[0, len(self.content.bytes)]])
        self._host("write", *self.members, stdin=bytes(self.content.bytes))
        stale = self.draw.choice(self.members)
        rest = [path for path in self.members if path != stale]
        self.content.write(self.seed + 1, [[1 << 20, 300_032]])
        self._host("write", *rest, "--run", "--offset=1048576B", stdin=bytes(self.content.bytes[1 << 20:(1 << 20) + 300_032]))
        self._host("assemble", "--no-sync", *self._shuffled(self.members))
        self._kernel_finishes()


def cases():
    big = 64 * MIB
    made = []

    def add(how, *shapes):
        made.extend(Unfinished(how, shape, len(made)) for shape in shapes)

    def first(level, members, **more):
        return Shape(level, members, sync=True, **more)

    add("md-part-way", first("5", equal(3, 12 * MIB), chunk=64), first("5", equal(4, 12 * MIB), chunk=16, bitmap=True, metadata="1.0"),
        first("6", equal(5, 12 * MIB), chunk=32), first("1", equal(2, 12 * MIB), metadata="0.90"), first("1", equal(3, 12 * MIB), bitmap=True),
        first("4", equal(3, 12 * MIB), chunk=64, metadata="1.1"), first("10", equal(4, 12 * MIB), chunk=64), first("10", equal(3, 12 * MIB), chunk=64, layout="f2"))
    degraded = {"missing": (1,)}
    add("md-part-way-add", Shape("5", equal(4, 12 * MIB), chunk=64, **degraded), Shape("6", equal(5, 12 * MIB), chunk=64, bitmap=True, **degraded),
        Shape("1", equal(2, 12 * MIB), bitmap=True, **degraded), Shape("10", equal(4, 12 * MIB), chunk=64, **degraded),
        Shape("5", equal(3, 12 * MIB), chunk=64, metadata="0.90", **degraded))
    add("md-part-way-replace", Shape("5", equal(3, 12 * MIB), chunk=64), Shape("1", equal(2, 12 * MIB), bitmap=True), Shape("10", equal(4, 12 * MIB), chunk=64))
    add("md-crash", Shape("5", equal(3, 12 * MIB), chunk=64, bitmap=True), Shape("6", equal(5, 12 * MIB), chunk=64),
        Shape("1", equal(2, 12 * MIB), bitmap=True), Shape("5", equal(4, 12 * MIB), chunk=64, metadata="0.90"), Shape("10", equal(2, 12 * MIB), chunk=64, bitmap=True))
    add("md-crash-ppl", Shape("5", equal(4, 12 * MIB), chunk=64, ppl=True))
    add("md-crash-ppl-degraded", Shape("5", equal(4, 12 * MIB), chunk=64, ppl=True), Shape("5", equal(3, 12 * MIB), chunk=16, ppl=True, metadata="1.1"))
    add("md-stale", Shape("5", equal(4, 12 * MIB), chunk=64, bitmap=True), Shape("1", equal(2, 12 * MIB), bitmap=True, metadata="1.0"),
        Shape("10", equal(4, 12 * MIB), chunk=64, bitmap=True))
    add("host-part-way", first("5", equal(3, big), chunk=64), first("5", equal(3, big), chunk=64), first("6", equal(4, big), chunk=64),
        first("1", equal(2, 4 * big), bitmap=True), first("10", equal(4, big), chunk=64), first("1", equal(2, 4 * big), metadata="0.90"))
    add("host-crash", Shape("5", equal(3, 24 * MIB), chunk=64, bitmap=True), Shape("1", equal(2, 24 * MIB), bitmap=True),
        Shape("6", equal(4, 24 * MIB), chunk=64), Shape("5", equal(4, 24 * MIB), chunk=64, ppl=True), Shape("10", equal(3, 24 * MIB), chunk=64))
    add("host-crash-degraded", Shape("5", equal(4, 24 * MIB), chunk=64, ppl=True))
    add("host-loses-a-member", Shape("5", equal(4, 12 * MIB), chunk=64), Shape("6", equal(5, 12 * MIB), chunk=64, bitmap=True),
        Shape("1", equal(3, 12 * MIB), metadata="1.0"), Shape("5", equal(3, 12 * MIB), chunk=64, metadata="0.90"),
        Shape("10", equal(4, 12 * MIB), chunk=64))
    add("host-returns", Shape("5", equal(4, 12 * MIB), chunk=64, bitmap=True), Shape("1", equal(2, 12 * MIB), bitmap=True))
    return made
