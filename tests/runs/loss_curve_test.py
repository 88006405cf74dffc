"""Training losses by step: which are kept, how a log holds them, and how attempts join."""

import math
import struct

import pytest
from made_logs import Log
from made_runs import write_run

import dawnjax
from dawnjax.errors import RunError
from dawnjax.report import losses
from dawnjax.runs.log import encode_line, log_path, read_events
from dawnjax.runs.loss_curve import StepLoss, averaged, loss_curve, next_kept
from dawnjax.runs.scalars import ScalarWriter
from dawnjax.trials.from_log import trial_of
from dawnjax.trials.ours import read_run


def test_long_runs_keep_few_losses():
    assert [next_kept(step) for step in (0, 4095, 4096, 4098, 8191)] == [1, 4096, 4098, 4100, 8192]
    kept, step = 0, next_kept(0)
    while step <= 2**20:
        kept, step = kept + 1, next_kept(step)
    assert kept == 4096 + 8 * 2048


def interrupted() -> Log:
    """Two attempts: the first made six steps, of which a save held four."""
    log = Log().begin(0.0).add("run_start", 1.0)
    log.add("losses", 2.0, at_steps=[1, 2, 3], losses=[3.0, 2.5, "NaN"], gradient_norms=[9.0, 8, 7])
    log.train(2.0, 3, 3)
    log.add("losses", 3.0, at_steps=[4, 5, 6], losses=[2.0, 1.5, 1.4], gradient_norms=[6.0, 5, 4])
    log.train(3.0, 6, 3)
    log.begin(100.0).add("restored", 1.0, step=4)
    return log.add("losses", 2.0, at_steps=[5], losses=[1.25])


def test_of_steps_made_again_the_last_attempts_count_and_none_twice():
    events = interrupted().events
    curve = loss_curve(events)
    assert [point.step for point in curve] == [1, 2, 3, 4, 5]
    assert curve[-2:] == [StepLoss(4, 2.0, 6.0), StepLoss(5, 1.25)]
    assert math.isnan(curve[2].loss)
    # What a result has are the first losses that were made.
    assert trial_of(events).first_losses == (3.0, 2.5, "NaN", 2.0, 1.5, 1.4)
    assert averaged(curve, 2) == [(2.0, 2.75), (5.0, 1.625)]


def with_losses(path, **fields):
    """A made run whose log has one event of losses more."""
    log = log_path(write_run(path))
    last = read_events(log)[-1]
    event = {**last, "event": "losses", **fields}
    log.write_bytes(log.read_bytes() + encode_line(event))
    return path


def test_a_page_draws_the_losses_of_each_run(tmp_path):
    runs = [
        read_run(with_losses(tmp_path / name, at_steps=[1, 2, 3], losses=[4.0, end, end]))
        for name, end in (("a", 2.0), ("b", 1.0))
    ]
    [figure] = losses.losses_figures(runs)
    assert figure.summary == "x: from 4 to 1 to 2 in 2 runs."
    assert losses.losses_table(runs).column("run") == ["a"] * 3 + ["b"] * 3
    assert "path" in figure.draw(600).body()


def test_a_forged_loss_is_one_line(tmp_path):
    path = with_losses(tmp_path / "run", at_steps=[1, 2], losses=[1.0])
    with pytest.raises(RunError, match="a field of the log is missing or of another kind"):
        dawnjax.load_losses(path)
    with pytest.raises(RunError, match="of another kind"):
        read_run(path)


def events_in(file) -> list:
    """Events of a TensorBoard file: length, checksum, bytes, checksum."""
    from tensorboardX.proto import event_pb2

    data, at, events = file.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = event_pb2.Event()  # pyright: ignore
        event.ParseFromString(data[at + 12 : at + 12 + length])
        events.append(event)
        at += length + 16
    return events


def test_tensorboard_is_told_from_which_step_a_run_was_resumed(tmp_path):
    warned = []
    writer = ScalarWriter(tmp_path, warned.append)
    writer.restart(4)
    writer.write(5, {"train/loss": 0.5})
    writer.flush()
    writer.write(6, {"train/loss": 0.25})
    writer.close()
    [file] = tmp_path.iterdir()
    version, start, *rest = events_in(file)
    assert version.file_version == "brain.Event:2" and not warned
    assert (start.step, start.session_log.status) == (5, 1)
    assert [(event.step, event.summary.value[0].simple_value) for event in rest] == [
        (5, 0.5),
        (6, 0.25),
    ]
