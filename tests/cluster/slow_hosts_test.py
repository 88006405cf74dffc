"""A host that is slow: named from what each counts itself, also where the delay is in the step."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dawnjax.cluster import peers
from dawnjax.cluster.slow_hosts import Pace, slow_host
from dawnjax.runs.log import read_events

ROOT = Path(__file__).parents[2]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's times are Linux's")


def paces(*hosts: tuple[float, float], steps: int = 100, seconds: float = 10.0) -> list[Pace]:
    return [Pace(steps, seconds, own, owed) for own, owed in hosts]


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        # 10 s, 100 steps: of each step of 100 ms the others wait 40 ms for host 1.
        ([(1.0, 0.1), (1.0, 4.0)], "wait for it at least 40.0 ms of each step of 100 ms"),
        ([(1.0, 0.1), (1.0, 0.9)], ""),  # under a tenth
        ([(1.0, 3.0), (1.0, 4.0)], ""),  # each waits for the other
        # Not measured: the main thread of host 1 never waits, that of the others half the time.
        ([(3.0, -1), (9.5, -1), (5.0, -1)], "its input, takes 95 ms of each step of 100 ms, and"),
        ([(9.0, -1), (9.5, -1)], ""),  # all make their input slowly
        ([(1.0, -1), (6.0, -1)], ""),
        ([(1.0, 4.0)], ""),
    ],
)
def test_the_slow_host_is_the_one_that_all_wait_for(hosts, said):
    found = slow_host(
        paces(*[(0, min(0, owed)) for _, owed in hosts], steps=0, seconds=0), paces(*hosts)
    )
    assert (found.message if found else "").find(said) >= 0 and bool(found) == bool(said)
    if found:
        assert found.host == 1
        assert slow_host(paces(*hosts), paces(*hosts)) is None  # no step between two counts


@LINUX
def test_a_process_is_waited_for_while_its_peers_have_spoken_last():
    """As in a collective: both come, one late; then both send."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    early = socket.create_connection(("127.0.0.1", port))
    late, _ = server.accept()
    with server, early, late:
        ends = peers.connections(without_port=0)
        assert late.fileno() in ends and peers.connections(without_port=port).keys() == (
            ends.keys() - {early.fileno(), late.fileno()}
        )
        # Of all processes' connections; those with any other end are left out.
        told = json.loads(json.dumps([[ends[early.fileno()]], [ends[late.fileno()]]]))
        assert peers.between(ends, told) == sorted([early.fileno(), late.fileno()])
        is_training = True
        waits = [peers.Waits([it.fileno()], lambda: is_training) for it in (early, late)]
        for _ in range(10):
            time.sleep(0.02)  # both work
            early.sendall(b"here")
            time.sleep(0.2)  # one comes late
            late.sendall(b"here")
            assert early.recv(4) == late.recv(4) == b"here"
        is_training = False
        early.sendall(b"here")
        time.sleep(0.3)
        for each in waits:
            each.stop()
        # Of 2.2 s the early one waits 2 s; what is owed outside of training does not count.
        assert waits[1].owed_seconds > max(1.2, 3 * waits[0].owed_seconds)
        assert late.recv(4) == b"here"  # the descriptors still serve


@LINUX
@pytest.mark.faults
@pytest.mark.long  # beside other work any host may be slow
def test_a_delay_in_the_backward_pass_of_one_host_is_named(tmp_path, compile_cache):
    command = [sys.executable, "-m", "dawnjax", "launch", "--processes=2"]
    command += ["--devices_per_process=1", "--", "train", f"--run_dir={tmp_path / 'run'}"]
    command += [f"--experiment={ROOT / 'tests' / 'support' / 'slow_steps.py'}", compile_cache]
    command += ["--num_epochs=0", "--max_seconds=20", "--schedule=constant", "--tensorboard=false"]
    command += ["--evaluation.stop_at_target=false", "--evaluation.every_steps=100"]
    command += ["--profile.after_run=false", "--targets.0.value=1", "--global_batch_size=32"]
    environment = {"PYTHONPATH": str(ROOT), "DAWNJAX_TEST_SLOW": "1:20"}
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode in (0, 3), done.stderr
    events = read_events(tmp_path / "run" / "log.jsonl")
    assert "warning: host 1 (" in done.stderr, done.stderr
    assert {event["host"] for event in events if event["event"] == "slow_host"} == {1}
    assert done.stderr.count(") is slow: the other hosts wait for it at least") == 1
    # All hosts' steps take equally long: the delay shows in no host's own step time.
    [summary] = [event for event in events if event["event"] == "host_summary"][-1:]
    means = [host["step_seconds"]["mean"] for host in summary["hosts"]]
    assert max(means) < 1.2 * min(means)
