"""Runs as the first program of the kernel that uml.py boots: Linux md on RAM disks, measured by fio, by request."""
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import guest

disks = []  # the RAM disks


def load_disks(count, mib):
    """RAM disks, each written once: a page that was never written costs nothing to read and a fault to write."""
    kernel = os.uname().release
    module = next(pathlib.Path("/usr/lib/uml/modules", kernel).rglob("brd.ko"))
    guest.run("insmod", str(module), f"rd_nr={count}", f"rd_size={mib * 1024}")
    disks[:] = [f"/dev/ram{number}" for number in range(count)]
    zeroes = bytes(1 << 20)
    for disk in disks:
        with open(disk, "wb", buffering=0) as device:
            for _ in range(mib):
                device.write(zeroes)


def create(level, chunk_kib, stripe_cache, clean, members=None):
    used = disks[:members]
    words = ["--level", str(level), "--raid-devices", str(len(used)), "--chunk", str(chunk_kib), *(["--bitmap", "none"] if level else [])]
    guest.run("mdadm", "--create", guest.ARRAY, "--run", *words, *(["--assume-clean"] if clean and level else []), *used)
    guest.hurry()
    if guest.attribute("stripe_cache_size") is not None:
        guest.attribute("stripe_cache_size", stripe_cache)


def measure(level, chunk_kib, stripe_cache, jobs, seconds, members=None):
    """fio's answer, bytes and I/Os a second, for each of the jobs (fio's words) on a fresh array."""
    create(level, chunk_kib, stripe_cache, True, members)
    answers = [measure_disk(guest.ARRAY, words, seconds) for words in jobs]
    guest.stop()
    return answers


def measure_disk(disk, words, seconds):
    command = ["fio", "--name=job", f"--filename={disk}", "--direct=1", "--ioengine=libaio", "--time_based",
               f"--runtime={seconds}", "--thread", "--randseed=1", "--output-format=json", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise guest.Refused(f"{' '.join(command)}: {done.stderr.strip()}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    return {"bytes": side["bw_bytes"], "iops": side["iops"]}


def symbols():
    """The kernel's functions, modules' too."""
    pathlib.Path("/proc/sys/kernel/kptr_restrict").write_text("0")
    return pathlib.Path("/proc/kallsyms").read_text()


def resync(level, chunk_kib):
    """Bytes a second of every member while md makes parity right, and while it fills a member."""
    create(level, chunk_kib, 4096, False)
    answers = {"resync": timed_sync()}
    guest.run("mdadm", guest.ARRAY, "--fail", disks[-1])
    guest.run("mdadm", guest.ARRAY, "--remove", disks[-1])
    guest.run("mdadm", "--zero-superblock", disks[-1])
    guest.run("mdadm", guest.ARRAY, "--add", disks[-1])
    answers["recovery"] = timed_sync()
    guest.stop()
    return answers


def timed_sync():
    deadline = time.monotonic() + 5
    while guest.attribute("sync_action") == "idle" and time.monotonic() < deadline:
        time.sleep(0.005)
    began, first = time.monotonic(), synced()
    guest.wait_idle()
    # wait_idle sees the end three looks of 30 ms late.
    seconds = time.monotonic() - began - 0.09
    member_bytes = 1024 * int(guest.attribute("component_size"))
    return (member_bytes - first) / seconds


def synced():
    done = (guest.attribute("sync_completed") or "none").split(" /")[0]
    return 512 * int(done) if done.isdigit() else 0


guest.OPERATIONS = {"disks": load_disks, "measure": measure, "measure_disk": measure_disk, "resync": resync, "symbols": symbols}

if __name__ == "__main__":
    with open(sys.argv[1], "a") as log_file:
        guest.serve(log_file)
