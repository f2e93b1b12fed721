"""What mdadm prints against what stripewise prints."""
import json
import re
import subprocess

# Lines of `mdadm -D` that tell of the running device rather than of the array.
ONLY_RUNNING = ("Update Time", "Events", "State", "Number", "Preferred Minor", "Delta Devices")


def mdadm(*words):
    """mdadm's output on this machine; it reads image files as well as devices."""
    done = subprocess.run(["mdadm", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    return done.stdout


def lines(text):
    """Without spacing, and without the device nodes that mdadm finds by the numbers in 0.90's table."""
    return [re.sub(r"^((?:this|\d+) \d+ \d+ \d+ -?\d+ .*?) /dev/\S+$", r"\1", " ".join(line.split()))
            for line in text.splitlines() if line.strip()]


def texts(theirs, ours):
    """The first difference of two texts, spacing aside."""
    theirs, ours = lines(theirs), lines(ours)
    for their, our in zip(theirs, ours):
        if their != our:
            return [f"mdadm: {their!r}, stripewise: {our!r}"]
    if len(theirs) != len(ours):
        more, of = (theirs, "mdadm") if len(theirs) > len(ours) else (ours, "stripewise")
        return [f"only {of} says {more[min(len(theirs), len(ours))]!r}"]
    return []


def fields(text):
    """The `Name : value` lines of `mdadm -D`, without what a stopped array cannot have."""
    found = {}
    for line in lines(text):
        name, separator, value = line.partition(" : ")
        if separator and name not in ONLY_RUNNING:
            found[name] = re.sub(r" \(local to host \S+\)", "", value)
    return found


def examined(theirs, ours):
    """As texts, of `--examine --export`: of 0.90 mdadm 4.2 prints the creation time as MD_UPDATE_TIME."""
    if "MD_METADATA=" in theirs:
        return texts(theirs, ours)
    return texts(*(re.sub(r"^MD_UPDATE_TIME=.*\n", "", text, flags=re.M) for text in (theirs, ours)))


def differences(theirs, ours):
    return [f"{name}: mdadm {theirs.get(name)!r}, stripewise {ours.get(name)!r}"
            for name in sorted(theirs.keys() | ours.keys()) if theirs.get(name) != ours.get(name)]


def bitmaps(theirs, ours):
    """The first line names the file, which is a device to one of them."""
    return texts(*(re.sub(r"^ *Filename : .*\n", "", text) for text in (theirs, ours)))


def details(theirs, ours):
    theirs, ours = fields(theirs), fields(ours)
    if theirs.get("Layout") == "-unknown-":  # a RAID-0 of one zone, for which the kernel keeps no layout
        theirs.pop("Layout")
        ours.pop("Layout", None)
    return differences(theirs, ours)


def pairs(text):
    """NAME=value lines, without those named after device nodes."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: value for name, value in found.items() if not name.startswith("MD_DEVICE_") and name != "MD_DEVNAME"}


def roles(text):
    return sorted(line.split("=", 1)[1] for line in text.splitlines() if re.match(r"MD_DEVICE_.*_ROLE=", line))


def exports(theirs, ours):
    found = differences(pairs(theirs), pairs(ours))
    return found + ([f"roles: mdadm {roles(theirs)}, stripewise {roles(ours)}"] if roles(theirs) != roles(ours) else [])


def array_bytes(document):
    return json.loads(document)["array_bytes"]


def json_detail(kernels, document):
    """`stripewise detail --json` against what the running array says."""
    ours = json.loads(document)
    export = pairs(kernels["detail_export"])
    text = fields(kernels["detail"])
    theirs = {
        "schema": "stripewise.detail/1",
        "level": export["MD_LEVEL"],
        "metadata": export["MD_METADATA"],
        "uuid": export["MD_UUID"],
        "name": export.get("MD_NAME", ""),
        "raid_devices": int(export["MD_DEVICES"]),
        "array_bytes": kernels["size"],
        "consistency_policy": text["Consistency Policy"],
        "total_devices": int(text["Total Devices"]),
        "active_devices": int(text["Active Devices"]),
        "working_devices": int(text["Working Devices"]),
        "failed_devices": int(text["Failed Devices"]),
        "spare_devices": int(text["Spare Devices"]),
        "is_clean": True,
    }
    return differences(theirs, {name: ours.get(name) for name in theirs})
