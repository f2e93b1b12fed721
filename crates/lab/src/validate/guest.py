"""Runs as the first program of the kernel that `stripewise study validate` boots: makes arrays with mdadm, plays lists of
requests on them, and says how long that took and what md sent to the members.

Reads plan.json in the folder given; appends a line of JSON for each cell to results.jsonl there.
"""
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import traceback

ARRAY = "/dev/md0"
MD = pathlib.Path("/sys/block/md0/md")
SECTOR = 512


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def load_modules(names, options):
    root = pathlib.Path("/usr/lib/uml/modules", os.uname().release)
    files = {path.stem: path for path in root.rglob("*.ko")}
    for name in names:
        if name in files:  # else it is part of the kernel
            subprocess.run(["insmod", str(files[name]), *options.get(name, [])], stderr=subprocess.DEVNULL)


def counted_ram_disks(count):
    """RAM disks keep no count of what they are asked for; the device mapper's devices above them do."""
    names = []
    for index in range(count):
        sectors = int(pathlib.Path(f"/sys/block/ram{index}/size").read_text())
        run("dmsetup", "create", "--noudevsync", f"m{index}", "--table", f"0 {sectors} linear /dev/ram{index} 0")
        names.append(f"dm-{index}")
    return names


def set_queues(names, queue):
    for name in names:
        for key, value in queue:
            pathlib.Path(f"/sys/block/{name}/queue/{key}").write_text(str(value))


def stats(name):
    """Reads, sectors read, writes, sectors written."""
    words = pathlib.Path(f"/sys/block/{name}/stat").read_text().split()
    return [int(words[i]) for i in (0, 2, 4, 6)]


def create(cell, names, *more):
    chunk = [] if cell["level"] == 1 else [f"--chunk={cell['chunk_kib']}"]
    kib = cell["bitmap_chunk_kib"]
    bitmap = ["--bitmap=internal", f"--bitmap-chunk={kib}K"] if kib else ["--bitmap=none"]
    run("mdadm", "--create", ARRAY, "--run", *bitmap, "--metadata=1.2", f"--level={cell['level']}", *chunk,
        f"--size={cell['member_kib']}", f"--data-offset={cell['data_offset_kib']}K", f"--raid-devices={cell['members']}",
        *more, *[f"/dev/{name}" for name in names], *["missing"] * cell["missing"])
    MD.joinpath("safe_mode_delay").write_text("0")  # the array stays active: no superblock is written in between


def has_stripes():
    return MD.joinpath("stripe_cache_size").exists()


def clear_bitmap(names):
    """Has md clear every bit, then none any more."""
    MD.joinpath("bitmap/time_base").write_text("0.05")
    for _ in range(600):
        time.sleep(0.05)
        # The pages that count the writes of bits; the last goes when no bit is set.
        if re.search(r"bitmap: 0/", pathlib.Path("/proc/mdstat").read_text()):
            break
    else:
        raise RuntimeError(f"the bitmap is not cleared: {pathlib.Path('/proc/mdstat').read_text()}")
    before = None
    while before != (before := [stats(name) for name in names]):  # the cleared bits go to the members a round later
        time.sleep(0.5)
    MD.joinpath("bitmap/time_base").write_text("3600")
    time.sleep(0.2)  # a round that was due already


def forget(cell):
    """Leaves nothing of an earlier cell in the stripe cache: it is made as small as can be, and what it then holds is
    of the array's end, which no list touches. The write also makes the array active."""
    if has_stripes():
        MD.joinpath("stripe_cache_size").write_text("17")
    end = int(pathlib.Path("/sys/block/md0/size").read_text()) * SECTOR
    descriptor = os.open(ARRAY, os.O_RDWR | os.O_DIRECT)
    os.pwrite(descriptor, mmap.mmap(-1, cell["reserved_kib"] * 1024), end - cell["reserved_kib"] * 1024)
    os.close(descriptor)
    if has_stripes():
        MD.joinpath("stripe_cache_size").write_text(str(cell["stripe_cache_size"]))


