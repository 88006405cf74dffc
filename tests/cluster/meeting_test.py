"""Discovery of the other processes: environments of launchers, flags, and wrong ones."""

import pytest

from dawnjax.cluster import meeting, node_devices, processes
from dawnjax.cluster.meeting import Meeting, find_meeting
from dawnjax.cluster.options import ProcessOptions
from dawnjax.errors import RunError

LAUNCH = {
    "DAWNJAX_COORDINATOR_ADDRESS": "127.0.0.1:9",
    "DAWNJAX_NUM_PROCESSES": "2",
    "DAWNJAX_PROCESS_ID": "1",
}
SBATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
SRUN = SBATCH | {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2"}
TASK_OF_MANY = {"SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "5", "SLURM_PROCID": "13"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
INDEXED = POD | {"JOB_COMPLETION_INDEX": "0"}
GKE_ONE_HOST = {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
GKE_HOSTS = {"TPU_WORKER_HOSTNAMES": "a-0.a,a-1.a", "TPU_WORKER_ID": "1"}
SLICES = {"MEGASCALE_COORDINATOR_ADDRESS": "a", "MEGASCALE_NUM_SLICES": "2"}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "MASTER_ADDR": "h"}


@pytest.mark.parametrize(
    ("environment", "flags", "found"),
    [
        # Alone.
        ({}, {}, None),
        (TORCHRUN, {}, None),
        (SBATCH, {}, None),  # the batch script itself, a login shell in an allocation
        (SRUN | {"SLURM_STEP_NUM_TASKS": "1"}, {}, None),  # salloc's step, or `srun --pty bash`
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"}, {}, None),
        (POD, {}, None),  # a notebook
        (GKE_ONE_HOST, {}, None),
        (GKE_ONE_HOST | INDEXED, {}, None),  # the same by xpk or JobSet
        (GKE_HOSTS | {"JAX_PLATFORMS": "cpu"}, {}, None),  # tests on a host of TPUs
        (SRUN, {"mode": "off"}, None),
        # With others.
        (LAUNCH, {}, Meeting("dawnjax launch", "127.0.0.1:9", 2, 1, "deactivate")),
        (SRUN, {}, Meeting("Slurm", cluster="slurm")),  # a task a node
        (SRUN | TASK_OF_MANY, {}, Meeting("Slurm", cluster="slurm")),  # a task a GPU
        (
            OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "1.0;tcp://h:1"},
            {},
            Meeting("Open MPI", cluster="ompi"),
        ),
        (OPEN_MPI, {}, Meeting("Open MPI 5", cluster="mpi4py")),
        ({"is": "TPU VM"}, {}, Meeting("Cloud TPU VM")),  # of one host or of several
        ({"is": "TPU VM"} | GKE_ONE_HOST, {}, None),
        (GKE_HOSTS | INDEXED, {}, Meeting("TPU pod")),  # JAX need not ask Kubernetes
        (GKE_ONE_HOST | SLICES | INDEXED, {}, Meeting("TPU pod")),
        (INDEXED, {}, Meeting("Kubernetes")),  # of CPUs
        # By flags, which fill in what a cluster does not say.
        (
            {},
            {"coordinator_address": "h:1", "num_processes": 4, "process_id": 2},
            Meeting("flags", "h:1", 4, 2, "deactivate"),
        ),
        (SRUN, {"coordinator_address": "h:1"}, Meeting("flags", "h:1")),
    ],
)
def test_an_environment_says_whether_there_are_others(environment, flags, found, monkeypatch):
    monkeypatch.setattr(meeting, "is_cloud_tpu_vm", lambda: environment.get("is") == "TPU VM")
    assert find_meeting(ProcessOptions(**flags), environment) == found


def test_a_process_alone_needs_no_others():
    watchdog = processes.join(ProcessOptions(mode="off"))
    try:
        assert watchdog.num_processes == 1
        assert processes.gather({"own": 1}) == [{"own": 1}]
        assert processes.same_text("own") == "own"
        assert processes.from_first(lambda: [1]) == [1]
    finally:
        assert processes.leave(3) == 3
    assert processes.leave(1) == 1  # nothing is joined any more


@pytest.fixture
def node(tmp_path):
    """Files of a machine with four GPUs."""
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "given"),
    [
        (None, ["nvidia0", "nvidia1", "nvidia2", "nvidia10"]),
        ("3,1", ["nvidia10", "nvidia1"]),
        ("-1", []),
        ("", []),
        ("GPU-5e,MIG-6f", ["GPU-5e", "MIG-6f"]),
    ],
)
def test_cuda_visible_devices_says_which_gpus_were_given(node, visible, given):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = node_devices.given_gpus(environment, node)
    assert [file.rpartition("/")[2] for file in found] == given


ALL = ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        # One task on each node takes all.
        ([("a", ALL), ("b", ALL)], [None, None]),
        # One task a GPU, which Slurm did not bind (--gpus-per-node), and Open MPI never does.
        ([("a", ALL)] * 4, [[0], [1], [2], [3]]),
        ([("a", ALL)] * 2 + [("b", ALL)] * 2, [[0, 1], [2, 3]] * 2),
        # Bound: by CUDA_VISIBLE_DEVICES, by device files (--gpus-per-task), or a pod for each.
        ([("a", ["0", "1"]), ("a", ["2", "3"])], [None, None]),
        # Nodes with other counts of tasks; more GPUs than they divide.
        ([("a", ALL)] + [("b", ALL)] * 3, [None, [0], [1], [2]]),
        # No GPU of NVIDIA: JAX decides.
        ([("a", [])] * 2, [None, None]),
    ],
)
def test_every_gpu_that_a_task_was_given_is_taken(given, taken):
    assert [node_devices.shared_out(given, index) for index in range(len(given))] == taken


def test_more_tasks_than_gpus_are_one_line():
    with pytest.raises(RunError, match="3 processes of this machine were given the same 2 GPUs"):
        node_devices.shared_out([("a", ["0", "1"])] * 3, 0)


def device(platform, chip=0):
    return type("Device", (), {"platform": platform, "coords": (chip, 0, 0)})()


@pytest.mark.parametrize(
    ("used", "given", "line", "warning"),
    [
        ([device("gpu")], ["2"], "host 0 of 1 uses 1 of 4 GPUs", ""),  # the others' GPUs
        (
            [device("gpu")],
            ALL,
            "host 0 of 1 uses 1 of 4 GPUs",
            "uses 1 of the 4 GPUs given to it: start one process on each host, or one for each",
        ),
        ([device("cpu")] * 2, [], "host 0 of 1 uses 2 CPU devices", ""),
        ([device("cpu")], ALL, "host 0 of 1 uses 1 CPU devices", "uses 0 of the 4 GPUs"),
        # A chip of v3 is two devices.
        ([device("tpu", n // 2) for n in range(8)], [], "host 0 of 1 uses 4 of 4 TPU chips", ""),
        ([device("tpu")], [], "host 0 of 1 uses 1 of 4 TPU chips", "uses 1 of the 4 TPU chips"),
    ],
)
def test_a_run_says_how_many_devices_it_uses(used, given, line, warning, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setattr("jax.local_devices", lambda: used)
    monkeypatch.setattr(node_devices, "gpus", lambda: ALL)
    monkeypatch.setattr(node_devices, "given_gpus", lambda environment: given)
    monkeypatch.setattr(node_devices, "tpu_chips", lambda: 4)
    said = processes.devices_line()
    assert said[0] == line
    assert warning in said[1] and bool(warning) == bool(said[1])
