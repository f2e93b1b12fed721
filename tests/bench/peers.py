#!/usr/bin/env python3
"""Arrays in memory beside real Linux md 6.1 and btrfs, by the same jobs, in interleaved rounds.

    tests/bench/peers.py PATH-OF-stripewise [--quick] [--rounds N] [md|btrfs|attached ...]

md runs on RAM disks in user-mode-linux, btrfs on loop devices over files in memory with this machine's own kernel. Beside
them, stripewise in its own process (`bench --on memory`; long requests on one shard, and on one for every CPU up to four), and attached:
served from files in memory as a mounted file, and with a loop device over it. Needs, on Debian: apt-get install fio mdadm
user-mode-linux kmod btrfs-progs; btrfs and attached need root. What is not there is said and left out.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]
import table

MEMBERS = 5
CHUNK_KIB = 64
# A request of 4 MiB has four parts.
SHARDS_MAX = 4
IN_PROCESS, ATTACHED = 5.0, 1.0
# fio's words; stripewise bench takes the same.
JOBS = {
    "4 MiB sequential write": {"rw": "write", "bs": "4m", "iodepth": "4"},
    "4 MiB sequential read": {"rw": "read", "bs": "4m", "iodepth": "4"},
    "4 KiB random write": {"rw": "randwrite", "bs": "4k", "iodepth": "32"},
    "4 KiB random read": {"rw": "randread", "bs": "4k", "iodepth": "32"},
}


def unit(job):
    return "iops" if "random" in job else "bytes"


def fio_words(job):
    return [f"--{name}={value}" for name, value in JOBS[job].items()]


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def figures(report):
    """Bytes and I/Os a second of a report of fio's."""
    job = json.loads(report[report.index("{"):])["jobs"][0]
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    return {"bytes": side["bw_bytes"], "iops": side["iops"]}


def fio(path, job, seconds, size=None):
    words = ["fio", "--name=job", f"--filename={path}", "--direct=1", "--ioengine=libaio", "--time_based", "--thread",
             f"--runtime={seconds}", "--randseed=1", "--output-format=json", *fio_words(job)]
    return figures(run(*words, *([f"--size={size}"] if size else [])))


class Ours:
    """The command, in its own process."""

    def __init__(self, binary, member_mib, seconds):
        self.binary, self.member_mib, self.seconds = binary, member_mib, seconds

    def measure(self, level, job, stripe_cache=256, shards=1):
        words = [word for name, value in JOBS[job].items() for word in (f"--{name}", value)]
        report = json.loads(run(
            self.binary, "bench", "--on", "memory", "--member-size", f"{self.member_mib}m", "--level", str(level),
            "--raid-devices", str(MEMBERS), "--chunk", f"{CHUNK_KIB}K", "--stripe-cache-size", str(stripe_cache),
            "--shards", str(shards), "--runtime", f"{self.seconds}s", "--json", *words))
        side = report["read"] if report["read"]["ios"] else report["write"]
        return {"bytes": side["bytes"] / report["seconds"], "iops": side["ios"] / report["seconds"]}


class Attached:
    """An array served from files in memory: a file, and a loop device of this machine's kernel over it."""

    def __init__(self, binary, level, member_mib):
        self.work = tempfile.TemporaryDirectory(prefix="peers.", dir="/dev/shm")
        self.file, self.loop, self.server = f"{self.work.name}/folder/disk", None, None
        members = [f"{self.work.name}/member{number}" for number in range(MEMBERS)]
        for member in members:
            pathlib.Path(member).write_bytes(bytes(member_mib << 20))
        run(binary, "create", "--level", str(level), "--raid-devices", str(MEMBERS), f"--chunk={CHUNK_KIB}K", "--assume-clean", *members)
        folder = f"{self.work.name}/folder"
        os.mkdir(folder)
        self.server = subprocess.Popen([binary, "serve", *members, "--mount", folder], stdout=subprocess.PIPE, text=True)
        if "Ready" not in self.server.stdout.readline():
            raise SystemExit("stripewise does not serve")
        self.loop = run("losetup", "--direct-io=on", "--show", "-f", self.file).strip()

    def close(self):
        if self.loop:
            run("losetup", "-d", self.loop)
        if self.server:
            self.server.terminate()
            self.server.wait()
        self.work.cleanup()


