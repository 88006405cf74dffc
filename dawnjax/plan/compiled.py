"""Programs of an experiment for a system: compiled in a separate process, kept as extracts."""

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

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan import compilers
from dawnjax.plan.extract import Extract
from dawnjax.plan.systems import System

CACHE_DIR = "~/.cache/dawnjax/plans"
COMPILE_SECONDS = 900
"""A compiler that takes longer is stopped; the largest program here took a minute."""

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-plugin", "jax-cuda12-pjrt")
_PACKAGES += ("nvidia-cuda-nvcc-cu12",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a run: number of steps, global batch, and the extract of a train step."""

    steps: int
    examples_per_step: int
    train: Extract


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """Programs of an experiment on a system.

    Attributes:
      evaluate: One evaluation step; an evaluation has `eval_batches` of them.
      train_examples: Examples of an epoch.
      model_flops_per_example: Of a train step; None where counting needs data that are not here.
      data_note: Source of counts and shapes.
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
        """Bytes of a device that the largest program needs."""
        return max(self.evaluate.memory_bytes, *(s.train.memory_bytes for s in self.stages))


def programs_from_json(fields: Mapping[str, Any]) -> Programs:
    """Programs in the answer of `worker.py`; FieldError for a wrong field or no stage."""
    programs = records.convert(fields, Programs, others=True)
    if not programs.stages:
        raise records.FieldError("it has no stages")
    return programs


def compiled(argv: Sequence[str], identity: str, system: System) -> Programs:
    """Programs of an experiment for a system, from the cache or compiled now.

    Args:
      argv: Flags of the experiment, as of `dawnjax train`.
      identity: Hash of the experiment and of the options that change a program (`identity_of`).

    Raises:
      RunError: They cannot be compiled, or do not fit; one line says why.
    """
    return programs_from_json(answer_of(argv, identity, system))


def answer_of(argv: Sequence[str], identity: str, system: System) -> dict[str, Any]:
    """JSON answer of `worker.compile_programs`, cached or made now; raises as `compiled`."""
    file = Path(CACHE_DIR).expanduser() / f"{_key(identity, system)}.json"
    try:
        answer = records.read_json(file, dict[str, Any])
        programs_from_json(answer)
        return answer
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        print(f"{file} is damaged ({error}): the programs are compiled again", file=sys.stderr)
    answer = _answer(argv, system)
    if "reason" in answer:
        raise RunError(answer["reason"])
    try:
        records.write_json(file, answer, indent=None)
    except RunError as error:
        print(f"compiled programs are not kept: {error}", file=sys.stderr)
    return answer


def _answer(argv: Sequence[str], system: System) -> dict[str, Any]:
    environment = compilers.environment(system.accelerator.device.platform)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dawnjax.plan.worker"],
            input=json.dumps({"argv": list(argv), "system": _full_name(system)}),
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"the compiler was stopped after {COMPILE_SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return records.load_json(lines[-1])
    said = [line for line in done.stderr.splitlines() if line.strip()]
    status = f"the compiler's process ended with status {done.returncode}"
    return {"reason": f"{status}: {said[-1][:300]}" if said else status}


def _full_name(system: System) -> str:
    if system.accelerator.device.platform == "tpu":
        return f"{system.accelerator.name}:{system.topology}"
    return system.name


def _key(identity: str, system: System) -> str:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    parts = (identity, _full_name(system), versions, _source_hash())
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


_NOT_IN_PROGRAMS = {"analysis", "commands", "official", "report", "results", "runs", "study"}
"""Folders whose code makes no part of a program."""


def _source_hash() -> str:
    """Hash of the code that makes and counts a program; part of the cache's key."""
    digest = hashlib.sha256()
    top = Path(__file__).resolve().parent.parent
    for folder, _, names in sorted(os.walk(top, followlinks=True)):
        if Path(folder).name in _NOT_IN_PROGRAMS:
            continue
        if Path(folder).name == "plan":
            names = ["compilers.py", "extract.py", "gpus.csv", "systems.py", "worker.py"]
        for name in sorted(names):
            if name.endswith((".py", ".csv")):
                digest.update(Path(folder, name).read_bytes())
    return digest.hexdigest()


def identity_of(argv: Sequence[str]) -> str:
    """Identity of the experiment that the flags ask for, with options that change its programs."""
    from dawnjax.config.experiment_flags import parse_request
    from dawnjax.config.own_files import file_of

    request, positional = parse_request("plan", list(argv))
    if positional:
        raise ConfigError(f"unexpected argument {positional[0]!r}")
    own = file_of(request.experiment)
    options = (request.options.mesh, request.options.weight_update_sharding)
    return f"{request.experiment.recipe_fields()} {options} {own.code() if own else ''}"
