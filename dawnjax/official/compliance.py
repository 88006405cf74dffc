"""MLPerf logs held against the rules of their round by MLPerf's own compliance checker.

It checks one log. Convergence against reference runs and the number of logs of a result are left to
MLPerf's package checker, which takes a whole submission.
"""

import json
import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax.errors import ConfigError
from dawnjax.official import mlperf, mlperf_rounds, sources
from dawnjax.official.mlperf_log import line_of, parse
from dawnjax.official.outcome import Refused, SourceRefused, quoted

MOST_SECONDS = 10
MOST_BYTES = 300 * 2**20
"""Of the checker on one log; official logs take at most 2 s and 100 MB."""

_NAMES_A_FILE = ("submission_division", "submission_benchmark", "submission_status", "opt_name")
"""Keys whose value becomes part of the name of a file of rules, which are code."""


class Broken(NamedTuple):
    """Broken rule of a log; `line` counts from 1, None for a fault of the whole file."""

    rule: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}: "
        return f"{line}rule {self.rule}: {self.reason}"


class Checked(NamedTuple):
    """Log with the rules that it breaks, and remarks that are no faults."""

    name: str
    broken: list[Broken]
    notes: list[str]


def check(path: Path, ruleset: str = "") -> Iterator[Checked]:
    """Yield the MLPerf logs of a folder, an archive or a file; nothing where there are none.

    An empty `ruleset` takes that of the round which a folder names, or else the newest one with the
    log's benchmark.
    """
    try:
        for file in sources.files(path):
            base, above = posixpath.basename(file.name), posixpath.dirname(file.context)
            if file.alone or mlperf.RESULT_FILE.fullmatch(base):
                name = str(path) if file.alone else file.name
                try:
                    yield Checked(name, *_check_log(file.read(sources.LOG_BYTES), above, ruleset))
                except SourceRefused:
                    raise
                except Refused as refused:
                    yield Checked(name, [Broken("readable", refused.reason, refused.line)], [])
    except SourceRefused as refused:
        name = refused.file or str(path)
        yield Checked(name, [Broken("readable", refused.reason, refused.line)], [])


def _check_log(data: bytes, above: str, ruleset: str) -> tuple[list[Broken], list[str]]:
    log = parse(data)
    for record in log.records:
        if record.key in _NAMES_A_FILE and "/" in str(record.value):
            reason = f"{record.key} is {quoted(record.value)}, and no rule has such a name"
            raise Refused(reason, line_of(data, record.offset))
    notes = []
    if log.version == "v0.5":
        raise Refused("is of v0.5, whose rules MLPerf's checker does not have")
    if not ruleset:
        named = "v0.6" if log.version == "v0.6" else mlperf_rounds.round_in(above)
        benchmark = next((r.value for r in log.records if r.key == "submission_benchmark"), None)
        ruleset = f"{named.removeprefix('v')}.0" if named else _newest(benchmark)
        if not named:
            notes.append(f"no folder names a round; the rules are those of {ruleset}: --ruleset")
    if ruleset not in rulesets():
        raise Refused(f"is of a round whose rules {ruleset} MLPerf's checker does not have")
    with tempfile.NamedTemporaryFile(prefix="dawnjax_check_") as file:
        file.write(data)
        file.flush()
        broken, remarks = _run(ruleset, file.name)
    return broken, [*notes, *map(str, remarks)]


def _run(ruleset: str, file: str) -> tuple[list[Broken], list[Broken]]:
    program = Path(__file__).with_name("compliance_process.py")
    # -P, because the modules beside the program have names of their own.
    command = [sys.executable, "-P", str(program), ruleset, file]
    command += [str(MOST_SECONDS), str(MOST_BYTES)]
    try:
        broken, remarks = json.loads(subprocess.run(command, capture_output=True).stdout)
    except ValueError:  # it was stopped before it could print
        raise Refused(
            "ends MLPerf's checker without an answer: it may take "
            f"{MOST_SECONDS} s and {MOST_BYTES:,} bytes"
        ) from None
    found = ([Broken(rule, text, line) for rule, line, text in each] for each in (broken, remarks))
    return next(found), next(found)


def rulesets() -> list[str]:
    """Rulesets of MLPerf's checker, ascending; `ConfigError` where it is not installed."""
    try:
        from mlperf_logging.compliance_checker import mlp_compliance
    except ImportError:
        raise ConfigError(
            "checking an MLPerf log needs MLPerf's checker: pip install -e '.[mlperf]'"
        ) from None
    here = Path(str(mlp_compliance.__file__)).parent.glob("training_*")
    matches = (re.fullmatch(r"training_(\d+\.\d+\.0)", folder.name) for folder in here)
    return sorted((m[1] for m in matches if m), key=lambda name: tuple(map(int, name.split("."))))


def _newest(benchmark: Any) -> str:
    """Newest ruleset with a benchmark, or the newest of all where none has it."""
    every = rulesets()
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    having = [
        name
        for name in every
        if benchmark in get_allowed_benchmarks("training", name.removesuffix(".0"))
    ]
    return [*every, *having][-1]
