"""`dawnjax prepare`: converts a dataset into its form on disk, once, so that runs start at once."""

import functools
import sys
import traceback

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.input_pipeline.preparation import (
    cifar10_sources,
    coco_sources,
    movielens_sources,
    parallel_text_sources,
    photograph_preparation,
    squad_sources,
    token_sources,
)
from dawnjax.input_pipeline.preparation.request import FlagError, Preparation, Progress, Request

PREPARATIONS = {
    preparation.name: preparation
    for preparation in (
        cifar10_sources.PREPARATION,
        photograph_preparation.IMAGENET,
        photograph_preparation.IMAGES,
        parallel_text_sources.PREPARATION,
        movielens_sources.PREPARATION,
        token_sources.PREPARATION,
        squad_sources.PREPARATION,
        coco_sources.PREPARATION,
    )
}
WITHOUT_PREPARATION = {
    "digits": "its images come with scikit-learn",
    "synthetic": "its images are made from a seed",
    "synthetic_ratings": "its ratings are made from a seed",
    "synthetic_tokens": "its tokens are made from a seed",
    "synthetic_text": "its text is made from a seed",
    "synthetic_questions": "its questions are made from a seed",
    "synthetic_objects": "its images are made from a seed",
}

DESCRIPTION = """
Converts a dataset into plain arrays with checksums, which runs map into memory. The source is
recognized by its content. Nothing of an archive is unpacked to disk. Done again with the same
content, it changes nothing.
"""


def main(argv: list[str]) -> int:
    preparation = PREPARATIONS.get(_dataset_in(argv))
    shown = [preparation] if preparation else list(PREPARATIONS.values())
    flag_values = _flags(preparation, is_help="--help" in argv or "-h" in argv)
    usage = "\n".join(
        f"dawnjax prepare --dataset={item.name} {form}".replace("\n", "\n  ")
        for item in shown
        for form in item.usage
    ).replace("\n", "\n       ")
    parts = [DESCRIPTION, *(f"{item.name}:\n{item.takes}" for item in shown)]
    if preparation is None:
        parts.append("--dataset=NAME --help shows the dataset's own flags too.")
    description = "\n\n".join(part.strip() for part in parts)
    if argv and argv[-1].lstrip("-") == "dataset":
        raise ConfigError(f"--dataset is missing; known: {', '.join(PREPARATIONS)}")
    rest = command_line.parse("prepare", flag_values, argv, usage, description)
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}; the source is given as --from=PATH")
    if preparation is None:
        raise _unknown(flag_values["dataset"].value)
    _refuse_flags_of_others(flag_values, preparation)
    source, out = flag_values["from"].value, flag_values["out"].value
    request = Request(
        source=records.path_of(source) if source else None,
        out=records.path_of(out) if out else None,
        overwrite=bool(flag_values["overwrite"].value),
        flags={flag.name: flag_values[flag.name].value for flag in preparation.flags},
        progress=Progress(),
    )
    try:
        print(preparation.run(request))
    except FlagError as error:
        raise ConfigError(str(error)) from None
    except KeyboardInterrupt as error:
        return _interrupted(error)
    return ExitStatus.DONE


def _dataset_in(argv: list[str]) -> str:
    flag_values = flags.FlagValues()
    flags.DEFINE_string("dataset", "", "", flag_values=flag_values)
    flag_values.set_gnu_getopt(True)
    try:
        flag_values(["prepare", *argv], known_only=True)
    except flags.Error:
        return ""  # reported when all flags are parsed
    return str(flag_values["dataset"].value)


def _flags(preparation: Preparation | None, *, is_help: bool) -> flags.FlagValues:
    """Common flags and the dataset's; also those of other datasets, to refuse them by name."""
    flag_values = flags.FlagValues()
    text = functools.partial(flags.DEFINE_string, flag_values=flag_values)
    text("dataset", None, f"Which dataset: {', '.join(PREPARATIONS)}.")
    text("from", None, "The archive, folder or .npz to convert.")
    folders = "$DAWNJAX_DATA/DATASET, or ./data/DATASET"
    text("out", None, f"Directory to write to; without it, where the dataset is found: {folders}.")
    overwrite = "Replace other content in the directory, or write beside other files."
    flags.DEFINE_bool("overwrite", False, overwrite, flag_values=flag_values)
    others = [] if is_help else PREPARATIONS.values()
    for item in [*([preparation] if preparation else []), *others]:
        for flag in item.flags:
            if flag.name not in flag_values:
                define = flags.DEFINE_integer if flag.kind is int else flags.DEFINE_string
                define(flag.name, None, flag.text, flag_values=flag_values)
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


def _refuse_flags_of_others(flag_values: flags.FlagValues, preparation: Preparation) -> None:
    owners: dict[str, list[str]] = {}
    for item in PREPARATIONS.values():
        for flag in item.flags:
            owners.setdefault(flag.name, []).append(item.name)
    for name, datasets in owners.items():
        if preparation.name not in datasets and flag_values[name].present:
            raise ConfigError(f"--{name} is for {' and '.join(datasets)}, not {preparation.name}")


def _interrupted(error: KeyboardInterrupt) -> ExitStatus:
    show, sys.unraisablehook = sys.unraisablehook, lambda _: None
    traceback.clear_frames(error.__traceback__)  # deletes it, which fails
    sys.unraisablehook = show
    print("dawnjax prepare: interrupted; run it again to complete it", file=sys.stderr)
    return ExitStatus.INTERRUPTED
