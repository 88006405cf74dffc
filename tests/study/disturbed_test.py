"""Trials that other work on their machine disturbed: named, and judged with and without."""

import json
from pathlib import Path

import pytest
from made_runs import write_run
from made_studies import made_study
from told import told

from dawnjax.__main__ import main
from dawnjax.report.studies import studies_sections
from dawnjax.runs.log import read_events
from dawnjax.study.design import StudyFolder
from dawnjax.study.figures import figures
from dawnjax.study.reading import trials_over
from dawnjax.study.text import text_of
from dawnjax.trials import load
from dawnjax.trials.from_log import trial_of

LOAD = {"others_fraction": 0.09, "stolen_fraction": 0.03, "limit_fraction": 0.05}


def disturb(run: Path, **changes: float) -> None:
    [log] = run.glob("*.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    host = {"process_index": 0, "seconds": 10.0}
    summary = {"event": "host_summary", "hosts": [host], "load": LOAD | changes}
    events.insert(-1, {**events[-2], **summary})
    log.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture
def folders(tmp_path):
    """Six runs of A and of B, which takes three times as long; of B one was disturbed, and slow."""
    for name, factor in (("a", 2), ("b", 6)):
        for seed in range(6):
            seconds = 5.0 * factor + 5 * (seed % 2)
            write_run(tmp_path / name / str(seed), seed=seed, seconds=seconds)
    write_run(tmp_path / "b" / "3", seed=3, seconds=200.0)
    disturb(tmp_path / "b" / "3")
    disturb(tmp_path / "a" / "2", others_fraction=0.01)  # recorded, and not disturbed
    return tmp_path


def test_the_load_of_all_attempts_is_in_the_result(tmp_path):
    write_run(tmp_path, seed=0, seconds=10.0)
    disturb(tmp_path)
    [log] = tmp_path.glob("*.jsonl")
    events = read_events(log)
    assert trial_of(events).load == LOAD
    assert trial_of(events).to_json()["load"] == LOAD
    # A second attempt three times as long, which lost nothing.
    later = [{**event, "attempt": 2} for event in events]
    for event in later:
        if event["event"] == "host_summary":
            event["hosts"] = [{"process_index": 0, "seconds": 30.0}]
            event["load"] = LOAD | {"others_fraction": 0.01, "stolen_fraction": 0.0}
    both = trial_of([*events, *later])
    assert both.load["others_fraction"] == 0.03 and both.load["stolen_fraction"] == 0.0075
    assert not load.is_disturbed(both) and load.is_disturbed(trial_of(events))


def test_compare_names_disturbed_trials_and_judges_without_them(folders, capsys):
    a, b = f"{folders}/a", f"{folders}/b"
    assert main(["compare", a, b]) == 0
    [line] = [it for it in capsys.readouterr().out.splitlines() if "disturbed: " in it]
    assert "processor time in B seed 3 (12 %); without: B is slower if all reach" in line
    found = told(capsys, "compare", a, b)
    assert found["disturbed"]["b"] == "seed 3 (12 %)" and found["disturbed"]["a"] == ""
    without = found["disturbed"]["without"]
    assert without["trials"] == [6, 5] and found["verdict"]["trials"] == [6, 6]
    # 32 s for 12.5 s, where the stalled trial gave nearly twice as much.
    assert without["ratio"] == pytest.approx(32 / 12.5) and found["verdict"]["ratio"] > 4
    found = told(capsys, "compare", a, b, "--at=seconds=10")
    assert found["disturbed"]["b"] == "seed 3 (12 %)" and found["undisturbed_qualities"][0]["word"]
    # A quality at a number of steps does not depend on the machine.
    assert main(["compare", a, b, "--at=steps=10", "--json"]) == 0
    assert "seed 3 (12 %)" not in capsys.readouterr().out


def test_pairs_stay_pairs_without_a_disturbed_trial(tmp_path, capsys):
    """The seed of B's disturbed trial is left out on both sides, so that the others stay pairs."""
    for name, factor in (("a", 2), ("b", 6)):
        for seed in range(6):
            seconds = 5.0 * factor + 5 * (seed % 2)
            losses = (2.5 + seed / 8, 2.25, 2.0)
            write_run(tmp_path / name / str(seed), seed=seed, seconds=seconds, losses=losses)
    disturb(tmp_path / "b" / "3")
    a, b = f"{tmp_path}/a", f"{tmp_path}/b"
    for flags in ((), ("--at=seconds=10",)):
        found = told(capsys, "compare", a, b, *flags)
        whole, without = found.get("verdict"), found["disturbed"].get("without")
        if flags:
            [whole], [without] = found["qualities"], found["undisturbed_qualities"]
        assert whole["is_paired"] and whole["trials"] == [6, 6]
        assert without["is_paired"] and without["trials"] == [5, 5]


def test_a_gate_of_disturbed_trials_alone_decides_nothing(folders, capsys):
    a, b = f"{folders}/a", f"{folders}/b"
    gate = ["compare", b, a, "--fail_if_slower_by=0.05"]
    for seed in range(6):
        write_run(folders / "b" / str(seed), seed=seed, seconds=30.0 + 5 * (seed % 2))
    assert main(gate) == 0
    for seed in range(6):
        disturb(folders / "a" / str(seed))
    assert main(gate) == 7
    assert "gate: every trial of B was disturbed: nothing is decided" in capsys.readouterr().out
    said = ["every trial of B was disturbed: nothing is decided"]
    for flags in ([gate[-1]], ["--at=seconds=10", "--fail_if_worse_by=0.5"]):
        assert main(["compare", b, a, *flags, "--json"]) == 7
        answer = json.loads(capsys.readouterr().out)
        assert answer["result"]["decision"]["decision"] == "more_trials"
        assert answer["result"]["decision"]["trials_needed"] is None
        assert answer["reasons"] == said and answer["next"] == []


def test_a_gate_on_a_study_at_a_time_does_not_pass_on_disturbed_trials(tmp_path, capsys):
    times: list[float | None] = [10.0, 15.0, 10.0, 15.0, 10.0]
    study, arms, ordered = made_study(tmp_path, {"3": times, "4": [*times]})
    StudyFolder(tmp_path).write(study, arms)
    gate = ["compare", str(tmp_path), "--at=seconds=10", "--fail_if_worse_by=0.9", "--json"]
    for is_disturbed in (False, True):
        assert main(gate) == (7 if is_disturbed else 0)
        reasons = json.loads(capsys.readouterr().out)["reasons"]
        said = "num_epochs=4: every trial of B was disturbed: nothing is decided"
        assert reasons == ([said] if is_disturbed else [])
        for trial in ordered:
            if trial.arm is arms[1] and trial.seed < 5:
                disturb(trial.directory(tmp_path))


def test_a_study_claims_no_more_without_disturbed_trials(tmp_path):
    """Nothing before its look; then at the level that all of its arms share."""
    slower: list[float | None] = [20.0, 30.0, 20.0, 30.0, 20.0, 30.0]
    times: list[float | None] = [10.0, 15.0, 10.0, 15.0, 10.0, 15.0]
    for over, word, level in ((5, "undecided", None), (6, "slower_if_all_reach", 0.975)):
        out = tmp_path / str(over)
        of_arms = {"3": times, "4": slower[:over], "5": times[:over]}
        study, arms, ordered = made_study(out, of_arms)
        disturb(next(it for it in ordered if it.arm == arms[0]).directory(out))
        found = figures(study, arms, trials_over(ordered, out, {}), out).arms[1]
        assert (found.without.word, found.without.ratio.level) == (word, level)


def test_a_study_and_its_report_name_them(tmp_path):
    times: list[float | None] = [10.0, 15.0, 10.0, 15.0, 10.0, 15.0]
    slower: list[float | None] = [20.0, 30.0, 20.0, 30.0, 20.0, 30.0]
    study, arms, ordered = made_study(tmp_path, {"3": times, "4": slower})
    disturb(ordered[0].directory(tmp_path))
    found = figures(study, arms, trials_over(ordered, tmp_path, {}), tmp_path)
    said = "other work took much of the machine's processor time in num_epochs=3 seed 0 (12 %)"
    assert text_of(found).count(said) == 1
    without = "arm num_epochs=4: without the disturbed trials it is slower if all reach, 1."
    assert without in text_of(found)
    [section] = studies_sections([found])
    assert any(said[1:] in line for line in section.lead)  # a sentence there
    row = found.to_json()["arms"][1]["disturbed"]
    assert row["a"] == "seed 0 (12 %)" and list(row["without"]["trials"]) == [5, 6]
