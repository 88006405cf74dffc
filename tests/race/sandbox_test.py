"""The walls around a stranger's process, tried from inside: real ones, by bubblewrap."""

import dataclasses
import json
import shutil
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


LOOKS = """
import json, os, sys
def tried(act):
    try:
        return repr(act())
    except OSError:
        return "refused"
print(json.dumps([
    tried(lambda: os.listdir(sys.argv[1])),
    tried(lambda: open(os.path.join(sys.argv[1], "x"), "w")),
    tried(lambda: open("/race/data/x", "w")),
    sorted(os.listdir("/race")),
]))
"""


def test_what_a_track_hides_is_an_empty_folder_and_what_is_bound_is_only_read(tmp_path):
    """What else lies outside, cheats_test.py tries."""
    (tmp_path / "data").mkdir()
    package = Path(dawnjax.__file__).resolve().parent
    hidden = package / HIDDEN[0].removeprefix("dawnjax/")
    assert any(hidden.iterdir())
    with boxed(LOOKS, hidden, binds={"data": tmp_path / "data"}, hidden=HIDDEN) as process:
        found = json.loads(process.hear())
    assert found == ["[]", "refused", "refused", ["data", "run"]]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        # It says half of its word, or stops itself.
        ("import sys, time; sys.stdout.write('don'); time.sleep(99)", "more than 1 s"),
        ("import os; os.kill(os.getpid(), 19)", "more than 1 s"),
        ('x = 2**30 * b"x"', "it ended: MemoryError"),
        ("[open(f'/race/run/{n}', 'wb').write(bytes(2**22)) for n in range(9)]", "No space left"),
        ("open('/tmp/x', 'wb').write(bytes(2**25))", r"it ended: OSError: \[Errno 27\]"),
        ("import sys; sys.exit('no such thing')", "it ended: no such thing"),
        ("while True: print('x', end='')", "it printed too much"),
    ],
)
@pytest.mark.waits
def test_a_process_that_breaks_a_limit_is_ended(code, line):
    limits = dataclasses.replace(LIMITS, seconds=1.0) if line == "more than 1 s" else LIMITS
    with boxed(code, limits=limits) as process, pytest.raises(LimitError, match=line):
        process.expect(b"done")


def made(code):
    """A run that waits to be ended, as a contestant does."""
    begin = "import os, time; os.mkdir('/race/run/c'); os.chdir('/race/run/c')"
    return f"{begin}; {code}; print('done', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    "code",
    [
        "os.symlink('/etc', 'x')",
        "[os.truncate(os.open(str(n), os.O_CREAT | os.O_RDWR), 2**23) for n in range(9)]",
        "[os.mkdir(str(n)) for n in range(20_001)]",
    ],
)
def test_what_is_no_plain_small_folder_is_not_kept(code, tmp_path):
    with boxed(made(code)) as process:
        process.expect(b"done")
        with pytest.raises(LimitError, match="it saved|its saved files cannot be read"):
            process.end_and_keep(tmp_path / "kept", "c")
    assert not (tmp_path / "kept").exists()


def test_what_was_saved_is_kept_and_what_was_not_is_none(tmp_path):
    code = "os.mkdir('d'); open('d/x', 'w').write('weights'); os.chmod('d', 0o555)"
    with boxed(made(code)) as process:
        process.expect(b"done")
        process.end_and_keep(tmp_path / "kept", "c")
    assert (tmp_path / "kept" / "d" / "x").read_text() == "weights"
    shutil.rmtree(tmp_path / "kept")  # its modes are the judge's own
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
        ({"": ("1000", "max")}, False),
        ({"": ("1000", "20")}, True),
        ({"": ("max", "max"), "user/scope": ("1000", "20")}, True),
        ({"user": ("1000", "max"), "user/scope": ("max", "20")}, True),
    ],
)
def test_a_cgroup_bounds_a_run_if_it_or_one_above_has_both_limits(bounds, is_bounded, tmp_path):
    for name, limits in bounds.items():
        (tmp_path / "fs" / name).mkdir(parents=True, exist_ok=True)
        for file, limit in zip(("memory.max", "pids.max"), limits, strict=True):
            (tmp_path / "fs" / name / file).write_text(f"{limit}\n")
    (tmp_path / "own").write_text("4:memory:/old\n0::/user/scope\n")
    assert sandbox.is_bounded(tmp_path / "fs", tmp_path / "own") == is_bounded
