"""The walls around a stranger's process, tried from inside."""

import ctypes
import dataclasses
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dawnjax
from dawnjax.errors import ConfigError
from dawnjax.race import sandbox
from dawnjax.race.guarded import Guarded, LimitError
from dawnjax.race.sandbox import Bind, Box
from dawnjax.race.tracks import Limits, read_track

ESCAPES = r"""
import ctypes, glob, json, os, socket, sys
def tried(act):
    try:
        return repr(act())
    except Exception as error:
        return type(error).__name__
def connect():
    socket.create_connection(("1.1.1.1", 80), 2)
libc = ctypes.CDLL(None, use_errno=True)
package, hidden, home = sys.argv[1:4]
found = {
    "network": tried(connect),
    "write": tried(lambda: open(os.path.join(package, "x.py"), "w")),
    "data": tried(lambda: open("/race/data/x", "w")),
    "root": tried(lambda: open("/x", "w")),
    "unmounted": libc.umount2(hidden.encode(), 2),
    "hidden": tried(lambda: os.listdir(hidden)),
    "home": tried(lambda: os.listdir(home)),
    "escaped": tried(lambda: os.chroot("/")),
    "key": libc.syscall(250, 10, -3, b"user", b"dawnjax_left", 0),
    "processes": len(glob.glob("/proc/[0-9]*")),
    "seen": sorted(os.listdir("/race")),
    "secret": os.environ.get("SECRET"),
}
with open("/race/run/found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.mark.processes
def test_a_process_inside_reaches_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "token")
    for name in ("root", "data", "run", "home"):
        (tmp_path / name).mkdir()
    try:
        kind = sandbox.choose(tmp_path / "root")
    except ConfigError as error:
        pytest.skip(str(error))
    binds = [Bind(outside=tmp_path / "data", inside=Path("/race/data"))]
    binds.append(Bind(outside=tmp_path / "run", inside=Path("/race/run"), writable=True))
    hidden = read_track("digits").hidden
    box = Box(kind=kind, binds=tuple(binds), hidden=hidden, cpu_seconds=20, processes=16)
    sklearn = importlib.util.find_spec("sklearn")
    assert sklearn is not None and sklearn.origin is not None
    data = Path(sklearn.origin).resolve().parent / hidden[0].removeprefix("sklearn/")
    assert any(data.iterdir())
    package = Path(dawnjax.__file__).parent
    told = [str(package), str(data), str(tmp_path / "home")]
    command = box.command([sys.executable, "-I", "-S", "-c", ESCAPES, *told], tmp_path / "root")
    # What a run leaves in the keyring of the session, by Linux's numbers for x86-64.
    libc = ctypes.CDLL(None)
    key = libc.syscall(248, b"user", b"dawnjax_left", b"weights", 7, -3)
    done = subprocess.run(command, env=sandbox.environment("cpu"), capture_output=True, text=True)
    libc.syscall(250, 3, key)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "run" / "found.json").read_text())
    assert found["network"] == "OSError"
    assert found["write"] == found["data"] == found["root"] == "OSError"
    assert found["unmounted"] == -1 and found["hidden"] == "[]"
    assert found["home"] == "FileNotFoundError" and found["escaped"] == "PermissionError"
    assert found["processes"] <= 2 and found["secret"] is None
    assert found["key"] == -1 or platform.machine() != "x86_64"
    assert found["seen"] == ["data", "run"]
    assert not (package / "x.py").exists() and any(data.iterdir())


LIMITS = Limits(
    seconds=60.0,
    memory_gib=0.25,
    disk_gib=0.01,
    processes=2,
    source_bytes=1,
    packed_bytes=1,
    preparation_ratio=1.0,
)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import time; time.sleep(100)", "more than 1 s"),
        ('import time; x = 2**29 * b"x"; time.sleep(100)', "more than 0.25 GiB of memory"),
        (
            "import os, time; [os.fork() for _ in range(2)]; time.sleep(100)",
            "more than 2 processes",
        ),
        (
            "import sys, time; open(sys.argv[2], 'wb').write(bytes(2**24)); time.sleep(100)",
            "it saved more than 0.01 GiB",
        ),
        (
            "import sys, time; print('x' * 2**24, file=sys.stderr); time.sleep(60)",
            "saved more than",
        ),
        ("import sys; sys.exit('no such thing')", "it ended: no such thing"),
        ("import os, sys; os.write(int(sys.argv[1]), b'?')", "it spoke out of turn"),
    ],
)
@pytest.mark.waits
def test_a_process_that_breaks_a_limit_is_ended(code, line, tmp_path):
    limits = dataclasses.replace(LIMITS, seconds=1.0) if line == "more than 1 s" else LIMITS
    with Guarded(limits, tmp_path) as process:
        told = [str(process.say), str(tmp_path / "file")]
        process.start([sys.executable, "-I", "-S", "-c", code, *told], dict(os.environ))
        with pytest.raises(LimitError, match=line):
            process.wait_for(b"d")


def test_a_process_is_heard_and_told(tmp_path):
    code = "import os, sys; s, h = map(int, sys.argv[1:]); os.write(s, b'r'); "
    code += "os.read(h, 1) == b'g' and os.write(s, b'd')"
    with Guarded(LIMITS, tmp_path) as process:
        numbers = [str(process.say), str(process.hear)]
        process.start([sys.executable, "-I", "-S", "-c", code, *numbers], dict(os.environ))
        ready = process.wait_for(b"r")
        process.tell(b"g")
        assert process.began < ready <= process.wait_for(b"d")


def test_a_process_that_is_stopped_with_its_judge_broke_no_rule(tmp_path):
    with Guarded(LIMITS, tmp_path) as process:
        code = "import os, signal, sys, time; signal.pthread_sigmask(signal.SIG_UNBLOCK, [2]); "
        code += "os.write(int(sys.argv[1]), b'r'); time.sleep(60)"
        process.start([sys.executable, "-I", "-S", "-c", code, str(process.say)], {})
        process.wait_for(b"r")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)  # it ends meanwhile
        with pytest.raises(KeyboardInterrupt):
            process.wait_for(b"d")


def test_examples_in_packages_that_python_does_not_import_are_hidden_too(tmp_path, monkeypatch):
    hidden = read_track("digits").hidden
    folders = []
    for place in ("lib/python3.9/site-packages", "envs/old/lib/python3.9/site-packages"):
        folders.append(tmp_path / place / hidden[0])
        folders[-1].mkdir(parents=True)
    (tmp_path / "pkgs").mkdir()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    box = Box(kind=sandbox.UNSHARE, hidden=hidden, cpu_seconds=1, processes=1)
    command = " ".join(box.command(["true"], tmp_path / "root"))
    for folder in (*folders, tmp_path / "pkgs"):
        assert f'"$R"{folder}' in command


def test_data_that_a_run_would_see_or_that_lie_behind_links_are_refused(tmp_path):
    sandbox.refuse_shown(tmp_path)
    with pytest.raises(ConfigError, match="which a run sees, with the examples to evaluate"):
        sandbox.refuse_shown(Path(dawnjax.__file__).parent / "race")
    (tmp_path / "val.bin").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="val.bin is a link, which leads nowhere inside"):
        sandbox.refuse_shown(tmp_path)


def test_programs_of_administrators_are_found_without_their_folder_on_path(tmp_path, monkeypatch):
    asked = []

    def which(name, path=None):
        folders = (path or os.environ["PATH"]).split(":")
        return f"/usr/sbin/{name}" if "/usr/sbin" in folders else None

    def run(command, *, env, **_):
        asked.append((command[0], env["PATH"]))
        return subprocess.CompletedProcess(command, int(len(asked) == 1), "", "")

    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr("shutil.which", which)
    monkeypatch.setattr(subprocess, "run", run)
    assert sandbox.choose(tmp_path) == sandbox.UNSHARE
    assert [command for command, _ in asked] == ["/usr/sbin/bwrap", "unshare"]
    assert all("/usr/sbin" in path.split(":") for _, path in asked)
