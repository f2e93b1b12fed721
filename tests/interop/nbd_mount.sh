#!/usr/bin/env bash
# A served array as a disk: a file system on it, fio's verify and qemu-io through NBD, and a clean array after SIGTERM.
#
#   tests/interop/nbd_mount.sh PATH-OF-stripewise
#
# Needs, on Debian: apt-get install mdadm fio qemu-utils libnbd-bin e2fsprogs. The file system also needs root,
# FUSE and loop devices; where there are none, that is said and the rest is tested. Ends with `N passed, N failed,
# N skipped`; exit codes: 0 passed, 1 failed, 77 a program that is needed is not installed.
set -u
stripewise=$(realpath "$1")
for tool in mdadm fio qemu-io nbdinfo; do
    command -v "$tool" >/dev/null || { echo "not installed: $tool; nothing was tested"; exit 77; }
done
work=$(mktemp -d "${TMPDIR:-/var/tmp}/nbd-mount.XXXXXX")
# shellcheck source=../check.sh
. "$(dirname "$0")/../check.sh"
fuse='' loop=''

detach() {
    mountpoint -q "$work/mnt" && umount "$work/mnt"
    [ -z "$loop" ] || losetup -d "$loop"
    loop=''
    mountpoint -q "$work/fuse" && umount "$work/fuse"
    [ -z "$fuse" ] || { kill "$fuse" 2>/dev/null; wait "$fuse"; }
    fuse=''
}
cleanup() {
    detach
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

serve() { begin 'Ready at' "$stripewise" serve "${members[@]}" --socket "$work/nbd.sock"; }

# SIGTERM ends it well; mdadm says of every member that it is clean and its checksum right.
stop() {
    kill -TERM "$server"
    local status=0 member
    wait "$server" || status=$?
    server=''
    [ "$status" = 0 ] || { echo "exit $status"; cat "$log"; return 1; }
    for member in "${members[@]}"; do
        mdadm --examine "$member" >"$work/examine"
        grep -q 'State : clean' "$work/examine" && grep -q 'Checksum : .* correct' "$work/examine" ||
            { cat "$work/examine"; return 1; }
    done
}

patterns() (
    set -o pipefail
    qemu-io -f raw "$uri" -c 'write -P 0x5a 0 3M' -c 'write -P 0xa5 512 3584' -c 'write -f -P 0x33 1000k 300k' -c flush \
        -c 'read -P 0x5a 0 512' -c 'read -P 0xa5 512 3584' -c 'read -P 0x33 1000k 300k' -c 'write -z 64k 448k' \
        -c 'read -P 0 64k 448k' -c 'read -P 0x5a 512k 4k' | tee /dev/stderr | { ! grep -qiE 'failed|error|differ'; }
)

verify() {
    (cd "$work" && fio --name=verify --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-256k --iodepth=16 --size=48M \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=5 --fsync=32)
}

attach() {
    mkdir -p "$work/fuse" "$work/mnt"
    nbdfuse "$work/fuse" "$uri" >"$work/fuse.log" 2>&1 &
    fuse=$!
    for _ in $(seq 100); do [ -f "$work/fuse/nbd" ] && break; sleep 0.05; done
    loop=$(losetup --direct-io=on --show -f "$work/fuse/nbd" 2>>"$work/fuse.log") && [ -b "$loop" ]
}

files() {
    mkfs.ext4 -q "$loop" && mount "$loop" "$work/mnt" && cp "$work/data" "$work/mnt/data" && mkdir "$work/mnt/many" || return 1
    for n in $(seq 300); do head -c $((n * 31)) "$work/data" >"$work/mnt/many/$n"; done
    umount "$work/mnt"
}
files_are_there() {
    fsck.ext4 -fn "$loop" && mount -o ro "$loop" "$work/mnt" && cmp "$work/data" "$work/mnt/data" || return 1
    for n in $(seq 300); do cmp -n $((n * 31)) "$work/data" "$work/mnt/many/$n" || return 1; done
    [ "$(find "$work/mnt/many" -type f | wc -l)" = 300 ] && umount "$work/mnt"
}
# The file system survives the server: another one serves the same members.
served_again() {
    detach
    stop && serve && attach && files_are_there
}

file_system() {
    if ! command -v nbdfuse >/dev/null || ! attach; then
        skip 'a file system' "needs nbdfuse, root, /dev/fuse and loop devices: $(tail -n 1 "$work/fuse.log" 2>/dev/null)"
        detach
        return
    fi
    check 'mkfs.ext4, mount, 300 files, umount' files
    check 'fsck.ext4, and every file is right' files_are_there
    check 'the same after SIGTERM, from a new server' served_again
    detach
}

uri="nbd+unix:///?socket=$work/nbd.sock"
head -c 24M /dev/urandom >"$work/data"
for level in 'raid5 --level=5 --raid-devices=4 --chunk=64K --bitmap=internal' 'raid6 --level=6 --raid-devices=5 --chunk=16K' \
    'raid10 --level=10 --raid-devices=3 --layout=f2 --chunk=128K'; do
    read -r -a words <<<"$level"
    mode=${words[0]}
    members=()
    for n in $(seq 0 $((${words[2]#*=} - 1))); do
        rm -f "$work/$n.img"
        truncate -s 64M "$work/$n.img"
        members+=("$work/$n.img")
    done
    check create "$stripewise" create "${words[@]:1}" --assume-clean "${members[@]}"
    check serve serve
    check 'qemu-io write, read, zeroes, FUA, flush' patterns
    check 'fio verify=crc32c, depth 16, with flushes' verify
    file_system
    check 'SIGTERM leaves every member clean' stop
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
