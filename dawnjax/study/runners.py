"""A study's trials on other machines: an array job of Slurm, or a manifest for Kubernetes.

Each trial is `dawnjax study ... --trial=K`. The engine counts K: the index of an array job, or of
an Indexed Job. The machines share the study's folder; the command without `--trial` then makes the
result.
"""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError

COORDINATOR_PORT = 8476


def submit_to_slurm(
    argv: Sequence[str], trials: int, out: Path, settings: Mapping[str, str]
) -> str:
    """Submit an array job with a task for each trial and return its number.

    Slurm's files go to `slurm` in `out`.

    Args:
      argv: The study's command line after `dawnjax study`.
      trials: Number of trials.
      settings: Parameters of submitit's executor: `slurm_partition=gpu`, `timeout_min=60`.

    Raises:
      ConfigError: submitit is not installed, or does not know a setting.
      RunError: Slurm refused the job.
    """
    try:
        import submitit  # pyright: ignore[reportMissingImports]
        from submitit.core.utils import FailedJobError  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("--runner=slurm needs submitit: pip install -e '.[slurm]'") from None
    try:
        executor = submitit.AutoExecutor(folder=out / "slurm", cluster="slurm")
        executor.update_parameters(
            name="dawnjax", **{name: _number(value) for name, value in settings.items()}
        )
        with executor.batch():
            jobs = [executor.submit(_command(argv, trial)) for trial in range(trials)]
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise ConfigError(f"--runner=slurm: {' '.join(str(error).split())[:200]}") from None
    except (FailedJobError, OSError) as error:
        raise RunError(f"Slurm refused the job: {' '.join(str(error).split())[:200]}") from None
    return str(jobs[0].job_id).partition("_")[0]


def _command(argv: Sequence[str], trial: int) -> Any:
    import submitit  # pyright: ignore[reportMissingImports]

    program = shlex.join([sys.executable, "-m", "dawnjax"])
    return submitit.helpers.CommandFunction(["sh", "-c", _script(program, argv, str(trial))])


def _script(program: str, argv: Sequence[str], trial: str) -> str:
    """Shell commands for a trial, with its number and its hosts' flags in `trial`.

    Statuses 3 and 4 become 0: such a trial is over, and the engine would restart a failure.
    """
    run = f"{program} study {shlex.join(argv)} --trial={trial}"
    # A pod's first process, this shell, alone hears of a stop (SIGTERM). It listens before the
    # trial begins, and hands on what it heard before the trial had a number. A stop ends a wait;
    # after one that comes as the trial ends no trial is left to wait for, and `wait` says 127.
    hand_on = 'if [ -n "$pid" ]; then kill -TERM "$pid" 2>/dev/null; else early=1; fi'
    listen = f"pid=; early=; status=127; trap 'asked=1; {hand_on}' TERM"
    start = f'{run} & pid=$!; [ -z "$early" ] || kill -TERM "$pid"'
    wait = 'asked=; wait "$pid"; now=$?; [ "$now" = 127 ] || status=$now; [ -n "$asked" ] || break'
    end = "case $status in 3|4) exit 0;; esac; exit $status"
    return f"{listen}; {start}; while :; do {wait}; done; {end}"


def _number(value: str) -> int | str:
    return int(value) if re.fullmatch(r"\d+", value) else value


SETTINGS = ("image", "claim", "mount", "hosts", "name")
"""Of the manifest; any other setting is a resource of a pod, such as `nvidia.com/gpu=8`."""


def write_manifest(
    argv: Sequence[str], trials: int, out: Path, settings: Mapping[str, str]
) -> Path:
    """Write `kubernetes.json`, which `kubectl apply -f` takes; return its path.

    Args:
      argv: The study's command line after `dawnjax study`; its paths are those in the container.
      trials: Number of trials.
      settings: `image`; `claim`, a PersistentVolumeClaim mounted at `mount` (default `/study`) for
        the study's folder; `hosts` of a trial (default 1); `name`; and a pod's resources.

    Raises:
      ConfigError: A setting is missing or wrong.
    """
    for needed in ("image", "claim"):
        if needed not in settings:
            raise ConfigError(f"--runner=kubernetes needs --runner_setting={needed}=...")
    hosts = settings.get("hosts", "1")
    if not re.fullmatch(r"[1-9]\d{0,4}", hosts):
        raise ConfigError(f"--runner_setting=hosts={hosts} must be a number of hosts, from 1")
    name = settings.get("name", "dawnjax-study")
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", name):
        raise ConfigError(
            f"--runner_setting=name={name!r} must be up to 42 lower-case letters, digits and '-'"
        )
    manifest = (
        _indexed_job(argv, trials, settings)
        if int(hosts) == 1
        else _job_set(argv, trials, settings, name, int(hosts))
    )
    path = out / "kubernetes.json"
    records.write_json(path, {**manifest, "metadata": {"name": name}}, indent=1)
    return path


def _indexed_job(argv: Sequence[str], trials: int, settings: Mapping[str, str]) -> dict[str, Any]:
    """Job with one pod for each trial."""
    # The other pods of the job have other trials: a pod must not join them as its hosts.
    spec = _job(argv, trials, settings, '"$JOB_COMPLETION_INDEX" --processes.mode=off')
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}


def _job_set(
    argv: Sequence[str], trials: int, settings: Mapping[str, str], name: str, hosts: int
) -> dict[str, Any]:
    """JobSet with one job for each trial, whose pods are the trial's hosts."""
    coordinator = f'{name}-trial-"$DAWNJAX_TRIAL"-0.{name}:{COORDINATOR_PORT}'
    flags = f" --processes.mode=on --processes.coordinator_address={coordinator}"
    flags += f' --processes.num_processes={hosts} --processes.process_id="$JOB_COMPLETION_INDEX"'
    job = _job(argv, hosts, settings, '"$DAWNJAX_TRIAL"' + flags)
    annotation = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
    job["template"]["spec"]["containers"][0]["env"] = [
        {"name": "DAWNJAX_TRIAL", "valueFrom": {"fieldRef": {"fieldPath": annotation}}}
    ]
    spec = {
        "network": {"enableDNSHostnames": True, "subdomain": name},
        "replicatedJobs": [{"name": "trial", "replicas": trials, "template": {"spec": job}}],
    }
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}


def _unexpanded(text: str) -> str:
    """Text that Kubernetes hands to a container as it is: it makes `$$` a `$`, and reads `$(NAME)`.

    Source: Kubernetes API reference, `Container.command`.
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def _job(argv: Sequence[str], pods: int, settings: Mapping[str, str], trial: str) -> dict[str, Any]:
    """Job of numbered pods; a pod that dies restarts and resumes its trial."""
    container: dict[str, Any] = {
        "name": "trial",
        "image": settings["image"],
        "command": ["sh", "-c", _unexpanded(_script("dawnjax", argv, trial))],
        "volumeMounts": [{"name": "study", "mountPath": settings.get("mount", "/study")}],
    }
    resources = {name: value for name, value in settings.items() if name not in SETTINGS}
    if resources:
        container["resources"] = {"limits": resources}
    volume = {"name": "study", "persistentVolumeClaim": {"claimName": settings["claim"]}}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        # Shared by all pods of a job; preempted pods count as failures too.
        "backoffLimit": 3 * pods,
        "template": {"spec": pod},
    }
