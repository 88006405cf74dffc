"""`dawnjax race`: a race to a target quality that anyone can enter, and its judge."""

import dataclasses
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.commands.new import write_new
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.race import board, tracks
from dawnjax.race.tracks import Track as ReadTrack
from dawnjax.race.verdicts import JudgedEntry
from dawnjax.text import escaped

USAGE = """dawnjax race [tracks [TRACK]]
       dawnjax race new NAME --track=TRACK
       dawnjax race submit FILE_OR_PROGRAM --track=TRACK [--out=FOLDER]
       dawnjax race verify ENTRY [--data_dir=FOLDER] [--rounds=N]
       dawnjax race board FOLDER [--html=FILE]"""

DESCRIPTION = """
Without arguments it lists the tracks; `tracks TRACK` shows a track's rules.

  new      writes NAME.py: the track's baseline, as a recipe to change
  submit   makes an entry from a recipe's file and the modules that it imports, or from a folder
           with a run.py, a program of any framework
  verify   judges an entry: static rules, then rounds of entry, baseline and standing record in
           turn, on fresh seeds, each in a sandbox without network or evaluation examples
  board    shows the entries of a folder, with the verdicts in FOLDER/verdicts

`verify` ends with status 0 if the entry is accepted, 6 if it is slower or worse, 7 for a tie, 1 if
a run broke a rule, 2 if nothing was run.
"""

