"""Walls around a stranger's process: no network, its own files, read-only installation, bounds.

Namespaces of the kernel make them, by bubblewrap where it is installed and else by `unshare`. A
process sees the Python installation, this package and what the judge binds, nothing else: no home,
no other data. It has no capabilities, so it cannot undo a mount.

Source: bwrap(1), unshare(1), user_namespaces(7): mounts of a more privileged namespace are locked.
"""

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import dawnjax
from dawnjax.errors import ConfigError
from dawnjax.study import devices

NONE, BUBBLEWRAP, UNSHARE = "none", "bubblewrap", "unshare"

INSIDE = Path("/race")
"""Folder of the judge's files inside."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/passwd", "/etc/nsswitch.conf", "/etc/localtime")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_NEEDED = ("unshare", "mount", "chroot", "setpriv", "prlimit", "sh")

_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""Of each process, inside or not: this one's may lack the folders of administrators."""

_LARGEST_FILE = 8 * 2**30

_MEMORY_FILES = 2**30
"""Bytes in each folder that lies in memory; a bubblewrap that cannot bound it is not used."""

_FORGET = """
import ctypes, os, platform, sys
number = {"x86_64": 250, "aarch64": 219}.get(platform.machine(), -1)
ctypes.CDLL(None).syscall(number, 1, None)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""First steps inside: a keyring of its own, for keys in the session's would last to the next run.

Source: keyctl(2), KEYCTL_JOIN_SESSION_KEYRING = 1; no namespace parts that keyring.
"""

_THREADS = 64
"""Of one process; the kernel's limit counts threads."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bind:
    """A file or folder of this machine at a place inside."""

    outside: Path
    inside: Path
    writable: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """What a process may see and use.

    Attributes:
      kind: `BUBBLEWRAP`, `UNSHARE` or `NONE`.
      binds: The judge's files.
      hidden: Folders within site-packages that are empty inside.
      platform: `cpu` or `gpu`; a GPU's devices are bound.
      cpu_seconds: Of each process.
      processes: Of all, about: the kernel counts threads.
    """

    kind: str
    binds: tuple[Bind, ...] = ()
    hidden: tuple[str, ...] = ()
    platform: str = "cpu"
    cpu_seconds: int
    processes: int

    def command(self, inner: Sequence[str], root: Path) -> list[str]:
        """Command that runs another inside; `root` is an empty folder to build its root in."""
        limits = [
            "prlimit",
            f"--cpu={self.cpu_seconds}",
            f"--nproc={self.processes * _THREADS}",
            f"--fsize={_LARGEST_FILE}",
            "--core=0",
            "--",
        ]
        if self.kind == NONE:
            return [*limits, *inner] if _place_of("prlimit") else [*inner]
        inner = [sys.executable, "-I", "-S", "-c", _FORGET, *inner]
        if self.kind == BUBBLEWRAP:
            return [_place_of("bwrap") or "bwrap", *self._bubblewrap(), "--", *limits, *inner]
        apart = "unshare --user --map-root-user --net --pid --mount --ipc --uts --fork --kill-child"
        powerless = "setpriv --bounding-set=-all --inh-caps=-all --no-new-privs --"
        return [
            *(*apart.split(), "--", "sh", "-c", self._script(root), "sh"),
            *powerless.split(),
            *limits,
            *inner,
        ]

    def _bubblewrap(self) -> Iterator[str]:
        yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for place in ("/dev/shm", "/tmp"):
            yield from ("--size", str(_MEMORY_FILES), "--tmpfs", place)
        for bind in self._all_binds():
            how = "--bind" if bind.writable else "--ro-bind"
            yield from (how, str(bind.outside), str(bind.inside))
        for device in self._gpu_devices():
            yield from ("--dev-bind", str(device), str(device))
        for folder in self._hidden():
            yield from ("--tmpfs", str(folder))
        yield from ("--remount-ro", "/", "--chdir", "/tmp")

    def _script(self, root: Path) -> str:
        """Shell script that builds a root of mounts, and becomes the rest of its arguments there.

        A mount keeps flags that the namespace above locked, so each set that it may ask for is
        tried; without one that makes the mount read-only the script fails.
        """
        quoted = shlex.quote(str(root))
        lines = [
            "set -eu",
            f"R={quoted}",
            "ro() { for o in ro ro,nosuid ro,nosuid,nodev ro,nosuid,nodev,noatime "
            'ro,nosuid,nodev,noexec ro,nosuid,nodev,relatime; do mount -o "remount,bind,$o" "$1" '
            '2>/dev/null && return 0; done; echo "cannot make $1 read-only" >&2; exit 1; }',
            'folder() { mkdir -p "$R$2"; mount --bind "$1" "$R$2"; }',
            'file() { mkdir -p "$(dirname "$R$2")"; : > "$R$2"; mount --bind "$1" "$R$2"; }',
            'mount -t tmpfs -o mode=755,size=16m tmpfs "$R"',
            'mkdir -p "$R/proc" "$R/dev/shm" "$R/tmp"',
            'mount -t proc proc "$R/proc"',
            *(
                f'mount -t tmpfs -o size={_MEMORY_FILES} tmpfs "$R/{place}"'
                for place in ("tmp", "dev/shm")
            ),
            *(f"file /dev/{name} /dev/{name}" for name in _DEVICES),
            *(f"file {device} {device}" for device in map(str, self._gpu_devices())),
        ]
        for bind in self._all_binds():
            how = "file" if bind.outside.is_file() else "folder"
            inside = shlex.quote(str(bind.inside))
            lines.append(f"{how} {shlex.quote(str(bind.outside))} {inside}")
            lines += [] if bind.writable else [f'ro "$R"{inside}']
        lines += [
            f'mount -t tmpfs -o ro,size=4k tmpfs "$R"{shlex.quote(str(folder))}'
            for folder in self._hidden()
        ]
        # The places of mounts are made; nothing else may be written beside them.
        lines += ['ro "$R"', 'cd "$R"']
        return "\n".join([*lines, 'exec chroot . sh -c \'cd /tmp; exec "$@"\' sh "$@"'])

    def _all_binds(self) -> Iterator[Bind]:
        for path in _installation():
            yield Bind(outside=path, inside=path)
        for name in _SYSTEM_FILES:
            if Path(name).is_file():
                yield Bind(outside=Path(name), inside=Path(name))
        if self.platform == "gpu" and Path("/sys").is_dir():
            yield Bind(outside=Path("/sys/module"), inside=Path("/sys/module"))
        yield from self.binds

    def _gpu_devices(self) -> list[Path]:
        return sorted(Path("/dev").glob("nvidia*[0-9l]")) if self.platform == "gpu" else []

    def _hidden(self) -> list[Path]:
        # Also packages that this Python does not import, and what conda keeps.
        roots = [Path("/usr"), Path("/usr/local"), Path(sys.prefix), Path(sys.base_prefix)]
        places = "lib*/python3*/*-packages", "envs/*/lib/python3*/site-packages"
        others = [path for root in roots for place in places for path in root.glob(place)]
        folders = [path / name for path in (*_packages(), *others) for name in self.hidden]
        if self.hidden:
            folders += [root / "pkgs" for root in roots]
        return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _place_of(program: str) -> str | None:
    # Bubblewrap is called by its place, so it may be where this process alone looks.
    more = f":{os.environ.get('PATH', '')}" if program == "bwrap" else ""
    return shutil.which(program, path=_PATH + more)


def environment(platform: str) -> dict[str, str]:
    """Variables of a process inside: none of this one's, which may hold secrets or settings."""
    package = Path(dawnjax.__file__).resolve().parent
    first = devices.gpus()[:1] if platform == "gpu" else []
    return {
        **({"CUDA_VISIBLE_DEVICES": first[0]} if first else {}),
        "PYTHONPATH": str(package.parent),  # a clone need not be installed
        "PATH": _PATH,
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_PLATFORMS": "cpu" if platform == "cpu" else "cuda",
    }


