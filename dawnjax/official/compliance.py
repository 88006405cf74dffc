"""MLPerf logs held against the rules of their round by MLPerf's own compliance checker.

It checks one log. Convergence against reference runs and the number of logs of a result are left to
MLPerf's package checker, which takes a whole submission.
"""

import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError, install
from dawnjax.official import mlperf, mlperf_rounds, sources
from dawnjax.official.mlperf_log import parse
from dawnjax.official.outcome import Refused, SourceRefused

MOST_SECONDS = 10
MOST_BYTES = 300 * 2**20
"""Limit of the checker on one log; official logs take at most 3 s and 40 MB."""


def check(path: Path, ruleset: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the MLPerf logs of a folder, an archive or a file: name, broken rules and remarks.

    An empty `ruleset` takes the rules of the round that a folder names.
    """
    try:
        for file in sources.files(path):
            base, above = posixpath.basename(file.name), posixpath.dirname(file.context)
            if not file.alone and not mlperf.RESULT_FILE.fullmatch(base):
                continue
            name = str(path) if file.alone else file.name
            try:
                log = file.read(sources.LOG_BYTES)
                yield name, *_check_log(log, ruleset or _ruleset_in(above, log))
            except SourceRefused:
                raise
            except Refused as refused:
                yield name, [_told("readable", refused.line, refused.reason)], []
    except SourceRefused as refused:
        yield refused.file or str(path), [_told("readable", refused.line, refused.reason)], []


def rulesets() -> list[str]:
    """Rulesets of MLPerf's checker, ascending; `ConfigError` where it is not installed."""
    try:
        from mlperf_logging.compliance_checker import mlp_compliance
    except ImportError:
        raise ConfigError(
            f"checking an MLPerf log needs MLPerf's checker: {install('mlperf')}"
        ) from None
    here = Path(str(mlp_compliance.__file__)).parent.glob("training_*")
    matches = (re.fullmatch(r"training_(\d+\.\d+\.0)", folder.name) for folder in here)
    return sorted((m[1] for m in matches if m), key=lambda name: tuple(map(int, name.split("."))))


def _ruleset_in(above: str, log: bytes) -> str:
    round_name = "v0.6" if b":::MLL " in log else mlperf_rounds.round_in(above)
    return f"{round_name.removeprefix('v')}.0" if round_name else ""


def _check_log(data: bytes, ruleset: str) -> tuple[list[str], list[str]]:
    if parse(data).version == "v0.5":
        raise Refused("is from v0.5; MLPerf's checker has no rules for it")
    known = rulesets()
    if not ruleset:
        raise Refused(f"does not show its round; give --ruleset, such as {known[-1]}")
    if ruleset not in known:
        raise Refused(f"needs rules {ruleset}; MLPerf's checker has {', '.join(known)}")
    program = Path(__file__).with_name("compliance_process.py")
    with tempfile.TemporaryDirectory(prefix="dawnjax_check_") as folder:
        file = Path(folder) / "log.txt"
        records.write(file, data)
        # -P, because the modules beside the program have names of their own.
        command = [sys.executable, "-P", str(program), ruleset, str(file)]
        command += [str(MOST_SECONDS), str(MOST_BYTES)]
        done = subprocess.run(command, capture_output=True)
    try:
        broken, remarks = records.load_json(done.stdout)
    except ValueError:  # it was stopped before it could print
        raise Refused(
            "ends MLPerf's checker without an answer: it may take "
            f"{MOST_SECONDS} s and {MOST_BYTES:,} bytes"
        ) from None
    return [_told(*each) for each in broken], [_told(*each) for each in remarks]


def _told(rule: str, line: int | None, text: str) -> str:
    return f"{'' if line is None else f'line {line}: '}rule {rule}: {text}"
