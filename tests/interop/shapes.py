"""What arrays the matrix is made of: a fixed list, and random ones by a seed."""
import dataclasses
import random

MIB = 1024
RAID5_LAYOUTS = ["left-symmetric", "left-asymmetric", "right-symmetric", "right-asymmetric", "parity-first", "parity-last"]
RAID6_LAYOUTS = RAID5_LAYOUTS + ["ddf-zero-restart", "ddf-N-restart", "ddf-N-continue"] + [
    f"{name}-6" for name in ("left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric", "parity-first")]
RAID10_LAYOUTS = [f"{kind}{copies}" for kind in "nfo" for copies in (2, 3, 4)]
CHUNKS_KIB = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
VERSIONS = ["0.90", "1.0", "1.1", "1.2"]
REDUNDANT = ("1", "4", "5", "6", "10")


@dataclasses.dataclass(frozen=True)
class Shape:
    """One array's parameters, in mdadm's terms. Sizes in KiB."""
    level: str
    members: tuple  # size of the image of each slot
    layout: str = None
    chunk: int = None
    metadata: str = "1.2"
    missing: tuple = ()  # slots with no member from the start
    spares: int = 0
    bitmap: bool = False
    ppl: bool = False
    data_offset: int = None
    size: int = None  # of each member's part
    sync: bool = False  # made without --assume-clean

    @property
    def name(self):
        parts = [f"raid{self.level}" if self.level != "linear" else "linear", self.layout, f"x{len(self.members)}", self.metadata]
        parts += [f"{self.chunk}K"] if self.chunk else []
        parts += ["unequal"] if len(set(self.members)) > 1 else []
        parts += [f"missing{','.join(map(str, self.missing))}"] if self.missing else []
        parts += [f"spares{self.spares}"] if self.spares else []
        parts += [word for word in ("bitmap", "ppl", "sync") if getattr(self, word)]
        parts += [f"offset{self.data_offset}K"] if self.data_offset else []
        parts += [f"size{self.size}K"] if self.size else []
        return "-".join(part for part in parts if part)

    @property
    def copies(self):
        """Copies of each byte, for the levels that copy."""
        return {"1": len(self.members), "10": int((self.layout or "n2")[1:]) if self.level == "10" else 0}.get(self.level, 1)

    @property
    def spare_losses(self):
        """How many more members may be lost, whichever they are."""
        at_start = {"4": 1, "5": 1, "6": 2}.get(self.level, self.copies - 1)
        return at_start - len(self.missing)

    def mdadm_can(self):
        return not (self.level == "0" and self.metadata == "0.90")  # mdadm 4.2 refuses its own default layout there

    def words(self):
        """Options of `mdadm --create` and of `stripewise create`, which are the same."""
        words = [f"--level={self.level}", f"--raid-devices={len(self.members)}", f"--metadata={self.metadata}"]
        words += [f"--layout={self.layout}"] if self.layout else []
        words += [f"--chunk={self.chunk}K"] if self.chunk else []
        words += [f"--spare-devices={self.spares}"] if self.spares else []
        words += ["--bitmap=internal"] if self.bitmap else []
        words += ["--consistency-policy=ppl"] if self.ppl else []
        words += [f"--data-offset={self.data_offset}K"] if self.data_offset else []
        words += [f"--size={self.size}K"] if self.size else []
        words += [] if self.sync else ["--assume-clean"]
        return words


def equal(count, size=6 * MIB):
    return (size,) * count


