"""`dawnjax race`: a race to a target quality that anyone can enter, and its judge."""

import sys
from collections.abc import Callable
from pathlib import Path

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.text import escaped

USAGE = """dawnjax race [tracks [TRACK [--data_dir=FOLDER]]]
       dawnjax race new NAME --track=TRACK
       dawnjax race submit FILE_OR_PROGRAM --track=TRACK [--out=FOLDER]
       dawnjax race verify ENTRY [--data_dir=FOLDER] [--rounds=N] [--json]
       dawnjax race board FOLDER [--json] [--html=FILE]"""

DESCRIPTION = """
Without arguments it lists the tracks; `tracks TRACK` shows the rules of one, and with --data_dir
whether data are the track's.

  new      writes NAME.py: the track's baseline, as a recipe to change
  submit   makes an entry of a recipe's file and the modules that it imports, or of the folder of a
           program of any framework, which has a run.py
  verify   judges an entry: static rules, then rounds of entry, baseline and standing record in
           turn, on fresh seeds, each in a sandbox without network or examples to evaluate
  board    shows the entries of a folder, with the verdicts in FOLDER/verdicts

`verify` ends with status 0 where the entry is accepted, 6 where it is slower, 7 for a tie, 1 where
a rule was broken in a run, 2 where nothing was run.
"""

_STATUS = {
    "accepted": ExitStatus.DONE,
    "slower": ExitStatus.SLOWER,
    "tie": ExitStatus.UNDECIDED,
    "refused": ExitStatus.FAILED,
}


def main(argv: list[str]) -> int:
    part = next((text for text in argv if not text.startswith("-")), "tracks")
    parts: dict[str, Callable[[list[str], flags.FlagValues], int]] = {
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
            if name == "json":
                flags.DEFINE_bool(name, False, of_part, flag_values=values)
            elif name == "rounds":
                flags.DEFINE_integer(name, 0, of_part, lower_bound=0, flag_values=values)
            else:
                flags.DEFINE_string(name, None, of_part, flag_values=values)
    words = command_line.parse("race", values, argv, USAGE, DESCRIPTION)
    return parts[part](words[1:], values)


_FLAGS = {
    "track": (("new", "submit"), "the track."),
    "out": (("submit",), "the entry's folder, new; entries/NAME."),
    "data_dir": (("tracks", "verify"), "where the track's data lie, if not in the installation."),
    "rounds": (("verify",), "rounds at most, from the track's up; 0 takes the track's."),
    "json": (("verify", "board"), "print JSON."),
    "html": (("board",), "a file for the board as a page."),
}
"""Flags, with the parts of the command that have them."""


def _path(values: flags.FlagValues, name: str) -> Path | None:
    text = values[name].value
    return records.path_of(text) if text else None


def _one(names: list[str], what: str) -> Path:
    if len(names) != 1:
        raise ConfigError(f"one {what} is needed, and {len(names)} were given")
    return records.path_of(names[0])


def _needed(values: flags.FlagValues, name: str) -> str:
    if not values[name].value:
        raise ConfigError(f"--{name} is missing: dawnjax race --help")
    return str(values[name].value)


def _tracks(names: list[str], values: flags.FlagValues) -> int:
    from dawnjax.race import tracks

    if data_dir := _path(values, "data_dir"):
        track = tracks.read_track(str(_one(names, "track")))
        print(escaped(tracks.data_text(track, data_dir)))
    elif names:
        print("\n\n".join(tracks.track_text(tracks.read_track(name)) for name in names))
    else:
        print(tracks.tracks_table().to_text())
    return ExitStatus.DONE


def _new(names: list[str], values: flags.FlagValues) -> int:
    from dawnjax.commands.new import write_new
    from dawnjax.race import tracks

    track = tracks.read_track(_needed(values, "track"))
    path = write_new(_one(names, "name"), tracks.recipe_text(track))
    print(f"wrote {path}; change it, then\n\n    dawnjax race submit {path} --track={track.name}")
    return ExitStatus.DONE


def _submit(paths: list[str], values: flags.FlagValues) -> int:
    from dawnjax.race import submit

    file, track = _one(paths, "recipe's file"), _needed(values, "track")
    folder = _path(values, "out") or Path("entries") / file.absolute().stem
    submit.submit(file, track=track, out=folder)
    print(escaped(f"wrote {folder}; next: dawnjax race verify {folder}"))
    return ExitStatus.DONE


def _verify(paths: list[str], values: flags.FlagValues) -> int:
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
    if values["json"].value:
        print(records.json_text(records.plain(verdict), indent=2))
        return _STATUS[verdict.word]
    print(escaped(verdict.text()))
    if is_earlier:
        name = verdict.name
        print(escaped(f"judged on {verdict.date} as {name}: a recipe is judged once"))
    return _STATUS[verdict.word]


def _board(paths: list[str], values: flags.FlagValues) -> int:
    from dawnjax.race import board

    boards = board.read_board(_one(paths, "folder of entries"))
    if page := _path(values, "html"):
        records.write(page, board.board_page(boards))
    if values["json"].value:
        print(records.json_text(board.board_json(boards), indent=2))
    else:
        print(escaped(board.board_text(boards)))
    return ExitStatus.DONE
