"""Discovery of the other processes: flags, clusters' environments, and wrong ones."""

import importlib.util

import pytest
from ports import free_port

from dawnjax.cluster import processes
from dawnjax.cluster.options import ProcessOptions
from dawnjax.cluster.processes import Meeting, find_meeting
from dawnjax.errors import ConfigError, RunError

pytestmark = pytest.mark.waits


# How they meet.


def test_flags_say_where_the_others_are():
    options = ProcessOptions(coordinator_address="h:1", num_processes=4, process_id=2)
    assert find_meeting(options, {}) == Meeting("flags", "h:1", 4, 2, "deactivate")
    assert find_meeting(ProcessOptions(mode="off"), {"OMPI_COMM_WORLD_SIZE": "4"}) is None
    with pytest.raises(ConfigError, match="--processes.num_processes and --processes.process_id"):
        find_meeting(ProcessOptions(coordinator_address="h:1"), {})


SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
}


@pytest.mark.parametrize(
    ("environment", "source", "cluster"),
    [
        (SRUN, "Slurm", "slurm"),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://h:1"},
            "Open MPI",
            "ompi",
        ),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI", "mpi4py"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"},
            "Kubernetes",
            None,
        ),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"}, "TPU pod", None),
        ({"MEGASCALE_COORDINATOR_ADDRESS": "a"}, "TPU pod", None),
        (
            {  # a pod of TPUs on GKE, as xpk starts it: no need to ask Kubernetes
                "KUBERNETES_SERVICE_HOST": "10.0.0.1",
                "JOB_COMPLETION_INDEX": "1",
                "TPU_WORKER_HOSTNAMES": "a-0.a,a-1.a",
                "TPU_WORKER_ID": "1",
            },
            "TPU pod",
            None,
        ),
    ],
)
def test_a_cluster_is_found_by_what_its_launcher_sets(environment, source, cluster):
    meeting = find_meeting(ProcessOptions(), environment)
    assert meeting == Meeting(source, cluster=cluster)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {k: v for k, v in SRUN.items() if k != "SLURM_STEP_NODELIST"},  # the batch script itself
        SRUN | {"SLURM_STEP_NUM_TASKS": "1"},  # `srun --ntasks=1 --pty bash` in a larger job
        SRUN | {"SLURM_NTASKS": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},  # a notebook's pod
        {"TPU_WORKER_HOSTNAMES": "localhost"},  # one TPU host, or compiling for an absent one
        {"TPU_WORKER_HOSTNAMES": "a,b", "JAX_PLATFORMS": "cpu"},  # tests on a TPU host
    ],
)
def test_a_process_alone_joins_nobody(environment):
    assert find_meeting(ProcessOptions(), environment) is None


def test_flags_fill_in_what_a_cluster_does_not_say():
    options = ProcessOptions(coordinator_address="h:1")
    assert find_meeting(options, SRUN) == Meeting("flags", "h:1", None, None, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "on"}, "processes.mode=on, but nothing says"),
        ({"heartbeat_timeout_seconds": 1}, "heartbeat_timeout_seconds=1 must be 2 or more"),
        ({"progress_deadline_seconds": -1.0}, "progress_deadline_seconds=-1 must be 0"),
        ({"num_processes": 2, "process_id": 2}, "process_id=2 must be below"),
        ({"coordinator_address": "host"}, "coordinator_address='host' must be HOST:PORT"),
        ({"coordinator_address": "host:0"}, "coordinator_address='host:0' must be HOST:PORT"),
    ],
)
def test_wrong_options_are_refused_in_one_line(fields, message, monkeypatch):
    for name in SRUN:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=message) as caught:
        processes.join(ProcessOptions(**fields))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "package"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, "kubernetes"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpi4py"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_one_line(environment, package, monkeypatch):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed here")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match=f"JAX needs the package {package}: install it, or give"):
        processes.join(ProcessOptions())


@pytest.mark.parametrize(
    ("junk", "message"),
    [
        ({"DAWNJAX_NUM_PROCESSES": "two"}, "DAWNJAX_NUM_PROCESSES='two', which must be a count"),
        ({"DAWNJAX_NUM_PROCESSES": ""}, "DAWNJAX_NUM_PROCESSES='', which must be a count"),
        ({"DAWNJAX_PROCESS_ID": "-1"}, "DAWNJAX_PROCESS_ID='-1', which must be a number below"),
        ({"DAWNJAX_PROCESS_ID": "2"}, "DAWNJAX_PROCESS_ID='2', which must be a number below"),
        ({"DAWNJAX_PROCESS_ID": "9" * 5000}, "which must be a number below"),
        ({"DAWNJAX_COORDINATOR_ADDRESS": "h"}, "COORDINATOR_ADDRESS='h', which must be HOST:PORT"),
        ({"JAX_COORDINATOR_BIND_ADDRESS": "h:x"}, "BIND_ADDRESS='h:x', which must be HOST:PORT"),
    ],
)
def test_junk_in_the_environment_is_one_line(junk, message, monkeypatch):
    environment = {
        "DAWNJAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "DAWNJAX_NUM_PROCESSES": "2",
        "DAWNJAX_PROCESS_ID": "0",
        "DAWNJAX_STATUS_DIR": "",
    }
    for name, value in (environment | junk).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message) as caught:
        processes.join(ProcessOptions(initialization_timeout_seconds=2))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_process_alone_needs_no_others():
    watchdog = processes.join(ProcessOptions(mode="off"))
    try:
        assert watchdog.num_processes == 1
        assert processes.gather({"own": 1}) == [{"own": 1}]
        assert processes.same_text("own") == "own"
    finally:
        assert processes.leave(3) == 3
    assert processes.leave(1) == 1  # nothing is joined any more
