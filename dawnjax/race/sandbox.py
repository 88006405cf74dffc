"""Isolation of an untrusted process: no network, its own files, read-only installation, limits.

Bubblewrap provides it. A process sees Python, its packages, the system's libraries, this package
and what the judge binds: no home, no other data. It writes to memory, within limits, and the memory
goes when it ends.

Source: bwrap(1); pid_namespaces(7): when the first process of a namespace is killed the kernel
kills all others, and only then is the end of the first one seen; cgroup-v2.rst of Linux.
"""

import contextlib
import dataclasses
import math
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import dawnjax
from dawnjax import records
from dawnjax.cluster.children import last_line
from dawnjax.errors import ConfigError
from dawnjax.race import seccomp
from dawnjax.study import devices

INSIDE = Path("/race")
"""Folder of the judge's files inside."""

SAVED = INSIDE / "run"
"""Folder in memory that a process may fill, and that the judge can keep."""

_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/passwd", "/etc/nsswitch.conf", "/etc/localtime")

_PACKAGE = Path(dawnjax.__file__).resolve().parent
_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

_MEMORY_FILES = 2**30
"""Bytes in each of /tmp and /dev/shm."""

_MOST_THREADS = 2048
_MOST_SAID = 2**20
"""Bytes of a line."""

_MOST_SAVED = 20_000
"""Files and folders."""


