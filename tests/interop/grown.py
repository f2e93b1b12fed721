"""Arrays that stripewise changes with `grow`, cut off after some members now and then, and Linux takes up; and the reverse."""
import json
import os
import pathlib

import compare
from case import SECTOR, Content, Wrong
from shapes import MIB, Shape, equal
from unfinished import Unfinished


class Grown(Unfinished):
    """`how` is the method that makes the change."""

    def grown(self):
        """stripewise gives the kernel's array a bitmap and takes it away."""
        self._made_by("mdadm")
        chunk = self.draw.choice((["--bitmap-chunk", "64K"], []))
        for words, has_bitmap in ((["internal", *chunk], True), (["none"], False), (["internal", *chunk], True)):
            self._grow("--bitmap", *words)
            answer = self._kernel(f"the kernel after {self.step}", ranges=True, check=True)
            if (answer["bitmap"] not in ("none", None)) != has_bitmap:
                raise Wrong(f"the kernel's bitmap is {answer['bitmap']}")
            self._same_reading(self.members)
        self._without_some()

    def grown_size(self):
        """The array uses more of its members in two steps, each resynced by one of the two."""
        self._made_by(("mdadm", "stripewise")[self.number % 2])
        middle = self.shape.size + MIB + 100
        for step, size in enumerate((f"{middle}K", "max")):
            self._grow("--size", size)
            if json.loads(self._host("detail", "--json", *self._shuffled(self.members)))["is_clean"]:
                raise Wrong("no resync is due")
            if (step + self.number) % 2:
                self.step = "stripewise resyncs"
                done = json.loads(self._host("assemble", "--json", *self._shuffled(self.members)))
                if [one["result"] for one in done["synced"]] != ["done"]:
                    raise Wrong(f"synced is {done['synced']}")
                self._read_larger()
            else:
                self._kernel_makes_larger("the kernel resyncs", settle=True)
            self._kernel("the kernel after the resync", ranges=True, check=True)
            self._alike(self.members)
        self._without_some()

    def grown_size_by_md(self):
        """The kernel has the array use more, and stripewise goes on from there."""
        self._made_by("mdadm")
        self._kernel_makes_larger("the kernel grows", grow=["--size=max"])
        self._host("check", *self._shuffled(self.members))
        self._alike(self.members)
        self._without_some()

    def grown_raid_devices(self):
        """A mirror gets a slot for its spare, loses its first member and then the slot, and gets another that the kernel fills."""
        self._made_by(("mdadm", "stripewise")[self.number % 2])
        everyone = self.members + self.spares
        self._grow("--raid-devices", str(len(everyone)))
        if self.number % 4 < 2:
            self._kernel_has(len(everyone), "the kernel recovers the spare", settle=True, check=True)
        else:
            self._host("assemble", *self._shuffled(everyone))
        self.members, self.spares = everyone, []
        self._kernel_has(len(everyone), "the kernel with one more", check=True)
        self._alike(self.members)
        self._without_some()
        gone, *rest = self.members
        self.step = "stripewise fails the first"
        self._host("fail", gone, "--array", *self.members)
        self.members = rest
        self._grow("--raid-devices", str(len(rest)))
        self._kernel_has(len(rest), "the kernel with one fewer", check=True)
        self._kernel("nothing is due", ranges=True, check=True)
        self._alike(self.members)
        self._grow("--raid-devices", str(len(rest) + 1), "--force")
        self._kernel_has(len(rest) + 1, "the kernel fills the slot", partial=True, add=[gone], check=True)
        self.members = [*rest, gone]
        self._kernel("nothing is due then", ranges=True, check=True)
        self._without_some()

    def grown_raid_devices_by_md(self):
        """The kernel gives a mirror a slot for its spare."""
        self._made_by("mdadm")
        self.members, self.spares = self.members + self.spares, []
        self._kernel_has(len(self.members), "the kernel grows", grow=[f"--raid-devices={len(self.members)}"])
        self._host("check", *self._shuffled(self.members))
        self._alike(self.members)
        self._without_some()

    def grown_policy(self):
        """stripewise takes the partial parity logs away and gives them back; the kernel writes with and without them."""
        self._made_by(("mdadm", "stripewise")[self.number % 2])
        if not self.shape.ppl:  # the bad-block log makes room for a small one
            self._request(update="no-bbl")
        for policy in ("resync", "ppl") if self.shape.ppl else ("ppl",):
            self._grow("--consistency-policy", policy)
            answer = self._kernel(f"the kernel after {self.step}", ranges=True, check=True)
            self._policy_is(policy, answer)
            self._alike(self.members)
            self._host_writes("stripewise writes", self.members)
            self._kernel(f"the kernel after {self.step}", check=True)
        self._without_some()

    def grown_policy_by_md(self):
        """The kernel takes the partial parity logs away and gives them back."""
        self._made_by("mdadm")
        for policy in ("resync", "ppl"):
            self.step = f"the kernel's {policy}"
            self._policy_is(policy, self._request(grow=[f"--consistency-policy={policy}"]))
            self._alike(self.members)
            self._host_writes("stripewise writes", self.members)
            self._kernel(f"the kernel after {self.step}", check=True)

    def _request(self, **how):
        return self.guest.request("assemble", members=self._shuffled(self.members), partial=False, **how)

    def _policy_is(self, policy, answer):
        said = compare.fields(answer["detail"])["Consistency Policy"]
        ours = json.loads(self._host("detail", "--json", *self.members))["consistency_policy"]
        if (said, ours) != (policy, policy):
            raise Wrong(f"the kernel's policy is {said}, stripewise's {ours}, not {policy}")

    def _kernel_has(self, slots, what, partial=False, **how):
        """The kernel assembles it with so many slots, and has the same bytes; all are filled at its end."""
        self.step = what
        answer = self.guest.request("assemble", members=self._shuffled(self.members + self.spares), partial=partial, **how)
        said = compare.fields(answer["detail"])
        if (said["Raid Devices"], said["Active Devices"]) != (str(slots), str(slots)):
            raise Wrong(f"Raid Devices is {said['Raid Devices']}, Active Devices {said['Active Devices']}, not {slots}")
        if answer.get("mismatch_cnt"):
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        self._same(answer["sha256"], what)

    # What they are made of.
    def _made_by(self, origin):
        """An array whose members held something before, of which a resync has to make sense where it was not written."""
        for path in self.members + self.spares:
            pathlib.Path(path).write_bytes(self.draw.randbytes(os.path.getsize(path)))
        self.step = origin
        words = [*self.shape.words(), "--force"] if origin == "stripewise" else self.shape.words()
        if origin == "mdadm":
            answer = self.guest.request("create", words=words, members=self.words, spares=self.spares, seed=self.seed, wait=True)
            self.content = Content(answer["size"])
        else:
            self._host("create", *words, *self.words, *self.spares)
            self.content = Content(self._size())
        self._learn_uuid()
        self.content.write(self.seed, [[0, len(self.content.bytes)]])
        if origin == "stripewise":
            self._host("write", *self.members, *self.spares, stdin=bytes(self.content.bytes))

    def _grow(self, *words):
        """Grows, as if cut off after some of the members, and again."""
        everyone = self.members + self.spares
        self.step = f"stripewise grow {' '.join(words)}"
        before = {path: pathlib.Path(path).read_bytes() for path in self.draw.sample(everyone, self.draw.randint(1, len(everyone) - 1))}
        self._host("grow", *words, *self._shuffled(everyone))
        is_alike = "--bitmap" in words and self.draw.random() < 0.5  # Linux starts those that differ in the bitmap alone
        for path, whole in before.items():
            self._head_of_before(path, whole)
        if not is_alike:
            self._host("grow", *words, *self._shuffled(everyone))
        elif self.draw.random() < 0.5:
            self._host("grow", *words, *self._shuffled(everyone))

    def _read_larger(self):
        """What is read is what was there, and more; from now on that is what must be there."""
        read = self._host("read", *self._shuffled(self.members))
        if len(read) <= len(self.content.bytes):
            raise Wrong(f"{len(read)} bytes after {self.step}, and {len(self.content.bytes)} before")
        if read[:len(self.content.bytes)] != self.content.bytes:
            raise Wrong(f"bytes differ after {self.step}")
        self.content.bytes = bytearray(read)

    def _kernel_makes_larger(self, what, **how):
        self.step = what
        answer = self.guest.request("assemble", members=self._shuffled(self.members), partial=False, check=True, **how)
        if answer["mismatch_cnt"]:
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        self._read_larger()
        self._same(answer["sha256"], "the kernel's reading")

    def _alike(self, members):
        """mdadm and stripewise say the same of every member."""
        for path in members:
            for difference in compare.texts(compare.mdadm("--examine", path), self._host("examine", path).decode()):
                self._found(f"{self.step}: {difference}")

    def _head_of_before(self, path, whole):
        """The member's superblock and what is around it, from before the change."""
        data = SECTOR * self._data_sector(path)
        with open(path, "r+b") as image:
            if data:
                image.write(whole[:data])
            else:
                image.seek(len(whole) - (128 << 10))
                image.write(whole[-(128 << 10):])


