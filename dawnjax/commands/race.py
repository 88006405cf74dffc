"""`dawnjax race`: a race to a target quality that anyone can enter, and its judge."""

import sys
from collections.abc import Callable

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.text import escaped

USAGE = """dawnjax race [tracks [TRACK [--data_dir=FOLDER]]]
       dawnjax race submit RUNS... --track=TRACK --name=NAME --against=RUNS --out=FOLDER
       dawnjax race verify ENTRY [--data_dir=FOLDER]
       dawnjax race board FOLDER [--out=FOLDER]"""

DESCRIPTION = """
Without arguments it lists the tracks; `tracks TRACK` shows the rules of one, and with --data_dir
whether data are the track's.

  submit   makes an entry of your runs: source, logs, environment. They must be faster, at p < 0.01,
           than --against: runs of the baseline or the standing record on the same machine
  verify   judges an entry: static rules, then rounds of entry, baseline and standing record in
           turn, on fresh seeds, each in a sandbox without network or examples to evaluate
  board    shows the entries of a folder, with the verdicts in FOLDER/verdicts

`verify` ends with status 0 where the entry is accepted, 6 where it is slower, 7 for a tie or where
this machine could not judge it, 1 where a rule was broken in a run, 2 where nothing was run.
"""

_STATUS = {
    "accepted": ExitStatus.DONE,
    "slower": ExitStatus.SLOWER,
    "tie": ExitStatus.UNDECIDED,
    "not_judged": ExitStatus.UNDECIDED,
    "refused": ExitStatus.FAILED,
}


def main(argv: list[str]) -> int:
    part = next((text for text in argv if not text.startswith("-")), "tracks")
    parts: dict[str, Callable[[list[str], flags.FlagValues], int]] = {
        "tracks": _tracks,
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
    for name, (owners, text) in _TEXTS.items():
        if part in owners or shows_all:
            of_part = f"{', '.join(owners)}: {text}"
            flags.DEFINE_string(name, None, of_part, flag_values=values)
    if part == "verify" or shows_all:
        rounds = "verify: rounds; 0 takes the track's."
        flags.DEFINE_integer("rounds", 0, rounds, 0, flag_values=values)
        trusts = "verify: run the entry with all that you may do, where there is no sandbox."
        flags.DEFINE_boolean("without_sandbox", False, trusts, flag_values=values)
        price = "verify: price of this machine, for the cost."
        flags.DEFINE_float("price_per_hour_usd", None, price, 0.0, flag_values=values)
    words = command_line.parse("race", values, argv, USAGE, DESCRIPTION)
    return parts[part](words[1:], values)


_TEXTS = {
    "track": (("submit",), "the track."),
    "name": (("submit",), "the entry's name."),
    "against": (("submit",), "runs of the baseline or the standing record on the same machine."),
    "out": (("submit", "board"), "the entry's folder, new; of `board`, a folder for the page."),
    "data_dir": (("tracks", "verify"), "where the track's data lie, if not in the installation."),
    "verdicts": (("verify", "board"), "the verdicts' folder; `verdicts` beside the entries."),
}
"""Flags that are texts, with the parts of the command that have them."""


def _tracks(names: list[str], values: flags.FlagValues) -> int:
    from dawnjax.race import tracks

    data_dir = values["data_dir"].value
    if data_dir:
        if len(names) != 1:
            raise ConfigError(f"--data_dir is for one track, and {len(names)} were given")
        print(escaped(tracks.data_text(tracks.read_track(names[0]), records.path_of(data_dir))))
    elif names:
        print("\n\n".join(tracks.track_text(tracks.read_track(name)) for name in names))
    else:
        print(tracks.tracks_table().to_text())
    return ExitStatus.DONE


def _submit(paths: list[str], values: flags.FlagValues) -> int:
    from dawnjax.race import submit, tracks
    from dawnjax.runs.directory import names_a_file

    given = {name: str(values[name].value or "") for name in ("track", "name", "against", "out")}
    missing = next((name for name, value in given.items() if not value), None)
    if not paths or missing:
        what = f"--{missing} is missing" if paths else "no run is given"
        raise ConfigError(f"{what}; {USAGE.splitlines()[1].strip()}")
    tracks.read_track(given["track"])
    if not names_a_file(given["name"]):
        raise ConfigError(
            f"--name={given['name']!r} must be up to 80 letters, digits, '_', '.' and '-': it "
            "names files"
        )
    out = records.path_of(given["out"])
    entry = submit.submit(
        [records.path_of(path) for path in paths],
        records.path_of(given["against"]),
        track=given["track"],
        name=given["name"],
        out=out,
    )
    print(escaped(f"{out}: beside {entry.rival}: {entry.claim.text()}"))
    print(f"next: dawnjax race verify {out}")
    return ExitStatus.DONE


def _verify(paths: list[str], values: flags.FlagValues) -> int:
    if len(paths) != 1:
        raise ConfigError(f"one entry is verified, and {len(paths)} were given")
    folder = records.path_of(paths[0])
    if not folder.is_dir() or folder.is_symlink():
        raise ConfigError(f"there is no folder {folder}")
    from dawnjax.race import judge

    data_dir, verdicts = values["data_dir"].value, values["verdicts"].value
    price = values["price_per_hour_usd"].value
    verdict, is_earlier = judge.verify(
        folder,
        data_dir=records.path_of(data_dir) if data_dir else None,
        rounds=int(values["rounds"].value or 0),
        without_sandbox=bool(values["without_sandbox"].value),
        verdicts=records.path_of(verdicts) if verdicts else None,
        price_per_hour_usd=None if price is None else float(price),
        tell=lambda line: print(escaped(line), file=sys.stderr, flush=True),
    )
    print(escaped(verdict.text()))
    if is_earlier:
        print(f"judged on {verdict.date}: one state of entry and project is verified once")
    return _STATUS[verdict.word]


def _board(paths: list[str], values: flags.FlagValues) -> int:
    if len(paths) != 1:
        raise ConfigError(f"one folder of entries is shown, and {len(paths)} were given")
    from dawnjax.race import board

    verdicts, out = values["verdicts"].value, values["out"].value
    boards = board.read_board(
        records.path_of(paths[0]), records.path_of(verdicts) if verdicts else None
    )
    print(escaped("\n\n".join(table.to_text() for table in board.tables_of(boards))))
    if out:
        print(f"page: {board.write_page(boards, records.path_of(out))}")
    return ExitStatus.DONE
