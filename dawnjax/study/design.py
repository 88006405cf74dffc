"""Design of a study: its arms, its trials and their order."""

import contextlib
import dataclasses
import hashlib
import itertools
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypedDict

import numpy as np

from dawnjax import records
from dawnjax.config.experiment import Experiment
from dawnjax.config.techniques import Technique
from dawnjax.errors import ConfigError, RunError
from dawnjax.limits import Limit, OneOrMore, check_fields, within
from dawnjax.page.words import shortened
from dawnjax.statistics.ladder import FEWEST_SIZES
from dawnjax.statistics.looks import looks_of
from dawnjax.study.axes import DISTRIBUTIONS, Axis, axis_of
from dawnjax.trials.origin import Origin

MOST_TRIALS = 10_000

LONGEST_NAME = 40
"""Letters of an arm's name, which stands in tables and figures."""

RUNGS = (1, 2, 4)
"""Trials after which successive halving decides on a recipe; each rung doubles."""

_Names = tuple[str, ...]
_Seed = Annotated[int, Limit(lambda n: 0 <= n < 2**30, "lie in 0 to 2**30 - 1")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Many trials of an experiment that answer one question.

    A file defines one as `STUDY = Study(...)`; each field is a flag.

    Attributes:
      experiment: A name that `dawnjax list` shows, or a path to a .py file.
      kind: `seeds`, one arm; `grid`, an arm for each combination of the axes' values; `scaling`, an
        arm for each number of devices; `lesion`, the whole recipe and the recipe without each
        technique; `factor`, the recipe without any technique, with each alone, and with one more at
        a time; `threshold`, one arm, read at several targets; `search`, drawn recipes, whose
        fastest is judged on fresh seeds; `ladder`, the recipe with and without one change at each
        of several sizes.
      axes: Fields and values of a grid, each as FIELD=VALUE,VALUE: `global_batch_size=32,64`. A
        search also takes distributions: FIELD=log(0.01,1), uniform(a,b) or int(a,b). In a ladder
        the first values of all axes are the first size, the second values the next, and so on.
      change: What a ladder changes at each size, as FIELD=VALUE.
      search: How a search chooses: `random`, by one trial of each recipe; `asha`, by successive
        halving: a recipe gets more trials while its time is in the faster half so far.
      trials: Trials by which a search chooses, without the trials that judge its winner.
      techniques: Techniques that a lesion or factor study changes, by name; empty takes all that
        the experiment declares.
      thresholds: Values of the first target's metric at which trials are read. Trials are trained
        to the hardest.
      devices: Numbers of devices of a scaling study. On a CPU they are simulated and share its
        cores.
      processes: Processes of each trial of a scaling study; they share the devices evenly.
      scales_batch: Whether the batch of a scaling study grows with the devices; its learning rate
        does not.
      seeds: Trials of each arm; in a search, trials of its winner, on fresh seeds.
      first_seed: Seed of the first trial.
      order_seed: Seed of the order in which trials run, and of what a search draws.
      looks: How often a study of several arms looks at its trials, at even distances up to its end.
        An arm that differs from the first at a look gets no more trials. Group-sequential bounds
        (`statistics.looks`) set the levels, so that looking adds no false verdicts.
      flags: Flags of every trial, such as `--max_steps=100`.
    """

    experiment: str = ""
    kind: Literal[
        "seeds", "grid", "scaling", "lesion", "factor", "threshold", "search", "ladder"
    ] = "seeds"
    axes: _Names = ()
    change: _Names = ()
    search: Literal["", "random", "asha"] = ""
    trials: Annotated[int, Limit(lambda n: 0 <= n <= MOST_TRIALS, "lie in 0 to 10,000")] = 0
    techniques: _Names = ()
    thresholds: tuple[float, ...] = ()
    devices: tuple[int, ...] = ()
    processes: OneOrMore[int] = 1
    scales_batch: bool = False
    seeds: Annotated[int, Limit(lambda n: 1 <= n <= MOST_TRIALS, "lie in 1 to 10,000")] = 5
    first_seed: _Seed = 0
    order_seed: _Seed = 0
    looks: Annotated[int, within(1, 20)] = 1
    flags: _Names = ()

    @property
    def seeds_that_choose(self) -> range:
        """Seeds by which a search chooses a recipe; empty for any other study."""
        count = {"": 0, "random": 1, "asha": RUNGS[-1]}[self.search]
        return range(self.first_seed, self.first_seed + count)

    @property
    def seeds_that_judge(self) -> range:
        """Seeds of the trials that are results; a search's choosing seeds are not among them."""
        first = self.seeds_that_choose.stop
        return range(first, first + self.seeds)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One recipe, or one system, of a study.

    Attributes:
      name: For people: `global_batch_size=32`, `without label_smoothing`.
      flags: What makes a trial of it, beside the study's own flags and the seed.
      devices: Devices of a trial; 0 where the study does not choose.
    """

    name: str
    flags: tuple[str, ...] = ()
    devices: int = 0

    @property
    def folder(self) -> str:
        """Name of the arm's folder."""
        return re.sub(r"[^A-Za-z0-9.]+", "_", self.name[:200]).strip("_.")


class TrialPlan(NamedTuple):
    """One trial of a study.

    Attributes:
      number: Its place in the order, from 0.
      chooses: Whether a search chooses by it: such a trial is not a result.
    """

    number: int
    arm: Arm
    seed: int
    chooses: bool = False

    def directory(self, out: Path) -> Path:
        """Run directory within the study's folder."""
        return out / "trials" / self.arm.folder / f"seed_{self.seed}"


def arms_of(study: Study, known: Sequence[Technique], experiment: Experiment) -> tuple[Arm, ...]:
    """Arms of a study; the others are compared with the first.

    A search has its arms from its draws. These are recipes at the ends of its axes, for a check.

    Args:
      known: Techniques that the experiment declares.

    Raises:
      ConfigError: A field does not go with the kind, or names nothing.
    """
    _refuse_fields_of_other_kinds(study)
    if study.kind == "grid":
        arms = tuple(_grid(study))
    elif study.kind == "ladder":
        arms = tuple(_ladder(study))
    elif study.kind == "search":
        arms = tuple(_at_the_ends(study))
    elif study.kind == "scaling":
        arms = tuple(_scaling(study, experiment.global_batch_size))
    elif study.kind in ("lesion", "factor"):
        chosen = _chosen(study, known)
        arms = tuple(_lesion(chosen) if study.kind == "lesion" else _factor(chosen))
    elif study.kind == "threshold":
        is_most = experiment.targets[0].direction == "at_most"
        hardest = min(study.thresholds) if is_most else max(study.thresholds)
        arms = (Arm("all", (f"--targets.0.value={hardest}",)),)
    else:
        arms = (Arm("all"),)
    folders: dict[str, Arm] = {}
    for arm in arms:
        _refuse_flags_of_the_study((*study.flags, *arm.flags))
        first = folders.setdefault(arm.folder, arm)
        if first is not arm:
            raise ConfigError(f"two arms would share a folder: {first.name!r} and {arm.name!r}")
    if study.looks > 1 and (len(arms) == 1 or study.search):
        raise ConfigError(f"looks={study.looks}: a study of one arm has nothing to compare")
    if study.looks > 1 and study.kind == "ladder":
        raise ConfigError(f"looks={study.looks}: a ladder is judged once, at its end")
    _refuse_too_many(len(arms), study)
    return arms


def planned(study: Study, arms: int) -> int:
    """Number of trials of a study with so many arms."""
    if study.search:
        return max(study.trials, arms) + study.seeds
    return arms * study.seeds


def _refuse_too_many(arms: int, study: Study) -> None:
    if planned(study, arms) > MOST_TRIALS:
        raise ConfigError(f"{arms:,} arms of {study.seeds:,} seeds exceed {MOST_TRIALS:,} trials")


SET_BY_THE_STUDY = {
    "seed": "set the trials' seeds with --seeds and --first_seed",
    "run_dir": "each trial has its own directory in --out",
    "chooses": "only a search sets this flag",
    "experiment": "all arms train the one experiment of --experiment",
}
"""Flags of `dawnjax train` that no arm and no flag of the trials may set, and why."""


def _refuse_flags_of_the_study(flags: Sequence[str]) -> None:
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if name in SET_BY_THE_STUDY:
            raise ConfigError(f"{flag}: {SET_BY_THE_STUDY[name]}")


def trials_of(study: Study, arms: Sequence[Arm]) -> tuple[TrialPlan, ...]:
    """All trials in order: blocks that hold each arm once, in an order drawn for each block.

    So no arm gains if the machine's speed changes during the study. For a search: each trial that
    an arm may have, choosing trials first.
    """
    random = np.random.default_rng(study.order_seed)
    trials: list[TrialPlan] = []
    # Drawn block by block, so that a study with more seeds begins with the same trials.
    for seed in (*study.seeds_that_choose, *study.seeds_that_judge):
        for index in random.permutation(len(arms)):
            chooses = seed in study.seeds_that_choose
            trials.append(TrialPlan(len(trials), arms[index], seed, chooses))
    return tuple(trials)


_FIELD_OF_KIND = {
    "axes": ("grid", "search", "ladder"),
    "change": ("ladder",),
    "search": ("search",),
    "trials": ("search",),
    "techniques": ("lesion", "factor"),
    "thresholds": ("threshold",),
    "devices": ("scaling",),
    "processes": ("scaling",),
    "scales_batch": ("scaling",),
}
_NEEDED = {
    "grid": ("axes",),
    "ladder": ("axes", "change"),
    "threshold": ("thresholds",),
    "scaling": ("devices",),
    "search": ("search", "trials", "axes"),
}


def _refuse_fields_of_other_kinds(study: Study) -> None:
    for field, kinds in _FIELD_OF_KIND.items():
        if study.kind not in kinds and getattr(study, field) != getattr(Study(), field):
            raise ConfigError(f"{field} needs kind={' or '.join(kinds)}, not {study.kind}")
    for needed in _NEEDED.get(study.kind, ()):
        if not getattr(study, needed):
            lacks = f"has no arms without {needed}"
            if needed == "trials":
                lacks = "needs a budget, such as --trials=32"
            raise ConfigError(f"a study of kind {study.kind} {lacks}")


def _listed(study: Study) -> list[Axis]:
    """Axes of a study that draws nothing."""
    axes = [axis_of(text) for text in study.axes]
    for text, axis in zip(study.axes, axes, strict=True):
        if axis.distribution:
            raise ConfigError(
                f"axis {text!r} is a distribution, which only a search accepts: add "
                "--search=random --trials=32, or list values"
            )
    return axes


_WHOLE_BUDGET = "--evaluation.stop_at_target=false"


def _ladder(study: Study) -> Iterator[Arm]:
    """Arms without and with the change, at each size."""
    axes = _listed(study)
    sizes = {len(axis.values) for axis in axes}
    if len(sizes) > 1 or max(sizes) < FEWEST_SIZES:
        raise ConfigError(
            f"each axis of a ladder needs one value for each of {FEWEST_SIZES} or more sizes: "
            f"{', '.join(study.axes)}"
        )
    if wrong := next((text for text in study.change if "=" not in text), ""):
        raise ConfigError(f"change={wrong} must be FIELD=VALUE")
    names = " ".join(text.rpartition(".")[2] for text in study.change)
    flags = tuple(f"--{text.lstrip('-')}" for text in study.change)
    for point in zip(*(axis.values for axis in axes), strict=True):
        first = arm_at(axes, point)
        # To the whole budget: trials that end at their target would end apart.
        first = dataclasses.replace(first, flags=(*first.flags, _WHOLE_BUDGET))
        yield first
        yield Arm(_short(f"{first.name} {names}"), (*first.flags, *flags))


def _grid(study: Study) -> Iterator[Arm]:
    axes = _listed(study)
    _refuse_too_many(math.prod(len(axis.values) for axis in axes), study)  # before they are made
    for point in itertools.product(*(axis.values for axis in axes)):
        yield arm_at(axes, point)


def arm_at(axes: Sequence[Axis], point: Sequence[str]) -> Arm:
    """Arm of one value on each axis."""
    fields = [axis.field for axis in axes]
    names = [_tail(field, fields) for field in fields]
    # Values tell arms of one grid apart, so that names of fields give way.
    room = (LONGEST_NAME + 1 - sum(len(value) + 2 for value in point)) // len(point)
    cut = [shortened(name, max(room, 6)) for name in names]
    whole, short = (
        " ".join(f"{name}={value}" for name, value in zip(of, point, strict=True))
        for of in (names, cut)
    )
    flags = tuple(f"--{field}={value}" for field, value in zip(fields, point, strict=True))
    return Arm(whole if len(whole) <= LONGEST_NAME else _short(short), flags)


def _tail(field: str, fields: Sequence[str]) -> str:
    """Shortest unique end of a field's name: `momentum` for `optimizer.momentum`."""
    parts = field.split(".")
    tails = (".".join(parts[place:]) for place in reversed(range(len(parts))))
    alone = (
        tail for tail in tails if sum(f".{other}".endswith(f".{tail}") for other in fields) < 2
    )
    return next(alone, field)


def _short(name: str) -> str:
    """Name of an arm, cut to `LONGEST_NAME` letters with a hash of all of it."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9].rstrip()} {digest}"


def _at_the_ends(study: Study) -> Iterator[Arm]:
    """First values of all axes, and each other end of one axis beside them."""
    axes = [axis_of(text) for text in study.axes]
    for text, axis in zip(study.axes, axes, strict=True):
        if axis.size < 2:
            raise ConfigError(
                f"axis {text!r} has one value; for a search give {DISTRIBUTIONS}, or VALUE,VALUE"
            )
    fields = [axis.field for axis in axes]
    if len(set(fields)) < len(fields):
        raise ConfigError(f"two axes have the same field: {', '.join(study.axes)}")
    size = math.prod(axis.size for axis in axes)
    if size < study.trials:
        raise ConfigError(
            f"trials={study.trials}: the axes have only {size:.0f} recipes; leave out --search "
            "to try each in a grid"
        )
    first = [axis.ends[0] for axis in axes]
    yield arm_at(axes, first)
    for place, axis in enumerate(axes):
        for end in axis.ends[1:]:
            yield arm_at(axes, [*first[:place], end, *first[place + 1 :]])


def _scaling(study: Study, batch_size: int) -> Iterator[Arm]:
    for devices in study.devices:
        if devices < 1 or devices % study.processes:
            raise ConfigError(
                f"devices={devices}: {study.processes} processes must share them evenly"
            )
        flags: tuple[str, ...] = ()
        if study.scales_batch:
            flags = (f"--global_batch_size={batch_size * devices}",)
        yield Arm(f"{devices} devices", flags, devices)


def _chosen(study: Study, known: Sequence[Technique]) -> list[Technique]:
    by_name = {technique.name: technique for technique in known}
    if not by_name:
        raise ConfigError(f"{study.experiment} declares no TECHNIQUES to leave out")
    missing = [name for name in study.techniques if name not in by_name]
    if missing:
        raise ConfigError(f"no technique {missing[0]!r}; it declares {', '.join(by_name)}")
    return [by_name[name] for name in study.techniques or by_name]


def _lesion(techniques: Sequence[Technique]) -> Iterator[Arm]:
    yield Arm("whole recipe")
    for technique in techniques:
        yield Arm(_short(f"without {technique.name}"), technique.without)


def _factor(techniques: Sequence[Technique]) -> Iterator[Arm]:
    def without(others: Sequence[Technique]) -> tuple[str, ...]:
        return tuple(flag for technique in others for flag in technique.without)

    yield Arm("without all", without(techniques))
    for technique in techniques:
        yield Arm(
            _short(f"only {technique.name}"), without([t for t in techniques if t != technique])
        )
    for count in range(2, len(techniques)):
        names = " ".join(technique.name for technique in techniques[:count])
        yield Arm(_short(f"with {names}"), without(techniques[count:]))
    if len(techniques) > 1:
        yield Arm("whole recipe")


class Look(NamedTuple):
    """A look at a study: trials of each arm so far, and the two-sided level of its verdicts."""

    trials: int
    level: float


class StudyRecord(TypedDict):
    """Content of `study.json`: enough to read the study without its experiment's code.

    `origins` has the origin of each arm's trials, by the arm's name; a study that is distributed to
    other machines has none before its first trial.
    """

    schema_version: Literal[2]
    study: Study
    arms: tuple[Arm, ...]
    looks_made: list[Look]
    origins: dict[str, Origin]


class StudyFolder:
    """Folder of a study: `study.json`, `result.json`, and the trials' run directories."""

    def __init__(self, path: Path):
        self.path = path
        self.file = path / "study.json"

    def read(self) -> StudyRecord | None:
        """Read `study.json`; None where there is none. Raises OSError or ValueError if damaged."""
        try:
            fields = records.load_json(records.read_plain(self.file))
        except FileNotFoundError:
            return None
        record = records.convert(fields, StudyRecord)
        check_fields(record["study"])
        # The file may come from elsewhere, and its arms' names become folders.
        if len({arm.folder for arm in record["arms"]}) < max(1, len(record["arms"])):
            raise ValueError("its arms have no distinct names")
        try:
            for axis in record["study"].axes:
                axis_of(axis)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if planned(record["study"], len(record["arms"])) > MOST_TRIALS:
            raise ValueError(f"its arms and seeds exceed {MOST_TRIALS:,} trials")
        if record["study"].looks > 1:
            looks_of(record["study"].seeds, record["study"].looks)
        made = record["looks_made"]
        rising = all(before.trials < look.trials for before, look in itertools.pairwise(made))
        if not rising or any(look.trials < 1 or not 0 < look.level <= 1 for look in made):
            raise ValueError("its looks are not increasing numbers of trials with levels")
        return record

    def write(
        self,
        study: Study,
        arms: tuple[Arm, ...],
        looks_made: Sequence[Look] = (),
        origins: Mapping[str, Origin] | None = None,
    ) -> None:
        record = StudyRecord(
            schema_version=2,
            study=study,
            arms=arms,
            looks_made=list(looks_made),
            origins=dict(origins or {}),
        )
        records.write_json(self.file, records.plain(record), durable=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, which must exist, against another process that runs the study.

        Raises:
          RunError: Another process runs it.
        """
        fd = records.open_append(self.path / ".lock")
        try:
            if not records.lock(fd):
                print(f"dawnjax study: warning: {records.no_lock(self.path)}", file=sys.stderr)
        except BlockingIOError:
            os.close(fd)
            raise RunError(f"another process is running the study in {self.path}") from None
        try:
            yield
        finally:
            os.close(fd)

    def read_same(self, study: Study) -> StudyRecord | None:
        """Read `study.json`, None in a new folder, and refuse to mix two studies.

        More seeds continue the same study. Fewer would drop finished trials.

        Raises:
          ConfigError: The folder holds a study with another field, or something else.
        """
        try:
            record = self.read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.file}: {error}; restore it or choose another --out") from None
        if record is None:
            if self.path.exists() and not self.path.is_dir():
                raise ConfigError(f"--out={self.path} is not a folder")
            # A search that was stopped before its first draw leaves its lock alone.
            held = {".lock"}
            if self.path.is_dir() and {path.name for path in self.path.iterdir()} - held:
                raise ConfigError(f"--out={self.path} has content other than a study")
            return None
        for field in dataclasses.fields(Study):
            there, here = (getattr(one, field.name) for one in (record["study"], study))
            if there == here or (field.name == "seeds" and here > there):
                continue
            way_out = (
                "larger numbers extend it; a smaller one needs"
                if field.name == "seeds"
                else "choose"
            )
            raise ConfigError(
                f"{self.file} belongs to a study with {field.name}={there!r}, not {here!r}; "
                f"{way_out} another --out"
            )
        return record

    def same_arms(self, record: StudyRecord, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """The recorded arms under their recorded names; refuse a record of other arms.

        Raises:
          ConfigError: The experiment's techniques, or the rules that make arms, have changed.
        """
        before, now = ([(arm.flags, arm.devices) for arm in of] for of in (record["arms"], arms))
        if before != now:
            raise ConfigError(
                f"{self.file}: its arms were {', '.join(arm.name for arm in record['arms'])}, and "
                f"are {', '.join(arm.name for arm in arms)} now; choose another --out"
            )
        return record["arms"]
