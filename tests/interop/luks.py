#!/usr/bin/env python3
"""LUKS containers, both ways, against cryptsetup and the kernel's dm-crypt.

luks.py STRIPEWISE [--kernel]

Each container is made once by cryptsetup and once by stripewise, and opened by the other with a passphrase or a key
file. With --kernel, dm-crypt of a real Linux 6.1 (user-mode-linux) reads what stripewise wrote into each payload, and
stripewise reads what dm-crypt wrote. Some containers lie on an array that is served decrypted, with and without a page
cache: what an NBD client writes there dm-crypt reads, and the other way round. QEMU reads and writes the payloads of LUKS1. Needs cryptsetup-bin,
libnbd-bin and qemu-utils; --kernel needs user-mode-linux. Ends with
"N passed, N failed".
"""
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile

from uml import LAUNCHER

PASSPHRASE = b"correct horse battery"
SIZE = 18 << 20
DATA = bytes((i * 7 + (i >> 9)) & 0xFF for i in range(64 << 10))
KERNEL_DATA = DATA[::-1]
CIPHERS = {"aes-xts-plain64": (256, 512), "aes-cbc-essiv:sha256": (128, 256)}


def run(*command, stdin=b"", ok=True):
    done = subprocess.run([str(c) for c in command], input=stdin, capture_output=True)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.decode()}")
    return done


def cases():
    """version, cipher, key bits, kdf, sector bytes"""
    for cipher, sizes in CIPHERS.items():
        for bits in sizes:
            yield "luks1", cipher, bits, "pbkdf2", 512
            yield "luks2", cipher, bits, "pbkdf2", 512
            yield "luks2", cipher, bits, "argon2id", 4096
    yield "luks2", "aes-xts-plain64", 512, "argon2i", 512


class Container:
    def __init__(self, folder, maker, case, stripewise):
        self.maker, self.case, self.stripewise = maker, case, stripewise
        self.path = os.path.join(folder, f"{maker}-{'-'.join(map(str, case)).replace(':', '_')}")
        self.key_file = self.path + ".key"
        # The key begins at byte 3 of its file.
        with open(self.key_file, "wb") as file:
            file.write(b"xyz" + PASSPHRASE + b"tail")
        with open(self.path, "wb") as file:
            file.truncate(SIZE)

    def key(self, of):
        names = {"cryptsetup": ("--key-file", "--keyfile-offset", "--keyfile-size"),
                 "stripewise": ("--luks-key-file", "--luks-keyfile-offset", "--luks-keyfile-size")}[of]
        values = (self.key_file, 3, len(PASSPHRASE))
        return list(itertools.chain(*zip(names, values)))

    def make(self):
        version, cipher, bits, kdf, sector = self.case
        options = ["--type", version, "--cipher", cipher, "--key-size", bits, "--pbkdf", kdf, "--hash", "sha256",
                   "--pbkdf-force-iterations", 4 if "argon" in kdf else 1000]
        if "argon" in kdf:
            options += ["--pbkdf-memory", 4096, "--pbkdf-parallel", 2]
        if version == "luks2":
            options += ["--sector-size", sector]
        if self.maker == "cryptsetup":
            run("cryptsetup", "-q", "luksFormat", *options, *self.key("cryptsetup"), self.path)
        else:
            run(self.stripewise, "luks", "format", "--destroy", self.path, *options, *self.key("stripewise"))

    def opens_here(self):
        run(self.stripewise, "luks", "test", self.path, stdin=PASSPHRASE + b"\n")
        run(self.stripewise, "luks", "test", self.path, *self.key("stripewise"))
        wrong = run(self.stripewise, "luks", "test", self.path, stdin=b"wrong\n", ok=False)
        assert wrong.returncode == 2 and b"no key with this passphrase" in wrong.stderr, wrong

    def opens_there(self):
        run("cryptsetup", "luksDump", self.path)
        run("cryptsetup", "open", "--test-passphrase", self.path, stdin=PASSPHRASE + b"\n")
        run("cryptsetup", "open", "--test-passphrase", *self.key("cryptsetup"), self.path)

    def dumps_alike(self):
        ours = run(self.stripewise, "luks", "dump", self.path).stdout.decode()
        uuid = run("cryptsetup", "luksUUID", self.path).stdout.decode().strip()
        assert uuid in ours and self.case[1] in ours, ours

    def write(self):
        run(self.stripewise, "luks", "write", self.path, *self.key("stripewise"), stdin=DATA)
        assert self.read() == DATA, "what was written is not read back"

    def qemu(self):
        """QEMU's LUKS1, a third implementation, reads the payload and writes it."""
        image = f"driver=luks,key-secret=s,file.filename={self.path}"
        secret = f"secret,id=s,data={PASSPHRASE.decode()}"
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(self.path)) as raw:
            run("qemu-img", "convert", "--object", secret, "--image-opts", image, "-O", "raw", raw.name)
            assert raw.read(len(DATA)) == DATA, "QEMU reads other bytes"
        run("qemu-io", "--object", secret, "--image-opts", image, "-c", f"write -P 0xa7 0 {len(DATA)}")
        assert self.read() == b"\xa7" * len(DATA), "other bytes than QEMU wrote"
        self.write()

    def read(self):
        return run(self.stripewise, "luks", "read", self.path, "--size", len(DATA), stdin=PASSPHRASE + b"\n").stdout


