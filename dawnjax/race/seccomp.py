"""System calls that an untrusted process may not make, as a filter for `bwrap --seccomp`.

They reach other processes, keep bytes in the kernel beyond a run, change mounts or namespaces, or
start work that this filter does not see. Anything else is allowed, within its namespaces.
libseccomp knows the numbers of each machine's calls, and kills a process that calls by another
machine's.

Source: seccomp_rule_add_array(3), seccomp_export_bpf(3); seccomp.h of libseccomp for the constants.
"""

import ctypes
import errno

from dawnjax.errors import ConfigError

REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    "io_uring_setup",
    *("memfd_create", "memfd_secret"),  # their bytes are in no folder of bounded size
    *("mount", "umount2", "pivot_root", "fsopen", "open_tree", "move_mount", "mount_setattr"),
    *("unshare", "setns"),
)

_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: others, such as AF_VSOCK, pass a network namespace."""

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EQUAL, _GREATER = 4, 6


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
    ]


def write_filter(fd: int) -> None:
    """Write this machine's filter, by which a refused call fails with EPERM.

    Raises:
      ConfigError: libseccomp is not installed.
    """
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise ConfigError(
            "there is no libseccomp, which running other people's code requires: install it, for "
            "example with `apt-get install libseccomp2`"
        ) from None
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(_ALLOW))

    def refuse(name: str, *comparisons: _Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        given = (_Comparison * len(comparisons))(*comparisons)
        refusal = _ERRNO | errno.EPERM
        assert not library.seccomp_rule_add_array(rules, refusal, number, len(given), given), name

    for name in REFUSED:
        refuse(name)
    for family in set(range(max(_FAMILIES))).difference(_FAMILIES):
        refuse("socket", _Comparison(0, _EQUAL, family))
    refuse("socket", _Comparison(0, _GREATER, max(_FAMILIES)))
    assert not library.seccomp_export_bpf(rules, fd)
    library.seccomp_release(rules)
