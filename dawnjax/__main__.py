"""The command line: `dawnjax COMMAND [PATH...] --flags`, or `python -m dawnjax`."""

import contextlib
import errno
import importlib
import io
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

import dawnjax
from dawnjax import early_interrupt
from dawnjax.cluster import stop_signals

COMMANDS = {
    "train": ("train", "train one trial of an experiment to its target quality"),
    "record": ("record", "whole runs as one program each; their time is not a time to accuracy"),
    "list": ("list_experiments", "list the experiments: task, target, data, what was seen where"),
    "new": ("new", "write a complete file of an experiment of your own, to begin from"),
    "runs": ("runs", "list your own runs in a folder: target, state, time to accuracy"),
    "launch": ("launch", "run a command as several processes on this machine"),
    "profile": ("profile", "where the time of a step goes: communication, utilization, roofline"),
    "prepare": ("prepare", "convert a data set into its on-disk form, once"),
    "evaluate": ("evaluate", "measure a run's checkpoint on its own or another labelled set"),
    "infer": ("infer", "latency and cost of a run's model, one example at a time"),
    "predict": ("predict", "answers of a run's model to inputs of your own, as JSON lines"),
    "import": ("import_results", "read official DAWNBench and MLPerf results into entries"),
    "export": ("export", "write runs as DAWNBench or MLPerf results, or their weights"),
    "study": ("study", "many trials of an experiment: stability, grid, scaling, lesion, factor"),
    "compare": ("compare", "is B faster than A, by how much, and what changed; a gate for CI"),
    "plan": ("plan", "predict time and cost on hardware that is not here, by compiling for it"),
    "race": ("race", "a race to a quality that anyone can enter: submit, verify, board"),
    "report": ("report", "write results as one HTML page, and every table as CSV and JSON"),
    "check": ("check", "validate run directories and their logs"),
}
"""Module in `dawnjax.commands` and summary of each command: help must import none of them."""

_ON_DEVICES = {
    *("train", "study", "record", "launch", "profile", "evaluate", "infer", "predict", "plan")
}
"""Commands that import JAX or start processes: a signal ends them at once until they have something
to save. The rest end by KeyboardInterrupt and clean up."""


def main(argv: list[str] | None = None) -> int:
    """Run a command with these arguments, or this process's; returns its exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what can follow
        from dawnjax.config import completion

        completion.answer(COMMANDS)
    if argv is None and sys.argv[1:2]:
        if sys.argv[1] in _ON_DEVICES:
            pass
        # First of all: until then only an interrupt ends the process by a line.
        stop_signals.listen(
            stop_signals.end_at_once(f"dawnjax {sys.argv[1]}", "with nothing to save")
        )
        if sys.argv[1] not in _ON_DEVICES:
            stop_signals.listen(None)  # what a launcher had blocked has come through
        else:
            from dawnjax.cluster import jax_platforms

            jax_platforms.choose(sys.argv[1])
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A character that a terminal or pipe cannot show is no reason to end a run.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if argv is None:
        argv = sys.argv[1:]
    else:
        # Do not charge the caller's earlier work to this run.
        dawnjax.program_start = time.perf_counter()
    if not argv or argv[0] in ("--help", "-h", "help"):
        return _answered("help", lambda: print(_usage()) or 0)
    if argv[0] in ("--version", "version"):
        return _answered("version", lambda: print(_version()) or 0)
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        from dawnjax.config.command_line import closest

        near = closest(name, list(COMMANDS))
        hint = f"did you mean {near!r}?" if near else f"commands: {', '.join(COMMANDS)}"
        print(f"dawnjax: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    return run_command(name, rest)


def _open_closed_streams() -> None:
    """Open /dev/null where a standard stream was closed, as by `>&-`.

    Python then has None for it. The next file to be opened, such as a log, would have its number,
    and what a library prints would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115


def run_command(name: str, argv: list[str]) -> int:
    """Run one command; a user's mistake is one line on standard error."""
    try:
        # Paths cannot be resolved in a deleted directory; say so before an import fails on it.
        os.getcwd()
    except FileNotFoundError:
        print(
            f"dawnjax {name}: the working directory was deleted; go to one that exists",
            file=sys.stderr,
        )
        return 2
    status = _answered(name, lambda: _run(name, argv))
    stop_signals.end_with(status)
    # A command that joined other processes parts from them last, with its status known.
    processes = sys.modules.get("dawnjax.cluster.processes")
    if processes is not None:
        status = processes.leave(status)
    # Too late for a signal to change anything: the status is known and the other hosts have left.
    stop_signals.ignore()
    try:
        sys.stderr.flush()
    except OSError:  # its reader is gone; at exit Python would try again, and change the status
        _drop(sys.stderr)
    return status


