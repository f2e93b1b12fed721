#!/usr/bin/env python3
"""Bad-block logs handed between real Linux md and stripewise.

bad_blocks.py STRIPEWISE

Linux lists sectors of a member as bad; what lies there is then spoilt, so that whoever reads it is found out. Needs
mdadm and user-mode-linux. Ends with "N passed, N failed".
"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile

import uml

SECTOR, PAGE = 512, 4096
DATA_OFFSET = 2048
# Sectors of a member: two pages, of which stripewise will write the first.
LISTED = (DATA_OFFSET + 64, 16)
SHAPES = {
    "raid5": (["--level=5", "--raid-devices=3", "--chunk=64"], 3),
    "raid6": (["--level=6", "--raid-devices=4", "--chunk=64"], 4),
    "raid1": (["--level=1", "--raid-devices=2"], 2),
    "raid10": (["--level=10", "--raid-devices=4", "--chunk=64"], 4),
}

results = []


def check(name, passed, detail=""):
    results.append(bool(passed))
    print(f"{'ok' if passed else 'FAILED'}  {name}{'' if passed else ': ' + str(detail)[:400]}", flush=True)


def spoil(path, sector, count):
    with open(path, "r+b") as image:
        image.seek(sector * SECTOR)
        image.write(b"\xee" * (count * SECTOR))


def listed(path):
    text = subprocess.run(["mdadm", "--examine-badblocks", path], capture_output=True, text=True).stdout
    return [tuple(int(word) for word in line.split() if word.isdigit()) for line in text.splitlines()[1:]]


def array(stripewise, *words, data=None):
    done = subprocess.run([stripewise, *words], input=data, capture_output=True)
    if done.returncode:
        raise AssertionError(f"{words}: exit {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def one(guest, stripewise, folder, name):
    words, count = SHAPES[name]
    images = [str(folder / f"{name}-{index}.img") for index in range(count)]
    for image in images:
        with open(image, "wb") as file:
            file.truncate(16 << 20)
    common = ["--data-offset=1M", "--bitmap=none", "--name=bad", "--homehost=any"]
    made = guest.request("create", words=words + common, members=images, spares=[], seed=7, wait=True,
                         bad=[[0, *LISTED]])
    spoil(images[0], *LISTED)
    same = subprocess.run(["mdadm", "--examine-badblocks", images[0]], capture_output=True, text=True).stdout
    ours = array(stripewise, "examine", "--examine-badblocks", images[0]).decode()
    check(f"{name}: the log is shown as mdadm shows it", ours == same, (ours, same))

    data = array(stripewise, "read", *images)
    check(f"{name}: listed sectors are read from the redundancy", hashlib.sha256(data).hexdigest() == made["sha256"])
    # The page whose first sector is the first that is listed, wherever the array has it.
    place = next((at for at in range(0, len(data), PAGE) if written_there(stripewise, images, data, at)), None)
    check(f"{name}: a write strikes what it covers from the list", place is not None, listed(images[0]))
    after = guest.request("assemble", members=images, partial=False)
    check(f"{name}: Linux reads the array with what is left of the list", after["sha256"] == made["sha256"])
    array(stripewise, "repair", *images)
    check(f"{name}: a repair empties the list", listed(images[0]) == [], listed(images[0]))
    healed = guest.request("assemble", members=images, partial=False, check=True)
    check(f"{name}: Linux reads what the repair wrote", healed["sha256"] == made["sha256"], healed)
    check(f"{name}: and finds nothing to mend", healed["mismatch_cnt"] == 0, healed)


def written_there(stripewise, images, data, at):
    """Writes a page of the array as it is; whether that was the first page that is listed."""
    if at > 512 << 10:
        return False
    array(stripewise, "write", "--offset", str(at), *images, data=data[at:at + PAGE])
    return listed(images[0]) == [(LISTED[0] + 8, 8)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    stripewise = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="bad-blocks.", dir="/var/tmp") as folder, uml.Guest() as guest:
        for name in SHAPES:
            try:
                one(guest, stripewise, pathlib.Path(folder), name)
            except (AssertionError, uml.RequestFailed) as error:
                check(f"{name}: goes through", False, error)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
