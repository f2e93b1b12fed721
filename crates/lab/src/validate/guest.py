"""Runs as the first program of the kernel that `stripewise study validate` boots: makes arrays with mdadm, plays lists of
requests on them, and says how long that took and what md sent to the members.

Reads plan.json in the folder given; appends a line of JSON for each cell to results.jsonl there.
"""
import json
import mmap
import os
import pathlib
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


def create(cell, names):
    run("mdadm", "--create", ARRAY, "--run", "--assume-clean", "--bitmap=none", "--metadata=1.2",
        f"--level={cell['level']}", f"--chunk={cell['chunk_kib']}", f"--size={cell['member_kib']}",
        f"--data-offset={cell['data_offset_kib']}K", f"--raid-devices={len(names)}", *[f"/dev/{name}" for name in names])
    MD.joinpath("safe_mode_delay").write_text("0")  # the array stays active: no superblock is written in between


def forget(cell):
    """Leaves nothing of an earlier cell in the stripe cache: it is made as small as can be, and what it then holds is
    of the array's end, which no list touches. The write also makes the array active."""
    MD.joinpath("stripe_cache_size").write_text("17")
    end = int(pathlib.Path("/sys/block/md0/size").read_text()) * SECTOR
    descriptor = os.open(ARRAY, os.O_RDWR | os.O_DIRECT)
    os.pwrite(descriptor, mmap.mmap(-1, cell["reserved_kib"] * 1024), end - cell["reserved_kib"] * 1024)
    os.close(descriptor)
    MD.joinpath("stripe_cache_size").write_text(str(cell["stripe_cache_size"]))


def settle():
    """Waits until md holds nothing back."""
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


def shape(cell):
    return [cell[key] for key in ("level", "members", "chunk_kib", "member_kib", "data_offset_kib")]


def one(cell, names):
    forget(cell)
    settle()
    time.sleep(cell["rest_s"])
    before = [stats(name) for name in names]
    seconds = play(ARRAY, cell["streams"], cell["is_write"])
    settle()
    after = [stats(name) for name in names]
    return {"seconds": seconds, "members": [[b - a for a, b in zip(*pair)] for pair in zip(before, after)]}


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
        probed = {"read_s": probe(devices[0], plan["probe_reads"])} if plan["probe_reads"] else {}
        tell({"kernel": os.uname().release, **probed})
        running = None
        for cell in plan["cells"]:
            names = devices[:cell["members"]]
            try:
                if running != shape(cell):
                    if running:
                        run("mdadm", "--stop", ARRAY)
                    create(cell, names)
                    running = shape(cell)
                tell(one(cell, names))
            except Exception:
                tell({"failed": traceback.format_exc()})
                return
    os.sync()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
