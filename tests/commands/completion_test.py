"""Completion in a shell, as argcomplete asks for it."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dawnjax tra", {"train "}),
        ("dawnjax train connect_four", {"connect_four_selfplay "}),
        ("dawnjax train digits --optimizer.base", {"--optimizer.base_learning_rate "}),
        ("dawnjax train digits --data_placement=d", {"--data_placement=device "}),
    ],
)
def test_a_line_is_completed(line, offered, tmp_path):
    pytest.importorskip("argcomplete")
    out = tmp_path / "offered"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "_ARGCOMPLETE_IFS": "\n",
    }
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_SHELL": "bash"}
    subprocess.run([sys.executable, "-m", "dawnjax"], env={**os.environ, **asked}, check=True)
    assert {*out.read_text().split("\n")} == offered
