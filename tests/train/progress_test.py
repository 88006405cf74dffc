"""Progress of a run as a person sees it."""

import array
import io
import sys

from dataset_specs import SMALL_IMAGES
from rich.status import Status

from dawnjax import progress
from dawnjax.call_queue import CallQueue
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.page import words
from dawnjax.progress import Display, fitting


def test_a_live_line_has_what_fits_from_the_first_on():
    parts = ["step 3/9", "", "1.0 s", "best top_1_accuracy 0.5000 of 0.99", "loss 0.5"]
    assert fitting(parts, 100) == "step 3/9  1.0 s  best top_1_accuracy 0.5000 of 0.99  loss 0.5"
    for width in range(8, 80):
        assert len(fitting(parts, width)) <= width
    assert fitting(parts, 3) == "step 3/9"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_phase_is_named_with_its_seconds_and_the_time_left_is_told(monkeypatch):
    """On a terminal of 80 columns, after an attempt that evaluated."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "80")
    written = Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    display = Display(load_experiment("digits"), SMALL_IMAGES, enabled=True)
    assert display.is_live
    shown_texts = []
    monkeypatch.setattr(Status, "update", lambda status, text: shown_texts.append(text))
    display.phase("profile")
    now[0] += 7
    assert str(shown_texts[-1].__rich__()) == "profiling, outside of the time to accuracy, 7 s"
    display.remember({"top_1_accuracy": 0.5})
    queue = CallQueue(1)
    queue.seen_seconds, queue.seen_steps = array.array("d", [1.0]), array.array("q", [10])
    queue.total_seconds = 1.0
    for step in (10, 20):
        now[0] += 5
        display.train(step, 0.5, 2.0, queue, 0.0, 5.0)
    last = shown_texts[-1]
    assert "best top_1_accuracy 0.5000 of 0.9915" in last and "not yet" not in last
    steps = load_experiment("digits").num_steps(SMALL_IMAGES)
    left = 0.5 * (steps - 20)
    assert f"at most {words.about(round(left))} left" in last
    assert len(last) <= 78
    display.phase("eval")
    assert str(shown_texts[-1].__rich__()) == last  # short phases do not flicker
    now[0] += 2
    assert str(shown_texts[-1].__rich__()) == "evaluating, 2 s"