class LimitError(Exception):
    """The process broke a limit, or ended before its line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a process.

    Attributes:
      seconds: Seconds by the judge's clock, including imports and compilation.
      memory_gib: Of each of its processes.
      disk_gib: GiB that it may save.
    """

    seconds: float
    memory_gib: float
    disk_gib: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Walls:
    """What a process may see and use.

    Attributes:
      binds: Files and folders of the judge, by their names below `INSIDE`; read-only.
      hidden: Folders within installed packages that are empty inside.
      platform: `cpu` or `gpu`; a GPU's devices are bound.
    """

    limits: Limits
    binds: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    hidden: Sequence[str] = ()
    platform: str = "cpu"

    def arguments(self) -> Iterator[str]:
        """Arguments of bubblewrap, up to the command that it runs."""
        yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent")
        yield from ("--new-session", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev")
        sizes = {"/dev/shm": _MEMORY_FILES, "/tmp": _MEMORY_FILES, str(SAVED): self._saved_bytes}
        for place, size in sizes.items():
            yield from ("--size", str(size), "--tmpfs", place)
        files = filter(Path.is_file, map(Path, (*_SYSTEM_FILES, _tool("prlimit"))))
        for path in [*installation(), Path("/sys/devices/system"), *files]:
            yield from ("--ro-bind", str(path), str(path))
        for name, outside in self.binds.items():
            yield from ("--ro-bind", str(outside.resolve()), str(INSIDE / name))
        if self.platform == "gpu":
            yield from ("--ro-bind-try", "/sys/module", "/sys/module")
            for device in sorted(Path("/dev").glob("nvidia*[0-9l]")):
                yield from ("--dev-bind", str(device), str(device))
        roots = [*_packages(), _PACKAGE.parent]  # links of a clone lead out of the package
        covered = {(root / name).resolve() for root in roots for name in self.hidden}
        hidden = [str(path) for path in [*covered, *_other_packages()] if path.is_dir()]
        for place in hidden:
            yield from ("--tmpfs", place)
        for place in [*hidden, "/dev", "/"]:  # each is memory without a bound
            yield from ("--remount-ro", place)
        yield from ("--chdir", "/tmp")

    def bounds(self) -> list[str]:
        """Arguments of prlimit."""
        return [
            f"--data={int(self.limits.memory_gib * 2**30)}",
            f"--fsize={self._saved_bytes}",  # also of what it writes to standard error
            f"--nproc={_MOST_THREADS}",
            "--core=0",
        ]

    @property
    def _saved_bytes(self) -> int:
        return int(self.limits.disk_gib * 2**30)

    def environment(self) -> dict[str, str]:
        """Environment inside: nothing from this process, which may hold secrets or settings."""
        first = devices.gpus()[:1] if self.platform == "gpu" else []
        return {
            **({"CUDA_VISIBLE_DEVICES": first[0]} if first else {}),
            "PYTHONPATH": str(_PACKAGE.parent),  # a clone need not be installed
            "PATH": _PATH,
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_PLATFORMS": "cpu" if self.platform == "cpu" else "cuda",
        }


def installation() -> list[Path]:
    """Folders and files of Python, its packages, this package and the system's libraries.

    None lies within another. A clone contributes only the package's folders, and an environment
    nothing beside it, because data may lie there.
    """
    base, stdlib = Path(sys.base_prefix), sysconfig.get_path("stdlib")
    python = [Path(sys.executable).resolve().parent, Path(stdlib), *base.glob("lib*/libpython*")]
    environment = [Path(sys.prefix) / part for part in ("bin", "pyvenv.cfg")]
    linked = [path.resolve() for path in _PACKAGE.iterdir() if path.is_symlink()]
    triple = sysconfig.get_config_var("MULTIARCH") or "none"
    system = [Path(f"{root}{lib}") for root in ("/", "/usr/") for lib in ("lib64", f"lib/{triple}")]
    wanted = [*system, *python, *environment, *_packages(), _PACKAGE, *linked]
    found: list[Path] = []
    for path in sorted({path for path in wanted if path.exists()}, key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found


def _packages() -> list[Path]:
    return [Path(path) for path in sys.path if path.endswith("-packages")]


def _other_packages() -> set[Path]:
    """Folders of packages beside the standard library that this Python does not use."""
    return set(Path(sysconfig.get_path("stdlib")).glob("*-packages")).difference(_packages())


def read_installation() -> None:
    """Read all that a run will see into memory.

    The time of a read would tell one run which pages an earlier run had read; after this all pages
    are in memory. It also spares the first run the wait for the disk.
    """
    buffer = bytearray(2**20)
    roots = {path.resolve() for path in installation()}
    names = [str(root) for root in roots if root.is_file()]
    for folder, _, files in (place for root in roots for place in os.walk(root)):
        names += [os.path.join(folder, name) for name in files]
    for name in names:
        with contextlib.suppress(OSError):  # links too: what they lead to is read by its own name
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


@contextlib.contextmanager
def boxed(walls: Walls, arguments: Sequence[str]) -> Iterator["Boxed"]:
    """Start Python with arguments inside the sandbox; nothing that it starts outlives the block."""
    with tempfile.TemporaryFile() as stderr, contextlib.ExitStack() as stack:
        box = Boxed(walls, arguments, stderr, stack)
        stack.callback(box.end)
        yield box


class Boxed:
    """A process inside the sandbox. Both sides exchange lines over its standard input and output.

    Attributes:
      began: Time of its start, by this process's clock.
    """

    def __init__(
        self,
        walls: Walls,
        arguments: Sequence[str],
        stderr: IO[bytes],
        stack: contextlib.ExitStack,
    ):
        self._limits, self._stderr, self._stack = walls.limits, stderr, stack
        self._handle: int | None = None
        self._saved: int | None = None
        info, child_info = os.pipe()
        calls, child_calls = os.pipe()
        seccomp.write_filter(child_calls)  # shorter than what a pipe holds
        os.close(child_calls)
        command = [
            *(_tool("bwrap"), "--info-fd", str(child_info), "--seccomp", str(calls)),
            *(*walls.arguments(), "--", _tool("prlimit"), *walls.bounds(), "--"),
            *(sys.executable, *arguments),
        ]
        self.began = time.monotonic()
        self._process = subprocess.Popen[bytes](
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=walls.environment(),
            pass_fds=(child_info, calls),
            process_group=0,  # Ctrl-C is for this process
        )
        stack.enter_context(self._process)  # closes the pipes
        os.close(child_info)
        os.close(calls)
        with open(info, "rb") as file:
            told = file.read()
        # The first process of the namespace; none where bubblewrap failed.
        self._first = records.load_json(told)["child-pid"] if told else None
        if self._first:
            with contextlib.suppress(ProcessLookupError):  # it died already; `hear` says why
                self._handle = os.pidfd_open(self._first)
                stack.callback(os.close, self._handle)

    def tell(self, line: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended; the next `hear` says so
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def hear(self, until: float = math.inf) -> bytes:
        """Wait for its next line, without the line end; `LimitError` if none comes.

        Empty where the moment `until` comes first.
        """
        assert self._process.stdout
        limit, line = self.began + self._limits.seconds, b""
        while not line.endswith(b"\n"):
            left = min(limit, until) - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            if not ready and until < limit:
                return b""
            if not ready:
                raise LimitError(f"it took more than {self._limits.seconds:g} s")
            part = os.read(self._process.stdout.fileno(), _MOST_SAID)
            if not part or len(line) > _MOST_SAID:
                raise LimitError(self._last_words() if not part else "it printed too much")
            line += part
        return line[:-1]

    def expect(self, line: bytes, until: float = math.inf) -> float:
        """Wait for a given line, or until a moment; returns when.

        `LimitError` if it prints another line.
        """
        said = self.hear(until)
        moment = time.monotonic()
        if self._saved is None:  # held from its first word on, for it may end after its last
            with contextlib.suppress(OSError):
                folder = f"/proc/{self._first}/root{SAVED}"
                self._saved = os.open(folder, os.O_PATH | os.O_DIRECTORY)
                self._stack.callback(os.close, self._saved)
        if said != line and (said or until == math.inf):
            raise LimitError("it printed something other than the expected line")
        return moment

    def end(self) -> None:
        """Kill all processes inside; returns when none is left."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            select.select([self._handle], [], [])
        self._process.kill()
        self._process.wait()

    def end_and_keep(self, folder: Path, part: str = "") -> float:
        """Kill all processes inside, then copy what was saved, or a part of it.

        Returns the moment when none was left: writing before it is on the clock, and writing after
        it is impossible. `LimitError` if it cannot be copied.
        """
        self.end()
        moment = time.monotonic()
        if self._saved is None:
            raise LimitError(self._last_words())
        try:
            source, size, found = Path(f"/proc/self/fd/{self._saved}") / part, 0, list[Path]()
            for path in source.rglob("*"):
                status = path.lstat()
                size += status.st_size  # a file may have holes
                found.append(path)
                is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
                if not is_plain or len(found) > _MOST_SAVED or size > self._limits.disk_gib * 2**30:
                    raise LimitError(
                        f"it saved a special file, more than {_MOST_SAVED:,} files or "
                        f"more than {self._limits.disk_gib:g} GiB"
                    )
            if source.is_dir():
                folder.mkdir()
            for path in found:  # with modes of our own, or the judge could not remove them
                target = folder / path.relative_to(source)
                target.mkdir() if path.is_dir() else shutil.copyfile(path, target)
        except (OSError, RecursionError) as error:
            raise LimitError(f"its saved files cannot be read: {type(error).__name__}") from None
        return moment

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its pipe may have ended before it
            self._process.wait(timeout=2.0)
        line = last_line(self._stderr)
        return f"it ended: {line or f'status {self._process.returncode}'}"[:400]


def check(track_needs_bounds: bool = False) -> None:
    """Test the sandbox with a process that does nothing.

    Args:
      track_needs_bounds: Refuse if memory and processes of a whole run have no limit.

    Raises:
      ConfigError: This user or machine cannot judge; says what to do.
    """
    if os.geteuid() == 0:
        raise ConfigError(
            "a judge must not run as root, which may change the machine's settings and has no "
            "limit on its processes. Judge as an ordinary user (`sudo -u USER dawnjax race ...`), "
            "or in a container that such a user starts with podman"
        )
    if track_needs_bounds and not is_bounded():
        raise ConfigError(
            "nothing limits the memory and the processes of a whole run here: judge with "
            "`systemd-run --user --scope -p MemoryMax=16G -p MemorySwapMax=0 -p TasksMax=4096 "
            "dawnjax race ...`, or in a container with --memory and --pids-limit"
        )
    try:
        limits = Limits(seconds=20.0, memory_gib=1.0, disk_gib=0.01)
        with boxed(Walls(limits=limits), ["-I", "-S", "-c", "print('ok')"]) as process:
            process.expect(b"ok")
    except LimitError as error:
        raise ConfigError(
            f"bubblewrap cannot make a sandbox here: {error}. It needs version 0.8 or newer and "
            "permission to create namespaces; on Ubuntu: sudo sysctl -w "
            "kernel.apparmor_restrict_unprivileged_userns=0"
        ) from None


def is_bounded(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> bool:
    """Whether a cgroup limits memory and processes of this process, and so of all runs."""
    lines = records.read_plain(own).decode().splitlines()
    place = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folders = [root / place.lstrip("/")]
    folders += [path for path in folders[0].parents if path.is_relative_to(root)]

    def has_bound(name: str) -> bool:
        files = [folder / name for folder in folders if (folder / name).is_file()]
        return any(records.read_plain(file).strip() != b"max" for file in files)

    return has_bound("memory.max") and has_bound("pids.max")


def _tool(name: str) -> str:
    place = shutil.which(name, path=f"{_PATH}:{os.environ.get('PATH', '')}")
    if place is None:
        package = {"bwrap": "bubblewrap", "prlimit": "util-linux"}[name]
        raise ConfigError(
            f"there is no {name}, which running other people's code requires: install it, for "
            f"example with `apt-get install {package}`"
        )
    return place
