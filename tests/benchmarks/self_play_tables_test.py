"""Figures of self-play's trials: processor time of each phase, and what a study's table says."""

from benchmarks import seeds
from benchmarks.result_tables import self_play


def test_processor_time_is_that_between_the_phases_beginnings():
    def event(kind, t, **fields):
        return {"event": kind, "t": t, **fields}

    events = [
        event("attempt_start", 0.0),
        event("host_sample", 1.0, cpu_seconds=2.0),
        event("phase", 1.0, name="self_play"),
        event("host_sample", 3.0, cpu_seconds=6.0),
        event("phase", 3.5, name="train"),
        event("host_sample", 4.0, cpu_seconds=6.5),
        event("phase", 4.0, name="self_play"),
        event("host_sample", 6.0, cpu_seconds=8.5),
        event("attempt_end", 6.0),
    ]
    assert seeds.cpu_seconds(events) == {"self_play": 4.25 + 2.0, "train": 0.25}


def test_the_expected_time_counts_trials_that_did_not_reach():
    def trial(reached, epochs, cpu):
        return {
            "reached": reached,
            "time_to_accuracy_seconds": 3 * cpu if reached else None,
            "epochs": epochs,
            "steps": 32 * epochs,
            "phases": {"compile": 50.0, "self_play": 2.0 * cpu, "train": cpu},
            "cpu_seconds": {"compile": 40.0, "self_play": 0.75 * cpu, "train": 0.25 * cpu},
            "made": {"games": 100.0, "positions": 2048.0, "simulations": 32768.0},
            "evaluations": [[2, 0.5, 1.0]],
        }

    record = {
        "environment": {"date": "2026-01-02", "processor": "Some", "cores": 2, "versions": {}},
        "trials": [trial(True, 10.0, 20.0), trial(True, 30.0, 40.0), trial(False, 60.0, 90.0)],
    }
    (row,) = self_play.trials_by_simulations("some", record)
    assert row[:2] == ["16", "2 of 3"]
    assert row[2] == "20.0 (sd 10.0; 10.0 to 30.0), CV 0.50"
    assert row[3] == "30 (sd 10; 20 to 40), CV 0.33"
    assert row[5] == "75"  # 150 s of three trials for two that reached
    first, second = self_play.phases("some", record)
    assert first[:4] == ["self-play", "100.0", "37.5", "75 %"]
    assert first[4] == "100 games, 2,048 positions, 32,768 simulations"
    assert second[3:] == ["25 %", "1,067 steps"]


def test_trials_of_which_one_crashed_have_no_expected_processor_time():
    crashed = {"seed": 0, "reached": False, "status": "exit 1"}
    facts = {"date": "2026-01-02", "processor": "Some", "cores": 2, "versions": {}}
    (row,) = self_play.trials_by_simulations("some", {"environment": facts, "trials": [crashed]})
    assert row[:6] == ["", "0 of 1", "none", "none", "none", "none"]
