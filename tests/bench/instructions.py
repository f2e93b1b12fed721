#!/usr/bin/env python3
"""Instructions of a fixed set of operations, counted by callgrind, beside those on record.

    tests/bench/instructions.py [--update] [--binary PATH] [OPERATION ...]

Every operation of benches/instructions.rs is done N and then M times; what lies between, divided by M - N, is what one
costs, without what starting costs. A count above that of instructions.json by more than 3 % fails. `--update` writes what
was counted, so that a commit that changes a count shows it, and says why. Counts depend on the compiler, which is on
record too: those of another one are printed and not judged. Needs valgrind (Debian: apt-get install valgrind).
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECORD = HERE / "instructions.json"
RISE_MAX = 0.03
# How often each operation is done, at first and then.
COUNTS = {
    "raid0-random-read": (2000, 6000),
    "raid1-random-read": (2000, 6000),
    "raid10-random-read": (2000, 6000),
    "raid5-random-read": (2000, 6000),
    "raid5-rmw": (2000, 6000),
    "raid6-rmw": (2000, 6000),
    "raid5-full-stripe": (500, 1500),
    "raid5-sequential-read-1m": (1000, 3000),
    "raid5-sequential-write-4k": (1000, 3000),
    "raid10-random-write": (2000, 6000),
    "simulated-second-random-read": (1, 4),
    "simulated-second-random-write": (1, 4),
    "superblock-parse": (100, 1100),
    "superblock-to-bytes": (100, 1100),
}


def judge(recorded, counted):
    """Rises above the limit, operations not on record, and those on record that are no more."""
    risen = {name: counted[name] / recorded[name] - 1 for name in counted if name in recorded}
    risen = {name: rise for name, rise in risen.items() if rise > RISE_MAX}
    return risen, sorted(set(counted) - set(recorded)), sorted(set(recorded) - set(COUNTS))


def compiler():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def build():
    """The benchmark, as benchmarks are built."""
    command = ["cargo", "bench", "--quiet", "-p", "stripewise-lab", "--bench", "instructions", "--no-run", "--message-format=json"]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parent.parent).stdout
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "instructions":
            return message["executable"]
    sys.exit("cargo built no executable")


def instructions(binary, operation, count):
    with tempfile.NamedTemporaryFile() as out:
        # The memory allocator and hash seeds take nothing from the environment that way.
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", binary, operation, str(count)],
            capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"{operation}: {done.stderr.strip()}")
    return int(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write what was counted to instructions.json")
    parser.add_argument("--binary", help="the built benchmark; without, cargo builds it")
    parser.add_argument("operations", nargs="*", help="all if none is named")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("valgrind is not installed (Debian: apt-get install valgrind): nothing was counted")
        sys.exit(77)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"compiler": compiler(), "instructions": {}}
    if unknown := set(options.operations) - set(COUNTS):
        parser.error(f"no such operation: {', '.join(sorted(unknown))}; there are {', '.join(COUNTS)}")
    binary = options.binary or build()
    counted = {}
    print(f"{'':32} {'now':>12} {'on record':>12} {'change':>8}")
    for name in options.operations or COUNTS:
        first, then = COUNTS[name]
        counted[name] = round((instructions(binary, name, then) - instructions(binary, name, first)) / (then - first))
        was = record["instructions"].get(name)
        change = "new" if was is None else f"{(counted[name] / was - 1) * 100:+.1f} %"
        print(f"{name:32} {counted[name]:12,} {'-' if was is None else f'{was:,}':>12} {change:>8}", flush=True)
    if options.update:
        kept = {} if record["compiler"] != compiler() else record["instructions"]
        known = {name: (kept | counted)[name] for name in COUNTS if name in kept | counted}
        RECORD.write_text(json.dumps({"compiler": compiler(), "instructions": known}, indent=2) + "\n")
        return
    if record["compiler"] != compiler():
        print(f"not judged: on record are counts of {record['compiler']}, this is {compiler()}")
        return
    risen, new, gone = judge(record["instructions"], counted)
    for name, rise in risen.items():
        print(f"FAILED: {name} rose by {rise * 100:.1f} %; if that is worth it, run with --update and say why in the commit")
    for name in new:
        print(f"FAILED: {name} is not on record; run with --update")
    for name in gone:
        print(f"FAILED: {name} is on record and no more an operation; run with --update")
    sys.exit(1 if risen or new or gone else 0)


if __name__ == "__main__":
    main()
