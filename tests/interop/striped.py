"""Arrays that become RAID-0, and RAID-0 that becomes another level: by stripewise beside a copy that Linux has done it with."""
import dataclasses
import os
import pathlib
import shutil

from case import SECTOR, Wrong
from reshaped import Reshaped
from shapes import MIB, Shape, equal

# Of the superblock: what an added device is called is drawn; the layout of a reshape that has ended is left over; mdadm keeps room for a
# bitmap before an added device's log of bad blocks, stripewise has it where the others have theirs.
DEVICE_UUID, NEW_LAYOUT, LOG_PLACE = (168, 184), (116, 120), (188, 192)


class Striped(Reshaped):
    """`change` is what stripewise's `grow` is told; Linux gets what comes to the same."""

    def raid0_taken_over(self):
        """Another level takes a RAID-0 over. Linux and stripewise have the same bytes of it, and fill its slots."""
        self._made_by(self._maker)
        level = self.change[0].removeprefix("--level=")
        twins = self._twins(self.members, **self._as_linux(level))
        self._cut_and_again(self.members)
        self._like_twins(self.members, twins)
        self._alike(self.members)
        self._filled_and_used()

    def _filled_and_used(self):
        """One of the two fills the slots, and both use the array."""
        level = self.change[0].removeprefix("--level=")
        self.shape = dataclasses.replace(self.shape, level=level, layout="n2" if level == "10" else None)
        count = len(self.members) if level == "10" else 1
        added = [self._image(f"added{n}.img", max(self.shape.members)) for n in range(count)]
        if self.number % 2:
            self.step = "stripewise fills the slots"
            for number, path in enumerate(added):
                self._host("add", path, "--array", *self._shuffled(self.members + added[:number]))
            self.members += added
            self._host("assemble", *self._shuffled(self.members))
        else:
            self.step = "the kernel fills the slots"
            answer = self.guest.request("assemble", members=self._shuffled(self.members), partial=True, check=True, add=added)
            self._same(answer["sha256"], "the kernel's reading")
            if answer["mismatch_cnt"] or int(answer["degraded_after_add"]):
                raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}, degraded {answer['degraded_after_add']}")
            self.members += added
        self._both_use_it()
        self._host("check", *self._shuffled(self.members))
        self._without_some()

    def became_raid0(self):
        """All members are there at first, or some have failed that are not needed."""
        self._made_by(self._maker)
        for slot in self.lost:
            self._host("fail", self.members[slot], "--array", *self.members)
        there = [path for slot, path in enumerate(self.members) if slot not in self.lost]
        twins = self._twins(there, grow=["--level=0"])
        said = self._cut_and_again(there + self.spares)
        self.members, twins = [path for path in there if self._has_superblock(path)], [
            twin for path, twin in zip(there, twins) if self._has_superblock(path)]
        if any(self._has_superblock(path) for path in self.spares):
            raise Wrong(f"a spare has a superblock yet: {said}")
        self.spares = []
        if self.shape.level in ("1", "10"):  # which copy mdadm keeps follows from the order in which the kernel lists devices
            is_same_choice = all(self._superblock(twin)[72] == 0 for twin in twins)
            self._like_twins(*(self.members, twins) if is_same_choice else ((), ()))
        else:
            self._like_twins(self.members, twins)
        self._alike(self.members)
        self.shape = dataclasses.replace(self.shape, level="0", layout=None, members=tuple(self.shape.members[:len(self.members)]))
        self._both_use_it()

    def raid0_reshaped(self):
        """Parity is to rotate, and is not there: all data move. Both leave the same, and fill the slot."""
        self._made_by(self._maker)
        twins = [f"{path}.twin" for path in self.members]
        for path, twin in zip(self.members, twins):
            shutil.copyfile(path, twin)
        self.step = "the kernel reshapes a copy"
        answer = self.guest.request("reshape", members=twins, grow=["--level=5"])
        self._same(answer["sha256"], "the kernel's reading of the copy")
        self.step = "stripewise reshapes"
        self._host("grow", *self.change, *self._shuffled(self.members))
        self._like_twins(self.members, twins)
        self._filled_and_used()

    def raid0_reshaped_cut(self):
        """stripewise begins to move them and is killed; it or Linux ends it."""
        self._killed_midway(["grow", *self.change])
        if self.number % 2:
            self.step = "the kernel ends it"
            self.guest.request("reshape", members=self._shuffled(self.members), run_on=True, partial=True)
        else:
            self._continued(self.members)
        self._filled_and_used()

    def raid0_grown(self):
        """More members or another chunk: as Linux does it, by way of a RAID-4 without parity."""
        self._made_by(self._maker)
        added = self._added()
        twins = [f"{path}.twin" for path in self.members + added]
        for path, twin in zip(self.members + added, twins):
            shutil.copyfile(path, twin)
        self.step = "the kernel reshapes a copy"
        count = len(self.members)
        answer = self.guest.request("reshape", members=twins[:count], grow=list(self.change) + self._add_words(len(added)), added=twins[count:], level_at_end="raid0")
        self.step = "stripewise reshapes"
        self._host("grow", *self.change, *(f"--add={path}" for path in added), *self._shuffled(self.members))
        self.members += added
        self._learn_size(self.members)
        self._same(answer["sha256"], "the kernel's reading of the copy")
        for path, twin in zip(self.members, twins):
            self._take_over_bytes(path, twin, NEW_LAYOUT)
            if path in added:
                self._take_over_bytes(path, twin, DEVICE_UUID)
                self._take_over_bytes(path, twin, LOG_PLACE)
                self._take_over_logs(path, twin)
        self._like_twins(self.members, twins)
        self._ended_as_raid0()

    def raid0_grown_cut(self):
        """stripewise begins to move them and is killed; it or Linux ends it, and makes it a RAID-0 again."""
        words = ["grow", *self.change, *(f"--add={path}" for path in self._added())]
        self._killed_midway(words)
        self.members += self._added()
        everyone = self._shuffled(self.members)
        self.step = "the reshape is ended"
        if self.number % 2:
            self.guest.request("reshape", members=everyone, run_on=True, partial=True)
        else:
            self._continued(self.members)
        if self.number % 4 < 2:
            self.step = "the kernel makes it a RAID-0 again"
            self.guest.request("reshape", members=everyone, partial=True, grow=["--level=0"])
        else:
            self._host("grow", "--level=0", *everyone)
        self._learn_size(self.members)
        self._ended_as_raid0()

    def _take_over_bytes(self, path, twin, where):
        """Gives the twin's superblock what is not compared."""
        block, other = self._superblock(path), self._superblock(twin)
        other[slice(*where)] = block[slice(*where)]
        self._put(twin, other)

    def _take_over_logs(self, path, twin):
        start, end = self._place(path) + 1024, self._data_sector(path) * SECTOR
        with open(path, "rb") as ours, open(twin, "r+b") as theirs:
            ours.seek(start)
            theirs.seek(start)
            theirs.write(ours.read(end - start))

    def _make_images(self):
        super()._make_images()
        for path in self._added():
            self._image(os.path.basename(path), max(self.shape.members))

    def _added(self):
        count = next((int(word.removeprefix("--raid-devices=")) for word in self.change if "raid-devices" in word), len(self.shape.members))
        return [str(self.folder / f"more{n}.img") for n in range(count - len(self.shape.members))]

    @staticmethod
    def _add_words(count):
        return ["--add"] * bool(count) + [f"added{n}" for n in range(count)]

    def _ended_as_raid0(self):
        self._alike(self.members)
        if any(self._superblock(path)[72] for path in self.members):
            raise Wrong("it is no RAID-0")
        self.shape = dataclasses.replace(self.shape, members=tuple(self.shape.members[:1]) * len(self.members))
        self._both_use_it()

    lost = ()

    @property
    def _maker(self):
        return ("stripewise", "mdadm")[self.number // 2 % 2]

    @staticmethod
    def _as_linux(level):
        """mdadm asks for spares before it makes a RAID-10, and for room to make parity rotate."""
        return {"level": "raid10"} if level == "10" else {"grow": [f"--level={level}"] + (["--layout=parity-last"] if level == "5" else [])}

    def _twins(self, members, **change):
        """Copies of the members, with which the kernel makes the change; stripewise reads what it made."""
        twins = [f"{path}.twin" for path in members]
        for path, twin in zip(members, twins):
            shutil.copyfile(path, twin)
        self.step = "the kernel takes a copy over"
        answer = self.guest.request("reshape", members=twins, partial=True, **change)
        self._same(answer["sha256"], "the kernel's reading of the copy")
        kept = [twin for twin in twins if self._superblock(twin)[72] != int(self.shape.level)]
        self.step = "stripewise reads the copy that the kernel took over"
        if self._host("read", *self._shuffled(kept)) != bytes(self.content.bytes):
            raise Wrong("bytes differ")
        return twins

    def _cut_and_again(self, members):
        """stripewise makes the change, on some members as if it had been cut off first."""
        self.step = f"stripewise grow {' '.join(self.change)}"
        before = {path: pathlib.Path(path).read_bytes() for path in members}
        data = {path: self._data_sector(path) * SECTOR for path in members}
        said = self._host("grow", *self.change, *self._shuffled(members))
        reached = {path: pathlib.Path(path).read_bytes() for path in members}
        order = [path for path in members if self._has_superblock(path)] + [path for path in members if not self._has_superblock(path)]
        for path in order[self.draw.randint(1, len(order)):]:
            whole = before[path]
            with open(path, "r+b") as image:  # around the superblock; the data are the same
                at = 0 if self.shape.metadata != "1.0" else len(whole) - (128 << 10)
                image.seek(at)
                image.write(whole[at:] if at else whole[:data[path]])
        self.step = "the same, cut off, again"
        named = [path for path in members if self._has_superblock(path)]
        if any(pathlib.Path(path).read_bytes() != whole for path, whole in reached.items()):
            self._host("grow", *self.change, *self._shuffled(named))
        for path, whole in reached.items():
            if self._has_superblock(path) and pathlib.Path(path).read_bytes() != whole:
                raise Wrong(f"{path} is another than when nothing was cut off")
        return said.decode()

    def _has_superblock(self, path):
        return any(self._superblock(path)[:4])

    def _like_twins(self, members, twins):
        self.step = "beside the kernel's copy"
        for path, twin in zip(members, twins):
            self._like_twin(path, twin)
        for twin in pathlib.Path(self.folder).glob("*.twin"):
            os.remove(twin)

    def _both_use_it(self):
        self._kernel("the kernel after it", ranges=True)
        self._host_reads(self.members, "after the kernel wrote")
        self._host_writes("stripewise writes", self.members)
        self._kernel("the kernel after stripewise wrote", check=True)


def cases():
    made = []

    def add(how, shape, *change, lost=()):
        case = Striped(how, shape, change, len(made))
        case.lost = lost
        case.name += "".join(f"-lost{slot}" for slot in lost)
        made.append(case)

    def stripes(count, size=12 * MIB, **more):
        return Shape("0", equal(count, size), **{"chunk": 64, **more})
    within_chunks = Shape("0", (12 * MIB, 12 * MIB + 20, 12 * MIB + 40), chunk=64)
    for shape, level in [(stripes(2), "4"), (stripes(3, metadata="1.1"), "4"), (stripes(2), "5"), (stripes(4, chunk=16, metadata="1.0"), "5"),
                         (stripes(3), "10"), (stripes(2, metadata="1.1"), "10"), (within_chunks, "5"), (within_chunks, "10"), (stripes(1, size=8 * MIB), "5")]:
        add("raid0-taken-over", shape, f"--level={level}")
    moving = "--level=5", "--layout=left-symmetric"
    for shape in (stripes(2), stripes(3, chunk=16, metadata="1.1")):
        add("raid0-reshaped", shape, *moving)
    for shape in (stripes(2, size=32 * MIB), stripes(3, size=32 * MIB), stripes(4, size=32 * MIB, chunk=16)):
        add("raid0-reshaped-cut", shape, *moving)
    for shape, *change in [(stripes(2), "--raid-devices=3"), (stripes(3, chunk=16, metadata="1.1"), "--raid-devices=5"), (stripes(2), "--chunk=128"),
                           (stripes(1), "--raid-devices=2")]:
        add("raid0-grown", shape, *change)
    for shape, *change in [(stripes(2, size=32 * MIB), "--raid-devices=3"), (stripes(3, size=32 * MIB), "--raid-devices=5"),
                           (stripes(2, size=32 * MIB), "--raid-devices=3", "--chunk=16"), (stripes(3, size=32 * MIB, chunk=16), "--raid-devices=4")]:
        add("raid0-grown-cut", shape, *change)
    last = {"layout": "parity-last", "chunk": 64}
    for shape, lost in [(Shape("4", equal(3, 12 * MIB), chunk=64), ()), (Shape("5", equal(4, 12 * MIB), size=6 * MIB, **last), ()),
                        (Shape("5", equal(3, 12 * MIB), metadata="1.0", **last), (2,)), (Shape("4", equal(4, 12 * MIB), chunk=16, metadata="1.1"), (3,)),
                        (Shape("10", equal(4, 12 * MIB), chunk=64, layout="n2"), ()), (Shape("10", equal(6, 12 * MIB), chunk=16, metadata="1.1", layout="n2"), (1, 2, 5)),
                        (Shape("1", equal(3, 12 * MIB)), ()), (Shape("1", equal(2, 12 * MIB), metadata="1.0"), (1,)), (Shape("10", equal(4, 12 * MIB), chunk=64, layout="n2"), (1,))]:
        add("became-raid0", shape, "--level=0", lost=lost)
    return made
