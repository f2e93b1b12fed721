#!/usr/bin/env python3
"""A drive fitted by reading: `models calibrate` on a modelled drive that answers in real time through nbdfuse.

    tests/interop/calibrate.py PATH-OF-stripewise

Needs, on Debian: apt-get install libnbd-bin; root and FUSE. Takes one to three minutes, on a machine with nothing else to do.
Ends with `N passed, N failed`; exit codes: 0 passed, 1 failed, 77 what is needed is not there, or the machine is too busy.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

DRIVE, LIKE, READS = "st3320620as", "st31000333as", 100
# Delays of a twentieth of a revolution show in what is fitted.
OVERSLEEP_MAX_MS = 0.4
ATTEMPTS, CHECKS = 3, 5


def parameters(stripewise, model):
    shown = subprocess.run([stripewise, "models", "show", model, "--json"], check=True, capture_output=True)
    return {p["name"]: p for p in json.loads(shown.stdout)["parameters"]}


def wait_for(path, process):
    for _ in range(400):
        if path.exists():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.05)
    return False


def calibrate(stripewise, folder):
    """The JSON of a fit to the served drive; nothing where there is no FUSE."""
    socket, fuse = folder / "drive.sock", folder / "fuse"
    fuse.mkdir()
    server = subprocess.Popen([stripewise, "drive", "serve", DRIVE, "--socket", socket], stdout=subprocess.DEVNULL)
    mounted = None
    try:
        if not wait_for(socket, server):
            sys.exit("the drive is not served")
        mounted = subprocess.Popen(["nbdfuse", fuse, f"nbd+unix:///?socket={socket}"])
        if not wait_for(fuse / "nbd", mounted):
            return None
        command = [stripewise, "models", "calibrate", fuse / "nbd", "-o", folder / "my-drive.toml"]
        command += ["--like", LIKE, "--reads", str(READS), "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    finally:
        if mounted:
            subprocess.run(["umount", fuse], check=False, stderr=subprocess.DEVNULL)
            mounted.wait()
        server.terminate()
        server.wait()


def oversleep_ms():
    """How late this process is when it wants to be woken: the ninth decile of two hundred times."""
    late = []
    for _ in range(200):
        start = time.perf_counter()
        time.sleep(0.002)
        late.append((time.perf_counter() - start - 0.002) * 1e3)
    return sorted(late)[180]


def main():
    stripewise = pathlib.Path(sys.argv[1]).resolve()
    if oversleep_ms() > OVERSLEEP_MAX_MS:
        print("the machine is too busy for a drive in real time; nothing was tested")
        sys.exit(77)
    if not shutil.which("nbdfuse"):
        print("not installed: nbdfuse; nothing was tested")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="calibrate.", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        # Reads that come late for what else the machine does look like long seeks or other revolutions: a figure is wrong
        # that is wrong each time.
        wrong = None
        for attempt in range(1, ATTEMPTS + 1):
            own = folder / str(attempt)
            own.mkdir()
            found = judge(stripewise, own)
            wrong = found if wrong is None else wrong & found
            if not wrong:
                break
    print(f"{CHECKS - len(wrong)} passed, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


def judge(stripewise, folder):
    """Which figures of a fit are wrong."""
    fit = calibrate(stripewise, folder)
    if fit is None:
        print("no FUSE here; nothing was tested")
        sys.exit(77)
    truth, found = parameters(stripewise, DRIVE), parameters(stripewise, folder / "my-drive.toml")
    # The way through FUSE and socket, half a millisecond to one, counts as a part of every seek.
    checks = [(name, found[name]["value"], truth[name]["value"], share) for name, share in [
        ("capacity", 0), ("rpm", 0), ("seek_average_read", 0.15), ("seek_max_read", 0.1)]]
    checks.append(("median error of the probes", 1 + fit["error_median"], 1, 0.05))
    assert len(checks) == CHECKS
    wrong = set()
    for what, value, wanted, share in checks:
        is_right = abs(value / wanted - 1) <= share
        if not is_right:
            wrong.add(what)
        print(f"{'ok     ' if is_right else 'WRONG  '} {what}: {value}, the served drive's is {wanted}")
    return wrong


if __name__ == "__main__":
    main()
