#!/usr/bin/env bash
# An array mounted as a file: bytes through the file and through NBD, fsync, loop devices, and every way a mount ends.
#
#   tests/interop/mount.sh PATH-OF-stripewise
#
# Needs root, FUSE and loop devices; on Debian: apt-get install fio libnbd-bin e2fsprogs. A user's mount also needs fuse3, an
# encrypted one cryptsetup.
# Ends with `N passed, N failed, N skipped`; exit codes: 0 passed, 1 failed, 77 something that is needed is not there.
set -u
stripewise=$(realpath "$1")
for tool in fio nbdcopy losetup mkfs.ext4; do
    command -v "$tool" >/dev/null || { echo "not installed: $tool; nothing was tested"; exit 77; }
done
[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo "needs root and /dev/fuse; nothing was tested"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/var/tmp}/mount.XXXXXX")
# shellcheck source=../check.sh
. "$(dirname "$0")/../check.sh"
loop='' folder=$work/folder file=$work/folder/disk
members=("$work"/{0,1,2,3}.img)

cleanup() {
    mountpoint -q "$work/mnt" && umount -l "$work/mnt"
    [ -z "$loop" ] || losetup -d "$loop"
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null
    mountpoint -q "$folder" && umount -l "$folder"
    rm -rf "$work"
}
trap cleanup EXIT

serve() { begin 'Ready at' "$stripewise" serve "${members[@]}" --mount "$folder" "$@"; }

# The server ends with code 0 and leaves nothing mounted.
ended() {
    local status=0
    for _ in $(seq 200); do kill -0 "$server" 2>/dev/null || break; sleep 0.05; done
    kill -0 "$server" 2>/dev/null && { echo "still there"; return 1; }
    wait "$server" || status=$?
    server=''
    [ "$status" = 0 ] && ! mountpoint -q "$folder" || { echo "exit $status"; return 1; }
}
end() { kill -"$1" "$server" && ended; }

stored() { # What the members hold, without a server.
    "$stripewise" read "${members[@]}" --output "$work/stored" && cmp -n "$(stat -c %s "$work/data")" "$work/data" "$work/stored"
    local same=$?
    rm -f "$work/stored"
    return $same
}
fill() { head -c 24M /dev/urandom >"$work/data"; }
write_file() { fill && dd if="$work/data" of="$file" bs="${1:-1M}" conv=notrunc,fsync status=none; }

as_written() { write_file && cmp -n "$(stat -c %s "$work/data")" "$work/data" "$file"; }
by_nbd() { nbdcopy "nbd+unix:///?socket=$work/nbd.sock" "$work/copy" && cmp "$file" "$work/copy" && rm "$work/copy"; }
verified() {
    fio --name=verify --filename="$file" --ioengine="$1" --rw=randrw --bsrange=512-2m --iodepth=16 --size=48M \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=5 --fsync=32 --direct="$2"
}
# Nothing need begin or end at a sector; and a long transfer is cut by the pages of the memory it is of.
odd_places() {
    fill && dd if="$work/data" of="$file" bs=100001 conv=notrunc,fsync status=none && cmp -n 24M "$file" "$work/data" &&
        cmp <(dd if="$file" bs=1000 skip=333 count=77 status=none) <(dd if="$work/data" bs=1000 skip=333 count=77 status=none) &&
        python3 -c 'import os, sys
data = os.urandom(5_000_001)
with open(sys.argv[1], "r+b", buffering=0) as file:
    file.seek(12_345)
    assert file.write(memoryview(data)[3:]) == len(data) - 3
    file.seek(12_345)
    assert file.read(len(data) - 3) == data[3:]' "$file" && cmp -n 12345 "$file" "$work/data" && cmp -i 5012343 -n 1M "$file" "$work/data"
}
fixed() { # Neither its size nor the folder changes; it is not mapped. A write past its end is refused as by a disk.
    chmod 600 "$file" && ! chmod 644 "$file" && chown root: "$file" && ! df | grep -q "$folder" &&
        ! dd if=/dev/zero of="$file" bs=1M seek=4096 count=1 conv=notrunc 2>"$work/why" && grep -q 'No space' "$work/why" || return 1
    ! truncate -s 1M "$file" && ! touch "$folder/new" && ! rm -f "$file" && [ "$(ls "$folder")" = disk ] &&
        touch "$file" && python3 -c 'import mmap, sys
try: mmap.mmap(open(sys.argv[1], "r+b").fileno(), 4096)
except OSError: sys.exit(0)
sys.exit("it was mapped")' "$file"
}
# A hole would have to read as zeroes, and an array of files has no fast way to that: it is refused, as mkfs asks for one.
zeroed() {
    write_file && ! fallocate --punch-hole --offset 0 --length 5M "$file" && fallocate --zero-range --keep-size --offset 1M --length 5M "$file" &&
        cmp -n 5M <(dd if="$file" bs=1M skip=1 count=5 status=none) /dev/zero && cmp -n 1M "$file" "$work/data" && cmp -i 6M -n 2M "$file" "$work/data"
}
# What was synced is on the members when the server dies without a word.
synced() {
    write_file && kill -9 "$server" && { wait "$server"; umount -l "$folder"; stored; }
}
unsynced_is_written_back() { fill && dd if="$work/data" of="$file" bs=1M conv=notrunc status=none; }