class OnArray(Container):
    """A container that an NBD client writes to on a served array."""

    def __init__(self, folder, case, stripewise, cache):
        super().__init__(folder, "cryptsetup", case, stripewise)
        self.cache = cache
        self.members = [f"{self.path}.m{slot}" for slot in range(3)]
        self.socket = f"{self.path}.nbd"

    def make(self):
        super().make()
        for member in self.members:
            with open(member, "wb") as file:
                file.truncate(SIZE)
        run(self.stripewise, "create", "--level", "5", "--chunk", "64K", "--raid-devices", "3", "--assume-clean",
            *self.members)

    def serve(self, *nbdcopy, stdin=b""):
        """Puts the container on the array, serves what it holds, copies, and takes the container back."""
        run(self.stripewise, "write", *self.members, "--input", self.path)
        server = subprocess.Popen(
            [self.stripewise, "serve", *self.members, "--socket", self.socket, *map(str, self.key("stripewise")),
             *self.cache], stdout=subprocess.PIPE)
        try:
            assert b"Ready" in server.stdout.readline(), "it is not served"
            copied = run("nbdcopy", *nbdcopy, stdin=stdin).stdout
        finally:
            server.terminate()
            assert server.wait() == 0, "the server ended badly"
            server.stdout.close()
        run(self.stripewise, "read", *self.members, "--length", os.path.getsize(self.path), "--output", self.path)
        return copied

    def write(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(DATA)
            file.flush()
            self.serve(file.name, f"nbd+unix:///?socket={self.socket}")
        assert self.read() == DATA, "other bytes than an NBD client wrote"

    def read_served(self):
        return self.serve(f"nbd+unix:///?socket={self.socket}", "-")[:len(DATA)]


INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DM_DISABLE_UDEV=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null; mount -t tmpfs tmp /run
# dm-crypt needs encrypted-keys, which asks for cbc(aes) when it is loaded.
for m in cbc ecb xts authenc essiv encrypted-keys dm-mod dm-crypt; do
  f=$(find /usr/lib/uml/modules -name $m.ko); [ -z "$f" ] || insmod $f >>{folder}/out 2>&1
done
{body}
sync; halt -f
"""


def kernel(folder, containers):
    """One boot for up to 15 containers; prints the sum of what dm-crypt reads, then writes."""
    body = ""
    for index, container in enumerate(containers):
        device, name = f"/dev/ubd{'abcdefghijklmno'[index]}", f"c{index}"
        body += f"""
{{ printf '%s' '{PASSPHRASE.decode()}' | cryptsetup open --key-file - {device} {name} &&
  echo {name} $(head -c {len(DATA)} /dev/mapper/{name} | sha256sum | cut -c1-64) &&
  dd if={folder}/kernel-data of=/dev/mapper/{name} bs=64k conv=fsync 2>/dev/null &&
  cryptsetup close {name}; }} >>{folder}/out 2>&1
"""
    with open(f"{folder}/kernel-data", "wb") as file:
        file.write(KERNEL_DATA)
    with open(f"{folder}/init", "w") as file:
        file.write(INIT.format(body=body, folder=folder))
    os.chmod(f"{folder}/init", 0o755)
    images = [f"ubd{index}={container.path}" for index, container in enumerate(containers)]
    command = [sys.executable, LAUNCHER, "linux.uml", "mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw",
               f"init={folder}/init", "con=null", "con0=null,fd:1", "quiet", *images]
    open(f"{folder}/out", "w").close()
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    with open(f"{folder}/out") as file:
        out = file.read()
    return out


def main():
    stripewise, passed, failed = os.path.abspath(sys.argv[1]), 0, 0

    def check(name, action):
        nonlocal passed, failed
        try:
            action()
            passed += 1
        except AssertionError as error:
            failed += 1
            print(f"FAILED {name}: {error}")

    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="stripewise-luks.") as folder:
        containers = [Container(folder, maker, case, stripewise)
                      for case in cases() for maker in ("cryptsetup", "stripewise")]
        served = [case for case in cases() if case[0] == "luks1" or case[4] == 4096]
        for index, case in enumerate(served):
            os.mkdir(f"{folder}/array{index}")
            cache = ("--cache", "2M") if index % 2 else ()
            containers.append(OnArray(f"{folder}/array{index}", case, stripewise, cache))
        for container in containers:
            name = os.path.relpath(container.path, folder)
            for step in ("make", "opens_here", "opens_there", "dumps_alike", "write"):
                check(f"{name} {step}", getattr(container, step))
            if container.case[0] == "luks1":
                check(f"{name} qemu", container.qemu)
        if "--kernel" in sys.argv:
            for start in range(0, len(containers), 13):
                some = containers[start:start + 13]
                out = kernel(folder, some)

                def both_ways(index, container):
                    assert f"c{index} {hashlib.sha256(DATA).hexdigest()}" in out, f"dm-crypt read other bytes:\n{out}"
                    assert container.read() == KERNEL_DATA, "other bytes than dm-crypt wrote"
                    if isinstance(container, OnArray):
                        assert container.read_served() == KERNEL_DATA, "other bytes are served than dm-crypt wrote"
                for index, container in enumerate(some):
                    check(f"{os.path.relpath(container.path, folder)} dm-crypt", lambda: both_ways(index, container))
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
