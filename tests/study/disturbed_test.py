"""Trials that other work on their machine disturbed: named, and judged with and without."""

from made_runs import LOAD, disturb, write_run
from made_studies import made_study

from dawnjax.report.studies import studies_sections
from dawnjax.runs.log import read_events
from dawnjax.study.figures import figures
from dawnjax.study.reading import trials_over
from dawnjax.study.text import text_of
from dawnjax.trials import load
from dawnjax.trials.from_log import trial_of


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
