"""How a command line is completed, and how it ends where other people's code is the reason."""

import os
import signal
import subprocess
import sys

import pytest

from dawnjax import __main__ as command_line
from dawnjax.cluster import processes
from dawnjax.commands import evaluate


def test_code_that_exits_with_0_fails_the_command(monkeypatch, capsys):
    def exits(argv):
        raise SystemExit(0)  # sys.exit itself may be another's: wandb replaces it

    monkeypatch.setattr(evaluate, "main", exits)
    assert command_line.main(["evaluate"]) == 1
    line = capsys.readouterr().err
    assert "command_line_test.py:" in line and "called sys.exit(0)" in line
    assert line.count("\n") == 1


def test_the_end_of_another_host_is_explained_for_every_command(monkeypatch, capsys):
    error = ValueError("Gloo all-reduce failed: Connection closed by peer")

    def explain(explained: BaseException) -> None:
        assert explained is error
        raise SystemExit(1)  # in place of the end of the process

    def fail(*_) -> int:
        raise error

    monkeypatch.setattr(processes, "explain", explain)
    monkeypatch.setattr(evaluate, "main", fail)
    with pytest.raises(SystemExit):
        command_line.run_command("evaluate", [])
    assert "Traceback" not in capsys.readouterr().err


WAITS = """
import sys, time
from dawnjax import __main__ as command_line
from dawnjax.commands import COMMAND
def wait(argv):
    print("waits", flush=True)
    time.sleep(30)
COMMAND.main = wait
sys.argv = ["dawnjax", "COMMAND"]
sys.exit(command_line.main())
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "status", "line"),
    [
        ("check", 5, "dawnjax check: interrupted\n"),
        ("evaluate", -signal.SIGINT, ""),  # also inside JAX's compiler
    ],
)
def test_an_interrupt_is_one_line_or_the_end_at_once(command, status, line):
    script = WAITS.replace("COMMAND", command)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == line
    assert process.returncode == status


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
