"""Tracks of the race: what is fixed, which data count, and what a run may use.

A track is a TOML file in this folder. Its baseline is an experiment of the project, with flags that
leave one evaluation, at the end.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.config.config_json import to_json
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
"""Fields of an experiment, or groups of them, that are as in the baseline."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Track:
    """What an entry races for.

    Attributes:
      platform: Kind of the one device.
      experiment: The baseline, by name.
      flags: Flags of the baseline, and of every run of an entry.
      data_fingerprint: Of the data that count; empty where `data_benchmark` says which they are, or
        where it is not known yet.
      data_benchmark: Published set that the data must be recognized as.
      takes_programs: Whether an entry may be a program that answers: the inputs that it is given do
        not hold the answers.
      needs_bounds: Whether a judge must bound the memory and the processes of a whole run.
      hidden: Folders of installed packages that hold examples to evaluate; a run does not see them.
      rounds: Least rounds of a verification.
      target: The baseline's own.
    """

    name: str
    title: str
    platform: Literal["cpu", "gpu"]
    experiment: str
    flags: tuple[str, ...]
    data_fingerprint: str = ""
    data_benchmark: str = ""
    data_note: str
    takes_programs: bool = False
    needs_bounds: bool = True
    hidden: tuple[str, ...] = ()
    rounds: int
    target: Target
    limits: Limits

    @property
    def command(self) -> str:
        """Command that trains one trial of the baseline as the track asks."""
        return " ".join(["dawnjax train", f"--experiment={self.experiment}", *self.flags])

    def differences(self, fields: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
        """Fixed fields in which an experiment is not the baseline, in words.

        Both are plain JSON values of an experiment.
        """
        given, wanted = flatten(dict(fields)), flatten(dict(baseline))
        names = sorted(name for name in given.keys() | wanted.keys() if self._is_fixed(name))
        return [
            f"{name} is {given.get(name, 'absent')!r}, and the track {self.name} has "
            f"{wanted.get(name, 'absent')!r}"
            for name in names
            if given.get(name) != wanted.get(name)
        ]

    def _is_fixed(self, name: str) -> bool:
        # Where the data lie is the judge's affair.
        is_place = name == "data.data_dir"
        return not is_place and any(f"{name}.".startswith(f"{prefix}.") for prefix in FIXED)

    @property
    def lacks(self) -> str:
        """Reason why no data can be known as the track's; empty where they can."""
        if self.data_fingerprint or self.data_benchmark:
            return ""
        return "the fingerprint of its data is not known yet"

    def wrong_data(self, spec: Any) -> str:
        """Reason why data are not the track's; empty where they are."""
        if self.lacks:
            return self.lacks
        if self.data_fingerprint:
            if spec.fingerprint == self.data_fingerprint:
                return ""
            return f"their fingerprint is {spec.fingerprint}, not {self.data_fingerprint}"
        declaration = getattr(spec, "declaration", None)
        if declaration is None or declaration.benchmark != self.data_benchmark:
            why = declaration.evidence if declaration else "they declare nothing"
            return f"they are not {self.data_benchmark}: {why}"
        return ""


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


def baseline_request(track: Track, data_dir: Path | None = None) -> Any:
    """Request of the baseline; with the data where they lie here."""
    from dawnjax.config.experiment_flags import parse_request  # loads JAX

    argv = [f"--experiment={track.experiment}", *track.flags]
    if data_dir:
        argv.append(f"--data.data_dir={data_dir.resolve()}")
    return parse_request("race", argv)[0]


def data_at(track: Track, data_dir: Path | None) -> tuple[Any, Any]:
    """Experiment of the baseline with the data in a folder, and their specification.

    Raises:
      ConfigError: The place is missing, or is given for data that come with the installation.
    """
    has_place = hasattr(baseline_request(track).experiment.data, "data_dir")
    if has_place and data_dir is None:
        raise ConfigError(f"--data_dir is missing: where the data of {track.name} lie")
    if data_dir is not None and not has_place:
        raise ConfigError(f"--data_dir: the data of {track.name} come with the installation")
    experiment = baseline_request(track, data_dir).experiment
    return experiment, experiment.data.spec()


def data_text(track: Track, data_dir: Path) -> tuple[str, str]:
    """Fingerprint of data in a folder in words, and why they are not the track's; empty if not."""
    _, spec = data_at(track, data_dir)
    why = track.wrong_data(spec)
    said = f"not the track's: {why}" if why else "the track's data"
    return f"{data_dir}: fingerprint {spec.fingerprint}; {said}", why


def baseline_fields(track: Track) -> dict[str, Any]:
    return to_json(baseline_request(track).experiment)


def recipe_text(track: Track) -> str:
    """A recipe's file that can enter as it stands: the baseline, evaluated once."""
    fields = [flag.removeprefix("--evaluation.").split("=") for flag in track.flags]
    evaluation = ", ".join(f"{name}={value}" for name, value in fields)
    return f'''"""An entry of the race's track {track.name}: {track.target.words()}.

Model, optimizer, schedule, length and batch may change; task, data, target and evaluation may not.
"""

import dataclasses

from dawnjax.experiments import {track.experiment} as baseline

EXPERIMENT = dataclasses.replace(
    baseline.EXPERIMENT,
    name="{track.experiment}",
    # The only evaluation is the last.
    evaluation=dataclasses.replace(baseline.EXPERIMENT.evaluation, {evaluation}),
)
'''


def tracks_table() -> Table:
    rows = []
    for track in map(read_track, track_names()):
        data = track.data_fingerprint or track.data_benchmark or "not known yet"
        rows.append([track.name, track.target.words(), _device(track), track.experiment, data])
    return of_words(["track", "target", "device", "baseline", "data"], rows, texts=range(5))


def track_text(track: Track) -> str:
    """Rules of a track for a terminal."""
    limits = track.limits
    return "\n".join(
        [
            f"{track.name}: {track.title}",
            f"target: {track.target.words()}, on {_device(track)}",
            f"baseline: {track.command}",
            f"data: {track.data_note}",
            f"fixed: {', '.join(FIXED)}",
            f"limits: {limits.seconds:g} s a run, {limits.memory_gib:g} GiB a process, "
            f"{limits.disk_gib:g} GiB saved",
            f"judged by {track.rounds} rounds or more on fresh seeds",
        ]
    )


def _device(track: Track) -> str:
    return "any CPU" if track.platform == "cpu" else "one GPU"
