#!/usr/bin/env python3
"""The server beside `nbdkit memory`, by fio's nbd engine, in interleaved rounds.

    tests/nbd/bench.py PATH-OF-nbd_memory [ROUNDS]

Both serve 1 GiB from memory (the server a RAID-5 of five members, on one shard) over unix sockets. Prints the
machine, every sample and the ratio of medians beside what is asked of it. Beside short requests also what the client gets
from a server that keeps nothing and does nothing else (`nbdkit -t 1 null`).
"""

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import table

binary = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
SECONDS = 3
CASES = [
    ("4 KiB random read, depth 32", "iops", 1.3, ["--rw=randread", "--bs=4k", "--iodepth=32"]),
    ("4 KiB random write, depth 32", "iops", 1.3, ["--rw=randwrite", "--bs=4k", "--iodepth=32"]),
    ("4 KiB random read, depth 1", "iops", None, ["--rw=randread", "--bs=4k", "--iodepth=1"]),
    ("1 MiB sequential read, depth 4", "bytes", 1.0, ["--rw=read", "--bs=1M", "--iodepth=4"]),
    ("1 MiB sequential write, depth 4", "bytes", 1.0, ["--rw=write", "--bs=1M", "--iodepth=4"]),
]

for tool in ("fio", "nbdkit", "nbdcopy"):
    if not shutil.which(tool):
        sys.exit(f"MISSING: {tool} is not installed; nothing is compared")


def text(*command):
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return output.strip().partition("\n")[0]


def sample(socket, unit, arguments):
    command = ["fio", "--name=bench", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", "--size=1G"]
    command += ["--time_based", f"--runtime={SECONDS}", "--randseed=1", "--output-format=json", *arguments]
    # The engine says a word of its own first.
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    job = json.loads(output[output.index("{\n"):])["jobs"][0]
    side = "write" if "write" in arguments[0] else "read"
    return job[side]["bw_bytes" if unit == "bytes" else "iops"]


with tempfile.TemporaryDirectory() as folder:
    ours, theirs, nothing = f"{folder}/ours", f"{folder}/theirs", f"{folder}/nothing"
    servers = [
        subprocess.Popen([binary, "--socket", ours, "--member-mib", "256"], stdout=subprocess.DEVNULL),
        subprocess.Popen(["nbdkit", "-f", "-U", theirs, "memory", "1G"], stdout=subprocess.DEVNULL),
        subprocess.Popen(["nbdkit", "-f", "-t", "1", "-U", nothing, "null", "1G"], stdout=subprocess.DEVNULL),
    ]
    try:
        while not all(os.path.exists(socket) for socket in (ours, theirs, nothing)):
            time.sleep(0.05)
        time.sleep(0.5)
        for socket in (ours, theirs):
            # Memory that was never written costs nbdkit nothing to read.
            subprocess.run(
                f"head -c 1G /dev/urandom | nbdcopy - 'nbd+unix:///?socket={socket}'", shell=True, check=True
            )
        model = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
        print(f"{model[0] if model else platform.processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}")
        print(f"{text('nbdkit', '--version')}, {text('fio', '--version')}, {text('nbdcopy', '--version')}")
        print(f"commit {text('git', 'rev-parse', '--short', 'HEAD')}, {rounds} rounds of {SECONDS} s")
        print(table.heading())
        for name, unit, target, arguments in CASES:
            sockets = (ours, theirs) if unit == "bytes" else (ours, theirs, nothing)
            samples = {socket: [] for socket in sockets}
            for number in range(rounds):
                for socket in sockets if number % 2 == 0 else sockets[::-1]:
                    samples[socket].append(sample(socket, unit, arguments))
            print(table.row(f"NBD, {name}", unit, samples[ours], samples[theirs], target), flush=True)
            if nothing in samples:
                print(table.row("  nbdkit null beside it", unit, samples[nothing], samples[theirs], None), flush=True)
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.wait()
