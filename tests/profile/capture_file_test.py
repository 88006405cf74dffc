"""`capture.json` of a stranger: wrong types and values get one line, before any sum."""

import gzip
from pathlib import Path

import pytest
from forged import text
from traces import CAPTURE

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
