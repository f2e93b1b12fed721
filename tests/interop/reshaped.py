"""Arrays that are reshaped: whole by stripewise or by Linux, or begun by one, cut off, and ended by the other."""
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time

import compare
from case import Content, Wrong
from grown import Grown
from shapes import MIB, Shape, equal
from uml import RequestFailed

SUPERBLOCK_AT = {"1.1": 0, "1.2": 4096}
# What two who do the same do not say alike: how far it was when it was last recorded, when, how often, and the sum of all.
NOT_ALIKE = ((104, 112), (192, 208), (216, 220))
RAID_LAYOUTS = ["left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric"]
HELD_AT = 8192  # sectors of each member
HELD_AT_10 = 49152  # of the array: a raid10 counts those
RAID10_LAYOUTS = {"n": lambda copies: 0x100 | copies, "o": lambda copies: 0x10001 | copies << 8}
NEVER = (1 << 64) - 1
TOOK_TOO_LONG_S = 50
ATTEMPTS = 8


class Reshaped(Grown):
    """`change` is what mdadm's and stripewise's `--grow` are told."""

    def __init__(self, how, shape, change, number):
        super().__init__(how, shape, number)
        self.change = change
        self.name += "-to-" + "-".join(word.removeprefix("--").replace("=", "-") for word in change)

    def reshaped(self):
        """stripewise does all of it, and leaves on the members what Linux leaves on theirs."""
        self._made_by(("stripewise", "mdadm")[self.number % 2])
        everyone = self.members + self.spares
        twins = [f"{path}.twin" for path in everyone]
        for path, twin in zip(everyone, twins):
            shutil.copyfile(path, twin)
        self.step = "the kernel reshapes a copy"
        twin = self._linux_reshapes(twins)
        self._sound(twin)
        self.step = "stripewise reshapes"
        told = json.loads(self._host("grow", "--json", *self.change, *self._shuffled(everyone)))["reshape"]
        if not told["is_done"] or told["array_bytes"][1] != twin["size"]:
            raise Wrong(f"it says {told}")
        if told["is_resync_due"] != (self._is_copies and told["array_bytes"][0] < told["array_bytes"][1]):
            raise Wrong(f"it says of a resync {told['is_resync_due']}")
        self._resynced()
        for path, twin in zip(everyone, twins):
            self._like_twin(path, twin)
            os.remove(twin)
        self._ended()

    def taken_over(self):
        """Another level by superblocks alone, on some members first: as Linux leaves it but for the dates, and Linux goes on with it."""
        self._made_by(("stripewise", "mdadm")[self.number % 2])
        everyone = self.members + self.spares
        before = {path: pathlib.Path(path).read_bytes() for path in everyone}
        twins = [f"{path}.twin" for path in everyone]
        for path, twin in zip(everyone, twins):
            shutil.copyfile(path, twin)
        self.step = "the kernel takes a copy over"
        self._sound(self._linux_reshapes(twins))
        self.step = "stripewise takes it over"
        self._host("grow", *self.change, *self._shuffled(everyone))
        for path in self.draw.sample(everyone, self.draw.randint(1, len(everyone) - 1)):
            self._head_of_before(path, before[path])
        self._host("grow", *self.change, *self._shuffled(everyone))
        if self._superblock(everyone[0])[72] == 6:  # a recovery of Q follows
            self._host("assemble", *self._shuffled(everyone))
        for path, twin in zip(everyone, twins):
            self._like_twin(path, twin)
            os.remove(twin)
        self._ended()

    def reshaped_cut(self):
        """stripewise begins and is killed, now and then twice; Linux ends it."""
        self._killed_midway(["grow", *self.change])
        if self.number % 2:
            self._killed_midway(["grow", "--continue"], is_first=False)
        self.step = "the kernel ends it"
        self._sound(self.guest.request("reshape", members=self._shuffled(self.members + self.spares), run_on=True))
        self._ended()

    def reshaped_cut_and_continued(self):
        """stripewise begins and is killed several times, and ends it; of those that can one loses a member meanwhile."""
        self._killed_midway(["grow", *self.change])
        self._killed_midway(["grow", "--continue"], is_first=False)
        lost = self.draw.choice(self.members)
        rest = [path for path in self.members + self.spares if path != lost] if self.number % 2 else self.members + self.spares
        self._continued(rest, *(["--run"] if self.number % 2 else []))
        if self.number % 2:
            self.step = "the kernel recovers"
            self._learn_size(rest, "--run")
            answer = self.guest.request("assemble", members=self._shuffled(rest), partial=True, check=True, add=[lost])
            self._same(answer["sha256"], "the kernel's reading")
            if answer["mismatch_cnt"]:
                raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        self._ended()

    def reshaped_part_way_by_md(self):
        """Linux begins and is stopped; stripewise goes on, is killed now and then, and ends it."""
        self._made_by("mdadm")
        everyone = self.members + self.spares
        self.step = "the kernel begins"
        self._linux_reshapes(everyone, at=HELD_AT_10 if self._is_copies else HELD_AT)
        self._alike(everyone)
        if self.number % 2:
            self._killed_midway(["grow", "--continue"], is_first=False)
        self._continued(everyone)
        self._ended()

    def reshaped_by_turns(self):
        """Linux begins, stripewise goes on and is killed, Linux goes on and is stopped, and stripewise ends it."""
        self._made_by("mdadm")
        everyone = self.members + self.spares
        self.step = "the kernel begins"
        self._linux_reshapes(everyone, at=HELD_AT_10 if self._is_copies else HELD_AT)
        self._killed_midway(["grow", "--continue"], is_first=False, until=0.4)
        self.step = "the kernel goes on"
        self.guest.request("reshape", members=self._shuffled(everyone), pause_s=0.05)
        self._continued(everyone)
        self._ended()

    def reshaped_degraded(self):
        """A member is missing from the start: another chunk or layout is had all the same, and the member recovered after."""
        self._made_by("mdadm")
        lost = self.draw.choice(self.members)
        rest = [path for path in self.members if path != lost]
        self.step = "stripewise reshapes without one"
        self._host("grow", "--run", *self.change, *self._shuffled(rest))
        self._learn_size(rest, "--run")
        self.step = "the kernel recovers"
        answer = self.guest.request("assemble", members=self._shuffled(rest), partial=True, check=True, add=[lost])
        self._same(answer["sha256"], "the kernel's reading")
        if answer["mismatch_cnt"]:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        self._ended()

    def reshaped_first(self):
        """Power fails between the first superblocks: Linux starts nothing of it, and stripewise goes on."""
        self._made_by(("stripewise", "mdadm")[self.number % 2])
        everyone = self.members + self.spares
        before = {path: pathlib.Path(path).read_bytes() for path in everyone}
        self.step = "stripewise reshapes"
        self._host("grow", *self.change, *self._shuffled(everyone))
        ended = {path: self._superblock(path) for path in everyone}
        self.step = "power fails between the first superblocks"
        reached = self.draw.sample(everyone, self.draw.randint(1, len(everyone) - 1))
        for path, whole in before.items():
            pathlib.Path(path).write_bytes(whole)
            if path in reached:
                events, = struct.unpack_from("<Q", self._superblock(path), 200)
                self._put(path, self._under_way(ended[path], events + 1, at_end=False))
        self._linux_loses_nothing(everyone)
        self._host("grow", "--continue", *self._shuffled(everyone))
        self._ended()

    def reshaped_last(self):
        """Power fails between the last superblocks."""
        self._made_by(("stripewise", "mdadm")[self.number % 2])
        everyone = self.members + self.spares
        self.step = "stripewise reshapes"
        self._host("grow", *self.change, *self._shuffled(everyone))
        self.step = "power fails between the last superblocks"
        for path in self.draw.sample(everyone, self.draw.randint(1, len(everyone) - 1)):
            block = self._superblock(path)
            events, = struct.unpack_from("<Q", block, 200)
            self._put(path, self._under_way(block, events - 2, at_end=True))
        self._linux_loses_nothing(everyone)
        self._host("grow", "--continue", *self._shuffled(everyone))
        self._ended()

    def _linux_reshapes(self, members, **how):
        return self.guest.request("reshape", members=members, grow=list(self.change), **how)

    def _linux_loses_nothing(self, everyone):
        """Linux refuses the array, or has it without the members that are behind, with all bytes. Nothing of what it does stays."""
        whole = {path: pathlib.Path(path).read_bytes() for path in everyone}
        try:
            answer = self.guest.request("assemble", members=self._shuffled(everyone), partial=False)
        except RequestFailed:
            return
        finally:
            for path, data in whole.items():
                pathlib.Path(path).write_bytes(data)
        if self._is_copies and answer["size"] > len(self.content.bytes):
            return  # what is new may be anything
        content = Content(answer["size"])
        there = self.content.bytes[:answer["size"]]
        content.bytes[:len(there)] = there
        if answer["sha256"] != content.digest():
            raise Wrong(f"the kernel takes it, with other bytes: {answer['said']}")

    @property
    def _is_copies(self):
        return self.shape.level == "10"

    def _resynced(self):
        """What a raid10 holds more is the same on all members once it was resynced."""
        if self._is_copies:
            self._host("assemble", *self._shuffled(self.members + self.spares))

    # Superblocks.
    def _place(self, path):
        at = SUPERBLOCK_AT.get(self.shape.metadata)
        return (os.path.getsize(path) // 512 - 16 & ~7) * 512 if at is None else at

    def _superblock(self, path):
        with open(path, "rb") as image:
            image.seek(self._place(path))
            return bytearray(image.read(512))

    def _put(self, path, block):
        """With its sum made right, as `calc_sb_1_csum` has it."""
        struct.pack_into("<I", block, 216, 0)
        roles, = struct.unpack_from("<I", block, 220)
        total = sum(struct.unpack_from(f"<{64 + roles // 2}I", block))
        struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF)
        with open(path, "r+b") as image:
            image.seek(self._place(path))
            image.write(block)

    def _under_way(self, block, events, at_end):
        """The superblock of a reshape at its start or end, from that of the array when it has ended."""
        block = bytearray(block)
        features, = struct.unpack_from("<I", block, 8)
        layout, size, chunk, slots = struct.unpack_from("<IQII", block, 76)
        delta, new_layout, new_chunk, moved = struct.unpack_from("<iIIi", block, 112)
        offset, length = struct.unpack_from("<QQ", block, 128)
        backwards = moved > 0
        struct.pack_into("<I", block, 8, features | 4 | 64 | (32 if backwards else 0))
        old_chunk = self.shape.chunk * 2
        if self._is_copies:
            old_layout = RAID10_LAYOUTS[self.shape.layout[0]](self.shape.copies)
            position = size * (slots - max(delta, 0)) // self.shape.copies if at_end != backwards else 0
            struct.pack_into("<Q", block, 208, NEVER)  # due when it has ended
        else:
            old_layout = RAID_LAYOUTS.index(self.shape.layout) if self.shape.layout else 0 if self.shape.level == "4" else 2
            position = size * (slots - (2 if self.shape.level == "6" else 1)) if at_end != backwards else 0
        struct.pack_into("<IQII", block, 76, old_layout, size, old_chunk, slots)
        struct.pack_into("<Q", block, 104, position)
        struct.pack_into("<QQ", block, 128, offset - moved, length + moved)
        struct.pack_into("<Q", block, 200, events)
        return block

    # What they are made of.
    def _killed_midway(self, words, is_first=True, until=None):
        """stripewise is killed with between a tenth and nine tenths done; a new array is made for each attempt at that."""
        until = until or self.draw.uniform(0.15, 0.7)
        for left in reversed(range(ATTEMPTS)):
            if is_first:
                if left < ATTEMPTS - 1:
                    self._make_images()
                self._made_by(("stripewise", "mdadm")[self.number % 2])
            self.step = f"stripewise {' '.join(words)} is killed"
            untold = 0 if is_first else 1
            until = max(until, self._done_part(untold))
            process = subprocess.Popen([self.stripewise, *words, *self._shuffled(self.members + self.spares)],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            deadline = time.monotonic() + TOOK_TOO_LONG_S
            while process.poll() is None and self._done_part(untold) < until and time.monotonic() < deadline:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            said = process.communicate()[0].decode(errors="replace")
            part = self._done_part(untold)
            if process.returncode == -signal.SIGKILL and 0.01 < part < 0.99:
                self._refused()
                return
            if process.returncode not in (0, -signal.SIGKILL):
                raise Wrong(f"exit {process.returncode}: {said}")
            if not is_first and part == 1:
                if process.returncode:  # some of the last superblocks may be missing
                    subprocess.run([self.stripewise, *words, *self._shuffled(self.members + self.spares)], capture_output=True)
                return  # it was quicker; what follows is easy then
            if not left:
                raise Wrong(f"{part} was done when it was killed, {ATTEMPTS} times")

    def _continued(self, members, *words):
        """stripewise ends it, unless whoever was to be stopped had been quicker."""
        self.step = "stripewise ends it"
        if self._done_part() < 1:
            self._host("grow", "--continue", *self._shuffled(members), *words)

    def _refused(self):
        """Nobody takes the array as it is."""
        for word in ("read", "assemble"):
            done = subprocess.run([self.stripewise, word, *self._shuffled(self.members + self.spares)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode != 2 or "grow --continue" not in done.stderr:
                raise Wrong(f"{word}: exit {done.returncode}: {done.stderr}")

    def _done_part(self, untold=1):
        """How much is done, as the members say; `untold` when they say nothing of a reshape: none is left, or none has begun."""
        with open(self.members[0], "rb") as image:
            image.seek(self._place(self.members[0]))
            block = image.read(256)
        features, = struct.unpack_from("<I", block, 8)
        size, _, slots = struct.unpack_from("<QII", block, 80)
        position, delta = struct.unpack_from("<Qi", block, 104)
        if not features & 4:
            return untold
        whole = size * (slots - (2 if block[72] == 6 else 1))
        if block[72] == 10:
            whole = size * (slots - max(delta, 0)) // self.shape.copies
        return 1 - position / whole if features & 32 or delta < 0 else position / whole

    def _sound(self, answer):
        if answer["mismatch_cnt"]:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        if answer["sync_action"] != "idle" or int(answer["degraded"]):
            raise Wrong(f"the kernel leaves it {answer['sync_action']}, degraded {answer['degraded']}")

    def _learn_size(self, members, *words):
        """All that was there is there, and what is new is zeroes; of a raid10 it is anything."""
        read = self._host("read", *words, *self._shuffled(members))
        old = len(self.content.bytes)
        if read[:old] != bytes(self.content.bytes):
            raise Wrong("bytes differ after the reshape")
        if any(read[old:]) and not self._is_copies:
            raise Wrong("what is new is not zeroes")
        grown = Content(len(read))
        grown.bytes[:] = read
        self.content = grown

    def _ended(self):
        """Both read what was there, find no fault, say the same of the members, and write to it."""
        everyone = self.members + self.spares
        self._learn_roles()
        self.shape = dataclasses.replace(self.shape, level=str(self._superblock(everyone[0])[72]))
        self.step = "after the reshape"
        self._resynced()
        self._learn_size(everyone)
        self._host("check", *self._shuffled(everyone))
        self._alike(everyone)
        self._kernel("the kernel after the reshape", ranges=True, check=True)
        self._host_writes("stripewise writes", self.members)
        self._kernel("nothing is due", check=True)
        self._without_some()

    def _learn_roles(self):
        everyone = self.members + self.spares
        spares = [path for path in everyone if "Device Role : spare" in compare.mdadm("--examine", path)]
        self.members, self.spares = [path for path in everyone if path not in spares], spares

    def _like_twin(self, path, twin):
        """The same bytes all over, but what counts and dates changes."""
        ours, theirs = (bytearray(pathlib.Path(one).read_bytes()) for one in (path, twin))
        at = self._place(path)
        for image in (ours, theirs):
            for start, end in NOT_ALIKE:
                image[at + start:at + end] = bytes(end - start)
            if self.shape.bitmap:
                offset, = struct.unpack_from("<i", image, at + 96)
                image[at + offset * 512:at + offset * 512 + 4096] = bytes(4096)
        if ours == theirs:
            return
        first = next(index for index, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1])
        raise Wrong(f"{pathlib.Path(path).name} differs from the kernel's at byte {first} (superblock at {at})")


def cases():
    made = []

    def add(how, shape, *change):
        made.append(Reshaped(how, shape, change, len(made)))

    def raid(level, members, size=24 * MIB, **more):
        return Shape(level, equal(members, size), **{"chunk": 64, **more})

    unequal = Shape("5", [48 * MIB, 16 * MIB, 20 * MIB], chunk=64, size=8 * MIB)
    whole = [
        (raid("5", 3, spares=1), "--raid-devices=4"), (raid("5", 3, spares=3), "--raid-devices=5"),
        (raid("5", 3, bitmap=True), "--chunk=32"), (raid("5", 4, chunk=32, metadata="1.1"), "--chunk=128"),
        (raid("5", 4), "--layout=right-asymmetric"), (raid("5", 3, layout="right-symmetric"), "--layout=parity-first", "--chunk=16"),
        (raid("5", 3, size=16 * MIB, spares=1, bitmap=True), "--raid-devices=4", "--chunk=128", "--layout=la"),
        (Shape("5", equal(3, 24 * MIB), chunk=64, metadata="1.0", size=12 * MIB), "--chunk=128"),
        (Shape("5", equal(4, 24 * MIB), chunk=64, size=12 * MIB, bitmap=True), "--layout=parity-last"),
        (raid("4", 3, spares=1), "--raid-devices=4"), (raid("4", 4, bitmap=True), "--chunk=16"),
        (raid("6", 4, spares=2, bitmap=True), "--raid-devices=6"), (raid("6", 5), "--layout=ddf-N-continue"),
        (raid("6", 5, layout="ddf-zero-restart"), "--layout=left-symmetric", "--chunk=32"), (raid("6", 4, metadata="1.1"), "--layout=right-symmetric-6"),
        (raid("6", 4, spares=1, layout="ra"), "--raid-devices=5", "--chunk=32", "--layout=rs"),
        (Shape("6", equal(5, 24 * MIB), chunk=64, size=12 * MIB), "--chunk=8"),
        (unequal, "--chunk=128"),
    ]
    for shape, *change in whole:
        add("reshaped", shape, *change)
    big = 32 * MIB  # enough to be stopped midway
    long = [
        (raid("5", 3, big, spares=1), "--raid-devices=4"), (raid("5", 3, big, bitmap=True), "--chunk=32"),
        (raid("6", 5, big), "--layout=ddf-zero-restart"), (raid("4", 3, big, spares=1, bitmap=True), "--raid-devices=4", "--chunk=128"),
        (Shape("5", equal(4, big), chunk=64, size=20 * MIB), "--layout=ra"), (raid("6", 4, big, spares=2, metadata="1.1"), "--raid-devices=6"),
        (Shape("5", equal(3, big), chunk=64, metadata="1.0", size=20 * MIB, bitmap=True), "--chunk=16"), (raid("5", 4, big, spares=1), "--raid-devices=5", "--layout=rs"),
    ]
    for how in ("reshaped-cut", "reshaped-cut-and-continued", "reshaped-part-way-by-md"):
        for shape, *change in long:
            add(how, shape, *change)
        made.append(None)  # even and odd ones change places
    for shape, *change in long[:3]:
        add("reshaped-by-turns", shape, *change)
    # Less room than mdadm takes, which helps itself with a backup.
    tight = raid("5", 4, 2 * big, chunk=512, spares=1)
    add("reshaped-cut", tight, "--raid-devices=5")
    add("reshaped-cut-and-continued", tight, "--raid-devices=5", "--layout=ra")
    six = ["--level=6"]
    for shape, *change in [(raid("5", 3, spares=1), *six), (raid("5", 4, layout="parity-first", spares=2, bitmap=True), "--raid-devices=6", *six),
                           (Shape("5", equal(3, 24 * MIB), chunk=64, size=12 * MIB, spares=1), *six), (raid("4", 3), "--level=5", "--layout=left-symmetric")]:
        add("reshaped", shape, *change)
    grown = raid("5", 3, big, spares=1, bitmap=True)
    for how in ("reshaped-cut", "reshaped-cut-and-continued", "reshaped-part-way-by-md"):
        add(how, grown, *six)
    add("reshaped-cut", Shape("5", equal(3, big), chunk=64, size=20 * MIB, spares=1), *six, "--layout=ddf-N-continue")
    for shape, *change in [(raid("5", 3, spares=1, bitmap=True), *six, "--layout=preserve"), (raid("4", 3, bitmap=True), "--level=5"),
                           (Shape("1", equal(2, 24 * MIB)), "--level=5"), (raid("6", 4, layout="left-symmetric-6"), "--level=5")]:
        add("taken-over", shape, *change)
    small = 16 * MIB
    for how in ("reshaped-first", "reshaped-last"):
        for shape, *change in [(raid("5", 3, small, spares=1), "--raid-devices=4"), (raid("5", 4, small), "--chunk=32"), (raid("6", 4, small, bitmap=True), "--layout=ra"),
                               (Shape("5", equal(3, 24 * MIB), chunk=64, size=12 * MIB), "--layout=rs"), (raid("4", 3, small, spares=1), "--raid-devices=4", "--chunk=128"), (unequal, "--chunk=128")]:
            add(how, shape, *change)
    for shape, *change in [long[1], long[2], (raid("5", 4), "--layout=parity-first"), (raid("6", 4, bitmap=True), "--chunk=32")]:
        add("reshaped-degraded", shape, *change)
    return [case for case in made if case] + copies()


def copies():
    """Of raid10. Linux 6.1 itself loses members where copies become offset ones, or offset ones get another chunk, unless it takes the
    reshape up: those it is not asked to begin. A bitmap whose chunk is larger than the array hides from it what is to be resynced."""
    made = []

    def add(how, shape, *change):
        made.append(Reshaped(how, shape, change, len(made)))

    def ten(layout, members, size=24 * MIB, **more):
        return Shape("10", equal(members, size), **{"layout": layout, "chunk": 64, **more})
    for shape, *change in [
        (ten("n2", 4, spares=1), "--raid-devices=5"), (ten("n2", 3, spares=1), "--raid-devices=4"),
        (ten("n2", 2, spares=2, metadata="1.1"), "--raid-devices=4", "--chunk=128"), (ten("n3", 4, spares=1), "--raid-devices=5"),
        (ten("o2", 4, spares=1), "--raid-devices=5"), (ten("o2", 3, chunk=16), "--layout=n2"), (ten("n2", 4, bitmap=True), "--chunk=32"),
        (Shape("10", equal(4, 24 * MIB), layout="n2", chunk=64, size=12 * MIB, metadata="1.0"), "--chunk=128"),
        (Shape("10", equal(5, 24 * MIB), layout="n2", chunk=16, size=12 * MIB), "--chunk=64"), (ten("n2", 4, spares=2), "--raid-devices=5"),
    ]:
        add("reshaped", shape, *change)
    big = 32 * MIB
    grows = ten("n2", 4, big, spares=1), "--raid-devices=5"
    backwards = Shape("10", equal(4, big), layout="n2", chunk=64, size=20 * MIB), "--chunk=32"
    offset = ten("o2", 4, big, spares=1), "--raid-devices=5"
    near = ten("o2", 3, big), "--layout=n2"
    ours = [(ten("n2", 4, big), "--layout=o2"), (ten("o2", 3, big, metadata="1.1"), "--chunk=32"), (ten("n3", 5, big, spares=1), "--raid-devices=6", "--chunk=128")]
    for how, shapes in [("reshaped-cut", [grows, backwards, offset, near, *ours]), ("reshaped-part-way-by-md", [grows, backwards, offset, near]),
                        ("reshaped-cut-and-continued", [grows, backwards, offset, near, *ours, (ten("n2", 3, big, spares=1, bitmap=True), "--raid-devices=4")]),
                        ("reshaped-by-turns", [grows, offset]), ("reshaped-degraded", [backwards, (ten("n2", 4), "--layout=o2")]),
                        ("reshaped-first", [(ten("n2", 4, spares=1), "--raid-devices=5"), (ten("o2", 4), "--chunk=32")]),
                        ("reshaped-last", [(ten("n2", 4, spares=1), "--raid-devices=5"), (ten("n2", 4), "--chunk=128")])]:
        for shape, *change in shapes:
            add(how, shape, *change)
        made.append(None)  # even and odd ones change places
    return [case for case in made if case]
