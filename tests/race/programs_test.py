"""Programs of any framework, judged by their answers: here of NumPy, in real sandboxes."""

import dataclasses
import re
from pathlib import Path

import pytest

from dawnjax.race import tracks
from dawnjax.race.heats import Side
from dawnjax.race.sandbox import LimitError

GUIDE = Path(__file__).parents[2] / "docs" / "race.md"


def program_of_the_guide() -> str:
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return found[1]


def ran(course, text):
    """One run of a program, and what it came to."""
    source = course.work / "source"
    source.mkdir(exist_ok=True)
    (source / "run.py").write_text(text)
    names = course.handover.new_round()
    side = Side(name="mine", experiment={}, sources=source, main="run.py")
    heat = course.run(side, 7, names, 0)
    [weights] = course.measure(side, [heat]).weights
    return heat, weights


def test_the_program_of_the_guide_is_judged_by_its_answers(course, installation_reads):
    heat, weights = ran(course, program_of_the_guide())
    assert installation_reads.call_count == 1
    assert weights.fault == "" and weights.quality is not None
    assert 0.97 < weights.quality < 1 and heat.seconds > 0
    assert not heat.saved.exists()  # what it saved is gone


@pytest.mark.parity
def test_a_program_in_pytorch_is_judged_by_its_answers(course):
    program = Path(__file__).parents[2] / "docs/programs/digits_torch/run.py"
    heat, weights = ran(course, program.read_text())
    assert weights.fault == "" and weights.quality is not None and weights.quality > 0.97
    assert heat.seconds > 0


HEAD = """
import os, sys, time
import numpy as np
data, out = sys.argv[1:3]
print("ready", flush=True); input()
inputs, labels = (np.load(f"{data}/{name}.npy") for name in ("eval_image", "train_label"))
logits = np.zeros((len(inputs), 10), np.float32)
def save(array, **how): np.save(f"{out}/logits.npy", array, **how)
def done(): print("done", flush=True); time.sleep(9)
"""


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("save(logits[:9]); done()", r"float32 \[9, 10\], wanted float32 \[897, 10\]"),
        ("save(np.array([print] * 897), allow_pickle=True); done()", "holds Python objects"),
        (
            "file = open(out + '/logits.npy', 'wb'); file.write(b'\\x93NUMPY\\1\\0\\xff\\0');"
            "file.write(b'(' * 255); file.close(); done()",
            "is not a .npy file",
        ),
        ("save(logits); done()", 0.0),  # all classes are equal: none is an answer
        ("save(logits + np.nan); done()", 0.0),
        # It says that it is done, and answers after that.
        ("print('done', flush=True); time.sleep(1); save(logits)", "no weights were saved"),
    ],
)
def test_answers_that_are_none_count_for_nothing(course, code, outcome):
    heat, weights = ran(course, HEAD + code)
    assert not weights.reached and heat.seconds > 0
    if isinstance(outcome, float):
        assert weights.quality == outcome
    else:
        assert re.search(outcome, weights.fault)


def test_whoever_remembers_the_true_classes_is_at_chance(course):
    data = tracks.baseline(course.track).data.load("eval")
    known = dict(zip(map(bytes, data["image"]), data["label"].tolist(), strict=True))
    code = f"known = {known!r}\nanswers = [known[bytes(it)] for it in inputs]\n"
    code += "save(np.eye(10, dtype='f4')[answers]); done()"
    _, weights = ran(course, HEAD + code)
    # Of a drawn permutation of ten classes one keeps its name on average.
    assert not weights.reached and weights.quality is not None and weights.quality < 0.7


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("save(logits + 1); time.sleep(30)", ""),  # it says nothing: what is there counts
        ("time.sleep(30); save(logits); done()", "no weights were saved"),
    ],
)
@pytest.mark.waits
def test_at_a_budget_of_seconds_a_run_is_ended_and_what_it_saved_is_measured(course, code, fault):
    timed = dataclasses.replace(course.track, budget=tracks.Budget(unit="seconds", amount=3))
    heat, weights = ran(dataclasses.replace(course, track=timed), HEAD + code)
    assert weights.fault == fault
    assert heat.seconds < 20 and (fault or weights.quality is not None)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("os.symlink('/race/data/train_label.npy', f'{out}/logits.npy'); done()", "a special file"),
        ("os._exit(3)", "it ended"),
    ],
)
def test_a_program_that_breaks_its_word_is_refused(course, code, line):
    with pytest.raises(LimitError, match=line):
        ran(course, HEAD + code)
