"""The command line: `dawnjax COMMAND [PATH...] --flags`, or `python -m dawnjax`."""

import contextlib
import errno
import importlib
import io
import os
import shutil
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING

import dawnjax

if TYPE_CHECKING:
    from dawnjax.commands.answer import Answer

COMMANDS = {
    "train": ("train", "train one trial of an experiment to its target quality"),
    "record": (
        "record",
        "time whole runs as one program each; their time is not a time to accuracy",
    ),
    "list": ("list_experiments", "list the experiments: task, target, data, results so far"),
    "new": ("new", "write a complete experiment file of your own to start from"),
    "runs": ("runs", "list your own runs in a folder: target, state, time to accuracy"),
    "launch": ("launch", "run a command as several processes on this machine"),
    "profile": ("profile", "show where a step's time goes: communication, utilization, roofline"),
    "prepare": ("prepare", "convert a data set into its on-disk form, once"),
    "evaluate": ("evaluate", "measure a run's checkpoint on its own or another labelled set"),
    "infer": ("infer", "measure latency and cost of a run's model, one example at a time"),
    "predict": ("predict", "answer your own inputs with a run's model, as JSON lines"),
    "import": ("import_results", "read official DAWNBench and MLPerf results into entries"),
    "export": ("export", "write runs as DAWNBench or MLPerf results, or their weights"),
    "study": ("study", "train many trials: seeds, grid, lesion, factor, scaling, ladder, search"),
    "compare": ("compare", "judge if B is faster than A and by how much, and show what changed"),
    "plan": ("plan", "predict time and cost on hardware that is not here, by compiling for it"),
    "race": ("race", "enter or judge a race to a target: new, submit, verify, board"),
    "report": ("report", "write results as one HTML page, and every table as CSV and JSON"),
    "watch": ("watch", "show the report of runs as a localhost page that refreshes itself"),
    "check": ("check", "validate run directories and their logs"),
    "doctor": ("doctor", "check a new machine: devices, speed, a sharded run, profile, checkpoint"),
}
"""Module in `dawnjax.commands` and summary of each command: help must import none of them."""

_ON_DEVICES = ("train", "study", "record", "profile", "evaluate", "infer", "predict", "plan")
"""Commands that compute: Ctrl-C ends them at once, also inside JAX's compiler, until their loop
has something to save. The rest end by KeyboardInterrupt and clean up."""


_TRAINS = ("jax", "jaxlib", "flax", "optax", "orbax", "cv2", "sklearn")
"""Modules of which commands that read results need none, and which may not be installed."""


def main(argv: list[str] | None = None) -> int:
    """Run a command with these arguments, or this process's; returns its exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what can follow
        from dawnjax.config import completion

        completion.answer(COMMANDS)
    for stream in (sys.stdout, sys.stderr):
        # A character that a terminal or pipe cannot show is no reason to end a run.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if argv is None:
        argv = sys.argv[1:]
        handler = signal.getsignal(signal.SIGINT)
        if argv[:1] and argv[0] in _ON_DEVICES and handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if argv[:1] == ["plan"]:  # it must take no memory of a device that trains
            os.environ["JAX_PLATFORMS"] = "cpu"
    else:
        # Do not charge the caller's earlier work to this run.
        dawnjax.program_start = time.perf_counter()
    name, *rest = argv or ["help"]
    if name in ("--help", "-h", "help", "--version", "version"):
        print(_version() if "version" in name else _usage())
        return 0
    return run_command(name, rest)


def run_command(name: str, argv: list[str]) -> int:
    """Run one command; a mistake of the user's or of their files is one line on standard error."""
    from dawnjax import records
    from dawnjax.commands import answer
    from dawnjax.errors import ExitStatus
    from dawnjax.text import escaped, in_columns

    argv, wants_json = answer.asked(argv)
    with answer.standard_output_for_answers() if wants_json else contextlib.nullcontext():
        found = _answered(name, argv)
    # A command that joined other processes parts from them last, with its status known.
    processes = sys.modules.get("dawnjax.cluster.processes")
    status = found.status
    try:
        if wants_json and (processes is None or processes.is_first()):
            print(records.json_text(found.to_json(name)))
        elif found.text and not wants_json:
            is_read = sys.stdout.isatty()
            columns = shutil.get_terminal_size().columns
            print(in_columns(found.text, columns) if is_read else found.text)
        is_lost = _lost_reader()
    except BrokenPipeError:
        is_lost = _lost_reader()
    except OSError as error:
        is_lost = True
        print(escaped(f"dawnjax {name}: {_fault_of_others(error)}"), file=sys.stderr)
    if is_lost:
        status = status or ExitStatus.FAILED
    return int(status) if processes is None else processes.leave(int(status))


