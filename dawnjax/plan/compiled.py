"""The programs of an experiment for a target: compiled in another process, and kept as extracts."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dawnjax.errors import ConfigError, RunError
from dawnjax.plan import compilers, extract
from dawnjax.plan.extract import Extract
from dawnjax.plan.targets import Target

CACHE_DIR = "~/.cache/dawnjax/plans"
COMPILE_SECONDS = 900
"""A compiler that takes longer is stopped; the largest program here took a minute."""

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-plugin", "jax-cuda12-pjrt")
_PACKAGES += ("nvidia-cuda-nvcc-cu12",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a run.

    Attributes:
      steps: Its steps in the whole budget.
      examples_per_step: The global batch.
      train: A train step.
    """

    steps: int
    examples_per_step: int
    train: Extract


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """What an experiment runs on a target.

    Attributes:
      stages: The stages of a run.
      evaluate: One evaluation step.
      eval_batches: Evaluation steps of an evaluation.
      train_examples: Examples of an epoch.
      model_flops_per_example: Of a train step; None where they are counted from data that are not
        here.
      parameters: Of the model.
      data_note: Where counts and shapes are from.
    """

    stages: tuple[Stage, ...]
    evaluate: Extract
    eval_batches: int
    train_examples: int
    model_flops_per_example: float | None
    parameters: int
    data_note: str

    @property
    def memory_bytes(self) -> int:
        """The most that a program needs on a device."""
        return max(self.evaluate.memory_bytes, *(s.train.memory_bytes for s in self.stages))


def programs_from_json(fields: Mapping[str, Any]) -> Programs:
    """The programs that `worker.py` answered."""
    stages = tuple(
        Stage(
            steps=stage["steps"],
            examples_per_step=stage["examples_per_step"],
            train=extract.from_json(stage["train"]),
        )
        for stage in fields["stages"]
    )
    return Programs(
        stages=stages,
        evaluate=extract.from_json(fields["evaluate"]),
        eval_batches=fields["eval_batches"],
        train_examples=fields["train_examples"],
        model_flops_per_example=fields["model_flops_per_example"],
        parameters=fields["parameters"],
        data_note=fields["data_note"],
    )


def compiled(argv: Sequence[str], identity: str, target: Target) -> Programs:
    """The programs of an experiment for a target: from the cache, or compiled now.

    Args:
      argv: Flags of the experiment, as of `dawnjax train`.
      identity: Of the experiment and of the options that change a program.
      target: The hardware.

    Raises:
      RunError: They cannot be compiled, or do not fit; one line says why.
    """
    return programs_from_json(answer_of(argv, identity, target))


def answer_of(argv: Sequence[str], identity: str, target: Target) -> dict[str, Any]:
    """As `compiled`, in the JSON values of `worker.compile_programs`."""
    file = Path(CACHE_DIR).expanduser() / f"{_key(identity, target)}.json"
    try:
        answer = json.loads(file.read_text())
        programs_from_json(answer)
        return answer
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none is kept, or it is damaged
    answer = _answer(argv, target)
    if "reason" in answer:
        raise RunError(answer["reason"])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(answer))
        part.replace(file)
    except OSError as error:
        print(f"compiled programs are not kept: {error}", file=sys.stderr)
    return answer


def _answer(argv: Sequence[str], target: Target) -> dict[str, Any]:
    environment = compilers.environment(target.system.device.platform)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dawnjax.plan.worker"],
            input=json.dumps({"argv": list(argv), "target": _full_name(target)}),
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"the compiler was stopped after {COMPILE_SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    said = [line for line in done.stderr.splitlines() if line.strip()]
    status = f"the compiler's process ended with status {done.returncode}"
    return {"reason": f"{status}: {said[-1][:300]}" if said else status}


def _full_name(target: Target) -> str:
    if target.system.device.platform == "tpu":
        return f"{target.system.name}:{target.topology}"
    return target.name


def _key(identity: str, target: Target) -> str:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    parts = (identity, _full_name(target), versions, _source_hash())
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


_NOT_IN_PROGRAMS = {"analysis", "commands", "official", "report", "results", "runs", "study"}
"""Folders whose code makes no part of a program."""


def _source_hash() -> str:
    """Hash of the code that makes and counts a program."""
    digest = hashlib.sha256()
    top = Path(__file__).resolve().parent.parent
    for folder, _, names in sorted(os.walk(top, followlinks=True)):
        if Path(folder).name in _NOT_IN_PROGRAMS:
            continue
        if Path(folder).name == "plan":
            names = ["compilers.py", "extract.py", "gpus.csv", "targets.py", "worker.py"]
        for name in sorted(names):
            if name.endswith((".py", ".csv")):
                digest.update(Path(folder, name).read_bytes())
    return digest.hexdigest()


def identity_of(argv: Sequence[str]) -> str:
    """Identity of what the flags ask for, and the options that change its programs.

    Raises:
      ConfigError: A flag is wrong.
    """
    from dawnjax.config.experiment_flags import parse_request

    request, positional = parse_request("plan", list(argv))
    if positional:
        raise ConfigError(f"unexpected argument {positional[0]!r}")
    own = request.experiment_file.read_text() if request.experiment_file else ""
    options = (request.options.mesh, request.options.weight_update_sharding)
    return f"{request.experiment.recipe_fields()} {options} {own}"
