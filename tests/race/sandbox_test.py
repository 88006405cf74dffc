"""The walls around a stranger's process, tried from inside: real ones, by bubblewrap."""

import dataclasses
import json
from pathlib import Path

import pytest
from ordinary_user import skip_as_root

import dawnjax
from dawnjax.errors import ConfigError
from dawnjax.race import sandbox
from dawnjax.race.sandbox import LimitError, Limits, Walls
from dawnjax.race.tracks import read_track

LIMITS = Limits(seconds=60.0, memory_gib=0.5, disk_gib=0.01)
HIDDEN = read_track("digits").hidden


@pytest.fixture(autouse=True)
def _walls():
    skip_as_root()
    try:
        sandbox.check()
    except ConfigError as error:
        pytest.skip(str(error))


def boxed(code, *told, **walls):
    walls = Walls(**{"limits": LIMITS, **walls})
    return sandbox.boxed(walls, ["-I", "-S", "-c", code, *map(str, told)])


ESCAPES = r"""
import ctypes, glob, json, os, socket, sys
def tried(act):
    try:
        return repr(act())
    except Exception as error:
        return type(error).__name__
libc = ctypes.CDLL(None, use_errno=True)
package, hidden, home = sys.argv[1:4]
print(json.dumps({
    "network": tried(lambda: socket.create_connection(("1.1.1.1", 80), 2)),
    "package": tried(lambda: open(os.path.join(package, "x.py"), "w")),
    "data": tried(lambda: open("/race/data/x", "w")),
    "root": tried(lambda: open("/x", "w")),
    "chroot": tried(lambda: os.chroot("/")),
    "home": tried(lambda: os.listdir(home)),
    "hidden": tried(lambda: os.listdir(hidden)),
    "filled": tried(lambda: open(os.path.join(hidden, "x"), "w")),
    "unmounted": libc.umount2(hidden.encode(), 2),
    "processes": len(glob.glob("/proc/[0-9]*")),
    "seen": sorted(os.listdir("/race")),
    "secret": os.environ.get("SECRET"),
}))
"""


def test_a_process_inside_reaches_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "token")
    for name in ("data", "home"):
        (tmp_path / name).mkdir()
    package = Path(dawnjax.__file__).resolve().parent
    data = package / HIDDEN[0].removeprefix("dawnjax/")
    assert any(data.iterdir())
    binds = {"data": tmp_path / "data"}
    with boxed(ESCAPES, package, data, tmp_path / "home", binds=binds, hidden=HIDDEN) as process:
        found = json.loads(process.hear())
    assert found == {
        **dict.fromkeys(("network", "package", "data", "root", "filled"), "OSError"),
        "chroot": "PermissionError",
        "home": "FileNotFoundError",
        "hidden": "[]",
        "unmounted": -1,
        "processes": 2,
        "seen": ["data", "run"],
        "secret": None,
    }


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import time; time.sleep(100)", "more than 1 s"),
        ('x = 2**30 * b"x"', "it ended: MemoryError"),
        ("open('/race/run/x', 'wb').write(bytes(2**25))", r"it ended: OSError: \[Errno 27\]"),
        ("[open(f'/race/run/{n}', 'wb').write(bytes(2**22)) for n in range(9)]", "No space left"),
        ("open('/tmp/x', 'wb').write(bytes(2**25))", r"it ended: OSError: \[Errno 27\]"),
        ("import sys; print('x' * 2**25, file=sys.stderr)", "it ended: "),
        ("import sys; sys.exit('no such thing')", "it ended: no such thing"),
        ("print('?')", "it printed something other than the expected line"),
        ("while True: print('x', end='')", "it printed too much"),
    ],
)
@pytest.mark.waits
def test_a_process_that_breaks_a_limit_is_ended(code, line):
    limits = dataclasses.replace(LIMITS, seconds=1.0) if line == "more than 1 s" else LIMITS
    with boxed(code, limits=limits) as process, pytest.raises(LimitError, match=line):
        process.expect(b"done")


