#!/usr/bin/env python3
"""Arrays go back and forth between real Linux md and stripewise, and must keep every byte.

  matrix.py [--stripewise PATH] [--list] [--only PATTERN] [--random N] [--seed S] [--jobs N] [--keep DIR]

Linux runs as a process (Debian's user-mode-linux), with this machine's mdadm. Images are in TMPDIR, or in /dev/shm if there is room.
Needs, on Debian: apt-get install user-mode-linux mdadm kmod
Exit codes: 0 all passed; 1 some failed; 2 wrong arguments; 77 a program that is needed is not installed.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import grown
import journaled
import reshaped
import shapes
import shrunk
import striped
import unfinished
from case import Case
from uml import Guest, GuestFailed

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_INSTALLED = 77
IMAGES_BYTES = 3 << 30  # of a case, and of its kernel's memory
PEERS = {"linux.uml": "user-mode-linux", "mdadm": "mdadm", "insmod": "kmod"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stripewise", help="the binary [default: target/release/stripewise, built if missing]")
    parser.add_argument("--list", action="store_true", help="name the cases, run none")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="cases whose name has PATTERN in it (* and ? allowed)")
    parser.add_argument("--random", type=int, metavar="N", help="N arrays of drawn parameters instead of the fixed list")
    parser.add_argument("--seed", default="1", help="seed of --random")
    parser.add_argument("--jobs", type=int, default=2, help="kernels at a time")
    parser.add_argument("--keep", metavar="DIR", help="leave the images of failed cases there")
    return parser.parse_args()


def cases(options):
    made = []
    source = shapes.fixed() if options.random is None else shapes.drawn(options.random, options.seed)
    for number, shape in enumerate(source):
        for origin in ("mdadm", "stripewise"):
            if origin == "stripewise" or shape.mdadm_can():
                made.append(Case(origin, shape, number + (origin == "mdadm")))
    if options.random is None:
        made += unfinished.cases() + journaled.cases() + grown.cases() + reshaped.cases()
        made += striped.cases() + shrunk.cases()
    patterns = [f"*{pattern}*" for pattern in options.only or ["*"]]
    return [case for case in made if any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]


def binary(options):
    if options.stripewise:
        return os.path.realpath(options.stripewise)
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "stripewise"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return str(pathlib.Path(target, "release", "stripewise"))


def one(case, guests, stripewise, work, keep):
    started = time.monotonic()
    guest = guests.get()
    folder = tempfile.mkdtemp(dir=work)
    try:
        findings = case.run(guest, stripewise, folder)
    except GuestFailed as failed:
        findings = [f"{case.step}: the kernel: {failed}"]
        guest.close()
        guest.boot()
    except Exception:  # a fault of the test itself is this case's failure, not the end of all
        findings = [f"{case.step}: {traceback.format_exc()}"]
    guests.put(guest)
    if findings and keep:
        shutil.copytree(folder, pathlib.Path(keep, case.name), dirs_exist_ok=True)
    shutil.rmtree(folder)
    return findings, time.monotonic() - started


def main():
    options = arguments()
    chosen = cases(options)
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if not chosen:
        print(f"no case is named like {options.only}; --list names all", file=sys.stderr)
        return 2
    lacking = sorted({package for program, package in PEERS.items() if not shutil.which(program)})
    if lacking:
        print(f"not installed: {' '.join(lacking)} (apt-get install {' '.join(lacking)}); nothing was tested", file=sys.stderr)
        return NOT_INSTALLED
    stripewise = binary(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through `finally`: kernels must not outlive this program
    started = time.monotonic()
    failed = run_all(chosen, stripewise, options)
    print(f"{len(chosen) - failed} passed, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def images_folder(jobs):
    """In memory if there is room beside the kernels' own: killing is tested here, not power failure, and disks take their time."""
    if folder := os.environ.get("TMPDIR"):
        return folder
    shared = pathlib.Path("/dev/shm")
    has_room = shared.is_dir() and shutil.disk_usage(shared).free >= jobs * IMAGES_BYTES
    return str(shared) if has_room and os.access(shared, os.W_OK) else "/var/tmp"


def run_all(chosen, stripewise, options):
    failed = 0
    guests = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="interop.", dir=images_folder(options.jobs)) as work:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            booted = list(pool.map(lambda _: Guest(), range(min(options.jobs, len(chosen)))))
            for guest in booted:
                guests.put(guest)
            print(f"{subprocess.run(['mdadm', '--version'], capture_output=True, text=True).stderr.strip()}; "
                  f"Linux {booted[0].kernel} (user-mode-linux); {subprocess.run([stripewise, '--version'], capture_output=True, text=True).stdout.strip()}; "
                  f"host {platform.release()}", flush=True)
            try:
                running = {pool.submit(one, case, guests, stripewise, work, options.keep): case for case in chosen}
                for done in concurrent.futures.as_completed(running):
                    findings, took = done.result()
                    failed += bool(findings)
                    print(f"{'FAILED' if findings else 'ok    '} {running[done].name} ({took:.1f} s)", flush=True)
                    for finding in findings:
                        print(f"       {finding}", flush=True)
            finally:
                pool.shutdown(cancel_futures=True)
                for guest in booted:
                    guest.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
