"""`dawnjax predict`: answers of a run's model to a user's inputs."""

import dataclasses
import glob
from pathlib import Path
from typing import Any

from absl import flags

from dawnjax import records
from dawnjax.checkpointed.earlier_run import add_run_flags, run_at
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.config.flag_tree import FlagTree
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError

_USAGE = "dawnjax predict RUN_DIR --from=FILES [FILE...] [--FLAG=VALUE...]"
_DESCRIPTION = """
Restores the newest checkpoint on one device and answers each input with it. Prints
one line of JSON for each: the file, the line of a text, and the answer.

  classification      JPEG or PNG images: up to five classes, most likely first
  object_detection    JPEG or PNG images: boxes in pixels, with classes and scores
  instance_segmentation
                      the same, and a mask for each box, packed as COCO does
  translation         texts with one sentence a line: its translation
  language_modelling  texts with one prompt a line: its most likely continuation

FILES is a file, a folder of files, or a pattern such as 'photos/*.jpg'. Vocabulary and classes come
from the run's data, in their old place or at --data_dir.
"""
_OPTIONS = ("checkpoint", "compile_cache_dir")

MOST_FILES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Answers to the inputs, in their order.

    Attributes:
      answers: For each the `file`, its `line` where it is a text, and the `answer`.
    """

    run_dir: str
    answers: tuple[dict[str, Any], ...]


RESULT = Result


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    add_run_flags(flag_values)
    text = "Inputs: a file, a folder or a pattern"
    flags.DEFINE_multi_string("from", [], text, flag_values=flag_values)
    options = FlagTree(RunOptions, RunOptions(), argv, only=_OPTIONS)
    options.define(flag_values)
    paths = command_line.parse("predict", flag_values, argv, _USAGE, _DESCRIPTION)
    if not paths:
        raise ConfigError(f"no run directory given; {_USAGE}")
    # `--from photos/*.jpg` leaves all files but the first behind the run directory.
    files = files_of([*(flag_values["from"].value or ()), *paths[1:]])
    run_options = options.value(flag_values)
    run_options.validate()
    run = run_at(paths[0], flag_values)
    # Imported here: wrong use is answered before JAX is loaded to compute.
    from dawnjax.checkpointed.infer import predict_run

    answers = []
    for answer in predict_run(run, files, run_options):
        print(records.json_text(answer), flush=True)
        answers.append(answer)
    return Answer(result=Result(run_dir=paths[0], answers=tuple(answers)))


def files_of(given: list[str]) -> list[Path]:
    """Files that paths, folders and patterns name; a folder's files are sorted, without hidden "
    "ones."""
    if not given:
        raise ConfigError("--from is missing: give the files to answer")
    files: list[Path] = []
    for text in given:
        path = records.path_of(text)
        if path.is_dir():
            inside = [p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")]
        elif path.exists():
            inside = [path]
        else:
            inside = [Path(name) for name in glob.glob(str(path))]
        if not inside:
            what = "has no files" if path.is_dir() else "no such file"
            raise ConfigError(f"--from={text}: {what}")
        files += sorted(inside)
    if len(files) > MOST_FILES:
        raise ConfigError(f"--from names {len(files):,} files; at most {MOST_FILES:,} are read")
    return files
