"""A study's trials on other machines: the manifest in the docs, a real Slurm."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dawnjax.__main__ import main

TINY = ["study", "--experiment=digits", "--tiny=true", "--seeds=2"]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "studies.md"


def test_the_manifest_of_the_docs_is_a_job_whose_command_runs_one_trial(tmp_path, compile_cache):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate: no schema")
    import yaml

    [text] = [part.partition("```")[0] for part in DOCS.read_text().split("```yaml\n")[1:]]
    job = yaml.safe_load(text)
    validate.validate(job, "1.30", strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    assert program == "dawnjax" and f"--seeds={job['spec']['completions']}" in command
    # What Kubernetes and the mounted claim would put there.
    command = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in command]
    command = [word.replace("/study/", f"{tmp_path}/") for word in command]
    assert main([*command, "--tiny=true", compile_cache]) == 0, "a spent budget is no failed pod"
    assert [path.name for path in tmp_path.glob("digits/trials/all/*")] == ["seed_1"]
    job["spec"]["completion"] = job["spec"].pop("completions")
    with pytest.raises(validate.ValidationError):
        validate.validate(job, "1.30", strict=True)


CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=10 State=UP
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm of one node on the loopback interface; its folder."""
    programs = {
        name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        for name in ("slurmctld", "slurmd", "sbatch")
    }
    missing = [name for name, path in programs.items() if path is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and Slurm: {', '.join(missing) or 'not root'}")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    folder = tmp_path / "slurm"
    (folder / "spool").mkdir(parents=True)
    (folder / "state").mkdir()
    config = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    config.write_text(
        CONFIG.format(folder=folder, host=host, ports=ports, cores=min(2, os.cpu_count() or 1))
    )
    monkeypatch.setenv("SLURM_CONF", str(config))
    daemons = [[programs["slurmctld"], "-D", "-c"], [programs["slurmd"], "-D", "-c", "-N", host]]
    running = []
    try:
        for daemon in daemons:
            with (folder / "daemons.txt").open("a") as said:
                running.append(subprocess.Popen(daemon, stdout=said, stderr=said))
            time.sleep(0.3)
        wait_until(lambda: "idle" in output("sinfo", "-h", "-o", "%T"), folder)
        yield folder
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout


def wait_until(holds, folder, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            logs = "".join(path.read_text()[-1500:] for path in folder.glob("slurm*.log"))
            raise AssertionError(logs + (folder / "daemons.txt").read_text()[-1500:])
        time.sleep(0.2)


@pytest.mark.faults
def test_a_real_slurm_runs_the_trials_of_a_study(slurm, tmp_path, compile_cache):
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("submitit is not installed")
    out = tmp_path / "study"
    command = [*TINY, f"--out={out}", compile_cache]
    settings = ["--runner_setting=slurm_partition=main", "--runner_setting=timeout_min=5"]
    # A process of its own: submitit closes the handlers of logging, pytest's among them.
    program = [sys.executable, "-m", "dawnjax", *command, "--runner=slurm", *settings]
    done = subprocess.run(program, capture_output=True, text=True)
    assert "submitted array job" in done.stdout, done.stderr
    results = [out / "trials" / "all" / f"seed_{seed}" / "result.json" for seed in (0, 1)]
    wait_until(lambda: all(path.exists() for path in results), slurm, 120)
    wait_until(lambda: not output("squeue", "-h").strip(), slurm)
    assert main(command) == 0
    [arm] = json.loads((out / "result.json").read_text())["arms"]
    assert (arm["trials"], arm["planned"], arm["reached"]) == (2, 2, 0)


@pytest.mark.faults
def test_srun_starts_a_run_of_two_tasks(slurm, tmp_path, compile_cache):
    """Two tasks of one node find each other through Slurm's environment, and make one run."""
    srun = shutil.which("srun")
    if srun is None:
        pytest.skip("needs srun")
    run_dir = tmp_path / "run"
    command = [srun, "--ntasks=2", "--overcommit", "--partition=main", "--time=5"]
    command += [sys.executable, "-m", "dawnjax", "train", "digits", "--tiny", compile_cache]
    done = subprocess.run(
        [*command, f"--run_dir={run_dir}"],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads((run_dir / "result.json").read_text())
    assert result["num_processes"] == 2 and result["num_devices"] == 2
    assert result["status"] == "not_reached" and len(result["first_losses"]) == 2
    wait_until(lambda: not output("squeue", "-h").strip(), slurm)
