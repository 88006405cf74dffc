"""The judge's verdicts, with runs and weights that are made: no process is started."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from made_race import trial_log, write_entry

from dawnjax.__main__ import main
from dawnjax.checkpointed.judged_weights import Measured
from dawnjax.errors import ConfigError, RunError
from dawnjax.race import board, judge, sandbox
from dawnjax.race.guarded import LimitError
from dawnjax.race.heats import Course, Heat
from dawnjax.race.verdicts import read_verdict, state_of, write_verdict
from dawnjax.runs.log import encode_line

TIMES = {"the baseline": 10.0, "mine": 6.0, "second": 6.0}
"""Mean seconds of each side's runs here."""


class Runs:
    """Runs and weights in place of those of a sandbox; each run takes about its side's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.times, self.count, self.own_clock = dict(TIMES), 0, 1.0
        self.preparation, self.unreached, self.fault = {}, {}, ""
        self.unmeasured, self.digests = "", {}
        monkeypatch.setattr(sandbox, "choose", lambda root: sandbox.UNSHARE)
        monkeypatch.setattr(Course, "run", lambda course, *given: self.run(course.work, *given))
        monkeypatch.setattr(Course, "measure", lambda course, *given: self.measure(*given))

    def run(self, work: Path, side, seed: int, number: int) -> Heat:
        self.count += 1
        if side.name in self.times and self.times[side.name] == 0:
            raise LimitError("it ended: OSError: [Errno 101] Network is unreachable")
        seconds = self.times[side.name] * (1 + 0.01 * (seed % 5 - 2))
        folder = work / str(number)
        (folder / "run").mkdir(parents=True)
        own = seconds * (self.own_clock if side.name == "mine" else 1.0)
        lines = b"".join(map(encode_line, trial_log(own).events))
        (folder / "run" / "log.jsonl").write_bytes(lines)
        return Heat(seed, folder, self.preparation.get(side.name, 5.0), seconds)

    def measure(self, side, ran: list[Heat]) -> list[Measured]:
        if side.name == self.unmeasured:
            raise RunError(f"the weights of {side.name} could not be measured: it ended")
        if self.fault and side.name == "mine":
            return [Measured(fault=self.fault) for _ in ran]
        missed = self.unreached.get(side.name, 0)
        digests = self.digests.get(side.name, [f"{n}" for n in range(len(ran))])
        return [
            Measured(reached=n >= missed, quality=0.99, digest=digest if n >= missed else "")
            for n, digest in enumerate(digests)
        ]


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


def verified(folder: Path, **options):
    return judge.verify(folder, rounds=options.pop("rounds", 6), tell=lambda _: None, **options)


def test_a_faster_entry_is_accepted_once(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    verdict, is_earlier = verified(folder)
    assert verdict.word == "accepted" and not is_earlier and runs.count == 12
    assert verdict.baseline is not None and verdict.baseline.ratio == pytest.approx(0.6, rel=0.02)
    seeds = [[trial.seed for trial in side.trials] for side in verdict.sides.values()]
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 6 and not {*seeds[0]} & {*range(6)}
    assert "mine is faster than the baseline" in verdict.text()
    again, is_earlier = verified(folder)
    assert again == verdict and is_earlier and runs.count == 12


def test_a_difference_below_the_spread_is_a_tie(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"] = 9.99
    monotone = iter(range(1000))
    runs.run_of = runs.run

    def noisy(work, side, seed, number):
        # As noisy as a machine: by 5 %, in no order.
        return runs.run_of(work, side, next(monotone) * 7919 % 11, number)

    runs.run = noisy
    verdict, _ = verified(folder)
    assert verdict.word == "tie" and "mine is a tie with the baseline" in verdict.text()


def test_a_slower_entry_and_one_that_misses_the_target_are_not_accepted(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["mine"] = 12.0
    assert verified(folder)[0].word == "slower"
    (tmp_path / "entries" / "verdicts" / "mine.json").unlink()
    runs.times["mine"], runs.unreached = 6.0, {"mine": 2}
    verdict, _ = verified(folder)
    assert verdict.word == "tie" and "since some did not reach the target" in verdict.why


@pytest.mark.parametrize(
    ("cheat", "rule"),
    [
        ({"times": {**TIMES, "mine": 0.0}}, "run: seed"),
        ({"own_clock": 0.2}, "clock: seed"),
        ({"preparation": {"mine": 90.0}}, "compile: it took 90.0 s before its data"),
        ({"fault": "params/0 is float32[9] in the weights"}, "weights: seed"),
        ({"unmeasured": "mine"}, "weights: the weights of mine could not be measured"),
        ({"digests": {"mine": list("123451")}}, "seed: seeds"),
    ],
)
def test_a_cheat_in_the_run_is_refused_by_its_rule(tmp_path, runs, cheat, rule):
    folder, _ = write_entry(tmp_path)
    vars(runs).update(cheat)
    verdict, _ = verified(folder)
    assert verdict.word == "refused" and verdict.text().startswith(f"refused: {rule}")
    assert verified(folder)[1]  # a refusal is a verdict too


def test_a_baseline_that_fails_judges_nothing(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    runs.times["the baseline"] = 0.0
    with pytest.raises(RunError, match="the baseline failed, so that nothing is judged"):
        verified(folder)
    runs.times, runs.unmeasured = dict(TIMES), "the baseline"
    with pytest.raises(RunError, match="the baseline failed, so that nothing is judged"):
        verified(folder)
    assert not (tmp_path / "entries" / "verdicts").exists()


def test_the_standing_record_runs_beside_the_next_entry(tmp_path, runs):
    first, _ = write_entry(tmp_path)
    second, _ = write_entry(tmp_path, "second")
    assert verified(first)[0].word == "accepted"
    verdict, _ = verified(second)
    assert verdict.rival == "mine" and set(verdict.sides) == {"the baseline", "mine", "second"}
    assert verdict.word == "tie" and verdict.record is not None  # both take 6 s
    rows = board.read_board(tmp_path / "entries")["digits"]
    assert [entry.name for entry, _ in rows] == ["mine", "second"]


def test_what_the_machine_cannot_judge_is_said(tmp_path, runs, monkeypatch):
    folder, _ = write_entry(tmp_path)
    read_track = judge.tracks.read_track
    on_gpu = dataclasses.replace(read_track("digits"), platform="gpu")
    monkeypatch.setattr(judge.tracks, "read_track", lambda name: on_gpu)
    monkeypatch.setattr(judge.rules, "first_fault", lambda *_: None)
    monkeypatch.setattr(judge.devices, "gpus", list)
    verdict, _ = verified(folder)
    assert verdict.word == "not_judged" and runs.count == 0
    assert "not judged: time and weights: no GPU is here" in verdict.text()
    # A verdict of a machine that has one stays.
    file = tmp_path / "entries" / "verdicts" / "mine.json"
    there = dataclasses.replace(verdict, word="accepted", state="of other libraries")
    write_verdict(file.parent, there)
    assert verified(folder)[0].word == "not_judged" and read_verdict(file.parent, "mine") == there
    file.unlink()
    shutil.copytree(folder, folder.parent / "copy")
    with pytest.raises(ConfigError, match="two entries are called 'mine'"):
        verified(folder)
    assert not file.exists()


def test_nothing_runs_without_a_sandbox_unless_asked(tmp_path, runs, monkeypatch):
    folder, _ = write_entry(tmp_path)

    def none(root):
        raise ConfigError("this machine cannot run a stranger's code apart")

    monkeypatch.setattr(sandbox, "choose", none)
    with pytest.raises(ConfigError, match="cannot run a stranger's code apart"):
        verified(folder)
    assert runs.count == 0 and not (tmp_path / "entries" / "verdicts").exists()
    verdict, _ = verified(folder, without_sandbox=True)
    assert verdict.sandbox == "none" and "without a sandbox" in verdict.text()
    # It is no record for entries that are judged in one.
    second, _ = write_entry(tmp_path, "second")
    monkeypatch.setattr(sandbox, "choose", lambda root: sandbox.UNSHARE)
    assert verified(second)[0].rival == "the baseline"
    (tmp_path / "entries" / "verdicts" / "second.json").unlink()
    assert verified(second, without_sandbox=True)[0].rival == "mine"
    # Nor does it spare the entry a verdict in one.
    again, is_earlier = verified(folder)
    assert again.sandbox == sandbox.UNSHARE and not is_earlier


def test_a_machine_without_namespaces_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name, path: None)
    with pytest.raises(ConfigError, match="no bwrap; unshare: no unshare.*--without_sandbox"):
        sandbox.choose(tmp_path)


def test_wrong_data_are_refused(tmp_path, runs, monkeypatch):
    folder, _ = write_entry(tmp_path)
    track = judge.tracks.read_track("digits")
    other = dataclasses.replace(track, data_fingerprint="0" * 16)
    monkeypatch.setattr(judge.tracks, "read_track", lambda name: other)
    monkeypatch.setattr(judge.rules, "first_fault", lambda *_: None)
    with pytest.raises(ConfigError, match="the data are not those of the track digits: their fing"):
        verified(folder)
    assert runs.count == 0


def test_a_place_where_no_verdict_can_be_written_is_found_first(tmp_path, runs):
    folder, _ = write_entry(tmp_path)
    with pytest.raises(ConfigError, match="no verdict can be written in .*entry.json: choose"):
        verified(folder, verdicts=folder / "entry.json" / "verdicts")
    assert runs.count == 0


def test_the_command_prints_the_verdict_and_its_status(tmp_path, runs, capsys):
    folder, _ = write_entry(tmp_path)
    assert main(["race", "verify", str(folder), "--rounds=6"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("accepted: mine is faster than the baseline")
    assert "round 6 of 6" in said.err
    assert main(["race", "verify", str(folder), "--rounds=2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["race", "board", str(folder.parent), f"--out={tmp_path / 'page'}"]) == 0
    said = capsys.readouterr().out
    assert "Handwritten digits on any CPU" in said and "accepted" in said
    assert "mine" in (tmp_path / "page" / "index.html").read_text()


def test_a_commit_alone_is_no_other_state():
    states = {state_of("a", {"jax": "0.10.2", "commit": commit}) for commit in ("b", "c")}
    assert len(states) == 1
    assert state_of("a", {"jax": "0.10.3"}) not in states
