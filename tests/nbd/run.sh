#!/bin/bash
# Real NBD clients against the server of the crate `stripewise-host`.
#
#   tests/nbd/run.sh [PATH-OF-nbd_memory]
#
# Without a path the example is built (cargo build --release). Needs, on Debian:
#   apt-get install libnbd-bin python3-libnbd qemu-utils fio python3
# What is missing is said and counts as failed. Ends with `N passed, N failed`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/nbd-run.XXXXXX")
python=/usr/bin/python3
# shellcheck source=../check.sh
. "$here/../check.sh"
loops=()

cleanup() {
    [ -n "$server" ] && kill -9 "$server" 2>/dev/null
    for device in "${loops[@]}"; do [ -b "$device" ] && losetup -d "$device"; done
    mountpoint -q "$work/small" && umount -l "$work/small"
    rm -rf "$work"
}
trap cleanup EXIT

for tool in nbdinfo nbdcopy qemu-img qemu-io fio "$python"; do
    command -v "$tool" >/dev/null || { echo "MISSING: $tool is not installed"; failed=$((failed + 1)); }
done
"$python" -c 'import nbd' 2>/dev/null || { echo "MISSING: python3-libnbd"; failed=$((failed + 1)); }
fio --enghelp 2>/dev/null | grep -qw nbd || { echo "MISSING: fio has no nbd engine"; failed=$((failed + 1)); }
[ "$failed" -eq 0 ] || { echo "0 passed, $failed failed"; exit 1; }

