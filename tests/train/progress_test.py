"""Progress of a run as a person sees it."""

import array
import io
import sys

from dataset_specs import SMALL_IMAGES
from rich.progress import Progress

from dawnjax.call_queue import CallQueue
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.progress import Display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_line_has_the_phase_and_what_is_known_of_the_run(monkeypatch):
    written = Terminal()
    monkeypatch.setenv("COLUMNS", "200")
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
    assert (line.completed, line.total) == (20, load_experiment("digits").num_steps(SMALL_IMAGES))


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
