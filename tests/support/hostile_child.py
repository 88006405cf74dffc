"""Run commands, each in a fork of one light process, and report the cost of each.

Each line of standard input is a command line as a JSON list; a JSON object answers it.
"""

import importlib
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path

from dawnjax.__main__ import main

LATE = {
    "check": ("commands.check",),
    "compare": ("commands.compare", "study.at_budget", "study.sides", "study.side_by_side"),
    "evaluate": ("commands.evaluate",),
    "import": ("commands.import_results",),
    "prepare": (
        "commands.prepare",
        "input_pipeline.reading.vocabulary",
    ),
    "race": ("commands.race", "race.board"),
    "runs": ("commands.runs",),
    "train": ("commands.train", "config.experiment_flags", "checkpointed.initial_parameters"),
    "report": ("commands.report", "analysis.paper", "report.contents", "report.writing"),
}
"""Modules that a command imports when it runs, which it is not charged for."""

SECONDS = 120
"""A command that takes longer is killed, so that a campaign ends: most that take long wait."""


def run(argv: list[str], output: Path) -> dict[str, object]:
    """Run a command (without `dawnjax`) in a fork, printing to the file `output`.

    Returns:
      Its `status`, `seconds` (of a core, its own processes' too: others may keep the machine busy),
      `megabytes` (growth of its resident memory) and `output`.
    """
    child = os.fork()
    if not child:
        output.with_suffix(".begin").write_text(Path("/proc/self/statm").read_text())
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        status = 70
        try:
            status = main(argv)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _, status, used = os.wait4(child, 0)
    resident = int(output.with_suffix(".begin").read_text().split()[1]) * resource.getpagesize()
    return {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": used.ru_utime + used.ru_stime,
        "megabytes": (used.ru_maxrss * 1024 - resident) / 1e6,
        "output": output.read_text(errors="replace"),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        argv = json.loads(line)
        for name in LATE[argv[0]]:
            importlib.import_module(f"dawnjax.{name}")
        print(json.dumps(run(argv, Path(sys.argv[1]))), flush=True)
