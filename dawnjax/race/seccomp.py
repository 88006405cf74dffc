"""System calls that a stranger's process is refused, as a filter for `bwrap --seccomp`.

They reach other processes, keep bytes in the kernel beyond a run, change mounts or namespaces, or
start work that this filter does not see. Anything else is allowed: namespaces bound it.

Source: Linux, Documentation/userspace-api/seccomp_filter.rst, for the form; the numbers are those
of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (v6.6).
"""

import errno
import platform
import struct

REFUSED = {
    # Name: number on x86_64, number on aarch64.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),  # its bytes are in no folder of bounded size
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
}

_SOCKET = (41, 198)
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: others, such as AF_VSOCK, pass a network namespace."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Place in the table, and AUDIT_ARCH of include/uapi/linux/audit.h."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
"""First number of x86_64's second table of calls, which repeats the others."""


def program(machine: str | None = None) -> bytes:
    """BPF instructions for a machine, this one if None; `KeyError` where its calls are not known.

    A refused call fails with EPERM.
    """
    place, arch = _MACHINES[machine or platform.machine()]
    # (code, value, where to jump if it holds); offsets follow once the length is known.
    checks: list[tuple[int, int, str]] = [
        (_AT_LEAST, _X32, "refuse"),
        *((_EQUAL, numbers[place], "refuse") for numbers in REFUSED.values()),
        (_EQUAL, _SOCKET[place], "socket"),
        (_RETURN, _ALLOW, ""),
        (_LOAD, 16, ""),  # the first argument's low half
        *((_EQUAL, family, "allow") for family in _FAMILIES),
        (_RETURN, _ERRNO | errno.EPERM, ""),
        (_RETURN, _ALLOW, ""),
    ]
    last = len(checks) - 1
    target = {"refuse": last - 1, "allow": last, "socket": checks.index((_LOAD, 16, ""))}
    words = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for index, (code, value, where) in enumerate(checks):
        words.append((code, target[where] - index - 1 if where else 0, 0, value))
    return b"".join(struct.pack("<HBBI", *word) for word in words)