class Btrfs:
    """btrfs on loop devices over files in memory, its file written once before it is measured."""

    def __init__(self, level, member_mib):
        self.work = tempfile.TemporaryDirectory(prefix="peers.", dir="/dev/shm")
        self.loops, self.mounted = [], False
        try:
            self.make(f"raid{level}", member_mib)
        except BaseException:
            self.close()
            raise

    def make(self, profile, member_mib):
        for number in range(MEMBERS):
            member = pathlib.Path(f"{self.work.name}/member{number}")
            member.write_bytes(bytes(member_mib << 20))
            self.loops.append(run("losetup", "--show", "-f", str(member)).strip())
        self.folder = f"{self.work.name}/mnt"
        os.mkdir(self.folder)
        run("mkfs.btrfs", "-q", "-f", "-d", profile, "-m", "raid1", *self.loops)
        run("mount", self.loops[0], self.folder)
        self.mounted = True
        # A third of what raid6 has room for: overwriting takes new room until the next commit.
        self.size = member_mib << 20
        self.path = f"{self.folder}/file"
        run("fio", "--name=fill", f"--filename={self.path}", "--rw=write", "--bs=4m", f"--size={self.size}", "--end_fsync=1")

    def measure(self, job, seconds):
        return fio(self.path, job, seconds, self.size)

    def scrub(self):
        """Bytes a second that a scrub reads."""
        began = time.monotonic()
        text = run("btrfs", "scrub", "start", "-B", "-R", self.folder)
        scrubbed = sum(int(line.split(":")[1]) for line in text.splitlines() if "bytes_scrubbed" in line)
        return scrubbed / (time.monotonic() - began)

    def close(self):
        if self.mounted:
            run("umount", self.folder)
        for device in self.loops:
            run("losetup", "-d", device)
        self.work.cleanup()


def rounds_of(rounds, *contenders):
    """Samples of contenders that take turns."""
    samples = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, kept in zip(contenders, samples):
            kept.append(contender())
    return samples


def in_process(options, ours, title, theirs, level, job, **with_):
    """A row of one thread, and of long requests another of as many as there are CPUs."""
    kind = unit(job)
    cpus = min(len(os.sched_getaffinity(0)), SHARDS_MAX)
    counts = sorted({1, cpus}) if kind == "bytes" else [1]
    contenders = [lambda count=count: ours.measure(level, job, shards=count, **with_) for count in counts]
    *mine, peer = rounds_of(options.rounds, *contenders, theirs)
    for count, samples in zip(counts, mine):
        how = f", {count} shards" if count > 1 else ""
        print(table.row(title + how, kind, pick(samples, kind), pick(peer, kind), IN_PROCESS), flush=True)


def pick(samples, what):
    return [sample[what] for sample in samples]


def beside_md(options, ours):
    import uml
    memory = MEMBERS * options.member_mib + 512
    with uml.Guest(f"{memory}M", HERE / "md_guest.py") as guest:
        print(f"Linux md {guest.kernel} in user-mode-linux, RAID-5 of {MEMBERS} RAM disks of {options.member_mib} MiB")
        guest.request("disks", count=MEMBERS, mib=options.member_mib)
        for stripe_cache in (256, 4096):
            for job in JOBS:
                theirs = lambda: guest.request("measure", level=5, chunk_kib=CHUNK_KIB, stripe_cache=stripe_cache,
                                               jobs=[fio_words(job)], seconds=options.seconds)[0]
                title = f"md, in process: {job}, stripe cache {stripe_cache}"
                in_process(options, ours, title, theirs, 5, job, stripe_cache=stripe_cache)
        syncs = [guest.request("resync", level=5, chunk_kib=CHUNK_KIB) for _ in range(options.rounds)]
        for what in ("resync", "recovery"):
            found = ", ".join(f"{sync[what] / 1e9:.2f}" for sync in syncs)
            print(f"md, {what}: {found} GB/s of every member (ours: stripewise bench --self sync)")
        beside_attached(options, "md", lambda job: guest.request(
            "measure", level=5, chunk_kib=CHUNK_KIB, stripe_cache=4096, jobs=[fio_words(job)], seconds=options.seconds)[0])


