"""Walls around a stranger's process: no network, its own files, read-only installation, bounds.

Bubblewrap makes them. A process sees the Python installation, this package and what the judge
binds: no home, no other data. What it writes lies in memory, within bounds, and is gone with it.

Source: bwrap(1); pid_namespaces(7): when the first process of a namespace is killed the kernel
kills all others, and only then is the end of the first one seen.
"""

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import dawnjax
from dawnjax import records
from dawnjax.cluster.children import last_line
from dawnjax.errors import ConfigError, RunError
from dawnjax.study import devices

INSIDE = Path("/race")
"""Folder of the judge's files inside."""

SAVED = INSIDE / "run"
"""Folder in memory that a process may fill, and that the judge can keep."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/passwd", "/etc/nsswitch.conf", "/etc/localtime")

_PACKAGES = tuple(f"{lib}python3*/*-packages/" for lib in ("", "lib*/", "local/lib*/")) + ("",)
"""Folders of packages within those that a process sees."""

_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

_MEMORY_FILES = 2**30
"""Bytes in each of /tmp and /dev/shm."""

_MOST_THREADS = 2048
_MOST_SAID = 2**20
"""Bytes of a line."""

_MOST_SAVED = 20_000
"""Files and folders."""

_KILL_SECONDS = 60.0


class LimitError(Exception):
    """The process broke a limit, or ended before its word; one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a process.

    Attributes:
      seconds: By the judge's clock, imports and compilation included.
      memory_gib: Of each of its processes.
      disk_gib: Of all that it saves.
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
        yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from ("--proc", "/proc", "--dev", "/dev")
        sizes = {"/dev/shm": _MEMORY_FILES, "/tmp": _MEMORY_FILES, str(SAVED): self._saved_bytes}
        for place, size in sizes.items():
            yield from ("--size", str(size), "--tmpfs", place)
        shown = installation()
        for path in [*shown, *filter(Path.is_file, map(Path, _SYSTEM_FILES))]:
            yield from ("--ro-bind", str(path), str(path))
        for name, outside in self.binds.items():
            yield from ("--ro-bind", str(outside.resolve()), str(INSIDE / name))
        if self.platform == "gpu":
            yield from ("--ro-bind-try", "/sys/module", "/sys/module")
            for device in sorted(Path("/dev").glob("nvidia*[0-9l]")):
                yield from ("--dev-bind", str(device), str(device))
        # Also the packages of a Python that is not this one.
        places = [f"{folder}{name}" for folder in _PACKAGES for name in self.hidden]
        for path in {path for root in shown for place in places for path in root.glob(place)}:
            yield from ("--tmpfs", str(path))
        yield from ("--remount-ro", "/", "--chdir", "/tmp")

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
        """Variables inside: none of this process's, which may hold secrets or settings."""
        first = devices.gpus()[:1] if self.platform == "gpu" else []
        return {
            **({"CUDA_VISIBLE_DEVICES": first[0]} if first else {}),
            "PYTHONPATH": str(_package().parent),  # a clone need not be installed
            "PATH": _PATH,
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_PLATFORMS": "cpu" if self.platform == "cpu" else "cuda",
        }


