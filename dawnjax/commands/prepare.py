"""`dawnjax prepare`: converts a dataset once into arrays on disk that runs map into memory."""

import dataclasses
import functools
import sys
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.input_pipeline.datasets import (
    cifar10,
    coco,
    imagenet,
    images,
    movielens,
    parallel_text,
    squad,
    token_shards,
)
from dawnjax.input_pipeline.reading.dataset import overlap_line
from dawnjax.input_pipeline.reading.preparing import FlagError, Preparation, Progress, Request

PREPARATIONS = {
    module.PREPARATION.name: module.PREPARATION
    for module in (
        cifar10,
        imagenet,
        images,
        parallel_text,
        movielens,
        token_shards,
        squad,
        coco,
    )
}
WITHOUT_PREPARATION = {
    "digits": "its images come with DawnJAX",
    "synthetic": "its images are made from a seed",
    "synthetic_ratings": "its ratings are made from a seed",
    "synthetic_tokens": "its tokens are made from a seed",
    "synthetic_text": "its text is made from a seed",
    "synthetic_questions": "its questions are made from a seed",
    "synthetic_objects": "its images are made from a seed",
}

DESCRIPTION = """
Converts a dataset into plain arrays with checksums, which runs map into memory. It recognizes the
source by its content and reads archives without unpacking them to disk. Run again on the same
content, it changes nothing.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The data set on disk.

    Attributes:
      directory: Its folder.
      is_new: Whether anything was written, or the folder held this already.
      summary: What it holds, in words.
      facts: What it holds: counts, classes and what else is recorded of it.
    """

    dataset: str
    directory: str
    is_new: bool
    prepare_seconds: float
    summary: str
    facts: dict[str, Any]


RESULT = Result


def main(argv: list[str]) -> Answer:
    name = command_line.value_in(argv, "dataset")
    preparation = PREPARATIONS.get(name or "")
    shown = [preparation] if preparation else list(PREPARATIONS.values())
    flag_values = _flags(preparation)
    usage = "\n".join(
        f"dawnjax prepare --dataset={item.name} {form}".replace("\n", "\n  ")
        for item in shown
        for form in item.usage
    ).replace("\n", "\n       ")
    parts = [DESCRIPTION, *(f"{item.name}:\n{item.takes}" for item in shown)]
    if preparation is None:
        parts.append("--dataset=NAME --help shows the dataset's own flags too.")
    description = "\n\n".join(part.strip() for part in parts)
    rest = command_line.parse(
        "prepare", flag_values, argv, usage, description, known_only=bool(name and not preparation)
    )
    if preparation is None:
        raise _unknown(name)
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}; give the source as --from=PATH")
    source, out = flag_values["from"].value, flag_values["out"].value
    request = Request(
        source=records.path_of(source) if source else None,
        out=records.path_of(out) if out else None,
        overwrite=bool(flag_values["overwrite"].value),
        flags={flag.name: flag_values[flag.name].value for flag in preparation.flags},
        progress=Progress(),
    )
    try:
        return _prepared(preparation, request)
    except FlagError as error:
        raise ConfigError(str(error)) from None
    except KeyboardInterrupt:
        line = "interrupted; run it again to complete it"
        print(f"dawnjax prepare: {line}", file=sys.stderr)
        return Answer(status=ExitStatus.INTERRUPTED, reasons=[line])


def _prepared(preparation: Preparation, request: Request) -> Answer:
    """Read, write and say what was written; one loop for every data set."""
    made = preparation.run(request)
    progress = request.progress
    written, outcome = made.write(overwrite=request.overwrite, progress=progress.add)
    words = {"written": "written", "unchanged": "already holds this; nothing written"}
    done, summary = f"{words[outcome]} in {progress.seconds:.1f} s", made.summary(written)
    note = overlap_line(getattr(written.facts, "overlap", None), "\nnote: ")
    result = Result(
        dataset=preparation.name,
        directory=str(made.directory),
        is_new=outcome == "written",
        prepare_seconds=progress.seconds,
        summary=summary,
        facts=records.plain(written.facts),
    )
    return Answer(result=result, text=f"{made.directory}: {done}: {summary}{note}")


def _flags(preparation: Preparation | None) -> flags.FlagValues:
    flag_values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    text("dataset", None, f"Which dataset: {', '.join(PREPARATIONS)}.")
    text("from", None, "The archive, folder or .npz to convert.")
    folders = "$DAWNJAX_DATA/DATASET, or ./data/DATASET"
    text("out", None, f"Directory to write (default: where runs look for it, {folders}).")
    overwrite = "Replace other content of the directory."
    flags.DEFINE_bool("overwrite", False, overwrite, flag_values=flag_values)
    for flag in preparation.flags if preparation else ():
        defines = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
        defines[flag.kind](flag.name, None, flag.text, flag_values=flag_values)
    return flag_values


def _unknown(name: str | None) -> ConfigError:
    known = f"known: {', '.join(PREPARATIONS)}"
    if not name:
        return ConfigError(f"--dataset is missing; {known}")
    if name in WITHOUT_PREPARATION:
        return ConfigError(f"--dataset={name} needs no preparation: {WITHOUT_PREPARATION[name]}")
    near = command_line.closest(name, list(PREPARATIONS))
    hint = f"did you mean {near}?" if near else known
    return ConfigError(f"--dataset={name} is not known; {hint}")
