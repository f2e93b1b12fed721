"""One case of the matrix: an array goes back and forth between real Linux md and stripewise.

The bytes an array must hold are kept here, as a plain copy; whoever wrote last, both must read them.
"""
import hashlib
import pathlib
import random
import re
import subprocess

import compare
from uml import RequestFailed

SECTOR = 512
COMMAND_LIMIT_S = 60


class Wrong(Exception):
    """What the case ends with when it cannot go on."""


class Content:
    """The array's bytes, as they must be."""

    def __init__(self, size):
        self.bytes = bytearray(size)

    def write(self, seed, ranges):
        """As write_ranges of guest.py."""
        source = random.Random(seed)
        for offset, length in ranges:
            at, left = offset, length
            while left:
                part = source.randbytes(min(left, 1 << 20))
                self.bytes[at:at + len(part)] = part
                at, left = at + len(part), left - len(part)

    def digest(self):
        return hashlib.sha256(self.bytes).hexdigest()


class Case:
    """`origin` is who creates the array: mdadm or stripewise."""

    def __init__(self, origin, shape, number):
        self.shape, self.origin, self.number = shape, origin, number
        self.name = f"{origin}-{shape.name}"
        self.draw = random.Random(f"case {self.name}")
        self.findings = []

    def run(self, guest, stripewise, folder):
        """Goes through all steps; findings say what was wrong, and are empty if nothing was."""
        self.guest, self.stripewise, self.folder = guest, stripewise, pathlib.Path(folder)
        self.step = "images"
        try:
            self._make_images()
            self._create()
            if self.shape.sync and self.origin == "stripewise":
                self._kernel("the first resync", settle=True, check=True, fill=True)
            if self.shape.sync and self.spares:
                self._learn_roles()
            self._looks_alike()
            self._host_reads(self.members, "all members")
            self._host_writes("stripewise writes", self.members)
            self._kernel("the kernel after stripewise", check=True, ranges=True)
            self._host_reads(self.members, "after the kernel wrote")
            if self.shape.spare_losses > 0:
                self._degraded()
        except (Wrong, RequestFailed) as error:
            self._found(str(error))
        return self.findings

    def _found(self, text):
        self.findings.append(f"{self.step}: {text}")

    # Images, slots and words.
    def _make_images(self):
        self.members = []
        self.words = []
        for slot, kib in enumerate(self.shape.members):
            if slot in self.shape.missing:
                self.words.append("missing")
                continue
            path = self._image(f"m{slot}.img", kib)
            self.members.append(path)
            self.words.append(path)
        self.spares = [self._image(f"spare{n}.img", max(self.shape.members)) for n in range(self.shape.spares)]

    def _image(self, name, kib):
        path = self.folder / name
        with open(path, "wb") as file:
            file.truncate(kib * 1024)
        return str(path)

    def _host(self, *words, stdin=None, exits=(0,)):
        try:
            done = subprocess.run([self.stripewise, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, input=stdin or b"",
                                  timeout=COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Wrong(f"stripewise {' '.join(words)}: still running after {COMMAND_LIMIT_S} s") from error
        if done.returncode not in exits:
            raise Wrong(f"stripewise {' '.join(words)}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[-600:]}")
        return done.stdout

    def _shuffled(self, members):
        return self.draw.sample(members, len(members))

    def _selected(self, members):
        """How the members are named: one by one in any order, or by the folder and the UUID if all of it is meant."""
        if len(members) == len(self.members) and self.draw.random() < 0.3:
            return ["--scan", str(self.folder), f"--uuid={self.uuid}"]
        return self._shuffled(members) + (["--run"] if len(members) < len(self.members) else [])

    def _ranges(self):
        """Some ranges of whole sectors; now and then the whole array."""
        size = len(self.content.bytes)
        if self.draw.random() < 0.15:
            return [[0, size]]
        chunk = (self.shape.chunk or 64) * 1024
        lengths = [SECTOR * self.draw.randint(1, 16), 4096 * self.draw.randint(1, 64), chunk, chunk * len(self.members) * 2,
                   SECTOR * self.draw.randint(1, 2000)]
        ranges = []
        for length in lengths:
            length = min(length, size)
            at = self.draw.randint(0, (size - length) // SECTOR) * SECTOR
            if self.draw.random() < 0.5:
                at = at // chunk * chunk
            ranges.append([at, length])
        return ranges + [[size - 4096, 4096]]

    # Steps.
    def _create(self):
        self.step = f"{self.origin} creates"
        seed = self.draw.randrange(1 << 32)
        if self.origin == "mdadm":
            answer = self.guest.request("create", words=self.shape.words(), members=self.words, spares=self.spares, seed=seed,
                                        wait=self.shape.sync)
            self.content = Content(answer["size"])
            self.content.write(seed, [[0, answer["size"]]])
            self._same(answer["sha256"], "the kernel's own reading")
            self.kernels = answer
            self._learn_uuid()
            return
        self._host("create", *self.shape.words(), *self.words, *self.spares)
        self.kernels = None
        self._learn_uuid()
        self._mdadm_accepts()
        if self.shape.sync:
            self.content = None
            return
        self.content = Content(self._size())
        self.content.write(seed, [[0, len(self.content.bytes)]])
        self._host("write", *self._selected(self.members), stdin=bytes(self.content.bytes))

    def _learn_uuid(self):
        said = compare.mdadm("--examine", "--export", self.members[0])
        self.uuid = re.search(r"^MD_UUID=(.*)$", said, re.M).group(1)

    def _learn_roles(self):
        """The first recovery takes any of the spares."""
        everyone = self.members + self.spares
        self.spares = [path for path in everyone
                       if re.search(r"Device Role : spare|^this .* spare", compare.mdadm("--examine", path), re.M)]
        self.members = [path for path in everyone if path not in self.spares]

    def _size(self):
        return compare.array_bytes(self._host("detail", "--json", *self._shuffled(self.members)))

    def _mdadm_accepts(self):
        for path in self.members + self.spares:
            said = compare.mdadm("--examine", path)
            if not re.search(r"Checksum : \w+ - correct", said):
                self._found(f"mdadm -E {path} does not say that the checksum is correct: {said}")

    def _looks_alike(self):
        """examine and detail against mdadm's, and no byte changed by looking."""
        self.step = "examine"
        before = self._digests()
        for path in self.members + self.spares:
            for words, compared in (([], compare.texts), (["--export"], compare.examined)):
                theirs, ours = compare.mdadm("--examine", *words, path), self._host("examine", *words, path).decode()
                for difference in compared(theirs, ours):
                    self._found(f"{' '.join(words) or 'text'}: {difference}")
        everyone = self._shuffled(self.members + self.spares)
        theirs, ours = compare.mdadm("--examine", "--brief", *everyone), self._host("examine", "--brief", *everyone)
        if theirs != ours.decode():
            self._found(f"--brief: {ours.decode()!r} where mdadm says {theirs!r}")
        if self.shape.bitmap:  # in the guest: in plain files mdadm 4.2 does not find every bitmap
            path = self.members[0]
            theirs = self.guest.request("examine_bitmap", path=path)
            for difference in compare.bitmaps(theirs, self._host("examine", "--examine-bitmap", path).decode()):
                self._found(f"--examine-bitmap: {difference}")
        self.step = "detail"
        if self.kernels:
            everyone = self._shuffled(self.members + self.spares)
            for difference in compare.details(self.kernels["detail"], self._host("detail", *everyone).decode()):
                self._found(difference)
            for difference in compare.exports(self.kernels["detail_export"], self._host("detail", "--export", *everyone).decode()):
                self._found(f"--export: {difference}")
            for difference in compare.json_detail(self.kernels, self._host("detail", "--json", *everyone)):
                self._found(f"--json: {difference}")
        if self._digests() != before:
            raise Wrong("a member was changed by looking at it")

    def _digests(self):
        return [hashlib.sha256(pathlib.Path(path).read_bytes()).digest() for path in self.members + self.spares]

    def _host_reads(self, members, what):
        self.step = f"stripewise reads, {what}"
        before = self._digests()
        self._same(hashlib.sha256(self._host("read", *self._selected(members))).hexdigest(), "stripewise read")
        offset = SECTOR * self.draw.randrange(len(self.content.bytes) // SECTOR)
        length = min(SECTOR * self.draw.randint(1, 3000), len(self.content.bytes) - offset)
        part = self._host("read", *self._shuffled(members), *(["--run"] if len(members) < len(self.members) else []),
                          f"--offset={offset}B", f"--length={length}B")
        if part != self.content.bytes[offset:offset + length]:
            raise Wrong(f"bytes {offset}..{offset + length} differ")
        if self._digests() != before:
            raise Wrong("a member was changed by reading")

    def _host_writes(self, what, members):
        self.step = what
        for offset, length in self._ranges():
            seed = self.draw.randrange(1 << 32)
            self.content.write(seed, [[offset, length]])
            data = bytes(self.content.bytes[offset:offset + length])
            self._host("write", *self._selected(members), f"--offset={offset}B", stdin=data)
        self._same(hashlib.sha256(self._host("read", *self._selected(members))).hexdigest(), "stripewise's own reading")

    def _same(self, digest, whose):
        if digest != self.content.digest():
            raise Wrong(f"{whose}: the array's bytes differ")

    def _kernel(self, what, members=None, ranges=False, check=False, add=(), settle=False, fill=False):
        """The kernel assembles; nothing may be left to do; it writes, hashes and checks."""
        self.step = what
        lost = 0 if members is None else len(self.members) - len(members)
        members = self.members + self.spares if members is None else members
        if fill:
            self.content = Content(self._size())
        seed = self.draw.randrange(1 << 32)
        parts = [[0, len(self.content.bytes)]] if fill else self._ranges() if ranges else []
        answer = self.guest.request("assemble", members=self._shuffled(members), partial=lost > 0 or bool(self.shape.missing),
                                    seed=seed, ranges=parts, check=check, add=list(add), settle=settle)
        self.content.write(seed, parts)
        if answer["size"] != len(self.content.bytes):
            raise Wrong(f"the kernel sees {answer['size']} bytes, not {len(self.content.bytes)}")
        if not settle:
            self._nothing_due(answer, lost)
        self._same(answer["sha256"], "the kernel's reading")
        if answer.get("mismatch_cnt"):
            raise Wrong(f"check: mismatch_cnt {answer['mismatch_cnt']}")
        if add and int(answer["degraded_after_add"]) != len(self.shape.missing):
            raise Wrong(f"degraded is {answer['degraded_after_add']} after the members were added")
        return answer

    def _nothing_due(self, answer, lost):
        degraded = len(self.shape.missing) + lost
        if answer["degraded"] is not None and int(answer["degraded"]) != degraded:
            raise Wrong(f"degraded is {answer['degraded']}, not {degraded}")
        # A degraded array says `recover` for a moment, while md looks for a spare.
        if answer["sync_action"] not in (None, "idle") and not degraded:
            raise Wrong(f"the kernel starts a {answer['sync_action']}")
        if answer["resync_start"] not in (None, "none"):
            raise Wrong(f"not clean: resync_start is {answer['resync_start']}")

    def _degraded(self):
        """Members are left out, written without, and come back stale."""
        count = self.draw.randint(1, self.shape.spare_losses)
        lost = self.draw.sample(self.members, count)
        rest = [path for path in self.members if path not in lost]
        self._host_reads(rest, f"{count} left out")
        self._host_writes("stripewise writes degraded", rest)
        self._kernel("the kernel, degraded, after stripewise", members=rest, ranges=True)
        self._host_reads(rest, "degraded, after the kernel wrote")
        self.step = "stripewise reads with a stale member"
        self._same(hashlib.sha256(self._host("read", "--run", *self._shuffled(self.members))).hexdigest(), "stripewise read")
        if self.number % 2:
            return
        self._kernel("the kernel recovers", members=rest, add=lost, check=True)
        self._host_reads(self.members, "after recovery")
