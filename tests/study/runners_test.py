"""A study's trials on Slurm and Kubernetes: the API's own schema, a real Slurm."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time

import pytest
from ports import free_port

from dawnjax.__main__ import main
from dawnjax.study import runners

TINY = ["study", "--experiment=digits", "--tiny=true", "--seeds=2"]
KUBERNETES = ["--runner=kubernetes", "--runner_setting=image=x:1", "--runner_setting=claim=disk"]


def manifest(out, *settings: str) -> dict:
    flags = [f"--runner_setting={setting}" for setting in settings]
    assert main([*TINY, f"--out={out}", *KUBERNETES, *flags]) == 0
    return json.loads((out / "kubernetes.json").read_text())


def test_an_indexed_job_is_what_the_api_takes(tmp_path):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate: no schema")
    job = manifest(tmp_path / "s", "nvidia.com/gpu=8")
    validate.validate(job, "1.30", strict=True)
    assert job["spec"]["completions"] == 2 and job["spec"]["completionMode"] == "Indexed"
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    job["spec"]["completion"] = job["spec"].pop("completions")
    with pytest.raises(validate.ValidationError):
        validate.validate(job, "1.30", strict=True)


@pytest.mark.processes
def test_the_pods_command_runs_the_trial_of_its_index(tmp_path):
    job = manifest(tmp_path / "s")
    [_, _, script] = job["spec"]["template"]["spec"]["containers"][0]["command"]
    program = tmp_path / "bin" / "dawnjax"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "JOB_COMPLETION_INDEX": "1"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, "a budget that is spent is no failed pod"
    words = done.stdout.split()
    assert words[0] == "study" and words[-2:] == ["--trial=1", "--processes.mode=off"]
    assert "--seeds=2" in words and not any(word.startswith("--runner") for word in words)


def expanded(text: str) -> str:
    """A container's command as Kubernetes hands it over: `$$` is `$`, `$(NAME)` a variable."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda found: found[1] and "EXPANDED" or "$", text)


@pytest.mark.parametrize("value", ["$(HOME)", "$$(HOME)", "a$$b", "$$$", "x$(A)$(B)", "$HOME"])
def test_kubernetes_leaves_the_arguments_as_they_are(tmp_path, value):
    flag = f"--data.data_dir={value}"
    path = runners.write_manifest([flag], 2, tmp_path, {"image": "x:1", "claim": "disk"})
    job = json.loads(path.read_text())
    [_, _, script] = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert shlex.quote(flag) in expanded(script)
    assert '"$JOB_COMPLETION_INDEX"' in expanded(script)


