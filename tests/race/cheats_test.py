"""Cheats, each tried in the real sandbox: how a run may reach beyond itself or its time."""

import ctypes
import json
import os
from pathlib import Path

import pytest
from ordinary_user import skip_as_root

from dawnjax.errors import ConfigError
from dawnjax.race import sandbox, seccomp
from dawnjax.race.sandbox import Limits, Walls

LIMITS = Limits(seconds=60.0, memory_gib=0.5, disk_gib=0.01)


@pytest.fixture(autouse=True)
def _user():
    skip_as_root()
    sandbox.check()


def boxed(code):
    return sandbox.boxed(Walls(limits=LIMITS), ["-I", "-S", "-c", code])


def said(code):
    with boxed(f"import ctypes, json, os, socket, sys, time\n{TOOLS}\n{code}") as process:
        return json.loads(process.hear())


TOOLS = """
libc = ctypes.CDLL(None, use_errno=True)
def tried(act):
    try:
        return repr(act())
    except Exception as error:
        return type(error).__name__
def say(value):
    print(json.dumps(value), flush=True)
"""


def test_calls_that_reach_other_processes_or_the_kernel_are_refused():
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name
    numbers = {name: resolve(name.encode()) for name in seccomp.REFUSED}
    found = said(f"""
def error(number):
    ctypes.set_errno(0)
    return [libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()]
say({{name: error(number) for name, number in {numbers!r}.items()}})
""")
    assert found == {name: [-1, 1] for name in numbers}  # EPERM


def test_without_the_library_of_filters_nobody_judges(monkeypatch):
    def none(name):
        raise OSError

    monkeypatch.setattr(seccomp.ctypes, "CDLL", none)
    with pytest.raises(ConfigError, match="apt-get install libseccomp2"):
        sandbox.check()


REACHES = [
    line
    for line in Path(__file__).with_name("reaches.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_a_run_reaches_nothing_outside():
    found = said(f"""
import fcntl, resource, termios
def outcome(text):
    try:
        return repr(eval(text))
    except (OSError, ValueError):
        return "refused"
say({{text: outcome(text) for text in {REACHES!r}}})
""")
    assert found == dict.fromkeys(REACHES, "refused")


def test_a_run_has_no_rights_no_secrets_and_no_namespaces_of_its_own():
    code = """
def facts(pid):
    lines = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    return [lines[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")]
# clone, by its number on x86_64 or aarch64, with a new user namespace
number = 56 if os.uname().machine == "x86_64" else 220
cloned = libc.syscall(number, 0x10000000 | 17, 0, 0, 0, 0)
held = {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")}
say([facts(1), facts("self"), cloned, sorted(os.environ), held])
"""
    guard, own, cloned, names, held = said(code)
    assert {*held} == {"0", "1", "2"}  # the judge's pipes and its file of errors, and no folder
    # The guard's memory may be written to, but it has no more rights than the run.
    assert guard == own == ["0000000000000000"] * 2 + ["1", "2"]
    assert cloned == -1
    assert {*names} - {"LC_CTYPE"} == {
        *("HOME", "JAX_PLATFORMS", "LANG", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    }


@pytest.mark.waits
def test_five_thousand_processes_do_not_start():
    forks = """
def started():
    for number in range(5000):
        if os.fork() == 0:
            time.sleep(100)
    return number
say(tried(started))
"""
    assert said(forks) == "BlockingIOError"


LEAVES = {
    "files": "[open(f'{place}/left', 'w').write('x') for place in PLACES]",
    "shared memory": "libc.shmget(77, 4096, 0o1666)",
    "semaphore": "libc.semget(78, 1, 0o1666)",
    "message queue": "libc.msgget(79, 0o1666)",
}


def test_a_run_leaves_nothing_for_the_next():
    places = "PLACES = ['/tmp', '/dev/shm', '/race/run']\n"
    # A checkout that lies in /tmp is seen there.
    before = said(f"{places}say([os.listdir(place) for place in PLACES])")
    for what in LEAVES.values():
        said(f"{places}say(tried(lambda: {what}))")
    found = said(
        f"{places}say([[os.listdir(place) for place in PLACES], "
        "libc.shmget(77, 4096, 0), libc.semget(78, 1, 0), libc.msgget(79, 0)])"
    )
    assert found == [before, -1, -1, -1]
    assert before[1:] == [[], []]


def test_the_page_cache_tells_nothing_of_an_earlier_run(tmp_path, monkeypatch):
    file = tmp_path / "library"
    file.write_bytes(bytes(2**20))

    def is_cached():
        with open(file, "rb") as opened:
            try:
                return os.preadv(opened.fileno(), [bytearray(4096)], 2**19, os.RWF_NOWAIT) == 4096
            except BlockingIOError:
                return False

    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not is_cached()
    monkeypatch.setattr(sandbox, "installation", lambda: [tmp_path])
    sandbox.read_installation()
    assert is_cached()


def test_nobody_is_left_of_a_killed_run(tmp_path):
    """The kernel kills a namespace whole: no process of it is there when the clock stops."""
    mark = "race_mark_" + str(os.getpid())
    code = f"""
if os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(99)',
                              {mark!r}])
time.sleep(0.3)
"""

    def alive():
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(path.read_bytes())
            except OSError:
                continue
        return any(mark.encode() in line and b"time.sleep(99)" in line for line in lines)

    with boxed(
        f"import os, sys, time\n{code}\nprint('done', flush=True); time.sleep(99)"
    ) as process:
        process.expect(b"done")
        assert alive()
        process.end_and_keep(tmp_path / "kept")
        assert not alive()
