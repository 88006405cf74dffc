"""Processes that begin with DawnJAX's modules loaded: forks of a process that has them.

Loading JAX, Flax and Orbax takes three seconds of CPU time. A server, which a worker starts when
it first needs one, has loaded them and has neither a second thread nor a device. Its forks are
children of the worker: pid, signals, status and CPU time are those of a process that was started.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

LOADED = (
    "dawnjax.train",
    "dawnjax.commands.evaluate",
    "dawnjax.commands.study",
    "dawnjax.experiments.digits",
    "dawnjax.experiments.synthetic_image",
    "orbax.checkpoint",
)
"""Modules that the server loads, and what they load."""

READ_AT_IMPORT = ("JAX_", "PYTHON", "TMPDIR")
"""Beginnings of variables of the environment that a module may have read when it was loaded."""

READ_LATER = ("PYTHONPATH", "JAX_COORDINATOR_BIND_ADDRESS")

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphans below this process become its children."""

_ENVIRONMENT = dict(os.environ)


def start(args: Sequence[str], **options: Any) -> subprocess.Popen:
    """`subprocess.Popen`, which forks `python -m dawnjax` and `python FILE` from the server.

    Anything else is started as always: `launch`, which loads little, a process with more options
    than its environment, directory and streams, and one whose JAX would load with other settings.
    """
    program = list(args[:4])
    is_forked = (
        sys.platform.startswith("linux")
        and program[:1] == [sys.executable]
        and (program[1].endswith(".py") or program[1:3] == ["-m", "dawnjax"])
        and program[3:] != ["launch"]
        and options.keys() <= {"env", "cwd", "stdin", "stdout", "stderr", "text"}
        and _read_at_import(options.get("env") or os.environ) == _read_at_import(_ENVIRONMENT)
    )
    return (_Forked if is_forked else subprocess.Popen)(args, **options)


class _Forked(subprocess.Popen):
    def _execute_child(self, args: Any, *rest: Any) -> None:  # type: ignore[override]
        # Positions as in CPython 3.11 to 3.14; of a pipe's ends the child has the first, or second.
        directory, environment, files = rest[4] or os.getcwd(), rest[5] or os.environ, rest[9:15]
        given = (files[0], files[3], files[5])
        asked = {
            "argv": list(map(os.fspath, args[1:])),
            "directory": str(directory),
            "environment": dict(environment),
        }
        self.pid = _fork(asked, [own if file == -1 else file for own, file in enumerate(given)])
        self._child_created = True
        self._close_pipe_fds(*files)  # type: ignore[attr-defined]


def run(
    argv: Sequence[str], *, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of a process that may be forked, whose output is kept as text."""
    pipe = subprocess.PIPE
    with start(argv, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, output, errors)


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if value and name.startswith(READ_AT_IMPORT) and name not in READ_LATER
    }


_channel: socket.socket | None = None


def _fork(asked: dict[str, Any], streams: list[int]) -> int:
    """Have the server fork; returns the pid of a child of this process."""
    global _channel
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if _channel is None:
        _channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            subprocess.Popen(
                [sys.executable, __file__, str(number)],
                env=_ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1"},  # or it begins a thread
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[number],
            )
        assert _channel.recv(16) == b"loaded", "the modules could not be loaded"
    if prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl: no subreaper")
    try:
        socket.send_fds(_channel, [json.dumps(asked).encode()], streams)
        pid = int(_channel.recv(16))
        assert _channel.recv(16) == b"adopted"
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)
    return pid


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Fork at each request; returns in a fork, with its standard streams, what was asked."""
    channel.send(b"loaded")
    while True:
        request, files, _, _ = socket.recv_fds(channel, 2**20, 3)
        if not request:
            os._exit(0)  # the worker has ended
        parent = os.fork()
        if parent == 0:
            if child := os.fork():
                channel.send(str(child).encode())
                os._exit(0)  # an orphan's next parent is the worker
            channel.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return json.loads(request)
        os.waitpid(parent, 0)
        for file in files:
            os.close(file)
        channel.send(b"adopted")


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as in the tests' own process
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    _open_streams()
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    program, *arguments = asked["argv"]
    is_command = program == "-m"
    paths = asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [os.getcwd() if is_command else os.path.dirname(program), *filter(None, paths)]
    sys.argv = arguments if is_command else asked["argv"]
    dawnjax = sys.modules["dawnjax"]
    dawnjax.program_start = time.perf_counter()  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if is_command:
        runpy.run_module("dawnjax", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _open_streams() -> None:
    """Open the standard streams as Python does: those of the server went elsewhere."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        stream = open(  # noqa: SIM115
            number,
            "w" if number else "r",
            buffering=1 if number == 2 or os.isatty(number) else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    _main()
