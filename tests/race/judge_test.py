"""The judge's verdicts, with runs and weights that are made: no process is started."""

import dataclasses
import json
import random

import pytest
from made_race import write_entry

from dawnjax.__main__ import main
from dawnjax.checkpointed.judged_weights import Measured, Weights
from dawnjax.errors import ConfigError, RunError
from dawnjax.race import board, judge, sandbox, submit, tracks
from dawnjax.race.entry import read_entry
from dawnjax.race.heats import Course, Heat, Side
from dawnjax.race.rules import RuleError
from dawnjax.race.sandbox import LimitError
from dawnjax.race.verdicts import JudgedTrial, SideResult, compared, looks, read_verdict

TIMES = {"the baseline": 10.0, "mine": 6.0, "second": 6.0}
"""Mean seconds of each side's runs here."""


BASE = [0.98 + 0.001 * n for n in range(20)]
"""Qualities of round after round."""


class Runs:
    """Runs and weights in place of those of a sandbox; each run takes about its side's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.times, self.count, self.spread = dict(TIMES), 0, 0.01
        self.sides: dict[str, Side] = {}
        self.preparation, self.unreached, self.fault, self.unmeasured = {}, {}, "", ""
        self.qualities: dict[str, list[float | None]] = {}
        self.noise = random.Random(0)
        monkeypatch.setattr(sandbox, "check", lambda _: None)
        monkeypatch.setattr(Course, "run", lambda course, *given: self.run(*given))
        monkeypatch.setattr(Course, "measure", lambda course, *given: self.measure(*given))
        monkeypatch.setattr(judge.Handover, "new_round", lambda self: 0)

    def run(self, side, seed: int, names: int, number: int) -> Heat:
        self.count += 1
        self.sides[side.name] = side
        if self.times[side.name] == 0:
            raise LimitError("it ended: OSError: [Errno 101] Network is unreachable")
        seconds = self.times[side.name] * (1 + self.spread * self.noise.uniform(-1, 1))
        return Heat(seed, names, sandbox.SAVED, self.preparation.get(side.name, 5.0), seconds)

    def measure(self, side, ran: list[Heat]) -> Measured:
        if side.name == self.unmeasured:
            raise RunError(f"the weights of {side.name} could not be measured: it ended")
        fault = self.fault if side.name == "mine" else ""
        missed = self.unreached.get(side.name, 0)
        worth = self.qualities.setdefault(side.name, [])
        weights = [
            Weights(reached=n >= missed, quality=worth.pop(0) if worth else 0.99, fault=fault)
            for n in range(len(ran))
        ]
        return Measured(weights=tuple(weights), device="cpu")


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


def verified(folder, **more):
    return judge.verify(folder, tell=lambda _: None, **more)


def verdict_of(folder):
    entry = read_entry(folder)
    return read_verdict(folder.parent / "verdicts", entry.name, entry.recipe)


def test_a_program_is_judged_beside_the_baseline_by_its_own_files(tmp_path, runs):
    program, place = tmp_path / "kernel", tmp_path / "entries" / "kernel"
    program.mkdir()
    (program / "run.py").write_text("import rates\n")
    submit.submit(program, track="digits", out=place)
    runs.times["kernel"] = 6.0
    verdict, is_earlier = verified(place)
    assert (verdict.word, verdict.code, is_earlier) == ("accepted", "program", False)
    assert set(verdict.sides) == set(runs.sides) == {"the baseline", "kernel"}
    ran = runs.sides["kernel"]
    assert not ran.experiment and (ran.sources / ran.main).read_text() == "import rates\n"
    assert verified(place)[1]


def test_a_faster_entry_is_accepted_once(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    verdict, is_earlier = verified(folder)
    assert verdict.word == "accepted" and not is_earlier and runs.count == 40
    assert verdict.baseline is not None and verdict.baseline.ratio == pytest.approx(0.6, rel=0.02)
    seeds = [[trial.seed for trial in side.trials] for side in verdict.sides.values()]
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 20
    assert "mine is faster than the baseline" in verdict.text()
    again, is_earlier = verified(folder)
    assert again == verdict and is_earlier and runs.count == 40
    (folder / "README.md").write_text("Words that came later, and are no new draw.")
    assert verified(folder)[1]


def test_a_small_lead_is_a_tie_until_enough_rounds_exclude_the_misses_they_hide(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"] = 9.0
    verdict, _ = verified(folder)
    assert verdict.word == "tie" and verdict.baseline is not None
    assert "mine ties with the baseline" in verdict.text()
    # A side that reaches in 0.9 of cases needs as long, and 20 of 20 come in 0.12 of such races.
    assert verdict.baseline.ratio == pytest.approx(0.9, rel=0.01)
    low, high = verdict.baseline.low, verdict.baseline.high
    assert low is not None and high is not None and low < 0.9 < 1 < high
    folder, _ = write_entry(tmp_path, "second", changes="num_epochs=17,")
    runs.times["second"] = 9.0
    verdict, _ = verified(folder, rounds=80)
    assert (verdict.word, verdict.tries) == ("accepted", 2)
    with pytest.raises(ConfigError, match="--rounds=5: digits needs at least 20"):
        verified(write_entry(tmp_path, "third", changes="num_epochs=16,")[0], rounds=5)


def test_a_verdict_that_is_certain_half_way_ends_the_race(tmp_path, runs):
    for name, seconds, word in (("mine", 1.0, "accepted"), ("second", 60.0, "slower")):
        folder, _ = write_entry(tmp_path, name, changes=f"num_epochs={len(name)},")
        runs.count, runs.times[name] = 0, seconds
        assert verified(folder)[0].word == word
        assert runs.count == 10 * (2 if name == "mine" else 3)


def test_one_that_often_misses_the_target_is_not_accepted(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"], runs.unreached = 6.0, {"mine": 4}  # of ten, at each look
    assert verified(folder)[0].word == "tie"


def test_tries_against_one_record_share_the_level_and_names_or_comments_are_no_new_try(
    tmp_path, runs
):
    runs.times = dict.fromkeys(["the baseline", *"abcd"], 10.0)
    levels = []
    for name, epochs in (("a", 8), ("b", 9), ("c", 10)):
        folder, _ = write_entry(tmp_path, name, changes=f"num_epochs={epochs},")
        verdict, is_earlier = verified(folder)
        assert not is_earlier and verdict.word == "tie" and verdict.name == name
        levels.append(verdict.error_probability)
    assert levels == pytest.approx([0.01 / 2, 0.01 / 6, 0.01 / 12])
    count = runs.count
    # The same fields under another name, in a file with one line more.
    folder, _ = write_entry(tmp_path, "d", changes="num_epochs=8,", more="# A remark.")
    verdict, is_earlier = verified(folder)
    assert is_earlier and verdict.name == "a" and runs.count == count
    ledger = (tmp_path / "entries" / "verdicts" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in ledger] == ["a", "b", "c"]


def test_a_race_that_was_broken_off_was_a_try(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["the baseline"] = 0.0
    with pytest.raises(RunError):
        verified(folder)
    runs.times["the baseline"] = 10.0
    assert verified(folder)[0].tries == 2
    (tmp_path / "entries" / "verdicts" / "ledger.jsonl").write_text("{")
    with pytest.raises(ConfigError, match="ledger.jsonl is not a ledger of tries"):
        verified(write_entry(tmp_path, "second", changes="num_epochs=3,")[0])


@pytest.mark.parametrize(
    ("cheat", "rule"),
    [
        ({"times": {**TIMES, "mine": 0.0}}, "run: seed"),
        ({"preparation": {"mine": 90.0}}, "compile: it took 90.0 s before its data"),
        ({"fault": "params/0 is float32[9] in the weights"}, "weights: seed"),
        ({"unmeasured": "mine"}, "weights: the weights of mine could not be measured"),
    ],
)
def test_a_cheat_in_the_run_is_refused_by_its_rule(tmp_path, runs, cheat, rule):
    folder, _ = write_entry(tmp_path)
    vars(runs).update(cheat)
    verdict, _ = verified(folder)
    assert verdict.word == "refused" and verdict.text().startswith(f"refused: {rule}")
    assert verified(folder)[1]  # a refusal is a verdict too


def test_a_preparation_of_half_as_long_again_passes(tmp_path):
    def heats(*seconds):
        return [Heat(0, 0, tmp_path, each, 1.0) for each in seconds]

    judge.check_preparation(heats(11.0, 13.0), heats(6.0, 6.0))
    with pytest.raises(RuleError, match="compile: it took 12.5 s before its data"):
        judge.check_preparation(heats(12.0, 13.0), heats(6.0, 6.0))


def test_a_baseline_that_fails_judges_nothing(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    for failing in ({"times": {**TIMES, "the baseline": 0.0}}, {"unmeasured": "the baseline"}):
        vars(runs).update(times=dict(TIMES), unmeasured="")
        vars(runs).update(failing)
        with pytest.raises(RunError, match="the baseline failed, so nothing was judged"):
            verified(folder)
    assert verdict_of(folder) is None


@pytest.mark.parametrize(
    ("changes", "word", "better"),
    [
        ([0.002] * 20, "accepted", 1.0),
        ([0.002] * 17 + [-0.002] * 3, "accepted", 0.85),  # p 0.0026, at a level of 0.005
        ([0.002] * 16 + [-0.002] * 4, "tie", 0.8),  # p 0.012
        ([0.0] * 20, "tie", None),
        ([-0.002] * 20, "worse", 0.0),
        # Mostly better, but with a collapse: on average it is worse.
        ([0.002] * 19 + [-0.9], "tie", 0.95),
        ([0.002] * 19 + [None], "tie", 0.95),
    ],
)
def test_at_a_budget_the_side_that_ends_more_rounds_better_wins(
    tmp_path, runs, changes, word, better
):
    folder, _ = write_entry(tmp_path, track="digits_5000_examples")
    runs.qualities = {
        "the baseline": [*BASE],
        "mine": [None if by is None else base + by for base, by in zip(BASE, changes, strict=True)],
    }
    verdict, _ = verified(folder)
    assert verdict.word == word and verdict.baseline is not None
    beside = verdict.baseline
    equal = changes.count(0.0)
    assert beside.better == pytest.approx(better) and beside.ratio is None
    assert (beside.equal, beside.differ) == (equal, 20 - equal)
    gain = verdict.baseline.gain
    assert (gain is None) == (None in changes)
    if gain is not None:
        assert gain == pytest.approx(sum(changes) / 20)
    [row] = board.read_board(tmp_path / "entries")["digits_5000_examples"]
    said = "all rounds ended equal"
    if better is not None:
        differ = 20 - equal
        said = f"better in {round(better * differ)} of {differ} rounds that differ ({equal} equal)"
    assert row.verdict == verdict and said in verdict.text()
    assert (beside.low is None) == (equal == 20)


def test_at_a_budget_the_judge_looks_once():
    """Ten rounds that all end better have p 0.002, above the level of a first look of two."""
    assert looks(20, is_at_budget=True) == (20,)
    assert looks(20) == (10, 20)


def test_where_less_is_better_a_budget_is_won_by_less_and_the_record_gained_most(tmp_path, runs):
    track = tracks.read_track("wikipedia_bytes_60s")
    trials = [
        SideResult(
            trials=tuple(
                JudgedTrial(seed=n, reached=False, seconds=60.0, quality=bits) for n in range(20)
            ),
            preparation_seconds=5.0,
        )
        for bits in (2.5, 2.4)
    ]
    beside = compared(trials[1], trials[0], 0.005, track)
    assert beside.word == "better" and beside.gain == pytest.approx(0.1)
    assert compared(trials[0], trials[1], 0.005, track).word == "worse"
    assert trials[1].text(track) == "2.4 on average"
    # Two entries that beat the same record: the greater gain stands.
    for name, by in (("small", 0.002), ("large", 0.003)):
        folder, _ = write_entry(
            tmp_path, name, track="digits_5000_examples", changes=f"ema_decay={by},"
        )
        runs.times |= {name: 6.0}
        runs.qualities = {"the baseline": [*BASE], name: [base + by for base in BASE]}
        if name == "large":  # judged in another clone, before the first one's verdict came
            (tmp_path / "entries" / "verdicts" / "small.json").rename(tmp_path / "small.json")
        assert verified(folder)[0].word == "accepted"
    (tmp_path / "small.json").rename(tmp_path / "entries" / "verdicts" / "small.json")
    rows = board.read_board(tmp_path / "entries")["digits_5000_examples"]
    assert [place.name for place in rows] == ["large", "small"]


def test_each_record_runs_beside_the_next_entry(tmp_path, runs):
    folders = {}
    for name in ("mine", "second", "third"):
        changes = f"num_epochs={len(name)},"
        folders[name], _ = write_entry(tmp_path, name, changes=changes)
    runs.times |= {"second": 4.0, "third": 3.99}
    runs.spread = 0.05
    assert verified(folders["mine"])[0].word == "accepted"
    verdict, _ = verified(folders["second"])
    assert (verdict.rival, verdict.records_before, verdict.word) == ("mine", 1, "accepted")
    assert set(verdict.sides) == {"the baseline", "mine", "second"}
    verdict, _ = verified(folders["third"])
    assert (verdict.rival, verdict.word) == ("second", "tie") and verdict.record is not None
    rows = board.read_board(tmp_path / "entries")["digits"]
    assert [place.name for place in rows] == ["second", "mine", "third"]


def test_nothing_runs_where_a_verdict_cannot_be_made_or_written(tmp_path, runs, monkeypatch):
    folder, _ = write_entry(tmp_path)

    def none(_):
        raise ConfigError("there is no bubblewrap")

    track = tracks.read_track("digits")

    def refused(why, **changes):
        changed = dataclasses.replace(track, **changes)
        monkeypatch.setattr(judge.tracks, "read_track", lambda name: changed)
        with pytest.raises(ConfigError, match=why):
            verified(folder)

    with monkeypatch.context() as here:
        here.setattr(judge, "VERDICTS", "mine/entry.json")
        refused("cannot write a verdict in .*entry.json")
    monkeypatch.setattr(judge.rules, "check", lambda *_: None)
    refused("these are not the data of track digits: their finger", data_fingerprint="0" * 16)
    monkeypatch.setattr(judge.devices, "gpus", list)
    refused("digits is judged on a GPU, and this machine has none", platform="gpu")
    monkeypatch.setattr(sandbox, "check", none)
    refused("there is no bubblewrap")
    assert runs.count == 0 and not (tmp_path / "entries" / "verdicts").exists()


def test_the_command_prints_the_verdict_and_its_status(tmp_path, runs, capsys):
    folder, _ = write_entry(tmp_path)
    assert main(["race", "verify", str(folder)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("accepted: mine is faster than the baseline")
    assert "round 20 of 20" in said.err
    assert verdict_of(folder) is not None