def fixed():
    """The list that every change must pass: each layout, version, chunk and option at least once."""
    def rotate(values, n):
        return values[n % len(values)]

    yield Shape("linear", equal(2))
    yield Shape("linear", (6 * MIB, 9 * MIB, 7 * MIB + 36), metadata="1.0", chunk=64)
    yield Shape("linear", (5 * MIB + 68, 8 * MIB, 6 * MIB), metadata="0.90", chunk=32)
    yield Shape("linear", equal(4, 5 * MIB), metadata="1.1")
    yield Shape("0", equal(2), chunk=64)
    yield Shape("0", equal(5), chunk=4, metadata="1.0")
    yield Shape("0", equal(3), chunk=512, metadata="0.90")
    yield Shape("0", equal(10, 6 * MIB), chunk=16, metadata="1.1")
    for n, layout in enumerate(["original", "alternate"]):
        yield Shape("0", (6 * MIB, 9 * MIB, 14 * MIB), layout=layout, chunk=64)
        yield Shape("0", (12 * MIB, 6 * MIB + 100, 6 * MIB + 100, 9 * MIB), layout=layout, chunk=(16, 4)[n], metadata=("1.1", "1.0")[n])
        yield Shape("0", (9 * MIB, 20 * MIB, 7 * MIB, 7 * MIB, 13 * MIB), layout=layout, chunk=1024)
    yield Shape("1", equal(2))
    yield Shape("1", equal(2), metadata="0.90", bitmap=True)
    yield Shape("1", (8 * MIB, 9 * MIB, 11 * MIB), metadata="1.0", bitmap=True)
    yield Shape("1", equal(4), metadata="1.1", missing=(2,))
    yield Shape("1", equal(2), spares=1, sync=True)
    yield Shape("1", equal(3), data_offset=3 * MIB)
    yield Shape("4", equal(3), chunk=4)
    yield Shape("4", equal(5), chunk=64, metadata="0.90", missing=(4,))
    yield Shape("4", equal(4), chunk=128, metadata="1.0", bitmap=True)
    yield Shape("4", equal(6), chunk=32, metadata="1.1", sync=True)
    for n, layout in enumerate(RAID5_LAYOUTS):
        yield Shape("5", equal(3 + n % 3), layout=layout, chunk=rotate(CHUNKS_KIB[:7], n), metadata=rotate(VERSIONS, n), bitmap=n % 2 == 0)
        yield Shape("5", equal(4 + n), layout=layout, chunk=rotate(CHUNKS_KIB[:7], n + 3), metadata=rotate(VERSIONS, n + 2),
                    missing=(n % (4 + n),) if n % 2 else ())
    yield Shape("5", equal(2), chunk=64)
    yield Shape("5", equal(5, 12 * MIB), chunk=1024, bitmap=True)
    yield Shape("5", equal(4, 20 * MIB))  # mdadm's default chunk
    yield Shape("5", equal(4, 12 * MIB), chunk=64, ppl=True)
    yield Shape("5", equal(3, 12 * MIB), chunk=16, ppl=True, metadata="1.1")
    yield Shape("5", equal(4), chunk=64, spares=1, sync=True)
    yield Shape("5", equal(3), chunk=64, metadata="0.90", sync=True)
    yield Shape("5", (8 * MIB + 4, 9 * MIB, 12 * MIB), chunk=64)
    yield Shape("5", equal(3), chunk=32, size=4 * MIB)
    yield Shape("5", equal(4), chunk=64, data_offset=2 * MIB, bitmap=True)
    yield Shape("5", equal(18, 6 * MIB), chunk=64)
    for n, layout in enumerate(RAID6_LAYOUTS):
        yield Shape("6", equal(4 + n % 4), layout=layout, chunk=rotate(CHUNKS_KIB[:7], n + 1), metadata=rotate(VERSIONS, n + 1), bitmap=n % 3 == 2,
                    missing=(1,) if n % 5 == 3 else (0, 3) if n % 5 == 4 else ())
    yield Shape("6", equal(10), chunk=64, sync=True)
    yield Shape("6", equal(17, 6 * MIB), chunk=16, layout="left-symmetric")
    for n, layout in enumerate(RAID10_LAYOUTS):
        copies = int(layout[1])
        yield Shape("10", equal(copies + n % 2), layout=layout, chunk=rotate(CHUNKS_KIB[:8], n), metadata=rotate(VERSIONS, n), bitmap=n % 2 == 1)
        yield Shape("10", equal(copies + 1 + n % 4, 10 * MIB), layout=layout, chunk=rotate(CHUNKS_KIB, n + 4), metadata=rotate(VERSIONS, n + 1),
                    missing=(n % copies,) if n % 3 == 0 else (), sync=n % 4 == 1)
    yield Shape("10", (8 * MIB, 9 * MIB, 10 * MIB + 12), chunk=64)
    yield Shape("10", equal(4), chunk=64, spares=1, bitmap=True)
    yield Shape("10", equal(16, 6 * MIB), layout="f2", chunk=32)


def drawn(count, seed):
    """`count` arrays whose every parameter is drawn."""
    draw = random.Random(f"shapes {seed}")
    while count:
        shape = one(draw)
        if shape:
            count -= 1
            yield shape


def one(draw):
    level = draw.choice(["linear", "0", "1", "4", "5", "5", "6", "6", "10", "10"])
    metadata = draw.choice(VERSIONS)
    layout = {"0": lambda: draw.choice(["original", "alternate"]) if metadata != "0.90" else None,
              "5": lambda: draw.choice(RAID5_LAYOUTS), "6": lambda: draw.choice(RAID6_LAYOUTS),
              "10": lambda: draw.choice(RAID10_LAYOUTS)}.get(level, lambda: None)()
    least = int(layout[1]) if level == "10" else {"4": 3, "5": 3, "6": 4}.get(level, 2)
    count = draw.choice([least, least + 1, least + 2, draw.randint(least, 10), draw.randint(least, 20)])
    if level == "1":
        count = min(count, 5)
    chunk = None if level == "1" else draw.choice(CHUNKS_KIB)
    base = draw.randint(6 * MIB, 14 * MIB)
    uneven = draw.random() < (0.6 if level in ("linear", "0") else 0.25) and not (level == "0" and metadata == "0.90")
    members = tuple(base + (draw.randint(0, 3 * MIB) if uneven else 0) for _ in range(count))
    shape = Shape(level, members, layout=layout, chunk=chunk, metadata=metadata)
    if level not in REDUNDANT:
        return shape
    changes = {}
    log = draw.choice(["none", "none", "bitmap", "bitmap", "ppl"])
    if log == "bitmap":
        changes["bitmap"] = True
    if log == "ppl" and level == "5" and metadata != "0.90" and chunk <= 128:
        changes["ppl"] = True
    if draw.random() < 0.25:
        lost = draw.randint(1, {"4": 1, "5": 1, "6": 2}.get(level, shape.copies - 1))
        if not changes.get("ppl"):
            changes["missing"] = tuple(sorted(draw.sample(range(count), lost)))
    else:
        changes["sync"] = draw.random() < 0.25
        changes["spares"] = 1 if draw.random() < 0.2 else 0
    if draw.random() < 0.2 and metadata in ("1.1", "1.2"):
        # A partial parity log of 1 MiB lies before the data.
        changes["data_offset"] = max(draw.choice([1, 2, 3]), 2 if changes.get("ppl") else 1) * MIB
    if draw.random() < 0.2:
        changes["size"] = draw.choice([3, 3.5]) * MIB // (chunk or 64) * (chunk or 64)
        changes["size"] = int(changes["size"])
    return dataclasses.replace(shape, **changes)