def _answered(name: str, act: Callable[[], int]) -> int:
    """Act and flush standard output; returns the exit status, also where either fails."""
    try:
        # Not before: only from here on is its exception a line.
        early_interrupt.end(stop_signals.interrupt)
        status = act()
    except KeyboardInterrupt:
        stop_signals.end_interrupts()
        exec("")  # or Python ends by the signal if it came in another `exec`, as of a dataclass
        print(f"dawnjax {name}: interrupted", file=sys.stderr)
        status = 5
    except BrokenPipeError:  # the reader of help, such as `head`, has seen enough
        status = 1
    except SystemExit as error:
        status = _not_ended_so(name, error)
    except BaseException as error:
        if isinstance(error, OSError) and not _can_print("\n"):
            return _unwritten(name, error, 1)
        _explain(error)
        import traceback

        traceback.print_exc()  # a fault of the program itself: nobody else can say where
        status = 1
    stop_signals.end_interrupts()
    try:
        print(end="", flush=True)  # at exit it would be too late to say so
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        return _unwritten(name, error, status)
    return status


def _not_ended_so(name: str, error: SystemExit) -> int:
    """Exit status above 0 of a command that other people's code ended, after a line about it."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "code of a library"
    if f"{os.sep}rich{os.sep}" not in place:  # rich ends so where the reader of its output has
        print(
            f"dawnjax {name}: {place} called sys.exit({error.code!r}), which is no end of a "
            "command; raise an error instead",
            file=sys.stderr,
        )
    return error.code if isinstance(error.code, int) and 0 < error.code < 256 else 1


def _explain(error: BaseException) -> None:
    processes = sys.modules.get("dawnjax.cluster.processes")
    if processes is not None:
        processes.explain(error)


def _can_print(text: str) -> bool:
    try:
        print(text, end="", flush=True)
    except OSError:
        return False
    return True


def _unwritten(name: str, error: OSError, status: int) -> int:
    with contextlib.suppress(OSError):  # both go to a terminal that is lost
        print(f"dawnjax {name}: cannot write to standard output: {error.strerror}", file=sys.stderr)
    _drop(sys.stdout)
    return status or 1


def _drop(stream: TextIO) -> None:
    """Point a broken stream at /dev/null: Python would try to write its buffer again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(name: str, argv: list[str]) -> int:
    from dawnjax.config.command_line import HelpRequested
    from dawnjax.errors import ConfigError, ExitStatus, RunError
    from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
    from dawnjax.text import escaped

    try:
        command = importlib.import_module(f"dawnjax.commands.{COMMANDS[name][0]}")
        return int(command.main(argv))
    except HelpRequested as help_requested:
        print(help_requested)
        return ExitStatus.DONE
    except (ConfigError, MissingDataError) as error:
        print(escaped(f"dawnjax {name}: {error}"), file=sys.stderr)
        return ExitStatus.WRONG_USE
    except (RunError, DataError) as error:
        print(escaped(f"dawnjax {name}: {error}"), file=sys.stderr)
        return ExitStatus.FAILED
    except BrokenPipeError:
        return ExitStatus.FAILED
    except (Exception, SystemExit) as error:
        line = _fault_of_others(error)
        if not line and isinstance(error, OSError) and error.errno in _UNUSABLE_NAMES:
            print(
                escaped(f"dawnjax {name}: {str(error.filename)[:200]}: {error.strerror}"),
                file=sys.stderr,
            )
            return ExitStatus.WRONG_USE
        if not line:
            raise
        _explain(error)
        print(escaped(f"dawnjax {name}: {line}"), file=sys.stderr)
        return ExitStatus.FAILED


_UNUSABLE_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES)
"""Faults of a path of the user's that nothing can be asked of, not even whether it exists."""


def _fault_of_others(error: BaseException) -> str:
    """One line on an error of a user's file, a device or a variable for JAX; empty for others."""
    own_files = sys.modules.get("dawnjax.config.own_files")
    if own_files is not None and (line := own_files.line_of(error)):
        return line
    jax_errors = sys.modules.get("jax.errors")
    if jax_errors is not None and isinstance(error, jax_errors.JaxRuntimeError):
        return _of_device(str(error))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, ValueError):
        return ""
    is_setting = trace.tb_frame.f_globals.get("__name__") == "jax._src.config"
    return f"JAX refuses a variable of the environment: {error}" if is_setting else ""


def _of_device(message: str) -> str:
    """Line on what XLA said of a program that it could not compile or run on the device."""
    advice = ""
    if "RESOURCE_EXHAUSTED" in message:
        advice = "; take a smaller batch: `dawnjax plan --memory` says what fills a device"
    elif flags := os.environ.get("XLA_FLAGS"):
        advice = f"; XLA_FLAGS={flags} is set: try without"
    return f"the device failed: {' '.join(message.split())[:400]}{advice}"


def _version() -> str:
    from importlib import metadata

    names = ("jax", "flax", "optax")
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return f"dawnjax {dawnjax.__version__} (Python {sys.version.split()[0]}, {libraries})"


def _usage() -> str:
    lines = [__doc__ or "", "commands:"]
    lines += [f"  {name:10} {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["", "`dawnjax COMMAND --help` lists a command's flags."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
