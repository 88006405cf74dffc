"""The judge's verdicts, with runs and weights that are made: no process is started."""

import dataclasses
import os
import random

import pytest
from made_race import write_entry

from dawnjax.__main__ import main
from dawnjax.checkpointed.judged_weights import Measured, Weights
from dawnjax.errors import ConfigError, RunError
from dawnjax.race import board, judge, sandbox, tracks
from dawnjax.race.entry import read_entry
from dawnjax.race.heats import Course, Heat
from dawnjax.race.rules import RuleError
from dawnjax.race.sandbox import LimitError
from dawnjax.race.verdicts import read_verdict

TIMES = {"the baseline": 10.0, "mine": 6.0, "second": 6.0}
"""Mean seconds of each side's runs here."""


class Runs:
    """Runs and weights in place of those of a sandbox; each run takes about its side's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.times, self.count, self.spread = dict(TIMES), 0, 0.01
        self.preparation, self.unreached, self.fault, self.unmeasured = {}, {}, "", ""
        self.noise = random.Random(0)
        monkeypatch.setattr(sandbox, "check", lambda: None)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(Course, "run", lambda course, *given: self.run(*given))
        monkeypatch.setattr(Course, "measure", lambda course, *given: self.measure(*given))
        monkeypatch.setattr(judge.Handover, "shuffle", lambda self: None)

    def run(self, side, seed: int, number: int) -> Heat:
        self.count += 1
        if self.times[side.name] == 0:
            raise LimitError("it ended: OSError: [Errno 101] Network is unreachable")
        seconds = self.times[side.name] * (1 + self.spread * self.noise.uniform(-1, 1))
        return Heat(seed, sandbox.SAVED, self.preparation.get(side.name, 5.0), seconds)

    def measure(self, side, ran: list[Heat]) -> Measured:
        if side.name == self.unmeasured:
            raise RunError(f"the weights of {side.name} could not be measured: it ended")
        fault = self.fault if side.name == "mine" else ""
        missed = self.unreached.get(side.name, 0)
        weights = [Weights(reached=n >= missed, quality=0.99, fault=fault) for n in range(len(ran))]
        return Measured(weights=tuple(weights), device="cpu")


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


def verified(folder):
    return judge.verify(folder, tell=lambda _: None)


def verdict_of(folder):
    entry = read_entry(folder)
    return read_verdict(folder.parent / "verdicts", entry.name, entry.recipe)


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


def test_a_difference_below_the_spread_is_a_tie(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"], runs.spread = 9.99, 0.05
    verdict, _ = verified(folder)
    assert verdict.word == "tie" and "mine is a tie with the baseline" in verdict.text()


def test_a_small_lead_that_hidden_misses_could_make_up_for_says_so(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"] = (
        9.0  # 20 trials of 20 leave up to a fifth of misses: 1.26 of 0.9 is above 1
    )
    said = verified(folder)[0].text()
    assert said.startswith("accepted: mine is faster than the baseline (if all trials reach")
    assert "20 of 20 trials" in said and "expected time, s: 9.0" in said


def test_a_slower_entry_and_one_that_often_misses_the_target_are_not_accepted(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"] = 12.0
    assert verified(folder)[0].word == "slower"
    (tmp_path / "entries" / "verdicts" / "mine.json").unlink()
    runs.times["mine"], runs.unreached = 6.0, {"mine": 8}
    assert verified(folder)[0].word == "tie"


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
        return [Heat(0, tmp_path, each, 1.0) for each in seconds]

    judge.check_preparation(heats(11.0, 13.0), heats(6.0, 6.0))
    with pytest.raises(RuleError, match="compile: it took 12.5 s before its data"):
        judge.check_preparation(heats(12.0, 13.0), heats(6.0, 6.0))


def test_a_baseline_that_fails_judges_nothing(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    for failing in ({"times": {**TIMES, "the baseline": 0.0}}, {"unmeasured": "the baseline"}):
        vars(runs).update(times=dict(TIMES), unmeasured="")
        vars(runs).update(failing)
        with pytest.raises(RunError, match="the baseline failed, so that nothing is judged"):
            verified(folder)
    assert not [*(tmp_path / "entries" / "verdicts").glob("*.json")]


def test_each_record_runs_beside_the_next_entry(tmp_path, runs):
    folders = {}
    for name in ("mine", "second", "third"):
        folders[name], _ = write_entry(tmp_path, name)
    runs.times |= {"second": 4.0, "third": 3.99}
    runs.spread = 0.05
    assert verified(folders["mine"])[0].word == "accepted"
    verdict, _ = verified(folders["second"])
    assert (verdict.rival, verdict.records_before, verdict.word) == ("mine", 1, "accepted")
    assert set(verdict.sides) == {"the baseline", "mine", "second"}
    verdict, _ = verified(folders["third"])
    assert (verdict.rival, verdict.word) == ("second", "tie") and verdict.record is not None
    rows = board.read_board(tmp_path / "entries")["digits"]
    assert [entry.name for entry, _ in rows] == ["second", "mine", "third"]


def test_each_further_try_at_a_record_is_held_to_a_stricter_level(tmp_path, runs):
    for number, (name, word) in enumerate(
        (("mine", "tie"), ("second", "refused"), ("third", "tie")), 1
    ):
        folder, _ = write_entry(tmp_path, name)
        runs.times |= {name: 0.0 if word == "refused" else 9.95}
        runs.spread = 0.05
        verdict, _ = verified(folder)
        assert (verdict.word, verdict.number) == (word, number)
        assert verdict.level == pytest.approx(0.01 / (number * (number + 1)))
    # Neither another name nor a verdict that was removed makes it the first try again.
    (tmp_path / "entries" / "verdicts" / "mine.json").unlink()
    verdict, _ = verified(tmp_path / "entries" / "mine")
    assert verdict.number == 4 and "try 4 at the baseline: held to p < 0.0005" in verdict.text()
    # A new record is a new rival.
    folder, _ = write_entry(tmp_path, "fast")
    runs.times |= {"fast": 5.0, "later": 9.0, "last": 9.0}
    assert verified(folder)[0].number == 5
    assert verified(write_entry(tmp_path, "later", changes="num_epochs=9,")[0])[0].number == 1
    (tmp_path / "entries" / "verdicts" / "tries.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="tries.jsonl is no ledger of tries"):
        verified(write_entry(tmp_path, "last", changes="num_epochs=8,")[0])


def test_nothing_runs_where_a_verdict_cannot_be_made_or_written(tmp_path, runs, monkeypatch):
    folder, _ = write_entry(tmp_path)

    def none():
        raise ConfigError("there is no bubblewrap")

    track = tracks.read_track("digits")

    def refused(why, **changes):
        changed = dataclasses.replace(track, **changes)
        monkeypatch.setattr(judge.tracks, "read_track", lambda name: changed)
        with pytest.raises(ConfigError, match=why):
            verified(folder)

    with monkeypatch.context() as here:
        here.setattr(judge, "VERDICTS", "mine/entry.json")
        refused("no verdict can be written in .*entry.json")
    with monkeypatch.context() as here:
        here.setattr(os, "geteuid", lambda: 0)
        refused("a judge does not run as root")
    monkeypatch.setattr(judge.rules, "check", lambda *_: None)
    refused("these are not the data of the track digits: their fing", data_fingerprint="0" * 16)
    monkeypatch.setattr(judge.devices, "gpus", list)
    refused("digits is judged on a GPU, and none is here", platform="gpu")
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