if [ $# -ge 1 ]; then
    binary=$1
else
    (cd "$root" && cargo build --quiet --release -p stripewise-host --example nbd_memory) || exit 1
    target=$(cd "$root" && cargo metadata --format-version 1 --no-deps |
        "$python" -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
    binary=$target/release/examples/nbd_memory
fi
nbdinfo --version | head -1
qemu-io --version | head -1
fio --version

# start NAME OPTION…: a server, waited for.
start() {
    name=$1
    shift
    socket=$work/$name.sock
    uri="nbd+unix:///?socket=$socket"
    log=$work/$name.log
    begin '^ready' "$binary" --socket "$socket" --control "$work/$name.control" "$@" && return 0
    echo 'the server did not start'
    exit 1
}

# stop: SIGTERM, and the server must end well, leaving no socket.
stop() {
    kill -TERM "$server"
    local pid=$server status=0
    server=
    wait "$pid" || status=$?
    [ "$status" -eq 0 ] || { echo "the server ended with $status:"; cat "$log"; return 1; }
    [ ! -e "$socket" ] || { echo "$socket is left"; return 1; }
}

info() {
    nbdinfo --json "$uri" >"$work/info.json" || return 1
    "$python" - "$work/info.json" "$1" <<'PY'
import json, sys
export = json.load(open(sys.argv[1]))["exports"][0]
assert export["export-size"] == int(sys.argv[2]), export
assert export["is_read_only"] is False
for can in ("df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"):
    assert export["can_" + can] is True, can
assert export["block_size_minimum"] == 512 and export["block_size_maximum"] == 32 << 20
assert "base:allocation" in export["contexts"]
PY
}
map() { [ "$(nbdinfo --map "$uri" | awk '{ sum += $2 } END { print sum }')" = "$1" ]; }
list() { nbdinfo --list "$uri" | grep -q 'export="memory"'; }
named() { nbdinfo --size "nbd+unix:///memory?socket=$socket" && ! nbdinfo "nbd+unix:///other?socket=$socket"; }
copy() {
    nbdcopy "$work/data" "$uri" && nbdcopy "$uri" "$work/back" && cmp -n "$data_bytes" "$work/data" "$work/back"
}
image() {
    qemu-img convert -n -f raw -O raw "$work/data" "$uri" &&
        qemu-img compare -f raw -F raw "$work/image" "$uri"
}
qemu() (
    set -o pipefail
    qemu-io -f raw "$uri" "$@" | tee /dev/stderr | { ! grep -qiE "failed|error|differ"; }
)
patterns() {
    qemu -c 'write -P 0x5a 0 1M' -c 'write -P 0xa5 512 3584' -c 'write -f -P 0x33 1000k 300k' -c flush \
        -c 'read -P 0x5a 0 512' -c 'read -P 0xa5 512 3584' -c 'read -P 0x5a 4k 900k' \
        -c 'read -P 0x33 1000k 300k' -c 'write -z 64k 448k' -c 'read -P 0 64k 448k' \
        -c 'read -P 0x5a 512k 4k' -c 'write -z -f -u 3M 5M' -c 'read -P 0 3M 5M' -c 'discard 1M 7M' \
        -c 'write -P 0x77 5M 64k' -c 'read -P 0x77 5M 64k' -c 'aio_write -P 0x11 8M 1M' \
        -c 'aio_write -P 0x12 9M 1M' -c aio_flush -c flush -c 'read -P 0x11 8M 1M' -c 'read -P 0x12 9M 1M'
}
verify() {
    fio --name=verify --verify_state_save=0 --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-128k --iodepth=16 \
        --numjobs=4 --size=32M --offset_increment=32M --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --group_reporting --randseed=7 --fsync=64
}
trims() {
    fio --name=trims --ioengine=nbd --uri="$uri" --rw=randtrim --bs=64k --iodepth=16 --size=64M --randseed=3
}
second() {
    ! "$binary" --socket "$socket" >"$work/second" 2>&1 && grep -q 'another server answers' "$work/second"
}
full() { [ "$(nbdinfo --size "$uri")" = "$1" ]; }

# every MODE's clients
clients() {
    check "nbdinfo --json" info "$size"
    check "nbdinfo --map covers the export" map "$size"
    check "nbdinfo --list" list
    check "the export by its name, and no other" named
    check "nbdcopy in and out" copy
    check "qemu-img convert and compare" image
    check "qemu-io write, read, zeroes, discard, FUA, flush" patterns
    check "fio verify=crc32c, depth 16, 4 jobs, with flushes" verify
    check "fio randtrim" trims
    check "libnbd: limits, errors, several connections" "$python" "$here/clients.py" libnbd "$socket"
    check "raw: garbage, truncation, slow clients" "$python" "$here/clients.py" raw "$socket"
    check "a client killed in mid-request" "$python" "$here/clients.py" killed "$socket"
    check "the control socket" "$python" "$here/clients.py" control "$work/$name.control"
    check "still serving" full "$size"
    check "SIGTERM ends it well" stop
}

size=$((4 * 64 << 20))
data_bytes=$size
head -c "$size" /dev/urandom >"$work/data"
cp "$work/data" "$work/image"

mode="memory, 1 shard"
start memory
clients
mode="memory, 2 shards"
start shards --shards 2
clients
mode="files, 2 shards"
mkdir "$work/members"
start files --shards 2 --files "$work/members"
clients

mode="SIGTERM"
for shards in 1 2; do
    start term$shards --shards $shards
    check "requests in flight are answered or cleanly cut, $shards shards" \
        "$python" "$here/clients.py" sigterm "$socket" "$server"
    wait "$server"
    check "the server ended with 0" [ $? -eq 0 ]
    server=
done

mode="TCP"
start tcp --listen 127.0.0.1:0
address=$(awk '/^ready/ { print $2 }' "$log")
uri="nbd://$address"
check "nbdinfo --json" info "$size"
check "nbdcopy in and out" copy
check "fio verify=crc32c, depth 16, 4 jobs, with flushes" verify
check "a second server at the socket is refused" second
check "and the first goes on" full "$size"
check "SIGTERM ends it well" stop

# Two loop devices on a file system too small for what is written to them: write-back fails.
mode="lost write-back, 2 shards"
loops=()
if mkdir "$work/small" && mount -t tmpfs -o size=8m tmpfs "$work/small" 2>"$work/out"; then
    for member in 0 1; do
        truncate -s 64M "$work/small/member$member"
        loops+=("$(losetup --show -f "$work/small/member$member" 2>>"$work/out")")
    done
fi
if [ -b "${loops[0]:-}" ] && [ -b "${loops[1]:-}" ]; then
    start lost --shards 2 --level 0 --members 2 --device "${loops[0]}" --device "${loops[1]}" --buffered
    check "no flush of any connection succeeds" "$python" "$here/clients.py" lost "$socket"
    kill -TERM "$server"
    wait "$server"
    check "the server's last flush fails, and it says so" [ $? -eq 1 ]
    server=
else
    failed=$((failed + 1))
    echo "FAILED  $mode: needs root with tmpfs and loop devices: $(head -1 "$work/out")"
fi

mode="read-only"
start readonly --read-only
check "writes are refused" "$python" "$here/clients.py" readonly "$socket"
check "SIGTERM ends it well" stop

mode="stop by the control socket"
start control
check "it stops" "$python" "$here/clients.py" stop "$work/control.control"
wait "$server"
check "it ended with 0" [ $? -eq 0 ]
server=

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