def choose(root: Path) -> str:
    """Kind of sandbox that works here, tried with a process that does nothing.

    Raises:
      ConfigError: None does; says why, and how to go on.
    """
    reasons = []
    for kind, programs in ((BUBBLEWRAP, ("bwrap", "prlimit")), (UNSHARE, _NEEDED)):
        missing = [name for name in programs if _place_of(name) is None]
        if missing:
            reasons.append(f"{kind}: no {missing[0]}")
            continue
        box = Box(kind=kind, cpu_seconds=10, processes=64)
        try:
            tried = subprocess.run(
                box.command([sys.executable, "-I", "-S", "-c", ""], root),
                env=environment("cpu"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=20,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{kind}: {error}")
            continue
        if tried.returncode == 0:
            return kind
        reasons.append(f"{kind}: {(tried.stderr.strip().splitlines() or ['it failed'])[-1]}")
    raise ConfigError(
        f"this machine cannot run a stranger's code apart ({'; '.join(reasons)}); allow user "
        "namespaces or install bubblewrap, or trust this entry with all that you may do: "
        "--without_sandbox"
    )


def refuse_shown(data_dir: Path) -> None:
    """Refuse a folder of data that a run would see, or whose files lie elsewhere.

    Raises:
      ConfigError: Names the folder or the link.
    """
    place = data_dir.resolve()
    shown = next((path for path in _installation() if place.is_relative_to(path)), None)
    if shown is not None:
        raise ConfigError(
            f"{data_dir} lies in {shown}, which a run sees, with the examples to evaluate: move it"
        )
    link = next((path for path in sorted(place.iterdir()) if path.is_symlink()), None)
    if link is not None:
        raise ConfigError(f"{link} is a link, which leads nowhere inside a sandbox: copy the file")


def _packages() -> list[Path]:
    """Folders of installed packages that this Python imports from."""
    names = {"site-packages", "dist-packages"}
    found = [Path(path) for path in sys.path if Path(path).name in names and Path(path).is_dir()]
    return list(dict.fromkeys(path.resolve() for path in found))


def _installation() -> list[Path]:
    """Folders that Python, its packages and this package lie in, none within another.

    Of a clone the four folders of the package alone: beside them may lie data.
    """
    package = Path(dawnjax.__file__).resolve().parent
    linked = [path.resolve() for path in package.iterdir() if path.is_symlink()]
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent]
    wanted = [*map(Path, _SYSTEM), *prefixes, *_packages(), package, *linked]
    found: list[Path] = []
    for path in sorted({path for path in wanted if path.is_dir()}, key=lambda p: len(p.parts)):
        if path == Path("/"):
            raise ConfigError(f"Python is installed in {path}, which a sandbox would show whole")
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found