def settle():
    """Waits until md holds nothing back."""
    if not has_stripes():
        return
    for _ in range(500):
        if MD.joinpath("stripe_cache_active").read_text().strip() == "0":
            return
        time.sleep(0.01)
    raise RuntimeError("stripe_cache_active does not become 0")


def play(target, streams, is_write):
    """Each list on a thread of its own, one request after the other. Seconds until the last has ended."""
    start = threading.Barrier(len(streams) + 1)
    failures = []

    def stream(requests):
        try:
            descriptor = os.open(target, os.O_RDWR | os.O_DIRECT)
            buffer = memoryview(mmap.mmap(-1, SECTOR * max(count for _, count in requests)))
            move = (lambda part, at: os.pwritev(descriptor, [part], at)) if is_write else \
                (lambda part, at: os.preadv(descriptor, [part], at))
            jobs = [(buffer[:count * SECTOR], first * SECTOR) for first, count in requests]
            start.wait()
            for part, at in jobs:
                if move(part, at) != len(part):
                    raise OSError(f"{len(part)} bytes at {at} were not moved whole")
            os.close(descriptor)
        except threading.BrokenBarrierError:
            pass  # another has failed
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
            start.abort()

    threads = [threading.Thread(target=stream, args=(requests,)) for requests in streams]
    for thread in threads:
        thread.start()
    begin = None
    try:
        start.wait()
        begin = time.monotonic()
    except threading.BrokenBarrierError:
        pass  # said below
    for thread in threads:
        thread.join()
    end = time.monotonic()
    if failures:
        raise RuntimeError(failures[0])
    return end - begin


class Beside:
    """Reads of an array that is at its own work: each list on a thread of its own, one request after the other."""

    def __init__(self, target, streams):
        self.done = [0] * len(streams)
        self.failed = []
        self.stop = False
        self.threads = [threading.Thread(target=self.read, args=(target, *numbered)) for numbered in enumerate(streams)]
        for thread in self.threads:
            thread.start()

    def read(self, target, number, requests):
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_DIRECT)
            buffer = [mmap.mmap(-1, SECTOR * max(count for _, count in requests))]
            while not self.stop:
                first, _ = requests[self.done[number] % len(requests)]
                os.preadv(descriptor, buffer, first * SECTOR)
                self.done[number] += 1
            os.close(descriptor)
        except Exception as error:
            self.failed.append(f"{type(error).__name__}: {error}")

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()
        if self.failed:
            raise RuntimeError(self.failed[0])


