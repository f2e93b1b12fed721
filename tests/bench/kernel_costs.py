#!/usr/bin/env python3
"""What Linux 6.1's own code costs for each request, in cycles: where the kernel's costs in studies/models/epyc-7313.toml come from.

    tests/bench/kernel_costs.py [--rounds N] [--ghz GHZ]

Boots Linux as a process (user-mode-linux) with RAM disks, a disk behind the request queue and md arrays on the RAM disks, has fio
read and write there by libaio in batches, and samples that process with perf meanwhile; the median of the rounds counts. Samples
count by the kernel's function that they are in; copies, sums, RAM disks and what only user-mode-linux does are left out. Cycles are the
samples' time by the clock rate that a loop of known length has on the other CPU meanwhile. `--ghz` adds microseconds at that rate.
Needs x86-64 and, on Debian: apt-get install fio mdadm user-mode-linux kmod linux-perf.
"""
import argparse
import bisect
import collections
import ctypes
import mmap
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop")]
import uml

SAMPLES_A_SECOND = 9000
WARM_S, SAMPLED_S, RUN_S = 1.5, 4, 7
BATCH = ["--iodepth=32", "--iodepth_batch_submit=16", "--iodepth_batch_complete_min=16", "--norandommap"]
ROWS = ["--iodepth=16", "--iodepth_batch_submit=8", "--iodepth_batch_complete_min=8"]
# Level and chunk in KiB of an array, or a disk and None, and fio's words.
CASES = {
    "disk 4k": ("/dev/ram5", None, ["--rw=randread", "--bs=4k", *BATCH]),
    "disk 64k": ("/dev/ram5", None, ["--rw=randread", "--bs=64k", *BATCH]),
    "queue 4k": ("/dev/ubda", None, ["--rw=randread", "--bs=4k", *BATCH]),
    "raid0 64k": (0, 4, ["--rw=randread", "--bs=64k", *BATCH]),
    "raid5 update": (5, 64, ["--rw=randwrite", "--bs=4k", *BATCH]),
    "raid5 rows": (5, 64, ["--rw=write", "--bs=1m", *ROWS]),
}
# What only user-mode-linux does: its traps, its interrupts and its system calls' way in and out; and the drivers of its disks.
NOT_LINUX = re.compile(
    r"um_|userspace|virt_to_pte|maybe_map|(un)?block_signals|set_signals|get_signals|os_|copy_chunk|do_op_one|buffer_op|handle_syscall"
    r"|syscall_trace|save_registers|restore_registers|segv|sig_handler|alarm_handler|relay_signal|hard_handler|set_handler|do_timer|tick_"
    r"|hrtimer|update_|ktime|timekeep|clockevent|run_local_timers|real_alarm|arch_local|arch_irqs|interrupt_end|test_ti|raw_copy|clear_user"
    r"|strn|new_thread|switch_|arch_switch|force_flush|fix_range|flush_tlb|singlestep|arch_ptrace|ubd_|io_thread|to_irq_stack|kbuf|timer|do_IRQ"
    r"|sigio|write_sigio")
SCHEDULER = re.compile(r"dd_|__dd|elv_|__elv|deadline|rb_|blk_mq_sched|__?blk_mq_do_dispatch_sched|rwb|wbt|rq_qos")
# Copies, sums and RAM disks: they are charged by bytes, or are none of a real machine's.
DATA = re.compile(r"memcpy|memset|memmove|__radix_tree|radix_tree|brd_|xor_|raid6_|async_")


class Clock:
    """The clock rate, by a loop of one cycle a turn that now and then runs on another thread."""

    def __init__(self):
        code = bytes.fromhex("4889f8" "48ffc8" "75fb" "c3")  # rax = rdi; do rax -= 1 while rax
        self.memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.loop = ctypes.CFUNCTYPE(None, ctypes.c_ulong)(address)

    def ghz(self, seconds):
        """The median over a time."""
        rates, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter_ns()
            self.loop(5_000_000)
            rates.append(5_000_000 / (time.perf_counter_ns() - began))
            time.sleep(0.05)
        return statistics.median(rates)


