"""Handing a study's trials to an engine that runs them elsewhere: Slurm, or Kubernetes.

Each trial is `dawnjax study ... --trial=K`, where the engine counts K: the index of an array job,
or of an Indexed Job. The machines share the study's folder; the command without `--trial` then
makes the result.
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
    """Submits an array job with a task for each trial.

    Args:
      argv: The study's command line after `dawnjax study`.
      trials: How many trials the study has.
      out: The study's folder; Slurm's scripts and outputs go to `slurm` in it.
      settings: Parameters of submitit's executor: `slurm_partition=gpu`, `timeout_min=60`.

    Returns:
      The array job's number.

    Raises:
      ConfigError: submitit is not installed, or a setting is none of its.
      RunError: Slurm refused the job.
    """
    try:
        import submitit  # pyright: ignore[reportMissingImports]
        from submitit.core.utils import FailedJobError  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("--runner=slurm needs submitit: pip install 'dawnjax[slurm]'") from None
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
    """What submitit calls on the machine of a trial."""
    import submitit  # pyright: ignore[reportMissingImports]

    program = shlex.join([sys.executable, "-m", "dawnjax"])
    return submitit.helpers.CommandFunction(["sh", "-c", _script(program, argv, str(trial))])


def _script(program: str, argv: Sequence[str], trial: str) -> str:
    """A shell's commands for a trial: one that spends its budget or diverges is over all the same.

    Args:
      program: What runs `dawnjax`.
      argv: The study's command line after `dawnjax study`.
      trial: Its number, and flags of its own.
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


SETTINGS = ("image", "claim", "mount", "hosts", "name", "namespace")
"""Of the manifest; any other setting is a resource of a pod, such as `nvidia.com/gpu=8`."""


def kubernetes_manifest(
    argv: Sequence[str], trials: int, settings: Mapping[str, str]
) -> dict[str, Any]:
    """A manifest that runs each trial once: an Indexed Job, or a JobSet where a trial has hosts.

    Args:
      argv: The study's command line after `dawnjax study`; its paths are those in the container.
      trials: How many trials the study has.
      settings: `image`; `claim`, a PersistentVolumeClaim mounted at `mount` (`/study` if not
        given), for the study's folder; `hosts` of a trial, 1 if not given; `name`; `namespace`; and
        the resources of a pod.

    Raises:
      ConfigError: A setting is missing or wrong.
    """
    for name in ("image", "claim"):
        if name not in settings:
            raise ConfigError(f"--runner=kubernetes needs --runner_setting={name}=...")
    hosts = settings.get("hosts", "1")
    if not re.fullmatch(r"[1-9]\d{0,4}", hosts):
        raise ConfigError(f"--runner_setting=hosts={hosts} must be a number of hosts, from 1")
    name = settings.get("name", "dawnjax-study")
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", name):
        raise ConfigError(
            f"--runner_setting=name={name!r} must be up to 42 lower-case letters, digits and '-'"
        )
    metadata: dict[str, Any] = {"name": name}
    if "namespace" in settings:
        metadata["namespace"] = settings["namespace"]
    if int(hosts) == 1:
        # The other pods of the job have other trials: they are no companions of this one.
        trial = '"$JOB_COMPLETION_INDEX" --processes.mode=off'
        spec = _job(_pod(argv, settings, trial), trials)
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    coordinator = f'{name}-trial-"$DAWNJAX_TRIAL"-0.{name}:{COORDINATOR_PORT}'
    flags = f" --processes.mode=on --processes.coordinator_address={coordinator}"
    flags += f' --processes.num_processes={hosts} --processes.process_id="$JOB_COMPLETION_INDEX"'
    pod = _pod(argv, settings, '"$DAWNJAX_TRIAL"' + flags)
    annotation = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
    pod["spec"]["containers"][0]["env"] = [
        {"name": "DAWNJAX_TRIAL", "valueFrom": {"fieldRef": {"fieldPath": annotation}}}
    ]
    job = {"name": "trial", "replicas": trials, "template": {"spec": _job(pod, int(hosts))}}
    spec = {
        "network": {"enableDNSHostnames": True, "subdomain": name},
        "replicatedJobs": [job],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": spec,
    }


def _job(pod: dict[str, Any], completions: int) -> dict[str, Any]:
    """A job whose pods are numbered; a pod that dies is started again and resumes its trial."""
    return {
        "completionMode": "Indexed",
        "completions": completions,
        "parallelism": completions,
        "backoffLimit": 3 * completions,
        "template": pod,
    }


def _pod(argv: Sequence[str], settings: Mapping[str, str], trial: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "trial",
        "image": settings["image"],
        "command": ["sh", "-c", _script("dawnjax", argv, trial)],
        "volumeMounts": [{"name": "study", "mountPath": settings.get("mount", "/study")}],
    }
    resources = {name: value for name, value in settings.items() if name not in SETTINGS}
    if resources:
        container["resources"] = {"limits": resources}
    volume = {"name": "study", "persistentVolumeClaim": {"claimName": settings["claim"]}}
    return {
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": [volume]},
    }


def write_manifest(manifest: dict[str, Any], out: Path) -> Path:
    """Writes the manifest, as JSON, which `kubectl apply -f` takes; returns its path."""
    path = out / "kubernetes.json"
    records.write_json(path, manifest, indent=1)
    return path