def probe(name, count):
    """Median of the seconds that reads of 4 KiB take, one after the other."""
    descriptor = os.open(f"/dev/{name}", os.O_RDONLY | os.O_DIRECT)
    buffer = [mmap.mmap(-1, 4096)]
    times = []
    for index in range(count):
        begin = time.monotonic()
        os.preadv(descriptor, buffer, index * 4096)
        times.append(time.monotonic() - begin)
    os.close(descriptor)
    return sorted(times)[count // 2]


def turn(count):
    """Median of the seconds from what wakes a thread of this program to its next call, as two that wake each other take."""
    there, back = os.pipe(), os.pipe()

    def echo():
        for _ in range(count):
            os.write(back[1], os.read(there[0], 1))

    other = threading.Thread(target=echo)
    other.start()
    times = []
    for _ in range(count):
        begin = time.monotonic()
        os.write(there[1], b".")
        os.read(back[0], 1)
        times.append((time.monotonic() - begin) / 2)
    other.join()
    for end in there + back:
        os.close(end)
    return sorted(times)[count // 2]


def shape(cell):
    return [cell[key] for key in ("level", "members", "missing", "chunk_kib", "member_kib", "data_offset_kib", "bitmap_chunk_kib")]


def one(cell, names):
    forget(cell)
    settle()
    if cell["bitmap_chunk_kib"]:
        clear_bitmap(names)
    time.sleep(cell["rest_s"])
    before = [stats(name) for name in names]
    seconds = play(ARRAY, cell["streams"], cell["is_write"])
    settle()
    after = [stats(name) for name in names]
    return {"seconds": seconds, "members": [[b - a for a, b in zip(*pair)] for pair in zip(before, after)]}


def attribute(name):
    return MD.joinpath(name).read_text().split()


def synced():
    """When it is, and how many sectors the array's own work has done. (sync_completed is where it was last recorded.)"""
    told = pathlib.Path("/proc/mdstat").read_text()
    done = re.search(r"= *[0-9.]+% \((\d+)/\d+\)", told)
    if not done:
        raise RuntimeError(f"the array's own work is over: {told}")
    return time.monotonic(), 2 * int(done[1])


def own_work(cell, devices):
    """What the array does by itself, from its start on, beside the reads if there are any: seconds, sectors and reads of the
    part that is watched."""
    sync = cell["sync"]
    names = devices[:cell["members"] - cell["missing"]]
    for name in devices[:cell["members"]]:
        subprocess.run(["mdadm", "--zero-superblock", f"/dev/{name}"], stderr=subprocess.DEVNULL)
    # --force: a RAID-5 is resynced, not made of one member less and a spare.
    create(cell, names, "--assume-clean" if sync["action"] == "recover" else "--force")
    for bound, kib in zip(("sync_speed_min", "sync_speed_max"), sync["speed_kib"]):
        MD.joinpath(bound).write_text(str(kib))
    if MD.joinpath("stripe_cache_size").exists():
        MD.joinpath("stripe_cache_size").write_text(str(cell["stripe_cache_size"]))
    time.sleep(cell["rest_s"])
    beside = Beside(ARRAY, cell["streams"])
    if sync["action"] == "recover":
        run("mdadm", "--add", ARRAY, *[f"/dev/{name}" for name in devices[len(names):cell["members"]]])
    for _ in range(1000):
        # RAID-10 may fill its window of 32 MiB before anything is done; nothing is told as 3 sectors.
        told = pathlib.Path("/proc/mdstat").read_text()
        if attribute("sync_action") == [sync["action"]] and "%" in told and synced()[1] > 4:
            break
        time.sleep(0.01)
    else:
        raise RuntimeError(f"{sync['action']} does not begin: {attribute('sync_action')}")
    time.sleep(sync["ramp_s"])
    (begin, before), read_before = synced(), sum(beside.done)
    time.sleep(sync["seconds"])
    (end, after), read = synced(), sum(beside.done) - read_before
    beside.end()
    run("mdadm", "--stop", ARRAY)
    return {"seconds": end - begin, "sync_sectors": after - before, "reads": read, "members": []}


def main(folder):
    plan = json.loads(folder.joinpath("plan.json").read_text())
    load_modules(plan["modules"], plan["module_options"])
    with open(folder.joinpath("results.jsonl"), "a", encoding="utf-8") as results:
        def tell(answer):
            results.write(json.dumps(answer) + "\n")
            results.flush()

        try:
            devices = counted_ram_disks(plan["ram_disks"]) if plan["ram_disks"] else plan["devices"]
            set_queues(devices, plan["queue"])
        except Exception:
            tell({"failed": traceback.format_exc()})
            return
        probes = plan["probes"]
        probed = {"read_s": probe(devices[0], probes), "turn_s": turn(probes)} if probes else {}
        tell({"kernel": os.uname().release, **probed})
        running = None
        for cell in plan["cells"]:
            names = devices[:cell["members"] - cell["missing"]]
            try:
                if cell["sync"]:
                    tell(own_work(cell, devices))
                    continue
                if running != shape(cell):
                    if running:
                        run("mdadm", "--stop", ARRAY)
                    create(cell, names, "--assume-clean")
                    running = shape(cell)
                tell(one(cell, names))
            except Exception:
                told = {key: value for key, value in cell.items() if key != "streams"}
                tell({"failed": f"{told}: {traceback.format_exc()}"})
                return
    os.sync()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