class Symbols:
    """The kernel's functions by address."""

    def __init__(self, text):
        lines = (line.split() for line in text.splitlines())
        known = sorted((int(words[0], 16), words[2]) for words in lines if words[1] in "tTwW" and int(words[0], 16))
        self.addresses, self.names = [address for address, _ in known], [name for _, name in known]

    def name(self, address):
        place = bisect.bisect_right(self.addresses, address) - 1
        # Behind the last function of the kernel are the host's own libraries.
        return None if place < 0 or address - self.addresses[place] > 200_000 else self.names[place]


def sampled(guest, symbols, clock, work, case):
    """Cycles of Linux's own code for each request, but a scheduler's, and the clock rate meanwhile."""
    where, chunk_kib, words = case
    arguments = {"level": where, "chunk_kib": chunk_kib, "stripe_cache": 4096, "jobs": [words], "seconds": RUN_S, "members": 5}
    if chunk_kib is None:
        operation, arguments = "measure_disk", {"disk": where, "words": words, "seconds": RUN_S}
    else:
        operation = "measure"
    answers = []
    thread = threading.Thread(target=lambda: answers.append(guest.request(operation, **arguments)))
    thread.start()
    time.sleep(WARM_S)
    data = pathlib.Path(work, "perf.data")
    pids = subprocess.run(["pgrep", "-x", "-g", str(guest.process.pid), "linux.uml"], stdout=subprocess.PIPE, text=True).stdout.split()
    recording = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_A_SECOND), "-p", ",".join(pids), "-o", str(data),
                                  "--", "sleep", str(SAMPLED_S)], stderr=subprocess.DEVNULL)
    ghz = clock.ghz(SAMPLED_S - 0.5)
    recording.wait()
    thread.join()
    if not answers:
        raise SystemExit("the guest did not answer")
    answer = answers[0][0] if operation == "measure" else answers[0]
    addresses = subprocess.run(["perf", "script", "-i", str(data), "-F", "ip"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    names = collections.Counter(symbols.name(int(word, 16)) for word in addresses.stdout.split())
    left_out = (NOT_LINUX, SCHEDULER, DATA)
    own = {name: count for name, count in names.items() if name and not any(each.match(name) for each in left_out)}
    cycles = lambda count: count / SAMPLES_A_SECOND / SAMPLED_S * ghz * 1e9 / answer["iops"]
    return cycles(sum(own.values())), ghz


def costs(cycles):
    """Cycles by parameter."""
    page = (cycles["disk 64k"] - cycles["disk 4k"]) / 15
    member_io = (cycles["raid0 64k"] - cycles["disk 64k"]) / 16
    return {
        "a request, submitted and completed, without its page": cycles["disk 4k"] - page,
        "page_cost": page,
        "member_io_cost": member_io,
        "a command, without scheduler, driver and interrupt": cycles["queue 4k"] - cycles["disk 4k"],
        # 64 rows of four pages and a parity; a request's own part is next to nothing. A row's I/Os have their bios ready, and
        # take less than the pieces of a RAID-0; what the row itself takes is not told apart from them.
        "row_io_cost": (cycles["raid5 rows"] / 64 - 4 * page) / 5,
        "row_update_cost": cycles["raid5 update"] - cycles["disk 4k"] - 4 * member_io,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ghz", type=float)
    options = parser.parse_args()
    clock, rounds = Clock(), []
    with tempfile.TemporaryDirectory(prefix="kernel-costs.", dir="/dev/shm") as work:
        image = pathlib.Path(work, "disk.img")
        image.write_bytes(bytes(256 << 20))
        with uml.Guest(memory="1800M", program=HERE / "md_guest.py", words=[f"ubd0={image}"]) as guest:
            guest.request("disks", count=6, mib=128)
            symbols = Symbols(guest.request("symbols"))
            for number in range(options.rounds):
                found = {name: sampled(guest, symbols, clock, work, case) for name, case in CASES.items()}
                rounds.append(found)
                told = ", ".join(f"{name} {cycles:.0f} at {ghz:.2f} GHz" for name, (cycles, ghz) in found.items())
                print(f"round {number + 1}: cycles a request: {told}", file=sys.stderr)
    middle = {name: statistics.median(found[name][0] for found in rounds) for name in CASES}
    print(f"{'':52} {'cycles':>8}" + ("" if options.ghz is None else f"   us at {options.ghz} GHz"))
    for name, cycles in costs(middle).items():
        print(f"{name:52} {cycles:8.0f}" + ("" if options.ghz is None else f"   {cycles / options.ghz / 1e3:.3f}"))


if __name__ == "__main__":
    main()