def _answered(name: str, argv: list[str]) -> "Answer":
    from dawnjax.commands.answer import Answer
    from dawnjax.config.command_line import HelpRequested
    from dawnjax.errors import ConfigError, ExitStatus, RunError
    from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
    from dawnjax.text import escaped

    line, status = "", ExitStatus.FAILED
    try:
        if name not in COMMANDS:
            raise ConfigError(_unknown(name))
        return importlib.import_module(f"dawnjax.commands.{COMMANDS[name][0]}").main(argv)
    except HelpRequested as help_requested:
        return Answer(text=str(help_requested))
    except BrokenPipeError:
        _lost_reader()
    except (ConfigError, MissingDataError) as error:
        line, status = str(error), ExitStatus.WRONG_USE
    except (RunError, DataError) as error:
        line = str(error)
    except KeyboardInterrupt:
        line, status = "interrupted", ExitStatus.INTERRUPTED
    except BaseException as error:
        # A path of the user's of which nothing can be asked, not even whether it exists.
        unusable = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES)
        if isinstance(error, OSError) and error.errno in unusable:
            status = ExitStatus.WRONG_USE
        line = _fault_of_others(error)
        if processes := sys.modules.get("dawnjax.cluster.processes"):
            processes.explain(error)
        if not line and not isinstance(error, SystemExit):
            traceback.print_exc()  # a fault of the program itself: nobody else can say where
            return Answer(status=status, reasons=[f"{type(error).__name__}: {error}"])
    if line:
        line = escaped(line)
        print(
            f"dawnjax {name}: {line}" if name in COMMANDS else f"dawnjax: {line}", file=sys.stderr
        )
    return Answer(status=status, reasons=[line] if line else ())


def _unknown(name: str) -> str:
    from dawnjax.config.command_line import closest

    near = closest(name, list(COMMANDS))
    hint = f"did you mean {near!r}?" if near else f"commands: {', '.join(COMMANDS)}"
    return f"no command {name!r}; {hint}"


def main_of_process() -> int:
    """`main` with this process's arguments, whose end no signal changes."""
    status = main()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    return status


def _lost_reader() -> bool:
    """True if an output has no reader any more: `head` has seen enough, a terminal is lost.

    What is still to be printed is dropped then, or Python would try again at its end.
    """
    is_lost = False
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            is_lost = True
    return is_lost


def _fault_of_others(error: BaseException) -> str:
    """One line on an error of a user's file, a device, a disk or a setting; empty for others."""
    own_files = sys.modules.get("dawnjax.config.own_files")
    if own_files is not None and (line := own_files.line_of(error)):
        return line
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in _TRAINS:
        return f"this needs {error.name}, which is not installed: pip install dawnjax"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
        return f"{frame.filename}:{frame.lineno} called sys.exit({error.code!r})"
    if isinstance(error, OSError):
        return " ".join(str(error).split())[:300]
    if isinstance(error, ValueError) and frame.filename.endswith("jax/_src/config.py"):
        return f"JAX refuses a variable of the environment: {error}"
    jax_errors = sys.modules.get("jax.errors")
    if jax_errors is not None and isinstance(error, jax_errors.JaxRuntimeError):
        return _of_device(str(error))
    return ""


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

    said = []
    for name in ("jax", "flax", "optax"):
        try:
            said.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            said.append(f"no {name}")
    libraries = ", ".join(said)
    return f"dawnjax {dawnjax.__version__} (Python {sys.version.split()[0]}, {libraries})"


def _usage() -> str:
    lines = [__doc__ or "", "commands:"]
    lines += [f"  {name:10} {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["", "`dawnjax COMMAND --help` lists a command's flags."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main_of_process())