attach() { loop=$(losetup --direct-io=on --show -f "$@" "$file") && [ "$(cat "/sys/block/${loop#/dev/}/loop/dio")" = 1 ]; }
detach() { losetup -d "$loop" && loop=''; }
files() {
    attach && mkdir -p "$work/mnt" && mkfs.ext4 -q "$loop" && mount "$loop" "$work/mnt" && cp "$work/data" "$work/mnt/data" || return 1
    for n in $(seq 200); do head -c $((n * 31)) "$work/data" >"$work/mnt/$n"; done
    umount "$work/mnt" && fsck.ext4 -fn "$loop" && detach
}
files_are_there() {
    attach -r && fsck.ext4 -fn "$loop" && mount -o ro "$loop" "$work/mnt" && cmp "$work/data" "$work/mnt/data" || return 1
    for n in $(seq 200); do cmp -n $((n * 31)) "$work/data" "$work/mnt/$n" || return 1; done
    umount "$work/mnt" && detach
}
refused_writing() {
    ! dd if=/dev/zero of="$file" bs=4K count=1 conv=notrunc 2>"$work/why" && grep -q 'Read-only' "$work/why"
}
# The array below a mounted file system is changed while that is written to.
grown_in_use() {
    local members=("$work"/g{0,1}.img) size writing
    truncate -s 96M "${members[@]}" && "$stripewise" create -l 1 -n 2 --size 32M --assume-clean --bitmap none "${members[@]}" >/dev/null &&
        serve --control "$work/c.sock" && attach && mkfs.ext4 -q "$loop" && mount "$loop" "$work/mnt" || return 1
    while [ ! -e "$work/enough" ] && dd if=/dev/urandom of="$work/mnt/f" bs=64k count=64 conv=fsync status=none; do :; done &
    writing=$!
    for change in '--bitmap internal' '--size max' ; do
        # shellcheck disable=SC2086
        sleep 0.3; timeout 30 "$stripewise" grow $change --control "$work/c.sock" || return 1
    done
    touch "$work/enough"
    wait $writing && size=$(stat -c %s "$file") && [ "$size" -gt 67108864 ] && losetup -c "$loop" && [ "$(blockdev --getsize64 "$loop")" = "$size" ] &&
        umount "$work/mnt" && fsck.ext4 -fn "$loop" && resize2fs "$loop" && fsck.ext4 -fn "$loop" && detach && end INT
}
unmounted() { umount "$folder" && ended; }
unmounted_beside_nbd() { umount "$folder" && sleep 0.3 && kill -0 "$server" && nbdinfo --size "nbd+unix:///?socket=$work/nbd.sock"; }
# A user of the file is left behind with errors, not hanging.
ended_in_use() {
    exec 5<"$file"
    end INT || return 1
    ! timeout 10 dd bs=4K count=1 status=none <&5 >/dev/null
    local refused=$?
    exec 5<&-
    [ "$refused" = 0 ] && grep -q 'was in use' "$work/serve.log"
}
ended_unused() { end "$1" && ! grep 'was in use' "$work/serve.log"; }
# Stopped by command it ends only by force then.
stopped_in_use() {
    attach && refused_saying 'losetup' stop && detach && [ "$(head -c 4096 "$file" | wc -c)" = 4096 ] || return 1
    exec 5<"$file"
    refused_saying 'mounted file is open' stop && "$stripewise" stop --force --control "$work/c.sock" && ended && grep -q 'was in use' "$work/serve.log"
    local stopped=$?
    exec 5<&-
    return $stopped
}
stopped() { sleep 0.2; "$stripewise" stop --control "$work/c.sock" && ended && ! grep 'was in use' "$work/serve.log"; }
under_load() {
    fio --name=load --filename="$file" --ioengine=libaio --rw=randwrite --bs=4k --iodepth=16 --size=32M --direct=1 --time_based --runtime=20 >/dev/null 2>&1 &
    local load=$!
    sleep 1
    end TERM
    local well=$?
    wait "$load"
    "$stripewise" check "${members[@]}" && return $well
}
says() { # WORDS OPTIONS...
    local words=$1
    shift
    ! "$stripewise" serve "${members[@]}" "$@" >"$work/said" 2>&1 && grep -q -- "$words" "$work/said" || { cat "$work/said"; return 1; }
}
# A server that opened what lies over its own array would wait for itself. It says so at once where that can be seen, and after
# some seconds where it cannot: of a loop device whose file has no path any more.
refused_saying() { # WORDS COMMAND...
    local words=$1 status=0
    shift
    timeout 20 "$stripewise" "$@" --control "$work/c.sock" >"$work/said" 2>&1 || status=$?
    # A server that hangs would have all that comes hang, too.
    [ "$status" != 124 ] || kill -9 "$server"
    [ "$status" = 2 ] && grep -q -- "$words" "$work/said" || { echo "exit $status of $*"; cat "$work/said"; return 1; }
}
no_member_of_itself() {
    local device
    mkdir -p "$work/mnt" && ln -sfn "$folder" "$work/link" || return 1
    for device in "$file" "$work/link/disk"; do
        refused_saying 'is this array itself' add "$device" && refused_saying 'is this array itself' re-add "$device" &&
            refused_saying 'is this array itself' add-spare "$device" --force &&
            refused_saying 'is this array itself' replace "${members[0]}" --with "$device" &&
            refused_saying 'is this array itself' fail "$device" && refused_saying 'is this array itself' remove "$device" || return 1
    done
    attach && refused_saying 'is this array itself' add "$loop" --destroy "$loop" &&
        mkfs.ext4 -q "$loop" && mount "$loop" "$work/mnt" && truncate -s 64M "$work/mnt/new.img" &&
        refused_saying 'is this array itself' add "$work/mnt/new.img"
    local refused=$?
    umount "$work/mnt"
    detach && return $refused
}
no_member_out_of_sight() {
    mkdir -p "$work/bind" && mount --bind "$folder" "$work/bind" && loop=$(losetup --show -f "$work/bind/disk") && umount -l "$work/bind" &&
        ! grep -q "$work" "/sys/block/${loop#/dev/}/loop/backing_file" && refused_saying 'does not answer' add "$loop" --destroy "$loop"
    local refused=$?
    detach && return $refused
}
# A loop device over the served file is no reason for the server to look at that file when it takes a member.
served_on() {
    as_written && truncate -s 64M "$work/new.img" && attach && dd if="$work/data" of="$loop" bs=1M oflag=direct status=none || return 1
    timeout 20 "$stripewise" add "$work/new.img" --control "$work/c.sock" && "$stripewise" remove "$work/new.img" --control "$work/c.sock" && detach
}
stale() {
    serve && kill -9 "$server" && { wait "$server"; says 'server that is gone' --mount "$folder"; }
    local said=$?
    umount "$folder" && return $said
}
by_a_user() {
    local as_nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
    chmod 755 "$work" && mkdir -p "$work/user" && cp "${members[@]}" "$work/user" && mkdir "$work/user/folder" && chown -R nobody "$work/user" &&
        begin 'Ready at' "${as_nobody[@]}" "$stripewise" serve "$work"/user/?.img --mount "$work/user/folder" &&
        "${as_nobody[@]}" cmp -n "$(stat -c %s "$work/data")" "$work/data" "$work/user/folder/disk" && end INT && ! mountpoint -q "$work/user/folder"
}
# cryptsetup makes a container of the file; what it holds is served then, and is not to be seen on the members.
encrypted() {
    printf secret >"$work/key" && serve &&
        cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file "$work/key" "$file" && end INT &&
        serve --luks-key-file "$work/key" && as_written && end INT && ! stored >/dev/null 2>&1 &&
        serve --luks-key-file "$work/key" && cmp -n "$(stat -c %s "$work/data")" "$work/data" "$file" && end INT
}

# Linux may have such a member mounted, or in an array that it runs: it is written to by its own name alone. Reading does no harm.
behind_a_loop_device() {
    loop=$(losetup --show -f "${members[1]}") || return 1
    for words in "assemble" "fail ${members[1]} --array" "write --input $work/data"; do
        # shellcheck disable=SC2086 # words
        "$stripewise" $words "${members[@]}" 2>"$work/why"
        [ $? = 2 ] && grep -q "1.img: is behind $loop" "$work/why" || { cat "$work/why"; return 1; }
    done
    says "is behind $loop" --socket "$work/nbd.sock" && "$stripewise" read --readonly --length 4K "${members[@]}" >/dev/null && detach
}

mkdir "$folder"
for member in "${members[@]}"; do truncate -s 64M "$member"; done
check 'create' "$stripewise" create --level=5 --raid-devices=4 --chunk=64K --assume-clean "${members[@]}"
check 'serve, by NBD too' serve --socket "$work/nbd.sock"
check 'what is written is read' as_written
check 'by NBD, too' by_nbd
check 'fio verify=crc32c of 512 bytes to 2 MiB, through libaio' verified libaio 1
check 'the same by pread and pwrite' verified psync 0
check 'reads and writes at any byte' odd_places
check 'size, folder and mapping are refused' fixed
check 'holes and zeroed ranges' zeroed
check 'umount: the server goes on by NBD' unmounted_beside_nbd
check 'and ends by SIGTERM' end TERM
check 'serve the file alone' serve
check 'what was synced survives kill -9' synced
check 'serve behind a page cache' serve --cache 64m
check 'write without a sync' unsynced_is_written_back
check 'umount: everything is written back, code 0' unmounted
check 'it is there' stored
check 'serve again' serve --cache 64m
check 'what was synced survives kill -9, of a cache' synced
check 'serve again' serve
check 'a loop device: mkfs.ext4, mount, 200 files, fsck' files
check 'Ctrl-C while mounted' ended_unused INT
check 'serve read-only' serve --readonly
check 'writes are refused' refused_writing
check 'a read-only loop device: the files are there' files_are_there
check 'Ctrl-C while the file is open' ended_in_use
check 'serve again' serve
check 'SIGTERM under load, and the stripes agree' under_load
check 'serve with a control socket' serve --control "$work/c.sock"
check 'the array is no member of itself' no_member_of_itself
check 'nor is what lies over it out of sight' no_member_out_of_sight
check 'it is served on, and takes another member' served_on
check 'stop by command, unless in use' stopped_in_use
check 'serve again' serve --control "$work/c.sock"
check 'stop by command' stopped
check 'a member behind a loop device is not written to' behind_a_loop_device
check 'changed while a file system on it is written to' grown_in_use
check 'no such folder' says 'no such folder' --mount "$work/none"
check 'not a folder' says 'not a folder' --mount "$work/data"
check 'not empty' says 'not empty' --mount "$work"
check 'a socket in the folder' says 'would hide' --mount "$folder" --control "$folder/c.sock"
check 'a mount of a server that is gone' stale
if command -v fusermount3 >/dev/null && command -v setpriv >/dev/null; then
    fill && serve && dd if="$work/data" of="$file" bs=1M conv=notrunc status=none && end INT
    check "a user's mount, by fusermount3" by_a_user
else
    skip "a user's mount" 'needs fusermount3 and setpriv'
fi
if command -v cryptsetup >/dev/null; then
    check 'a LUKS container, made on the file' encrypted
else
    skip 'a LUKS container' 'needs cryptsetup'
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
