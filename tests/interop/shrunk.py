"""Arrays that get fewer members: whole by stripewise beside a copy that Linux has done it with, or begun by one and ended by the other."""
import struct

from case import Content
from reshaped import Reshaped
from shapes import MIB, Shape, equal


class Shrunk(Reshaped):
    """`change` has the number of members first. All is kept that they hold, which with `used` KiB of each is less than it might be."""

    def __init__(self, how, shape, change, number, used=None):
        super().__init__(how, shape, change, number)
        self.linux_words, self.used = list(change), used
        self.kept = (used or shape.size) * int(change[0].removeprefix("--raid-devices=")) // shape.copies
        if shape.level != "10":
            self.kept -= (used or shape.size) * (2 if shape.level == "6" else 1)
        self.change = (change[0], f"--array-size={self.kept}", *change[1:])
        self.name += f"-used{used}K" if used else ""

    def _made_by(self, origin):
        super()._made_by(origin)
        self.roles = self._roles(self._superblock(self.members[0]))

    def _linux_reshapes(self, members, **how):
        return self.guest.request("reshape", members=members, grow=self.linux_words, kept_kib=self.kept, used_kib=self.used, **how)

    def _learn_size(self, members, *words):
        """What is beyond the new end is gone."""
        if len(self.content.bytes) > self.kept * 1024:
            cut = Content(self.kept * 1024)
            cut.bytes[:] = self.content.bytes[:self.kept * 1024]
            self.content = cut
        super()._learn_size(members, *words)

    def _under_way(self, block, events, at_end):
        """Whose slots go have them still, and the direction goes without saying."""
        block = super()._under_way(block, events, at_end)
        features, = struct.unpack_from("<I", block, 8)
        struct.pack_into("<I", block, 8, features & ~32)
        for number, role in enumerate(self.roles):
            struct.pack_into("<H", block, 256 + 2 * number, role)
        return block

    @staticmethod
    def _roles(block):
        count, = struct.unpack_from("<I", block, 220)
        return struct.unpack_from(f"<{min(count, 128)}H", block, 256)


def cases():
    made = []

    def add(how, shape, *change, used=None):
        made.append(Shrunk(how, shape, change, len(made), used))

    def raid(level, members, size=24 * MIB, used=12 * MIB, **more):
        return Shape(level, equal(members, size), **{"chunk": 64, "size": used, **more})
    for shape, *change in [
        (raid("5", 4), "--raid-devices=3"), (raid("5", 4, bitmap=True), "--raid-devices=3", "--chunk=128"),
        (raid("5", 6, chunk=16, metadata="1.1"), "--raid-devices=4", "--layout=ra"), (raid("4", 4), "--raid-devices=3"),
        (raid("5", 5), "--raid-devices=3", "--chunk=128"), (raid("5", 4, metadata="1.0", bitmap=True), "--raid-devices=3"),
        (raid("6", 6, bitmap=True), "--raid-devices=4"), (raid("6", 6, metadata="1.0"), "--raid-devices=4", "--chunk=32"),
        (raid("6", 6, layout="ddf-zero-restart"), "--raid-devices=5"), (raid("5", 3), "--raid-devices=2"),
        (raid("5", 4, spares=1), "--raid-devices=3"),
    ]:
        add("reshaped", shape, *change)
    def ten(members, size=24 * MIB, used=12 * MIB, layout="n2", **more):
        return raid("10", members, size, used, layout=layout, **more)
    for shape, *change in [(ten(4), "--raid-devices=3"), (ten(6, bitmap=True, metadata="1.1"), "--raid-devices=4"), (ten(4), "--raid-devices=3", "--chunk=32"),
                           (ten(5, layout="o2"), "--raid-devices=4"), (ten(5, layout="n3", metadata="1.0"), "--raid-devices=4"), (ten(4, spares=1), "--raid-devices=2")]:
        add("reshaped", shape, *change)
    full = {"used": None}
    add("reshaped", raid("5", 4, **full), "--raid-devices=3", used=24 * MIB - 1024 - 128)
    add("reshaped", raid("6", 6, bitmap=True, **full), "--raid-devices=4", used=24 * MIB - 1024 - 64)
    add("reshaped", ten(6, **full), "--raid-devices=4", used=24 * MIB - 1024 - 64)
    copies = [(ten(5, 32 * MIB, 20 * MIB), "--raid-devices=4"), (ten(6, 32 * MIB, 20 * MIB, bitmap=True), "--raid-devices=4", "--chunk=32"),
              (ten(5, 32 * MIB, 20 * MIB, layout="o2", metadata="1.0"), "--raid-devices=4")]
    long = [
        (raid("5", 4, 32 * MIB, 20 * MIB), "--raid-devices=3"), (raid("6", 6, 32 * MIB, 20 * MIB, bitmap=True), "--raid-devices=4", "--chunk=32"),
        (raid("5", 5, 32 * MIB, 20 * MIB, metadata="1.1"), "--raid-devices=4", "--layout=ra"), (raid("4", 4, 32 * MIB, 20 * MIB, metadata="1.0", bitmap=True), "--raid-devices=3"),
    ]
    for how in ("reshaped-cut", "reshaped-cut-and-continued", "reshaped-part-way-by-md"):
        for shape, *change in long + copies:
            add(how, shape, *change)
        made.append(None)  # even and odd ones change places
    for shape, *change in [*long[:2], copies[0]]:
        add("reshaped-by-turns", shape, *change)
    for how in ("reshaped-first", "reshaped-last"):
        for shape, *change in [(raid("5", 4, 16 * MIB, 8 * MIB), "--raid-devices=3"), (ten(4, 16 * MIB, 8 * MIB), "--raid-devices=3"), (raid("6", 6, 16 * MIB, 8 * MIB, bitmap=True), "--raid-devices=4"),
                               (raid("5", 5, 16 * MIB, 8 * MIB), "--raid-devices=3", "--chunk=32")]:
            add(how, shape, *change)
        made.append(None)
    tight = raid("6", 6, 32 * MIB, 31 * MIB - 64)  # less room than mdadm takes, which helps itself with a backup
    for how in ("reshaped-cut", "reshaped-cut-and-continued"):
        add(how, tight, "--raid-devices=5")
    for shape, *change in [(raid("5", 4), "--raid-devices=3"), (raid("6", 6, bitmap=True), "--raid-devices=4"), (raid("5", 5), "--raid-devices=4", "--chunk=32")]:
        add("reshaped-degraded", shape, *change)
    add("reshaped-degraded", ten(5), "--raid-devices=4")
    return [case for case in made if case]
