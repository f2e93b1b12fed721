"""Lets user-mode-linux run on CPUs whose registers are more than it has room for: registers.py linux.uml ARGUMENTS.

Linux 6.1 under user-mode-linux keeps 2,696 bytes of vector registers for each process, as AVX-512 needs. With AMX the host has
11 KiB, gives what fits, and takes back no less than all: the kernel panics at its first process ("ptrace set fp regs failed,
errno = 14"). A host without that interface makes it keep the 512 bytes of FXSAVE instead, so it is told that there is none: a
seccomp filter refuses ptrace's NT_X86_XSTATE. Wider registers are then not kept when threads of one process take turns in the
guest, so its C library is told to use none (GLIBC_TUNABLES).
"""
import ctypes
import os
import pathlib
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
PR_SET_PDEATHSIG, SIGKILL = 1, 9
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # of 32 bits, from the call's number and arguments
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 22  # EINVAL
ARCH_X86_64, PTRACE = 0xC000003E, 101
GETREGSET, SETREGSET, NT_X86_XSTATE = 0x4204, 0x4205, 0x202
NUMBER, ARCH, REQUEST, NOTE = 0, 4, 16, 32  # places in struct seccomp_data

FILTER = [
    (LOAD, 0, 0, ARCH), (EQUAL, 0, 8, ARCH_X86_64),
    (LOAD, 0, 0, NUMBER), (EQUAL, 0, 6, PTRACE),
    (LOAD, 0, 0, REQUEST), (EQUAL, 1, 0, GETREGSET), (EQUAL, 0, 3, SETREGSET),
    (LOAD, 0, 0, NOTE), (EQUAL, 0, 1, NT_X86_XSTATE),
    (RETURN, 0, 0, REFUSE),
    (RETURN, 0, 0, ALLOW),
]

NARROW = "-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load"


def are_too_many():
    """Whether the CPU has registers that user-mode-linux has no room for."""
    return " amx_tile" in pathlib.Path("/proc/cpuinfo").read_text()


def hide():
    """Hides the wide registers from this process and what it becomes."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in FILTER)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(FILTER), ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "cannot hide the CPU's wide registers from user-mode-linux")


def main():
    command = sys.argv[1:]
    # Who started this may be killed, and nobody else waits for what it does.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if are_too_many():
        hide()
        # What the kernel does not know is its first program's environment.
        command.append(f"GLIBC_TUNABLES=glibc.cpu.hwcaps={NARROW}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