def test_a_job_set_gives_each_host_of_a_trial_its_number_and_coordinator(tmp_path):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate: no schema")
    job_set = manifest(tmp_path / "s", "hosts=4", "name=lesion")
    assert (job_set["kind"], job_set["metadata"]["name"]) == ("JobSet", "lesion")
    [replicated] = job_set["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 2
    # A JobSet's own schema is not in the API's; the jobs in it are.
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    validate.validate({**job, "spec": replicated["template"]["spec"]}, "1.30", strict=True)
    assert replicated["template"]["spec"]["completions"] == 4
    [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
    # A pod's name: set, replicated job, its index, the pod's index; the subdomain is the set's.
    assert 'lesion-trial-"$DAWNJAX_TRIAL"-0.lesion:8476' in container["command"][2]
    assert job_set["spec"]["network"]["subdomain"] == "lesion"


def pods_of_a_trial(out, script: str, **environment: str) -> "subprocess.Popen[str]":
    """A pod's shell, with this package for the image's, where Kubernetes runs it."""
    program = f"{shlex.quote(sys.executable)} -m dawnjax study "
    environment["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    return subprocess.Popen(
        ["sh", "-c", script.replace("dawnjax study ", program)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.processes
def test_a_pod_of_an_indexed_job_runs_its_trial_alone(tmp_path):
    out = tmp_path / "s"
    job = manifest(out)
    [_, _, script] = job["spec"]["template"]["spec"]["containers"][0]["command"]
    pod = pods_of_a_trial(out, script, JOB_COMPLETION_INDEX="1")
    said, _ = pod.communicate(timeout=240)
    assert pod.returncode == 0, said
    result = json.loads((out / "trials" / "all" / "seed_1" / "result.json").read_text())
    assert result["num_processes"] == 1


@pytest.mark.processes
def test_the_pods_of_a_job_set_make_one_run_of_a_trial(tmp_path):
    out = tmp_path / "s"
    job_set = manifest(out, "hosts=2")
    [job] = job_set["spec"]["replicatedJobs"]
    [_, _, script] = job["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    port = free_port()
    # The name that a JobSet's network gives to the first pod of the trial.
    script = script.replace(
        'dawnjax-study-trial-"$DAWNJAX_TRIAL"-0.dawnjax-study:8476', f"127.0.0.1:{port}"
    )
    pods = [
        pods_of_a_trial(out, script, DAWNJAX_TRIAL="1", JOB_COMPLETION_INDEX=str(index))
        for index in range(2)
    ]
    for pod in pods:
        said, _ = pod.communicate(timeout=240)
        assert pod.returncode == 0, said
    result = json.loads((out / "trials" / "all" / "seed_1" / "result.json").read_text())
    assert result["num_processes"] == 2


STAND_IN = """#!/bin/sh
trap 'echo stops; exit 5' TERM
echo began "$@"
sleep 100 > /dev/null & wait
"""

STOPPED_AS_IT_STARTS = """#!/bin/sh
trap 'exit 5' TERM
kill -TERM "$PPID"
sleep 100 > /dev/null & wait
"""


def a_pod(command: list[str], script: str, tmp_path) -> subprocess.Popen:
    """A pod's first process, which finds a script in place of `dawnjax`."""
    program = tmp_path / "bin" / "dawnjax"
    program.parent.mkdir(exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def stopped_in_a_pod(command: list[str], tmp_path) -> list[str]:
    """Asks a pod's first process to stop; returns what its `dawnjax` was called with."""
    pod = a_pod(command, STAND_IN, tmp_path)
    assert pod.stdout is not None
    line = ""
    while not line.startswith("began"):
        line = pod.stdout.readline()
        assert line, "it ended"
    pod.terminate()
    rest, _ = pod.communicate(timeout=240)
    assert "stops" in rest and pod.returncode == 5
    return str(line).split()[1:]


@pytest.mark.processes
def test_a_pod_that_is_asked_to_stop_asks_its_trial(tmp_path):
    job = manifest(tmp_path / "s")
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert stopped_in_a_pod(container["command"], tmp_path)[0] == "study"


@pytest.mark.processes
def test_a_pod_that_is_stopped_as_its_trial_starts_leaves_no_trial_behind(tmp_path):
    job = manifest(tmp_path / "s")
    [container] = job["spec"]["template"]["spec"]["containers"]
    for _ in range(20):
        pod = a_pod(container["command"], STOPPED_AS_IT_STARTS, tmp_path)
        pod.communicate(timeout=240)  # it lasts as long as the trial, which has the same output
        assert pod.returncode == 5


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--runner=kubernetes"], "needs --runner_setting=image="),
        ([*KUBERNETES, "--runner_setting=hosts=0"], "hosts=0 must be a number of hosts"),
        ([*KUBERNETES, "--runner_setting=name=A_b"], "lower-case letters"),
        (["--runner_setting=image=x"], "must be KEY=VALUE, with a --runner"),
        ([*KUBERNETES, "--runner_setting=hosts"], "must be KEY=VALUE"),
        (["--runner=kubernete"], "runner=kubernete"),
    ],
)
def test_wrong_settings_are_one_line(flags, said, tmp_path, capsys):
    assert main([*TINY, f"--out={tmp_path / 's'}", *flags]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1


def test_slurm_without_submitit_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main([*TINY, f"--out={tmp_path / 's'}", "--runner=slurm"]) == 2
    assert "pip install -e '.[slurm]'" in capsys.readouterr().err


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
