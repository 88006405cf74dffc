"""Tests that no root may run: a judge of strangers' code refuses to be one.

Where the tests run as root, `pytest_as_user` runs tests as the user `nobody`. That user may not
look into root's folders, such as one with Python itself; in a mount namespace of its own it sees
the few that it needs.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOBODY = 65534

ROOT = Path(__file__).resolve().parents[2]


def skip_as_root() -> None:
    if os.geteuid() == 0:
        pytest.skip("no root judges: tests/race/ordinary_user_test.py runs this as another user")


def pytest_as_user(marks: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of files that have some marks as `nobody`."""
    # Not in pytest's own folder, which each session makes root's alone again.
    with tempfile.TemporaryDirectory(prefix="dawnjax-nobody-") as folder:
        Path(folder).chmod(0o755)
        return _run(marks, files, Path(folder))


def _run(marks: str, files: tuple[Path, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    place = folder / "of_nobody"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    data = os.environ.get("DAWNJAX_TEST_DATA")
    wanted = [sys.base_prefix, sys.prefix, ROOT, *([data] if data else [])]
    inner = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    inner += [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-m", marks]
    inner += [f"--basetemp={place}/tests", *map(str, files)]
    script = "\n".join(["set -e", *_opened(list(map(Path, wanted)), folder), shlex.join(inner)])
    environment = {**os.environ, "HOME": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("DAWNJAX_TEST_CACHE", None)
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _opened(wanted: list[Path], folder: Path) -> list[str]:
    """Shell commands after which all may enter the folders that lie in closed ones."""
    lines, closed = [], set[Path]()
    moves = []
    for number, path in enumerate({path.resolve() for path in wanted}):
        shut = [parent for parent in path.parents if not parent.stat().st_mode & 0o001]
        if shut:
            held = folder / f"held_{number}"
            held.mkdir()
            closed.add(shut[-1])
            lines.append(f"mount --bind {shlex.quote(str(path))} {held}")
            moves += [f"mkdir -p {shlex.quote(str(path))}", f"mount --move {held} {path}"]
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(path))}" for path in closed]
    return lines + moves
