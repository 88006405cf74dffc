"""A study's figures for trackers and TensorBoard."""

from made_studies import made_study

from dawnjax.config.run_options import RunOptions
from dawnjax.runs import trackers
from dawnjax.study import tracking
from dawnjax.study.figures import figures
from dawnjax.study.reading import trials_over


def test_trackers_get_each_arms_mean_interval_and_trials(tmp_path, monkeypatch):
    times = {"3": [10.0, 10.0, 15.0, 10.0, 15.0], "4": [20.0, 20.0, 30.0, None, 20.0, 20.0]}
    study, of_arms, ordered = made_study(tmp_path, times)
    rows = figures(study, of_arms, trials_over(ordered, tmp_path, {}), tmp_path)
    received = {}

    class Kept:
        def __init__(self, run_id, directory, config):
            received["open"] = run_id, directory, config["axes"]

        def write(self, points):
            [received["write"]] = points

        def close(self, summary):
            received["close"] = summary

    monkeypatch.setattr(trackers, "ENGINES", {"wandb": Kept})
    warned = []
    options = RunOptions(tracker=("wandb",))
    tracking.send(study, rows, tmp_path, "first", options, warned.append)
    assert not warned
    assert received["open"] == ("study_first", tmp_path, ["num_epochs=3,4"])
    step, scalars = received["write"]
    assert step == 11
    first = {name.partition("/")[2]: v for name, v in scalars.items() if "epochs_3/" in name}
    assert (first["trials"], first["reached"], first["mean_seconds"]) == (5, 5, 12)
    assert first["low"] < 12 < first["high"]
    assert scalars["num_epochs_4/ratio"] == 2.5 and scalars["num_epochs_4/expected_seconds"] == 30
    assert "num_epochs_4/low" not in scalars, "too few trials for an interval with a failure"
    assert received["close"] == {"status": "over", **scalars}
    [events] = (tmp_path / "tensorboard").iterdir()
    assert b"num_epochs_3/expected_seconds" in events.read_bytes()
