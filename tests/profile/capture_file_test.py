"""`capture.json` of a stranger: wrong types and values get one line, before any sum."""

import copy
import gzip
import json
import random
from pathlib import Path

import pytest
from forged import forge, places, text
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import CAPTURE

from dawnjax.__main__ import main
from dawnjax.errors import ConfigError
from dawnjax.profile.windows import CAPTURE_FILE, PROGRAM_FILE, read_files


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    folder = tmp_path_factory.mktemp("window")
    with gzip.open(folder / PROGRAM_FILE, "wt") as file:
        file.write("HloModule jit_train")
    return folder


def refusal(window: Path, content: bytes) -> str:
    """Line about a capture; empty if it is read."""
    (window / CAPTURE_FILE).write_bytes(content)
    try:
        read_files(window)
    except ConfigError as error:
        return str(error)
    return ""


def test_a_whole_capture_is_read(window):
    assert refusal(window, text(CAPTURE)) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("process_index", 10**19),  # a list of as many hosts
        ("step_seconds", 5e-324),  # a division by zero
        ("machine_devices", 0),
        ("num_devices", -1),
        ("steps", [14, 10]),
        ("steps", [10]),
        ("measured_peaks", {"flops_per_second": 5e-324, "bytes_per_second": 1.0, "spread": 0.0}),
        ("measured_peaks", []),
        ("twin", {"real": [0], "twin": []}),
        ("shortest_runs", {"a": ["1"]}),
        ("module", "x" * 10_000),
        ("platform", None),
        ("in_run", 1),
    ],
)
def test_a_wrong_value_is_named(window, name, value):
    line = refusal(window, text({**CAPTURE, name: value}))
    assert "holds no whole profile" in line and name in line and "\n" not in line


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sampled_from(range(len(places(CAPTURE)))), VALUES)
def test_any_value_at_any_place_is_read_or_refused_in_one_line(window, number, value):
    capture = copy.deepcopy(CAPTURE)
    whole, key = places(capture)[number]
    whole[key] = value
    line = refusal(window, text(capture))
    assert "\n" not in line and len(line) < 600


def test_a_forged_capture_of_a_real_run_is_shown_or_refused(tmp_path, capsys):
    """Two of these seeds divided by zero or summed to infinity before values had bounds."""
    real = Path(__file__).parent / "h200_digits"
    folder = tmp_path / "profile" / "process_0" / "after_run"
    folder.mkdir(parents=True)
    for file in real.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    whole = json.loads((real / CAPTURE_FILE).read_text())
    for seed in range(8):
        (folder / CAPTURE_FILE).write_bytes(text(forge(whole, random.Random(seed))))
        status = main(["profile", str(tmp_path)])
        output = capsys.readouterr()
        assert status == 0 or output.err.count("\n") == 1, (seed, output.err)
        assert "\x1b" not in output.out