def cases():
    made = []

    def add(how, *shapes):
        made.extend(Grown(how, shape, len(made)) for shape in shapes)

    add("grown", Shape("5", equal(4, 12 * MIB), chunk=64), Shape("1", equal(2, 12 * MIB), metadata="1.0"), Shape("6", equal(5, 12 * MIB), chunk=64, metadata="1.1"),
        Shape("10", equal(4, 12 * MIB), chunk=64), Shape("5", equal(3, 12 * MIB), chunk=64, metadata="0.90"))
    part = {"size": 4 * MIB}
    add("grown-size", Shape("1", equal(2, 12 * MIB), **part), Shape("1", equal(3, 12 * MIB), metadata="0.90", bitmap=True, **part),
        Shape("4", equal(3, 12 * MIB), chunk=64, **part), Shape("5", equal(4, 12 * MIB), chunk=64, bitmap=True, **part),
        Shape("5", equal(3, 12 * MIB), chunk=64, metadata="0.90", **part), Shape("6", (12 * MIB, 14 * MIB, 13 * MIB, 12 * MIB + 36), chunk=16, metadata="1.1", bitmap=True, **part),
        Shape("5", equal(3, 12 * MIB), chunk=32, metadata="1.0", bitmap=True, **part), Shape("6", equal(5, 12 * MIB), chunk=64, metadata="1.0", **part),
        Shape("10", equal(4, 12 * MIB), chunk=64, bitmap=True, **part), Shape("10", equal(3, 12 * MIB), chunk=64, **part),
        Shape("10", equal(3, 12 * MIB), chunk=64, layout="o2", bitmap=True, **part), Shape("1", equal(2, 12 * MIB), metadata="1.0", bitmap=True, **part))
    # Without a bitmap: Linux 6.1 resyncs nothing of what is new within a chunk of the bitmap that was there before.
    add("grown-size-by-md", Shape("5", equal(3, 12 * MIB), chunk=64, **part), Shape("1", equal(2, 12 * MIB), metadata="1.0", **part),
        Shape("10", equal(4, 12 * MIB), chunk=64, **part), Shape("6", equal(4, 12 * MIB), chunk=64, metadata="0.90", **part))
    spare = {"spares": 1}
    add("grown-raid-devices", *(Shape("1", equal(2 + n % 2, 8 * MIB), metadata=version, bitmap=n > 1, **spare)
                                for n, version in enumerate(["1.2", "0.90", "1.0", "1.1"])), Shape("1", equal(2, 8 * MIB), metadata="0.90", **spare))
    add("grown-raid-devices-by-md", Shape("1", equal(2, 8 * MIB), bitmap=True, **spare), Shape("1", equal(2, 8 * MIB), metadata="0.90", **spare))
    logged = {"chunk": 64, "ppl": True}
    add("grown-policy", *(Shape("5", equal(3 + n, 12 * MIB), metadata=version, **logged) for n, version in enumerate(["1.2", "1.0", "1.1", "1.0"])),
        Shape("5", equal(3, 12 * MIB), chunk=64), Shape("5", equal(3, 12 * MIB), chunk=64, metadata="1.1"))
    add("grown-policy-by-md", *(Shape("5", equal(3, 12 * MIB), metadata=version, **logged) for version in ("1.2", "1.0")))
    return made