def beside_attached(options, name, theirs):
    why = missing("fio", "losetup", root=True)
    if why or not {"attached", name} <= options.parts:
        print(f"{name}, attached: {why or 'not asked for'}")
        return
    attached = Attached(options.stripewise, 5, options.member_mib)
    try:
        for job in JOBS:
            device, file, peer = rounds_of(options.rounds, lambda: fio(attached.loop, job, options.seconds),
                                           lambda: fio(attached.file, job, options.seconds), lambda: theirs(job))
            kind = unit(job)
            for how, mine in (("attached", device), ("as a mounted file", file)):
                print(table.row(f"{name}, {how}: {job}", kind, pick(mine, kind), pick(peer, kind), ATTACHED), flush=True)
    finally:
        attached.close()


def beside_btrfs(options, ours):
    print(f"btrfs of Linux {platform.release()} on {MEMBERS} loop devices over files in memory of {options.member_mib} MiB")
    for level in (5, 6, 0):
        peer = Btrfs(level, options.member_mib)
        try:
            for job in JOBS:
                title = f"btrfs raid{level}, in process: {job}"
                in_process(options, ours, title, lambda: peer.measure(job, options.seconds), level, job)
            if level == 5:
                print(f"btrfs raid5, scrub: {peer.scrub() / 1e9:.2f} GB/s read (ours: stripewise bench --self sync)")
                beside_attached(options, "btrfs", lambda job: peer.measure(job, options.seconds))
        finally:
            peer.close()


def missing(*programs, root=False):
    """Why something cannot be measured here; nothing if it can."""
    absent = [program for program in programs if not shutil.which(program)]
    if absent:
        return f"absent: {', '.join(absent)} is not installed"
    return "absent: needs root" if root and os.geteuid() != 0 else None


def btrfs_missing():
    why = missing("fio", "mkfs.btrfs", "losetup", root=True)
    if not why and "\tbtrfs\n" not in pathlib.Path("/proc/filesystems").read_text():
        subprocess.run(["modprobe", "btrfs"], check=False, stderr=subprocess.DEVNULL)
        if "\tbtrfs\n" not in pathlib.Path("/proc/filesystems").read_text():
            why = "absent: this kernel has no btrfs"
    return why


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stripewise")
    parser.add_argument("--quick", action="store_true", help="one short round on small members: shows that it runs")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("parts", nargs="*", metavar="md|btrfs|attached", help="all if none is named")
    options = parser.parse_intermixed_args()
    # So that what is mounted and attached is given back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if unknown := set(options.parts) - {"md", "btrfs", "attached"}:
        parser.error(f"not a part: {', '.join(sorted(unknown))}; there are md, btrfs, attached")
    options.stripewise = os.path.realpath(options.stripewise)
    options.parts = set(options.parts) or {"md", "btrfs", "attached"}
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds, options.member_mib = (1, 160) if options.quick else (3, 512)
    cpus = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    print(f"{cpus[0] if cpus else platform.processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}, "
          f"load {os.getloadavg()[0]:.1f}; {options.rounds} rounds of {options.seconds} s")
    print(table.heading())
    ours = Ours(options.stripewise, options.member_mib, options.seconds)
    for part, why, beside in (("md", missing("fio", "mdadm", "linux.uml"), beside_md), ("btrfs", btrfs_missing(), beside_btrfs)):
        if part in options.parts:
            print(f"{part}: {why}") if why else beside(options, ours)


if __name__ == "__main__":
    main()
