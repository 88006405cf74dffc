"""Progress of a run as a person sees it."""

import array
import dataclasses
import io
import sys

import jax
import pytest
from dataset_specs import SMALL_IMAGES
from rich.progress import Progress

from dawnjax.call_queue import CallQueue
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.progress import Display, TimeToLastStep, coarse_evaluation, late_evaluation


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_line_has_the_phase_and_what_is_known_of_the_run(monkeypatch):
    written = Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    shown = []
    add = Progress.add_task
    monkeypatch.setattr(
        Progress, "add_task", lambda live, *a, **k: shown.append(live) or add(live, *a, **k)
    )
    display = Display(load_experiment("digits"), SMALL_IMAGES, enabled=True)
    assert display.is_live
    (line,) = shown[0].tasks
    display.phase("profile")
    assert line.description == "profiling, outside of the time to accuracy"
    display.remember({"top_1_accuracy": 0.5})  # of an earlier attempt
    queue = CallQueue(1)
    queue.seen_seconds, queue.seen_steps = array.array("d", [1.0]), array.array("q", [10])
    queue.total_seconds = 1.0
    display.train(20, 0.5, 2.0, queue, 0.0, 5.0)
    assert "best top_1_accuracy 0.5000 of 0.9915" in line.description
    total = load_experiment("digits").num_steps(SMALL_IMAGES)
    assert (line.completed, line.total) == (20, total)


@pytest.mark.parametrize(
    "phase, completed, said",
    [("train", 60, "0:00:04 to the last step"), ("train", 100, ""), ("eval", 60, "")],
)
def test_the_line_has_no_time_left_where_none_is_known(phase, completed, said):
    """An evaluation of seconds stood beside no time left."""
    now = [0.0]
    live = Progress(TimeToLastStep(), get_time=lambda: now[0])
    task = live.add_task("", total=100, phase=phase)
    for step in range(0, completed + 1, 10):
        now[0] = step / 10
        live.update(task, completed=step)
    assert TimeToLastStep().render(live.tasks[0]).plain == said


def test_a_reader_that_is_gone_ends_no_run(monkeypatch):
    class Gone(Terminal):
        def write(self, text):
            raise BrokenPipeError

        flush = write_lines = lambda self: (_ for _ in ()).throw(BrokenPipeError)

    monkeypatch.setattr(sys, "stderr", Gone())
    display = Display(load_experiment("digits"), SMALL_IMAGES, enabled=True)
    display.note("a line")
    display.phase("train")
    display.close()


@pytest.mark.parametrize(
    "evaluation, length, said",
    [
        (
            {"every_epochs": 4.0},
            {"num_epochs": 12},
            "33% of the run; --evaluation.every_epochs=1.5",
        ),
        ({"every_epochs": 1.5}, {"num_epochs": 12}, ""),
        (
            {"every_steps": 50},
            {"num_epochs": 0, "max_steps": 200},
            "25% of the run; --evaluation.ev",
        ),
        ({"every_epochs": 4.0}, {"num_epochs": 0, "max_seconds": 60.0}, ""),
    ],
)
def test_evaluations_far_apart_are_told_once_before_the_clock(
    evaluation, length, said, tmp_path, monkeypatch
):
    digits = load_experiment("digits")
    evaluation = dataclasses.replace(digits.evaluation, **{"first_epoch": 0.0, **evaluation})
    given = dataclasses.replace(digits, evaluation=evaluation, global_batch_size=5, **length)
    line = coarse_evaluation(given, SMALL_IMAGES)
    assert said in line and bool(line) == bool(said)
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    Display(given, SMALL_IMAGES, enabled=True).begin(tmp_path, mesh, "dawnjax train")
    assert written.getvalue().count("warning: evaluations are up to") == bool(said)


def test_a_run_that_ends_by_the_clock_is_told_by_its_first_evaluation(monkeypatch):
    digits = load_experiment("digits")
    timed = dataclasses.replace(digits, num_epochs=0, max_seconds=60.0)
    # 60 s / 8 = 7.5 s: at the pace of 100 steps in 30 s that is 25 steps.
    line = late_evaluation(timed, 100, 30.0)
    assert "after 30 of 60 s" in line and "50% of the run; --evaluation.every_steps=25 " in line
    assert late_evaluation(timed, 25, 7.5) == "" == late_evaluation(digits, 100, 30.0)
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    display = Display(timed, SMALL_IMAGES, enabled=True)
    for seconds in (30.0, 60.0):
        display.evaluation(100, 1.0, {"top_1_accuracy": 0.5}, False, seconds)
    assert written.getvalue().count("warning: the first evaluation came after") == 1
