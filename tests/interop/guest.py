"""Runs as the first program of the kernel that uml.py boots: md and mdadm, by request.

Every operation starts and ends with no array and no loop device, and ends with all bytes in the image files:
the host reads and writes them between operations.
"""
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import traceback
import tty

MODULES = ("libcrc32c async_tx async_memcpy async_xor async_pq async_raid6_recov md-mod linear raid0 raid1 raid10 raid456 "
           "loop")
ARRAY = "/dev/md0"
MD = pathlib.Path("/sys/block/md0/md")
SYNC_LIMIT_S = 60
# <linux/loop.h>, <linux/fs.h>. Starting a program takes 0.2 s in here: losetup and blockdev would be half the time.
LOOP_SET_FD, LOOP_CLR_FD, LOOP_CTL_GET_FREE, BLKFLSBUF = 0x4C00, 0x4C01, 0x4C82, 0x1261

used = []  # loop devices of this request


class Refused(Exception):
    """A program ended with an error; the text says which and why."""


def run(*words, check=True):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise Refused(f"{' '.join(words)}: exit {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def load_modules():
    kernel = os.uname().release
    for name in MODULES.split():
        found = list(pathlib.Path("/usr/lib/uml/modules", kernel).rglob(f"{name}.ko"))
        if found:
            run("insmod", str(found[0]), *(["max_loop=64"] if name == "loop" else []), check=False)


def attach(paths):
    """Images, by name, as loop devices; the word `missing` stays."""
    return [path if path == "missing" else loop(path) for path in paths]


def loop(path):
    control = os.open("/dev/loop-control", os.O_RDWR)
    number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
    os.close(control)
    device = f"/dev/loop{number}"
    file, node = os.open(path, os.O_RDWR), os.open(device, os.O_RDWR)
    fcntl.ioctl(node, LOOP_SET_FD, file)
    os.close(node)
    os.close(file)
    used.append(device)
    return device


def ask(device, request):
    node = os.open(device, os.O_RDONLY)
    try:
        fcntl.ioctl(node, request)
    finally:
        os.close(node)


def release():
    """Leaves nothing behind, whatever happened before."""
    if os.path.exists(MD):
        run("mdadm", "--stop", ARRAY, check=False)
    while used:
        ask(used.pop(), LOOP_CLR_FD)
    os.sync()
    # The host changes the images next: cached pages of them would be stale.
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def stop():
    for _ in range(50):
        if subprocess.run(["mdadm", "--stop", ARRAY], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    run("mdadm", "--stop", ARRAY)


def attribute(name, value=None):
    path = MD / name
    if value is None:
        try:
            return path.read_text().strip()
        except FileNotFoundError:  # another level may have come meanwhile, which has none
            return None
    path.write_text(str(value))
    return None


def hurry():
    """md slows its own background work down for others' sake; there are no others here."""
    if attribute("sync_action") is not None:
        attribute("sync_speed_min", 2000000)
        attribute("sync_speed_max", 4000000)


def wait_idle():
    deadline = time.monotonic() + SYNC_LIMIT_S
    quiet = 0
    while quiet < 3:  # recovery is started by a thread: idle must last
        quiet = quiet + 1 if attribute("sync_action") in ("idle", None) else 0
        if time.monotonic() > deadline:
            raise Refused(f"sync_action is still {attribute('sync_action')} after {SYNC_LIMIT_S} s")
        time.sleep(0.03)


def array_bytes():
    return 512 * int(pathlib.Path("/sys/block/md0/size").read_text())


def write_ranges(seed, ranges):
    """The stream of `seed` into each [offset, length], as data.py makes it on the host."""
    source = random.Random(seed)
    fd = os.open(ARRAY, os.O_WRONLY)
    try:
        for offset, length in ranges:
            at, left = offset, length
            while left:
                part = source.randbytes(min(left, 1 << 20))
                os.pwrite(fd, part, at)
                at, left = at + len(part), left - len(part)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_again(offset, length):
    """Writes what is there: the superblocks are written with it."""
    fd = os.open(ARRAY, os.O_RDWR)
    try:
        os.pwrite(fd, os.pread(fd, length, offset), offset)
        os.fsync(fd)
    finally:
        os.close(fd)
    time.sleep(0.5)


def digest():
    ask(ARRAY, BLKFLSBUF)
    whole = hashlib.sha256()
    with open(ARRAY, "rb", buffering=0) as array:
        while data := array.read(1 << 20):
            whole.update(data)
    return whole.hexdigest()


def seen():
    """What the running array says of itself."""
    return {
        "size": array_bytes(),
        "sync_action": attribute("sync_action"),
        "array_state": attribute("array_state"),
        "degraded": attribute("degraded"),
        "resync_start": attribute("resync_start"),
        "bitmap": attribute("bitmap/location"),
    }


def check_redundancy():
    """Sectors where copies or parity do not agree; None where there are none to compare."""
    if attribute("sync_action") is None or int(attribute("degraded") or 0):
        return None
    attribute("sync_action", "check")
    time.sleep(0.02)
    wait_idle()
    return int(attribute("mismatch_cnt"))


def fill(answer, seed, ranges, whole):
    if whole:
        ranges = [[0, answer["size"]]]
    if ranges:
        write_ranges(seed, ranges)
    answer["sha256"] = digest()


def create(words, members, spares, seed, wait, bad=()):
    """mdadm --create, the whole array written, [member, sector, count] listed as bad, stopped."""
    devices = attach(members + spares)
    answer = {"said": run("mdadm", "--create", ARRAY, "--run", *words, *devices)}
    hurry()
    if wait:
        wait_idle()
    answer.update(seen())
    fill(answer, seed, [], True)
    for index, sector, count in bad:
        attribute(f"dev-{os.path.basename(devices[index])}/bad_blocks", f"{sector} {count}")
    if bad:
        write_again(0, 4096)
    answer["detail"] = run("mdadm", "-D", ARRAY)
    answer["detail_export"] = run("mdadm", "-D", "--export", ARRAY)
    stop()
    return answer


def assemble(members, partial, seed=None, ranges=(), check=False, add=(), settle=False, force=False, grow=(), update=None):
    """mdadm --assemble of just these images; then what is asked for, in this order: state, mdadm --grow and wait for what
    follows, add and wait for recovery, write, hash, check; stopped."""
    devices = attach(members)
    words = (["--run"] if partial else []) + (["--force"] if force else []) + ([f"--update={update}"] if update else [])
    answer = {"said": run("mdadm", "--assemble", ARRAY, *words, *devices)}
    answer.update(seen())
    answer["consistency_policy"] = attribute("consistency_policy")
    hurry()
    if settle:
        wait_idle()
    if grow:
        run("mdadm", "--grow", ARRAY, *grow)
        wait_idle()
        answer.update(seen())
    for path in add:
        run("mdadm", "--manage", ARRAY, "--add", *attach([path]))
    if add:
        wait_idle()
        answer["degraded_after_add"] = attribute("degraded")
    fill(answer, seed, ranges, False)
    if check:
        answer["mismatch_cnt"] = check_redundancy()
    answer["detail"] = run("mdadm", "-D", ARRAY)
    stop()
    return answer


def hold(at):
    """Sets sync_max of what has begun, which md takes only while it is interrupted."""
    for _ in range(50):
        attribute("sync_action", "frozen")
        try:
            attribute("sync_max", at)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        finally:
            attribute("sync_action", "idle")
        time.sleep(0.1)  # it was just about to begin
    raise Refused(f"sync_max: md is still busy with a {attribute('sync_action')}")


def part_way(members, create=(), add=None, replace=None, at=0, seed=0):
    """An array that is written whole and stopped in the middle of its own work: of the first resync or recovery after
    `create`, of the recovery onto `add`, or of the copy onto `replace`. `at` is the sector where the work is held."""
    limits = [pathlib.Path("/proc/sys/dev/raid", name) for name in ("speed_limit_min", "speed_limit_max")]
    before = [limit.read_text() for limit in limits]
    devices = attach(members)
    try:
        if not (add or replace):
            for limit in limits:
                limit.write_text("10")
        run("mdadm", "--create", ARRAY, "--run", *create, *devices)
        if add or replace:
            wait_idle()
            attribute("sync_max", at)
        if add:
            run("mdadm", "--manage", ARRAY, "--add", *attach([add]))
        if replace:
            run("mdadm", "--manage", ARRAY, "--add", *attach([replace]))
            time.sleep(0.2)
            run("mdadm", "--manage", ARRAY, "--replace", devices[0])
        if not (add or replace):  # md takes no lower sync_max while it works
            hold(at)
    finally:
        for limit, value in zip(limits, before):
            limit.write_text(value)
    hurry()
    deadline = time.monotonic() + SYNC_LIMIT_S
    while (attribute("sync_completed") or "none").split(" /")[0] != str(at):
        if time.monotonic() > deadline:
            raise Refused(f"sync_completed is {attribute('sync_completed')}, sync_action {attribute('sync_action')}; held at {at}")
        time.sleep(0.05)
    answer = seen()
    fill(answer, seed, [], True)
    answer["detail"] = run("mdadm", "-D", ARRAY)
    stop()
    return answer


def reshape(members, create=(), seed=0, add=(), partial=False, grow=(), at=None, run_on=False, pause_s=None, level=None,
            added=(), level_at_end=None, kept_kib=None, used_kib=None):
    """An array, made and written whole if there is a `create`, else assembled as it is, that is reshaped by `grow` (`mdadm --grow`)
    and stopped when the sector `at` of each member is reached, or at the end. With `run_on` a reshape goes on by itself, to its end or
    for a while. With `kept_kib` the array is cut short first, and less of each member is used with `used_kib`. `added` are images that `grow` calls added0 and so on; `level_at_end` is waited for. `level` is written where md takes another level, without mdadm, which may ask for more."""
    devices = attach(members)
    if create:
        answer = {"said": run("mdadm", "--create", ARRAY, "--run", *create, *devices)}
        hurry()
        wait_idle()
        write_ranges(seed, [[0, array_bytes()]])
    else:
        answer = {"said": run("mdadm", "--assemble", ARRAY, *(["--run"] if partial else []), *devices)}
        hurry()
    if add:
        run("mdadm", "--manage", ARRAY, "--add", *attach(add))
    if kept_kib:
        cut_short(kept_kib, used_kib)
    if at is not None:
        attribute("sync_max", at)
    if grow:
        attached = {f"added{n}": loop(path) for n, path in enumerate(added)}
        answer["grown"] = run("mdadm", "--grow", ARRAY, *(attached.get(word, word) for word in grow))
    if level:
        attribute("level", level)
        wait_idle()
    if at is not None:
        wait_held(at)
        answer["position"] = attribute("reshape_position")
        answer["direction"] = attribute("reshape_direction")
    elif pause_s is not None:
        time.sleep(pause_s)
        attribute("sync_action", "frozen")
    elif grow or run_on:
        wait_idle()
    if level_at_end:
        wait_level(level_at_end)
    answer.update(seen())
    if at is None and pause_s is None:  # a read would wait for a reshape that is held
        answer["sha256"] = digest()
        answer["mismatch_cnt"] = check_redundancy()
    answer["detail"] = run("mdadm", "-D", ARRAY)
    if at is not None:
        attribute("sync_action", "frozen")
    stop()
    return answer


def cut_short(kept_kib, used_kib):
    """What has to be said before a reshape to fewer members. Unless its direction is, too, the kernel refuses mdadm 4.2 the offset that
    it moves the data to."""
    run("mdadm", "--grow", ARRAY, f"--array-size={kept_kib}")
    if used_kib:
        run("mdadm", "--grow", ARRAY, f"--size={used_kib}")
    attribute("reshape_direction", "backwards")


def wait_level(level):
    """mdadm goes on in the background, and sets it last."""
    deadline = time.monotonic() + SYNC_LIMIT_S
    while attribute("level") != level:
        if time.monotonic() > deadline:
            raise Refused(f"the level is still {attribute('level')} after {SYNC_LIMIT_S} s")
        time.sleep(0.1)


def wait_held(at):
    deadline = time.monotonic() + SYNC_LIMIT_S
    if attribute("level") == "raid10":  # says how far it is only where it has to be recorded
        quiet, before = 0, None
        while quiet < 10 and time.monotonic() < deadline:
            now = attribute("reshape_position"), attribute("sync_completed")
            quiet, before = quiet + 1 if now == before else 0, now
            time.sleep(0.05)
        return
    while (attribute("sync_completed") or "none").split(" /")[0] != str(at):
        if time.monotonic() > deadline:
            raise Refused(f"sync_completed is {attribute('sync_completed')}, sync_action {attribute('sync_action')}; held at {at}")
        time.sleep(0.05)


def crash(members, create, ranges, seed, journal=None, mode=None):
    """An array that is written whole, then in `ranges`; beside each member a copy of what it held at that moment, with
    the array still active. It may have a write journal, in this `journal_mode` for the last writes."""
    devices = attach(members)
    own = [f"--write-journal={loop(journal)}"] if journal else []
    run("mdadm", "--create", ARRAY, "--run", *create, *own, *devices)
    wait_idle()
    attribute("safe_mode_delay", "60")
    answer = seen()
    answer["detail"] = run("mdadm", "-D", ARRAY)
    answer["detail_export"] = run("mdadm", "-D", "--export", ARRAY)
    fill(answer, seed, [], True)
    if mode:
        attribute("journal_mode", mode)
    write_ranges(seed + 1, ranges)
    answer["sha256"] = digest()
    os.sync()
    for path in members + ([journal] if journal else []):
        with open(path, "rb") as image, open(path + ".crashed", "wb") as copy:
            while data := image.read(1 << 20):
                copy.write(data)
    stop()
    return answer


def examine_bitmap(path):
    return run("mdadm", "--examine-bitmap", *attach([path]))


OPERATIONS = {"create": create, "assemble": assemble, "examine_bitmap": examine_bitmap, "part_way": part_way, "crash": crash,
              "reshape": reshape}


def serve(log):
    tty.setraw(0)
    tty.setraw(1)
    load_modules()
    print(json.dumps({"kernel": os.uname().release}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"returned": OPERATIONS[request["operation"]](**request["arguments"])}
        except Refused as refused:
            answer = {"failed": str(refused)}
        except Exception:  # told to the host: this program must live on
            answer = {"failed": traceback.format_exc()}
        try:
            release()
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
        log.write(line)
        log.flush()


if __name__ == "__main__":
    with open(sys.argv[1], "a") as log_file:
        serve(log_file)
