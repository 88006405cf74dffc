"""Huge pages for the memory of programs on a CPU.

XLA frees a program's temporary memory after each call, glibc gives it back to Linux, and the next
call's pages are cleared anew, 4 kB at a time. Where Linux has huge pages for those who ask, glibc
asks if the environment tells it to before Python starts: so a command starts itself again, in the
same process.

Source: the GNU C Library's manual, "Memory Allocation Tunables", glibc.malloc.hugetlb; Linux's
admin-guide/mm/transhuge.
"""

import os
import sys

VARIABLE = "GLIBC_TUNABLES"
_TUNABLE = "glibc.malloc.hugetlb"

_FIRST_GLIBC = (2, 35)
"""The first version with the tunable."""

SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def take() -> None:
    """Start this command again with huge pages, unless it was told about them or has none."""
    tunables = tunables_with()
    # The argument before the command's name: another program that calls `main` is left alone.
    before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    is_command = os.path.basename(before[-1] if before else "").endswith("dawnjax")
    if is_command and sys.executable and tunables != os.environ.get(VARIABLE, ""):
        os.environ[VARIABLE] = tunables
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def tunables_with() -> str:
    """`VARIABLE` with huge pages; as it is where it names them already or this system has none."""
    given = os.environ.get(VARIABLE, "")
    if _TUNABLE in given or not _are_for_asking():
        return given
    return f"{given}:{_TUNABLE}=1".removeprefix(":")


def _are_for_asking() -> bool:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        with open(SETTING) as setting:
            is_new = name == "glibc" and tuple(map(int, version.split("."))) >= _FIRST_GLIBC
            return is_new and "[madvise]" in setting.read()
    except (OSError, ValueError):  # another system or C library, or no huge pages
        return False
