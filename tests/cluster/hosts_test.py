"""Runs under a real Slurm of two nodes and under Open MPI's `mpirun`, on the loopback interface.

Run by `pytest -m hosts`; CONTRIBUTING.md has the packages. Slurm's GPUs are links to
/dev/null, which it gives to tasks as it gives real ones.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trained import result_of

pytestmark = [pytest.mark.hosts, pytest.mark.compiles]

ROOT = Path(__file__).parents[2]

# JAX meets at the node whose name sorts first: this machine, whose name resolves.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd_%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 Gres=gpu:4
NodeName={host}x NodeAddr=127.0.0.2 Port={ports[2]} CPUs=4 Gres=gpu:4
PartitionName=main Nodes={host},{host}x Default=YES MaxTime=10 State=UP
"""

# What a task takes, as one of a run: its GPUs by their files.
TAKES = """
import json, os, sys
from pathlib import Path
import jax
from dawnjax.cluster import node_devices, processes
from dawnjax.cluster.options import ProcessOptions
os.environ["JAX_PLATFORMS"] = ""
node_devices.given_gpus.__defaults__ = (Path(sys.argv[1]),)
processes.boot_id = lambda: os.environ["SLURMD_NODENAME"]  # two nodes are one machine here
processes.join(ProcessOptions())
given = [Path(file).name for file in node_devices.given_gpus(os.environ)]
chosen = jax.config.read("jax_cuda_visible_devices")
taken = given if chosen == "all" else [given[int(number)] for number in chosen.split(",")]
everyone = processes.gather(taken)
if jax.process_index() == 0:
    print(json.dumps(everyone))
sys.exit(processes.leave(0))
"""


def needed(*names: str) -> list[str]:
    paths = [shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for name in names]
    if None in paths or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(names)}")
    return [path for path in paths if path is not None]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm of two nodes with four GPUs each; the environment of its commands, and its folder."""
    control, daemon, _ = needed("slurmctld", "slurmd", "srun")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "dev").mkdir()
    (folder / "state").mkdir()
    for number in range(4):
        (folder / "dev" / f"nvidia{number}").symlink_to("/dev/null")
    host = socket.gethostname().partition(".")[0]
    nodes = [host, f"{host}x"]
    for node in nodes:
        (folder / f"spool_{node}").mkdir()
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    config = CONFIG.format(folder=folder, host=host, ports=ports)
    (folder / "slurm.conf").write_text(config)
    gpus = f"NodeName={','.join(nodes)} Name=gpu File={folder}/dev/nvidia[0-3]\n"
    (folder / "gres.conf").write_text(gpus)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PYTHONPATH": str(ROOT)}
    commands = [[control, "-D", "-c"], *([daemon, "-D", "-N", node] for node in nodes)]
    running = []
    try:
        for command in commands:
            with (folder / "daemons.txt").open("a") as said:
                process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
            running.append(process)
            time.sleep(0.5)
        end = time.monotonic() + 60.0
        ask = ["sinfo", "-h", "-o", "%D %T"]
        while b"2 idle" not in subprocess.run(ask, env=environment, capture_output=True).stdout:
            logs = "".join(path.read_text()[-1500:] for path in folder.glob("slurm*.log"))
            assert time.monotonic() < end, logs + (folder / "daemons.txt").read_text()[-1500:]
            time.sleep(0.2)
        yield environment, folder
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(timeout=30)


def output(environment: dict[str, str], *command: str, timeout: float = 240.0) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


ALL = ["nvidia0", "nvidia1", "nvidia2", "nvidia3"]


@pytest.mark.parametrize(
    ("flags", "taken"),
    [
        (["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4"], [ALL] * 2),
        (["--nodes=1", "--ntasks-per-node=4", "--gpus-per-node=4"], [[gpu] for gpu in ALL]),
        (["--nodes=1", "--ntasks=4", "--gpus-per-task=1"], [[gpu] for gpu in ALL]),
        (["--nodes=1", "--ntasks=2", "--gpus-per-node=4", "--gpu-bind=none"], [ALL[:2], ALL[2:]]),
    ],
)
def test_every_gpu_that_slurm_gave_is_taken_once(slurm, flags, taken):
    environment, folder = slurm
    program = [sys.executable, "-c", TAKES, str(folder)]
    said = output(environment, "srun", "--overcommit", "--time=5", *flags, *program)
    (line,) = [line for line in said.splitlines() if line.startswith("[[")]
    assert json.loads(line) == taken


def train(run_dir: Path, compile_cache: str) -> list[str]:
    command = [sys.executable, "-m", "dawnjax", "train", "digits", "--tiny", compile_cache]
    return [*command, f"--run_dir={run_dir}", "--profile.after_run=false"]


def on_cpus(environment: dict[str, str], num_devices: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={num_devices}"
    return environment | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "NPROC": "16"}


def test_a_task_on_each_of_two_nodes_makes_one_run(slurm, tmp_path, compile_cache):
    environment, _ = slurm
    tasks = ["srun", "--nodes=2", "--ntasks-per-node=1", "--time=5"]
    output(on_cpus(environment, 2), *tasks, *train(tmp_path / "run", compile_cache))
    result = result_of(tmp_path / "run")
    assert (result["num_processes"], result["num_devices"]) == (2, 4)
    assert result["status"] == "not_reached" and len(result["first_losses"]) == 2


def test_the_array_job_of_the_docs_runs_each_trial_of_a_study(slurm, tmp_path, compile_cache):
    environment, _ = slurm
    docs, out, job = ROOT / "docs" / "studies.md", tmp_path / "s", tmp_path / "job"
    [script] = [part.partition("```")[0] for part in docs.read_text().split("```bash\n")[1:]]
    for asked, here in (
        ("--array=0-19", f"--array=0-1 --output={tmp_path}/%a.txt"),
        ("--time=60", "--time=5"),  # the partition allows 10 minutes
        ("--seeds=20", f"--seeds=2 --tiny=true {compile_cache}"),
        ("\ndawnjax ", f"\n{sys.executable} -m dawnjax "),
        ("/shared/studies/digits", str(out)),
    ):
        assert asked in script
        script = script.replace(asked, here)
    job.write_text(script)
    output(on_cpus(environment, 1), "sbatch", "--wait", str(job))
    assert [result_of(out / "trials/all" / f"seed_{seed}")["seed"] for seed in (0, 1)] == [0, 1]


def test_mpirun_makes_one_run(tmp_path, compile_cache):
    (mpirun,) = needed("mpirun")
    command = [mpirun, "-np", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    environment = on_cpus(os.environ | {"PYTHONPATH": str(ROOT)}, 2)
    output(environment, *command, *train(tmp_path / "run", compile_cache))
    result = result_of(tmp_path / "run")
    assert (result["num_processes"], result["num_devices"]) == (2, 4)