def installation() -> list[Path]:
    """Folders that Python, its packages and this package lie in, none within another.

    Of a clone the folders of the package alone, and of an environment no others beside it: there
    may lie data.
    """
    prefixes = [Path(sys.prefix), Path(sys.base_prefix)]
    parts = [prefix / part for prefix in prefixes for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    packages = [Path(path) for path in sys.path if path.endswith("-packages")]
    linked = [path.resolve() for path in _package().iterdir() if path.is_symlink()]
    python = Path(sys.executable).resolve().parent
    wanted = [*map(Path, _SYSTEM), *parts, *packages, python, _package(), *linked]
    found: list[Path] = []
    for path in sorted({path for path in wanted if path.exists()}, key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found


def _package() -> Path:
    return Path(dawnjax.__file__).resolve().parent


class Boxed:
    """A Python inside walls, in a block; none of what it started is left after the block.

    Both sides talk in lines over its standard input and output.

    Attributes:
      began: Moment of its start, by this process's clock.
    """

    def __init__(self, walls: Walls, arguments: Sequence[str]):
        """`arguments` are those of Python."""
        self._limits = walls.limits
        with contextlib.ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            info, child_info = os.pipe()
            command = [
                *(_bubblewrap(), "--info-fd", str(child_info), *walls.arguments(), "--"),
                *("prlimit", *walls.bounds(), "--", sys.executable, *arguments),
            ]
            self.began = time.monotonic()
            self._process = subprocess.Popen[bytes](
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=walls.environment(),
                pass_fds=(child_info,),
                process_group=0,  # Ctrl-C is for this process
            )
            stack.enter_context(self._process)  # closes the pipes
            os.close(child_info)
            told = b""
            while part := os.read(info, _MOST_SAID):
                told += part
            os.close(info)
            # The first process of the namespace; none where bubblewrap failed.
            self._first = records.load_json(told)["child-pid"] if told else None
            self._handle = None
            if self._first:
                with contextlib.suppress(ProcessLookupError):  # it died already; `hear` says why
                    self._handle = os.pidfd_open(self._first)
                    stack.callback(os.close, self._handle)
            self._stack = stack.pop_all()

    def __enter__(self) -> "Boxed":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.end()
        self._stack.close()

    def tell(self, line: bytes) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended; the next `hear` says so
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def hear(self) -> bytes:
        """Wait for the next line that it says, without its end; `LimitError` if none comes."""
        assert self._process.stdout
        line = b""
        while not line.endswith(b"\n"):
            left = self.began + self._limits.seconds - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            if not ready:
                raise LimitError(f"it took more than {self._limits.seconds:g} s")
            part = os.read(self._process.stdout.fileno(), _MOST_SAID)
            if not part or len(line) > _MOST_SAID:
                raise LimitError(self._last_words() if not part else "it said too much")
            line += part
        return line[:-1]

    def expect(self, line: bytes) -> float:
        """Wait until it says a line; returns the moment. `LimitError` if it says another."""
        said = self.hear()
        moment = time.monotonic()
        if said != line:
            raise LimitError("it spoke out of turn")
        return moment

    def end(self) -> None:
        """Kill all processes inside; returns when none is left."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            if not select.select([self._handle], [], [], _KILL_SECONDS)[0]:
                raise RunError(f"process {self._first} cannot be killed")
        self._process.kill()
        self._process.wait()

    def end_and_keep(self, part: str, folder: Path) -> None:
        """Kill all processes inside, then copy a part of what was saved; `LimitError` if it cannot.

        The folder in memory is held while the processes end: nothing can be written after.
        """
        try:
            held = os.open(f"/proc/{self._first}/root{SAVED}", os.O_PATH | os.O_DIRECTORY)
        except OSError:
            raise LimitError(self._last_words()) from None
        try:
            self.end()
            source, size = Path(f"/proc/self/fd/{held}") / part, 0
            for number, path in enumerate(source.rglob("*"), 1):
                status = path.lstat()
                size += status.st_size  # a file may have holes
                is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
                if not is_plain or number > _MOST_SAVED or size > self._limits.disk_gib * 2**30:
                    raise LimitError(
                        f"it saved a file that is not plain, more than {_MOST_SAVED:,} files or "
                        f"more than {self._limits.disk_gib:g} GiB"
                    )
            if source.is_dir():
                shutil.copytree(source, folder)
        except (OSError, RecursionError) as error:
            raise LimitError(f"what it saved cannot be read: {type(error).__name__}") from None
        finally:
            os.close(held)

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its pipe may have ended before it
            self._process.wait(timeout=2.0)
        line = last_line(self._stderr)
        return f"it ended: {line or f'status {self._process.returncode}'}"[:400]


def check() -> None:
    """Try a process that does nothing.

    Raises:
      ConfigError: Bubblewrap is missing or makes no sandbox here; says what to do.
    """
    try:
        limits = Limits(seconds=20.0, memory_gib=1.0, disk_gib=0.01)
        with Boxed(Walls(limits=limits), ["-I", "-S", "-c", "print('ok')"]) as process:
            process.expect(b"ok")
    except LimitError as error:
        raise ConfigError(
            f"bubblewrap makes no sandbox here: {error}. It must be 0.7 or newer, and a program "
            "must be allowed to make namespaces; on Ubuntu: sudo sysctl -w "
            "kernel.apparmor_restrict_unprivileged_userns=0"
        ) from None


def _bubblewrap() -> str:
    place = shutil.which("bwrap", path=f"{_PATH}:{os.environ.get('PATH', '')}")
    if place is None:
        raise ConfigError(
            "there is no bubblewrap, in which a judge runs a stranger's code: install it, for "
            "example by `apt-get install bubblewrap`"
        )
    return place


def refuse_shown(data_dir: Path) -> None:
    """Refuse a folder of data that a run would see, or whose files lie elsewhere.

    Raises:
      ConfigError: Names the folder or the link.
    """
    place = data_dir.resolve()
    shown = next((path for path in installation() if place.is_relative_to(path)), None)
    if shown is not None:
        raise ConfigError(
            f"{data_dir} lies in {shown}, which a run sees, with the examples to evaluate: move it"
        )
    link = next((path for path in sorted(place.iterdir()) if path.is_symlink()), None)
    if link is not None:
        raise ConfigError(f"{link} is a link, which leads nowhere inside a sandbox: copy the file")
