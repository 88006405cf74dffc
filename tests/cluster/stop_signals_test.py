"""Signals are heard from a program's first moments on, and none is lost on the way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_runs import catches

from dawnjax import __main__ as command_line
from dawnjax.cluster import processes, stop_signals
from dawnjax.commands import evaluate

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[2]


def start(*argv: str, before: tuple[str, ...] = (), **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        **options,
    )


STARTED = """
import time
from dawnjax import __main__ as command_line
command_line.run_command = lambda name, argv: time.sleep(30)
command_line.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("command", ["train", "launch", "plan"])
def test_a_signal_is_heard_from_the_moment_it_is_caught(command, number):
    # Before a listener is there it would be lost, and the command would go on.
    process = start("-c", STARTED, command)
    while process.poll() is None and not catches(process.pid, number):
        pass
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (
        5,
        f"dawnjax {command}: ended by {number.name} with nothing to save\n",
    )


PROGRAM = """
import os, sys, time
from dawnjax.cluster import stop_signals
stop_signals.listen(lambda number: os.write(1, f"{{number.name}}\\n".encode()))
os.write(1, b"listens\\n")
{then}
os.write(1, b"waits\\n")
{end}
"""
WAIT = "time.sleep(100)"


def said(process: subprocess.Popen[str], number: signal.Signals) -> str:
    assert process.stdout is not None
    process.send_signal(number)
    return process.stdout.readline()


def test_a_hangup_that_nohup_ignores_stays_ignored():
    nohup = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")
    process = start("-c", PROGRAM.format(then="", end=WAIT), before=nohup)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["listens\n", "waits\n"]
    process.send_signal(signal.SIGHUP)
    assert said(process, signal.SIGUSR1) == "SIGUSR1\n"
    process.kill()
    process.wait()


def test_a_process_that_is_started_with_signals_blocked_hears_them_once_it_listens():
    with stop_signals.blocked():
        process = start("-c", PROGRAM.format(then="", end=WAIT))
    process.send_signal(signal.SIGINT)  # while Python itself is loaded
    assert process.stdout is not None
    lines = {process.stdout.readline() for _ in range(3)}
    assert lines == {"SIGINT\n", "listens\n", "waits\n"}
    process.kill()
    process.wait()


def test_a_signal_after_the_work_is_done_keeps_its_status():
    process = start("-c", PROGRAM.format(then="stop_signals.end_with(3)", end=WAIT))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["listens\n", "waits\n"]
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 3


def test_a_signal_that_comes_twice_at_once_is_one_request():
    assert 0.5 < stop_signals.ONE_REQUEST_SECONDS < 1.1
    # However late a busy machine lets them be heard: all within the time, then none.
    within, later = (f"stop_signals.ONE_REQUEST_SECONDS = {seconds}" for seconds in (1e9, 0.0))
    process = start("-c", PROGRAM.format(then=within, end=WAIT))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["listens\n", "waits\n"]
    assert said(process, signal.SIGINT) == "SIGINT\n"
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    assert said(process, signal.SIGUSR1) == "SIGUSR1\n"
    process.kill()
    assert process.communicate()[0] == ""
    process = start("-c", PROGRAM.format(then=later, end=WAIT))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["listens\n", "waits\n"]
    assert [said(process, signal.SIGINT) for _ in range(2)] == ["SIGINT\n"] * 2
    process.kill()
    process.wait()


INTERRUPTED_BEFORE_ITS_COMMAND = """
from dawnjax import __main__ as command_line
class Commands(dict):
    def __contains__(self, name):
        signal.raise_signal(signal.SIGINT)
        return True
command_line.COMMANDS = Commands(command_line.COMMANDS)
command_line.main()
"""


def test_an_interrupt_while_the_command_line_is_loaded_is_one_line():
    module = "import signal, sys; sys.argv = ['dawnjax', 'list']; import dawnjax; "
    for interrupted in ("signal.raise_signal(signal.SIGINT)", INTERRUPTED_BEFORE_ITS_COMMAND):
        process = start("-c", f"{module}{interrupted}")
        assert process.communicate()[1] == "dawnjax: interrupted before it began\n"
        assert process.returncode == 5
    process = start("-c", f"{module.replace('dawnjax', 'mine', 1)} signal.raise_signal(2)")
    assert "KeyboardInterrupt" in process.communicate()[1], "a program has its own handler"


LOSES_INTERRUPTS = """
import gc, signal, sys, time
sys.argv = ["dawnjax", "check"]
from dawnjax import __main__ as command_line
from dawnjax.commands import check

def interrupt():
    signal.raise_signal(signal.SIGINT)

def in_an_except():
    try:
        interrupt()
    except:
        pass

def in_a_callback():
    gc.callbacks.append(lambda phase, _: phase == "start" and interrupt())
    gc.collect()
    gc.callbacks.clear()

def main(argv):
    in_{}()
    time.sleep(30)

check.main = main
sys.exit(command_line.main())
"""


@pytest.mark.parametrize("where", ["an_except", "a_callback"])
def test_an_interrupt_that_a_library_loses_comes_again(where):
    process = start("-c", LOSES_INTERRUPTS.format(where))
    assert process.communicate()[1].splitlines()[-1] == "dawnjax check: interrupted"
    assert process.returncode == 5


def test_an_interrupt_in_an_exec_has_the_status_of_an_interrupt():
    code = "exec('import signal; signal.raise_signal(signal.SIGINT)')"
    process = start("-c", LOSES_INTERRUPTS.replace("    in_{}()\n", f"    {code}\n"))
    assert process.communicate()[1] == "dawnjax check: interrupted\n"
    assert process.returncode == 5


def test_code_that_exits_with_0_fails_the_command(monkeypatch, capsys):
    def exits(argv):
        sys.exit(0)

    monkeypatch.setattr(evaluate, "main", exits)
    assert command_line.main(["evaluate"]) == 1
    line = capsys.readouterr().err
    assert "stop_signals_test.py:" in line and "called sys.exit(0)" in line
    assert line.count("\n") == 1


def test_a_signal_while_python_ends_keeps_the_status():
    # Python has given its own handlers back when it comes to the last objects.
    then = "class Last:\n    def __del__(self, sleep=time.sleep): sleep(1)\nlast = Last()\n"
    then += "stop_signals.ignore()\n"
    process = start("-c", PROGRAM.format(then=then, end="sys.exit(3)"))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["listens\n", "waits\n"]
    time.sleep(0.3)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=60) == 3


def test_a_deleted_working_directory_is_one_line(tmp_path, monkeypatch, capsys):
    directory = tmp_path / "gone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    directory.rmdir()
    assert command_line.main(["train", "--experiment=digits"]) == 2
    assert capsys.readouterr().err == (
        "dawnjax train: the working directory was deleted; go to one that exists\n"
    )


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
    monkeypatch.undo()
