"""Groups of processes that are killed, stopped and interrupted for real, and what they end with."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from fault_runs import (
    SIGNALS,
    command,
    environment,
    is_death_by,
    launch,
    run,
    seconds_to_end,
    start,
    steps_reached,
    wait_for,
    why_not_the_same_end,
)
from quick_compilation import QUICK
from shared_runs import made_once
from told import result_in
from trained import evaluations_of, final_state_of, result_of, saves_of

from dawnjax.__main__ import main
from dawnjax.commands.check import check_run

pytestmark = pytest.mark.faults


def rank_of(child: psutil.Process) -> str:
    try:
        return child.environ().get("DAWNJAX_PROCESS_ID", "")
    except psutil.Error:
        return ""


def ranks_of(launcher: subprocess.Popen, count: int) -> list[psutil.Process]:
    """The processes of a launch, once all have started."""

    def ranks() -> list[psutil.Process]:
        ranked = {rank_of(child): child for child in psutil.Process(launcher.pid).children()}
        ranked.pop("", None)
        return [ranked[key] for key in sorted(ranked)] if len(ranked) == count else []

    return wait_for(ranks)


def why_not_ended(
    launcher: subprocess.Popen, ranks: list[psutil.Process], *, status: int, within: float
) -> tuple[str, float, str]:
    """Says how the end of a launch differs from what it must be; the seconds and what it wrote."""
    seconds, stderr = seconds_to_end(launcher, within=max(60.0, within))
    why = ""
    if seconds > within:
        why = f"took {seconds:.1f} s"
    elif launcher.returncode != status:
        why = f"status {launcher.returncode}: {stderr[-300:]}"
    elif "Traceback" in stderr:
        why = f"a traceback: {stderr[-300:]}"
    elif any(rank.is_running() for rank in ranks):
        why = "a process is left"
    return why, seconds, stderr


FLAGS = ("--num_epochs=6", "--evaluation.every_epochs=3", "--data_placement=host")
FLAGS += ("--evaluation.global_batch_size=24",)
"""64 images are two batches and two thirds; from the host each process reads its own rows."""


@pytest.fixture(scope="module")
def of_two(tmp_path_factory, compile_cache) -> Path:
    """A run of two processes that nothing disturbs."""

    def make(folder: Path) -> None:
        done = run(launch(folder / "run", compile_cache, *FLAGS), env=environment(1, QUICK))
        assert done.returncode == 3, done.stderr

    return made_once(tmp_path_factory, "of_two", make) / "run"


@pytest.mark.processes
def test_two_processes_train_as_one_with_as_many_devices(of_two, tmp_path, compile_cache):
    """The same batches: first losses within 1e-5."""
    one, two = tmp_path / "one", of_two
    # Here, where there are four devices and the same flags of XLA's.
    assert main(command(one, compile_cache, *FLAGS)[3:]) == 3
    np.testing.assert_allclose(
        result_of(two)["first_losses"], result_of(one)["first_losses"], atol=1e-5
    )
    assert [host["process_index"] for host in result_of(two)["hosts"]] == [0, 1]
    assert check_run(two)[0] == []


@pytest.mark.long
@pytest.mark.processes
def test_two_processes_evaluate_as_one(tmp_path, compile_cache, capsys):
    """The same counts from one checkpoint, with padding in the last batch."""
    one = tmp_path / "one"
    assert main(command(one, compile_cache, *FLAGS)[3:]) == 3
    evaluate = ["evaluate", str(one), "--data_placement=host", "--json", compile_cache]
    launched = ["launch", "--processes=2", "--devices_per_process=2", "--", *evaluate]
    several = run([sys.executable, "-m", "dawnjax", *launched], env=environment(1, QUICK))
    assert several.returncode == 0, several.stderr
    capsys.readouterr()
    assert main(evaluate) == 0
    outputs = (capsys.readouterr().out, several.stdout)
    sides = [result_in(output)["own"] for output in outputs]
    rows = [side["metrics"] for side in sides]
    assert rows[0]["top_1_accuracy"] == rows[1]["top_1_accuracy"]
    assert rows[0]["top_5_accuracy"] == rows[1]["top_5_accuracy"]
    assert sides[0]["examples"] == sides[1]["examples"] == 64
    assert rows[0]["top_1_accuracy"] == evaluations_of(one)[-1][1]["top_1_accuracy"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("count", "layout"), [(1, "2x2"), pytest.param(20, "4x1", marks=pytest.mark.long)]
)
def test_one_process_killed_ends_all_and_resumed_ends_the_same(
    count, layout, of_two, tmp_path, compile_cache, campaign
):
    kills = campaign(
        "kills_of_one_process",
        "one of four processes of `launch -- train` killed at a random moment, and resumed",
        "all end within 20 s with a line that names the host; resumed, the same evaluations and, "
        "bit for bit, the same parameters",
    )
    whole, env = of_two, environment(1, QUICK)
    if layout != "2x2":
        whole = tmp_path / "whole"
        done = run(launch(whole, compile_cache, *FLAGS, layout=layout), env=env)
        assert done.returncode == 3, done.stderr
    choose = random.Random(2)
    last_step, num_processes = result_of(whole)["steps"], int(layout.split("x")[0])
    for number in range(count):
        run_dir = tmp_path / str(number)
        argv = launch(run_dir, compile_cache, *FLAGS, layout=layout)
        victim, step = choose.randrange(num_processes), choose.randrange(last_step - 10)
        launcher = start(argv, env)
        ranks = ranks_of(launcher, num_processes)
        wait_for(lambda r=run_dir, s=step, p=launcher: steps_reached(r, s) or p.poll() is not None)
        time.sleep(choose.uniform(0.0, 0.2))
        ranks[victim].kill()
        why, seconds, stderr = why_not_ended(launcher, ranks, status=1, within=kills.within(20.0))
        if launcher.returncode == 3:
            why = ""  # the steps were over
        elif f"host {victim} " not in stderr or "resume with" not in stderr:
            why = why or f"no line names host {victim}: {stderr[-300:]}"
        done = run(argv, env=env)
        if done.returncode != 3:
            why = why or f"resumed, it ended with {done.returncode}: {done.stderr[-300:]}"
        why = why or why_not_the_same_end(run_dir, whole)
        label = f"{number}, host {victim} after step {step}"
        kills.tried(label, held=not why, why=why, seconds=seconds)
    kills.finish()


@pytest.mark.long
@pytest.mark.processes
def test_a_worker_killed_before_all_have_met_ends_all_at_once(tmp_path, compile_cache, campaign):
    """At each change tests/cluster/launch_test.py kills one of two."""
    kills = campaign(
        "kills_before_all_have_met",
        "one of two or four processes of `launch -- train` killed 0.3 to 1.8 s after its start",
        "all end within 5 s with status 1 and a line that names the host",
    )
    choose = random.Random(3)
    for number in range(8):
        num_processes, delay = 2 + 2 * (number % 2), choose.uniform(0.3, 1.8)
        victim = choose.randrange(num_processes)
        layout = f"{num_processes}x1"
        launcher = start(launch(tmp_path / str(number), compile_cache, layout=layout))
        ranks = ranks_of(launcher, num_processes)
        time.sleep(delay)
        ranks[victim].kill()
        why, seconds, stderr = why_not_ended(launcher, ranks, status=1, within=kills.within(5.0))
        if f"host {victim} (pid {ranks[victim].pid}) was killed by SIGKILL" not in stderr:
            why = why or f"no line names host {victim}: {stderr[-300:]}"
        label = f"{number}, {num_processes} processes, {delay:.2f} s"
        kills.tried(label, held=not why, why=why, seconds=seconds)
    kills.finish()


@pytest.mark.long
@pytest.mark.processes
def test_signals_to_a_launcher_that_has_just_begun(tmp_path, compile_cache, campaign):
    """At each change one in training is asked to stop, below."""
    signals = campaign(
        "signals_to_launch",
        "`launch -- train` of two or four processes sent SIGINT, twice SIGINT, SIGTERM, SIGHUP or "
        "SIGUSR1 0.05 to 4 s after its start",
        "all end within 5 s with status 5, without a traceback",
    )
    choose = random.Random(4)
    for number in range(20):
        kinds = ([signal.SIGINT] * 2, *([kind] for kind in SIGNALS))[number % 5]
        num_processes, delay = 4 - 2 * (number % 2), choose.uniform(0.05, 4.0)
        layout = f"{num_processes}x1"
        launcher = start(launch(tmp_path / str(number), compile_cache, layout=layout))
        time.sleep(delay)
        ranks = psutil.Process(launcher.pid).children()
        sent = time.perf_counter()
        for kind in kinds:
            launcher.send_signal(kind)
            sent = time.perf_counter()
            time.sleep(1.2 if len(kinds) > 1 else 0.2)  # at once, both would be one request
        within = signals.within(5.0)
        why, _, stderr = why_not_ended(launcher, ranks, status=5, within=within)
        seconds = time.perf_counter() - sent
        if not ranks and is_death_by(kinds[0], launcher.returncode, stderr):
            why = ""  # the launcher had not begun
        label = f"{number}, {len(kinds)} x {kinds[0].name} to {num_processes} after {delay:.2f} s"
        signals.tried(label, held=not why, why=why, seconds=seconds)
    signals.finish()


@pytest.mark.processes
@pytest.mark.long
def test_a_busy_host_raises_no_false_alarm(tmp_path, compile_cache, campaign):
    runs = campaign(
        "busy_host",
        "`launch -- train` of two processes beside two busy loops for each core",
        "no host is given up: the run ends by itself",
    )
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        for number in range(20):
            started = time.monotonic()
            # Without a cache it compiles too, which is when an interpreter is held longest.
            argv = launch(tmp_path / str(number), "--compile_cache_dir=none")
            done = run(argv, timeout=600)
            why = "" if done.returncode == 3 else f"status {done.returncode}: {done.stderr[-600:]}"
            seconds = time.monotonic() - started
            runs.tried(str(number), held=not why, why=why, seconds=seconds)
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()
    runs.finish()


@pytest.mark.long
@pytest.mark.processes
def test_a_stopped_process_is_given_up(tmp_path, compile_cache, campaign):
    """At each change tests/cluster/processes_test.py stops one."""
    stops = campaign(
        "stopped_process",
        "one of two processes of `launch -- train` stopped (SIGSTOP) in training",
        "all end within 30 s with a line that names the host; one process alone can resume",
    )
    for number in range(6):
        victim, run_dir = (number + 1) % 2, tmp_path / str(number)
        launcher = start(launch(run_dir, compile_cache))
        ranks = ranks_of(launcher, 2)
        wait_for(lambda r=run_dir: bool(saves_of(r)))
        ranks[victim].send_signal(signal.SIGSTOP)
        within = stops.within(30.0)
        why, seconds, stderr = why_not_ended(launcher, ranks, status=1, within=within)
        if f"host {victim} " not in stderr or "resume with" not in stderr:
            why = why or f"no line names host {victim}: {stderr[-300:]}"
        done = run(command(run_dir, compile_cache), env=environment(4))
        if done.returncode != 3 or len(evaluations_of(run_dir)) != 3:
            why = why or f"resumed, it ended with {done.returncode}: {done.stderr[-300:]}"
        stops.tried(f"{number}, host {victim}", held=not why, why=why, seconds=seconds)
    stops.finish()


@pytest.mark.processes
def test_sigterm_to_the_launcher_saves_on_all_hosts(tmp_path, compile_cache):
    run_dir = tmp_path / "run"
    launcher = start(launch(run_dir, compile_cache), environment(1, QUICK))
    wait_for(lambda: steps_reached(run_dir, 20))
    ranks = ranks_of(launcher, 2)
    launcher.terminate()
    why, _, stderr = why_not_ended(launcher, ranks, status=5, within=60.0)
    assert not why, stderr
    assert result_of(run_dir)["status"] == "interrupted"
    assert final_state_of(run_dir)[0] == result_of(run_dir)["steps"]