_STATUS = {
    "accepted": ExitStatus.DONE,
    "slower": ExitStatus.SLOWER,
    "worse": ExitStatus.SLOWER,
    "tie": ExitStatus.UNDECIDED,
    "refused": ExitStatus.FAILED,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Track:
    """What entries race for: the shortest time to a target, or the best quality at a budget.

    Attributes:
      platform: Kind of the one device: `cpu` or `gpu`.
      experiment: The baseline.
      flags: Of the baseline, and of every run of an entry.
      baseline_flags: Of the baseline alone.
      aim: What counts, in words.
      metric: What is measured.
      direction: `at_least` where more of it is better, else `at_most`.
      target: What one evaluation must reach; null at a budget.
      budget_unit: `seconds`, `examples` or `tokens`; null without a budget.
      budget: What a run may spend; null without one.
      data_fingerprint: Fingerprint of the required data; empty if `data_benchmark` names them.
      rounds: Least rounds of a verification.
      run_seconds: Most seconds of a run.
      memory_gib: Most memory of a process.
      disk_gib: Most that a run may save.
    """

    name: str
    title: str
    platform: str
    experiment: str
    flags: tuple[str, ...]
    baseline_flags: tuple[str, ...]
    aim: str
    metric: str
    direction: str
    target: float | None
    budget_unit: str | None
    budget: int | None
    data_fingerprint: str
    data_benchmark: str
    data_note: str
    rounds: int
    run_seconds: float
    memory_gib: float
    disk_gib: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An entry on a board.

    Attributes:
      rank: A rank such as `1`, or `=1` for a tie with it; empty without one.
      verdict: Null where it is not yet judged.
    """

    track: str
    rank: str
    name: str
    code: str
    verdict: JudgedEntry | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a part of the command found.

    Attributes:
      part: `tracks`, `new`, `submit`, `verify` or `board`.
      tracks: Of `tracks`.
      path: The file or folder that `new`, `submit` or `board --html` wrote.
      verdict: Of `verify`.
      board: Of `board`, each track's record first.
    """

    part: str
    tracks: tuple[Track, ...] = ()
    path: str | None = None
    verdict: JudgedEntry | None = None
    board: tuple[Row, ...] = ()


RESULT = Result


def main(argv: list[str]) -> Answer:
    part = next((text for text in argv if not text.startswith("-")), "tracks")
    parts: dict[str, Callable[[list[str], flags.FlagValues], Answer]] = {
        "tracks": _tracks,
        "new": _new,
        "submit": _submit,
        "verify": _verify,
        "board": _board,
    }
    if part not in parts:
        near = command_line.closest(part, list(parts))
        hint = f"did you mean {near!r}?" if near else f"parts: {', '.join(parts)}"
        raise ConfigError(f"no part {part!r}; {hint}")
    values = flags.FlagValues()
    shows_all = "--help" in argv
    for name, (owners, text) in _FLAGS.items():
        if part in owners or shows_all:
            of_part = f"{', '.join(owners)}: {text}"
            if name == "rounds":
                flags.DEFINE_integer(name, 0, of_part, lower_bound=0, flag_values=values)
            else:
                flags.DEFINE_string(name, None, of_part, flag_values=values)
    words = command_line.parse("race", values, argv, USAGE, DESCRIPTION)
    return parts[part](words[1:], values)


_FLAGS = {
    "track": (("new", "submit"), "the track."),
    "out": (("submit",), "the entry's new folder (default: entries/NAME)."),
    "data_dir": (("verify",), "the folder of the track's data, if not in the installation."),
    "rounds": (("verify",), "most rounds, at least the track's; 0 takes the track's."),
    "html": (("board",), "write the board as a page to this file."),
}
"""Flags, with the parts of the command that have them."""


def _path(values: flags.FlagValues, name: str) -> Path | None:
    text = values[name].value
    return records.path_of(text) if text else None


def _one(names: list[str], what: str) -> Path:
    return records.path_of(command_line.one(names, what))


def _needed(values: flags.FlagValues, name: str) -> str:
    if not values[name].value:
        raise ConfigError(f"--{name} is missing: dawnjax race --help")
    return str(values[name].value)


def _tracks(names: list[str], values: flags.FlagValues) -> Answer:
    found = [tracks.read_track(name) for name in names or tracks.track_names()]
    next_ = []
    if names:
        text = "\n\n".join(map(tracks.track_text, names))
        text += f"\n\nbegin with: dawnjax race new NAME --track={found[0].name}"
    else:
        text = tracks.tracks_table().to_text()
        next_ = [f"dawnjax race tracks {found[0].name}"]
    told = tuple(map(_told_track, found))
    return Answer(result=Result(part="tracks", tracks=told), text=text, next=next_)


def _told_track(track: ReadTrack) -> Track:
    fields = dataclasses.asdict(track) | {
        "aim": track.aim,
        "metric": track.target.metric,
        "direction": track.target.direction,
        "target": None if track.budget else track.target.value,
        "budget_unit": track.budget and track.budget.unit,
        "budget": track.budget and track.budget.amount,
        "run_seconds": track.limits.seconds,
        "memory_gib": track.limits.memory_gib,
        "disk_gib": track.limits.disk_gib,
    }
    return records.convert(records.plain(fields), Track, others=True)


def _new(names: list[str], values: flags.FlagValues) -> Answer:
    track = tracks.read_track(_needed(values, "track"))
    path = write_new(_one(names, "name"), tracks.recipe_text(track))
    submit = shlex.join(["dawnjax", "race", "submit", str(path), f"--track={track.name}"])
    text = f"wrote {path}; change it, then\n\n    {submit}"
    return Answer(result=Result(part="new", path=str(path)), text=text, next=[submit])


def _submit(paths: list[str], values: flags.FlagValues) -> Answer:
    from dawnjax.race import submit

    file, track = _one(paths, "recipe's file"), _needed(values, "track")
    folder = _path(values, "out") or Path("entries") / file.absolute().stem
    submit.submit(file, track=track, out=folder)
    verify = shlex.join(["dawnjax", "race", "verify", str(folder)])
    text = escaped(f"wrote {folder}; next: {verify}")
    return Answer(result=Result(part="submit", path=str(folder)), text=text, next=[verify])


def _verify(paths: list[str], values: flags.FlagValues) -> Answer:
    folder = _one(paths, "entry")
    if not folder.is_dir() or folder.is_symlink():
        raise ConfigError(f"there is no folder {folder}")
    from dawnjax.race import judge

    verdict, is_earlier = judge.verify(
        folder,
        data_dir=_path(values, "data_dir"),
        rounds=int(values["rounds"].value or 0),
        tell=lambda line: print(escaped(line), file=sys.stderr, flush=True),
    )
    lines = [escaped(verdict.text())]
    if is_earlier:
        name = verdict.name
        lines.append(
            escaped(f"already judged on {verdict.date} as {name}: a recipe is judged once")
        )
    status = _STATUS[verdict.word]
    ranked = shlex.join(["dawnjax", "race", "board", str(folder.parent)])
    return Answer(
        result=Result(part="verify", verdict=verdict),
        text="\n".join(lines),
        status=status,
        reasons=[verdict.text().splitlines()[0]] if status else (),
        next=[ranked],
    )


def _board(paths: list[str], values: flags.FlagValues) -> Answer:
    boards = board.read_board(_one(paths, "folder of entries"))
    if page := _path(values, "html"):
        records.write(page, board.board_page(boards))
    rows = (
        Row(
            track=track,
            rank=place.rank,
            name=place.name,
            code=place.code,
            verdict=place.verdict,
        )
        for track, places in boards.items()
        for place in places
    )
    result = Result(part="board", path=page and str(page), board=tuple(rows))
    return Answer(result=result, text=escaped(board.board_text(boards)))