def test_a_process_is_heard_and_told():
    with boxed("print('ready', flush=True); print('done' if input() == 'go' else '?')") as process:
        ready = process.expect(b"ready")
        process.tell(b"go")
        assert process.began < ready <= process.expect(b"done")


def made(code):
    """A run that waits to be ended, as a contestant does."""
    begin = "import os, time; os.mkdir('/race/run/c'); os.chdir('/race/run/c')"
    return f"{begin}; {code}; print('done', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    "code",
    [
        "os.symlink('/etc', 'x')",
        "os.mkfifo('x')",
        "[os.truncate(os.open(str(n), os.O_CREAT | os.O_RDWR), 2**23) for n in range(9)]",
        "[os.mkdir(str(n)) for n in range(20_001)]",
        "[(os.mkdir('x'), os.chdir('x')) for _ in range(3000)]",
    ],
)
def test_what_is_no_plain_small_folder_is_not_kept(code, tmp_path):
    with boxed(made(code)) as process:
        process.expect(b"done")
        with pytest.raises(LimitError, match="it saved|its saved files cannot be read"):
            process.end_and_keep(tmp_path / "kept", "c")
    assert not (tmp_path / "kept").exists()


def test_what_was_saved_is_kept_and_what_was_not_is_none(tmp_path):
    with boxed(made("open('x', 'w').write('weights')")) as process:
        process.expect(b"done")
        process.end_and_keep(tmp_path / "kept", "c")
    assert (tmp_path / "kept" / "x").read_text() == "weights"
    with boxed("print('done', flush=True); input()") as process:
        process.expect(b"done")
        process.end_and_keep(tmp_path / "none", "c")
    assert not (tmp_path / "none").exists()


def test_a_machine_or_user_that_cannot_judge_is_told_what_to_do(tmp_path, monkeypatch):
    def refused(why, name, value, **more):
        with monkeypatch.context() as here, pytest.raises(ConfigError, match=why):
            here.setattr(name, value)
            sandbox.check(**more)

    refused("a judge must not run as root.*podman", "os.geteuid", lambda: 0)
    refused("no .*apt-get install", "shutil.which", lambda *_, **__: None)
    refused(
        "nothing limits the memory.*systemd-run",
        "dawnjax.race.sandbox.is_bounded",
        lambda: False,
        track_needs_bounds=True,
    )
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    bwrap.chmod(0o755)
    refused("uid map: Permission denied.*sysctl -w", "shutil.which", lambda *_, **__: str(bwrap))


@pytest.mark.parametrize(
    ("bounds", "is_bounded"),
    [
        ({"": ("max", "max")}, False),
        ({"": ("1000", "max")}, False),
        ({"": ("1000", "20")}, True),
        ({"": ("max", "max"), "user/scope": ("1000", "20")}, True),
        ({"user": ("1000", "max"), "user/scope": ("max", "20")}, True),
        ({}, False),
    ],
)
def test_a_cgroup_bounds_a_run_if_it_or_one_above_has_both_limits(bounds, is_bounded, tmp_path):
    for name, limits in bounds.items():
        (tmp_path / "fs" / name).mkdir(parents=True, exist_ok=True)
        for file, limit in zip(("memory.max", "pids.max"), limits, strict=True):
            (tmp_path / "fs" / name / file).write_text(f"{limit}\n")
    (tmp_path / "own").write_text("4:memory:/old\n0::/user/scope\n")
    assert sandbox.is_bounded(tmp_path / "fs", tmp_path / "own") == is_bounded


def test_a_child_that_died_before_it_was_held_is_one_line(tmp_path, monkeypatch):
    """Bubblewrap names its first process, which may be gone by then."""
    dying = tmp_path / "bwrap"
    most = 2**22  # of Linux: no process has a number above
    dying.write_text(
        f"""#!/bin/sh\nprintf '{{"child-pid": {most + 1}}}' > /proc/self/fd/$2\n"""
        "echo no namespace >&2\nexit 1\n"
    )
    dying.chmod(0o755)
    monkeypatch.setattr(sandbox.shutil, "which", lambda *_, **__: str(dying))
    with pytest.raises(ConfigError, match="cannot make a sandbox here: it ended: no namespace"):
        sandbox.check()
