"""Tracks of the race: the fixed fields, the data, and the limits of a run.

A track is a TOML file in this folder. Its baseline is a shipped experiment, with flags that leave
one evaluation, at the end.
"""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError
from dawnjax.page.table import Table, of_words
from dawnjax.race.sandbox import Limits
from dawnjax.runs.directory import flatten
from dawnjax.trials.target import Target

_FOLDER = Path(__file__).parent

FIXED = (
    *("task.tag", "task.test_time_augmentation", "task.target_vocabulary", "data", "targets"),
    *("evaluation.every_epochs", "evaluation.every_steps", "evaluation.first_epoch"),
    *("evaluation.global_batch_size", "evaluation.stop_at_target"),
    *("max_seconds", "initialize_from", "initial_state"),
)
"""Fields or groups of fields that must equal the baseline's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may spend: seconds by the judge's clock, or examples or tokens to train on."""

    unit: Literal["seconds", "examples", "tokens"]
    amount: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Track:
    """What an entry races for: the shortest time to a target, or the best quality at a budget.

    Attributes:
      platform: Kind of the one device.
      experiment: The baseline, by name.
      flags: Flags of the baseline, and of every run of an entry.
      baseline_flags: Flags of the baseline alone, such as its length.
      data_fingerprint: Fingerprint of the required data; empty if `data_benchmark` names them.
      data_benchmark: Published set that the data must be recognized as.
      takes_programs: Whether an entry may be a program: only if its inputs do not contain the
        answers.
      needs_bounds: Whether a judge must limit the memory and the processes of a whole run.
      hidden: Folders of installed packages with evaluation examples, hidden from runs.
      rounds: Least rounds of a verification.
      target: The baseline's target. At a budget only its metric and direction count.
    """

    name: str
    title: str
    platform: Literal["cpu", "gpu"]
    experiment: str
    flags: tuple[str, ...]
    baseline_flags: tuple[str, ...] = ()
    data_fingerprint: str = ""
    data_benchmark: str = ""
    data_note: str
    takes_programs: bool = False
    needs_bounds: bool = True
    hidden: tuple[str, ...] = ()
    rounds: int
    target: Target
    budget: Budget | None = None
    limits: Limits

    @property
    def aim(self) -> str:
        """What an entry races for, in words."""
        if self.budget is None:
            return f"least time to {self.target.words()}"
        best = "highest" if self.target.direction == "at_least" else "lowest"
        return f"{best} {self.target.metric} after {self.budget.amount:,} {self.budget.unit}"

    @property
    def seconds(self) -> float:
        """Time after which a run is stopped and its checkpoint measured; infinite on other "
        "tracks."""
        return self.budget.amount if self.budget and not self.counts_examples else math.inf

    @property
    def counts_examples(self) -> bool:
        return self.budget is not None and self.budget.unit != "seconds"

    def differences(self, fields: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
        """Fixed fields in which an experiment differs from the baseline, in words.

        Both are plain JSON values of an experiment.
        """
        given, wanted = flatten(dict(fields)), flatten(dict(baseline))
        names = sorted(name for name in given.keys() | wanted.keys() if self._is_fixed(name))
        return [
            f"{name} is {given.get(name, 'absent')!r}, and the track {self.name} requires "
            f"{wanted.get(name, 'absent')!r}"
            for name in names
            if given.get(name) != wanted.get(name)
        ]

    def _is_fixed(self, name: str) -> bool:
        # Where the data lie is the judge's affair, and when to stop that of a run with a time.
        is_free = name == "data.data_dir" or (name == "max_seconds" and self.seconds < math.inf)
        return not is_free and any(f"{name}.".startswith(f"{prefix}.") for prefix in FIXED)

    def wrong_data(self, spec: Any) -> str:
        """Reason why data are not the track's; empty if they are."""
        if self.data_fingerprint:
            if spec.fingerprint == self.data_fingerprint:
                return ""
            return f"their fingerprint is {spec.fingerprint}, not {self.data_fingerprint}"
        declared = spec.declaration
        if declared.benchmark == self.data_benchmark:
            return ""
        return f"they are not {self.data_benchmark}: {declared.evidence}"


def track_names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_track(name: str) -> Track:
    """Read a track by its name; `ConfigError` with the nearest name if there is none."""
    known = track_names()
    if name not in known:
        near = command_line.closest(name, known)
        hint = f"did you mean {near!r}?" if near else f"tracks: {', '.join(known)}"
        raise ConfigError(f"no track {name!r}; {hint}")
    text = records.read_plain(_FOLDER / f"{name}.toml").decode()
    return records.convert({"name": name, **tomllib.loads(text)}, Track)


def baseline(track: Track, data_dir: Path | None = None) -> Any:
    """Experiment of the baseline, with the place of the data on this machine."""
    from dawnjax.config.experiment_flags import parse_request  # loads JAX

    argv = [f"--experiment={track.experiment}", *track.flags, *track.baseline_flags]
    if data_dir:
        argv.append(f"--data.data_dir={data_dir.resolve()}")
    return parse_request("race", argv)[0].experiment


def data_at(track: Track, data_dir: Path | None) -> tuple[Any, Any]:
    """Experiment of the baseline with the data in a folder, and their specification.

    Raises:
      ConfigError: The place is missing, is given for data that come with the installation, or holds
        other data.
    """
    has_place = hasattr(baseline(track).data, "data_dir")
    if has_place and data_dir is None:
        raise ConfigError(f"--data_dir is missing: give the folder of the data of {track.name}")
    if data_dir is not None and not has_place:
        raise ConfigError(
            f"--data_dir is not needed: the data of {track.name} come with the installation"
        )
    experiment = baseline(track, data_dir)
    spec = experiment.data.spec()
    if why := track.wrong_data(spec):
        raise ConfigError(f"these are not the data of track {track.name}: {why}")
    return experiment, spec


def recipe_text(track: Track) -> str:
    """A recipe's file that can enter unchanged: the baseline, evaluated once."""
    given = [flag.removeprefix("--").split("=") for flag in (*track.flags, *track.baseline_flags)]
    own = "".join(f"    {name}={value},\n" for name, value in given if "." not in name)
    evaluation = [name.removeprefix("evaluation.") + f"={v}" for name, v in given if "." in name]
    return f'''"""An entry of the race's track {track.name}: {track.aim}.

Model, optimizer, schedule, length and batch may change; task, data, target and evaluation may not.
"""

import dataclasses

from dawnjax.own import load_experiment

BASELINE = load_experiment("{track.experiment}")
EXPERIMENT = dataclasses.replace(
    BASELINE,
    name="{track.experiment}",
{own}    # The only evaluation is the last.
    evaluation=dataclasses.replace(BASELINE.evaluation, {", ".join(evaluation)}),
)
'''


def tracks_table() -> Table:
    rows = [
        [it.name, it.aim, it.platform, it.experiment, it.data_fingerprint or it.data_benchmark]
        for it in map(read_track, track_names())
    ]
    return of_words(["track", "aim", "device", "baseline", "data"], rows, texts=range(5))


def track_text(name: str) -> str:
    """Rules of a track for a terminal: its file, and what an entry may not change."""
    track = read_track(name)
    text = records.read_plain(_FOLDER / f"{name}.toml").decode()
    return f"# {name}: {track.aim}\n# Fixed: {', '.join(FIXED)}\n{text}".rstrip()
