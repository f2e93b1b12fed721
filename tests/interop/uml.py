"""Boots a real Linux kernel as a process and has it do work, one request at a time.

The kernel is Debian's user-mode-linux on this machine's own root file system, so its programs are this
machine's mdadm and Python. It runs guest.py as its first program. Requests and answers are lines of JSON
on a virtual console; images are ordinary files, made loop devices inside, so a boot serves any number of them.
"""
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Becomes the kernel, on CPUs that are too much for it, too.
LAUNCHER = HERE.parents[1] / "crates/lab/src/validate/registers.py"
BOOT_LIMIT_S = 60
REQUEST_LIMIT_S = 120


class GuestFailed(Exception):
    """The kernel did not boot, died, or did not answer in time."""


class RequestFailed(Exception):
    """The guest could not do what it was asked for; the text is the program's own."""


class Guest:
    """One booted kernel. Not thread-safe: one owner."""

    def __init__(self, memory="512M", program=HERE / "guest.py", words=()):
        self.memory, self.program, self.words = memory, program, words
        self.process = None
        self.boot()

    def boot(self):
        self.work = tempfile.TemporaryDirectory(prefix="uml.", dir="/var/tmp")
        init = pathlib.Path(self.work.name, "init")
        init.write_text(f"""#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TZ=UTC LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null; mount -t tmpfs tmp /run
mkdir -p /dev/shm; mount -t hostfs -o /dev/shm shm /dev/shm
hostname guest
exec {os.path.realpath(sys.executable)} -B {self.program} {self.work.name}/guest.log </dev/tty1 >/dev/tty1 2>{self.work.name}/guest.err
""")
        init.chmod(0o755)
        to_guest, self.requests = os.pipe()
        self.answers, from_guest = os.pipe()
        self.console = open(f"{self.work.name}/console", "wb")
        self.process = subprocess.Popen(
            [sys.executable, LAUNCHER, "linux.uml", f"mem={self.memory}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"init={init}",
             "con=null", "con0=null,fd:2", f"con1=fd:{to_guest},fd:{from_guest}", "quiet", "panic=-1", *self.words],
            env={**os.environ, "TMPDIR": "/dev/shm"}, pass_fds=(to_guest, from_guest),
            stdin=subprocess.DEVNULL, stdout=self.console, stderr=self.console, start_new_session=True)
        os.close(to_guest)
        os.close(from_guest)
        self.pending = b""
        self.kernel = self._line(BOOT_LIMIT_S)["kernel"]

    def request(self, operation, **arguments):
        """Has the guest run `operation` of guest.py; returns what it returns."""
        line = json.dumps({"operation": operation, "arguments": arguments}) + "\n"
        try:
            while line:
                line = line[os.write(self.requests, line.encode()):]
        except BrokenPipeError as error:
            raise GuestFailed(self._died()) from error
        answer = self._line(REQUEST_LIMIT_S)
        if "failed" in answer:
            raise RequestFailed(answer["failed"])
        return answer["returned"]

    def _line(self, limit_s):
        deadline = time.monotonic() + limit_s
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise GuestFailed(f"no answer within {limit_s} s; {self._died()}")
            data = os.read(self.answers, 1 << 16)
            if not data:
                raise GuestFailed(self._died())
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def _died(self):
        texts = [pathlib.Path(self.work.name, name) for name in ("console", "guest.err")]
        return "; ".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in texts if path.exists())

    def close(self):
        """Ends the kernel and its processes (user-mode-linux keeps its own group)."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None
        os.close(self.requests)
        os.close(self.answers)
        self.console.close()
        self.work.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
