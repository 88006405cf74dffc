"""`dawnjax export`: runs as entries of a benchmark, or the weights of a run."""

import dataclasses
import functools
import shlex
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError
from dawnjax.official import export_dawnbench, export_mlperf
from dawnjax.official.exported_run import read_run

USAGE = """dawnjax export --format=dawnbench|mlperf RUN_DIR... --submitter=NAME --out=DIR
       dawnjax export --format=dawnbench_inference FILE... --submitter=NAME --out=DIR
       dawnjax export --format=safetensors RUN_DIR --out=DIR"""

DESCRIPTION = """
Writes runs in a benchmark's format, or weights, to a new folder:

  dawnbench            a JSON and a TSV for each run of a CIFAR-10 or ImageNet experiment that
                       reaches the benchmark's threshold
  dawnbench_inference  a JSON for each file of `dawnjax infer` over the whole evaluation split of
                       CIFAR-10 or ImageNet, at the threshold or above
  mlperf               one result folder with the trials of one experiment, open division, by the
                       newest ruleset with its benchmark (resnet 4.0.0, ssd 1.1.0, maskrcnn 3.1.0)
  safetensors          the evaluated weights of the newest checkpoint, with a description of the
                       model

Host names, paths, addresses and the environment are left out.
"""


FORMATS = ["dawnbench", "dawnbench_inference", "mlperf", "safetensors"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What was written.

    Attributes:
      files: Paths of the entries, logs or weights.
      notes: What a reader should know about them.
    """

    format: str
    out: str
    files: tuple[str, ...]
    notes: tuple[str, ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    choice = functools.partial(flags.DEFINE_enum, flag_values=flag_values)
    choice("format", None, FORMATS, "The format to write.")
    text("out", None, "The new folder to write.")
    text("submitter", "", "Who made the results: author or organisation.")
    text("author_email", "", "dawnbench: the author's address.")
    text("name", "dawnjax", "dawnbench: a prefix for the file names.")
    text("hardware", "", "dawnbench: a description of the machine (default: its devices).")
    text("system", "dawnjax_system", "mlperf: the system's name.")
    text("checkpoint.directory", "", "weights: where the run saved, if outside its folder.")
    statuses = list(export_mlperf.STATUSES)
    choice("status", "research", statuses, "mlperf: the system's availability.")
    paths = command_line.parse("export", flag_values, argv, USAGE, DESCRIPTION)
    given: dict[str, Any] = {name: flag_values[name].value for name in flag_values}
    if not given["format"]:
        raise ConfigError(f"--format is missing: one of {', '.join(FORMATS)}")
    if not given["out"]:
        raise ConfigError("--out is missing: the new folder to write")
    if not paths:
        raise ConfigError("no run directory or file given; see --help")
    out = records.path_of(given["out"])
    sources = [records.path_of(path) for path in paths]
    if given["format"] == "safetensors":
        command_line.one(paths, "run directory")
        # Imported here: the other formats need no JAX.
        from dawnjax.checkpointed import exported_weights

        written = exported_weights.export(sources[0], out, given["checkpoint.directory"])
        return _answer("safetensors", out, [*written], [])
    notes = []
    runs = [] if given["format"] == "dawnbench_inference" else [read_run(path) for path in sources]
    if given["format"] != "mlperf":
        written = export_dawnbench.export(
            runs or sources,
            out,
            author=given["submitter"],
            **{name: given[name] for name in ("author_email", "name", "hardware")},
        )
    else:
        fields = {name: given[name] for name in ("submitter", "system", "status")}
        written = export_mlperf.export(runs, out, **fields)
        differs = export_mlperf.BENCHMARKS[runs[0].experiment["mlperf_benchmark"]].differs
        notes.append(
            f"the recipe differs from MLPerf's reference in: {', '.join(differs)} "
            "(experiments/mlperf_recipes.md)"
        )
    interrupted = sum(run.trial.interruptions > 0 for run in runs)
    if interrupted:
        notes.append(f"{interrupted} of {len(runs)} trials were interrupted; misc says so")
    return _answer(given["format"], out, written, notes)


def _answer(form: str, out: Path, written: list[Path], notes: list[str]) -> Answer:
    files = tuple(map(str, written))
    return Answer(
        result=Result(format=form, out=str(out), files=files, notes=tuple(notes)),
        text="\n".join([*files, *(f"note: {note}" for note in notes)]),
        next=[shlex.join(["dawnjax", "check", str(out)])] if form == "mlperf" else (),
    )
