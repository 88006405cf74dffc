"""Programs of an experiment for a system: compiled in a separate process, kept as extracts.

The name of an entry of the cache is a hash of what made it: experiment, system, versions, code,
settings of JAX and XLA. A damaged file counts as none.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dawnjax
from dawnjax import records
from dawnjax.cluster import children
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan.compiling import compilers
from dawnjax.plan.compiling.extract import Extract
from dawnjax.plan.hardware.systems import System

if TYPE_CHECKING:
    from dawnjax.config.experiment_flags import Request

CACHE_DIR = "~/.cache/dawnjax/plans"

PACKAGES = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda13-plugin", "jax-cuda13-pjrt")
PACKAGES += ("nvidia-cuda-nvcc",)


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
      model_flops_per_example: Model FLOPs of a train step per example; None if counting needs
        absent data.
      data_note: Source of counts and shapes.
    """

    stages: tuple[Stage, ...]
    evaluate: Extract
    eval_batches: int
    train_examples: int
    model_flops_per_example: float | None
    data_note: str

    @property
    def budget_epochs(self) -> float:
        examples = sum(stage.steps * stage.examples_per_step for stage in self.stages)
        return examples / self.train_examples

    @property
    def memory_bytes(self) -> int:
        """Bytes of a device that the largest program needs."""
        return max(self.evaluate.memory_bytes, *(s.train.memory_bytes for s in self.stages))


Watch = Callable[[], AbstractContextManager[None]]
"""Made around each call of a compiler, to say what is compiled."""


def compiled(
    argv: Sequence[str], identity: str, system: System, watch: Watch = nullcontext
) -> Programs:
    """Programs of an experiment for a system, from the cache or compiled now.

    Args:
      argv: Flags of the experiment, as of `dawnjax train`.
      identity: Hash of the experiment and of the options that change a program (`identity_of`).

    Raises:
      RunError: They cannot be compiled, or do not fit; one line says why.
    """
    name = _name_of(identity, system)
    # Nothing is kept, it is damaged, or nothing can be kept: there is no home directory.
    with suppress(OSError, RunError, ValueError):
        return records.read_json(records.in_home(CACHE_DIR) / name, Programs)
    answer = answer_of_compiler({"argv": list(argv)}, system, watch)
    with suppress(RunError):
        records.write_json(records.in_home(CACHE_DIR) / name, answer, indent=None)
    return records.convert(answer, Programs)


def answer_of_compiler(
    request: Mapping[str, Any], system: System, watch: Watch = nullcontext
) -> dict[str, Any]:
    """JSON answer of `worker.py` to a request.

    Raises:
      RunError: A compiler is not installed, or refuses; one line says why.
    """
    accelerator = system.accelerator
    if not accelerator.compiler:
        raise RunError(f"no compiler for {accelerator.name} is available: give --search=mesh")
    environment = compilers.environment(accelerator.device.platform)
    command, pipe = [sys.executable, "-m", "dawnjax.plan.compiling.worker"], subprocess.PIPE
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The assembler of a GPU's kernels has files there, and is not waited for.
        environment["TMPDIR"] = folder
        request = {**request, "system": _full_name(system), "folder": folder}
        # This thread, of a pool or not, lasts as long as the compiler, for which it waits.
        child = children.start(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        with child, watch():
            try:
                out, err = child.communicate(json.dumps(request).encode())
            finally:
                children.send(child, signal.SIGKILL)  # and what it started and left
    lines = [line for line in out.decode(errors="replace").splitlines() if line.startswith("{")]
    if child.returncode < 0:
        raise RunError(f"{signal.Signals(-child.returncode).name} ended the compiler's process")
    if child.returncode or not lines:
        said = err.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise RunError(f"the compiler's process ended with status {child.returncode}: {said}")
    answer = records.load_json(lines[-1])
    if "reason" in answer:
        raise RunError(answer["reason"])
    return answer


def _full_name(system: System) -> str:
    if system.accelerator.device.platform == "tpu":
        return f"{system.accelerator.name}:{system.topology}"
    return system.name


_SETTINGS = ("JAX_", "XLA_", "LIBTPU_", "TPU_")
"""Beginnings of the variables of the environment that change a compiled program."""


def _name_of(identity: str, system: System) -> str:
    """Name of an entry: a hash of everything that changes an experiment's programs for a system."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    made_of = [identity, _full_name(system), versions(), _hash_of_sources(), settings]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32] + ".json"


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the installed packages that make a program."""
    every = importlib.metadata.distributions()
    return {found.name: found.version for found in every if found.name in PACKAGES}


OPTIONS = ("mesh", "weight_update_sharding", "context_keys")
"""Options of a run that change its programs."""


@functools.cache
def _hash_of_sources() -> str:
    """Hash of this package's sources and tables."""
    digest = hashlib.sha256()
    top = Path(dawnjax.__file__).resolve().parent
    for folder, _, names in sorted(os.walk(top, followlinks=True)):
        for name in sorted(names):
            if name.endswith((".py", ".csv")):
                path = Path(folder, name)
                digest.update(f"{path.relative_to(top)} {path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def spec_of(data: Any) -> tuple[Any, str]:
    """Shapes and counts of the data here, or else of the published set; and which it was.

    Raises:
      ConfigError, DataError: The data are unfit, or neither here nor published.
    """
    from dawnjax.config.own_files import own_code
    from dawnjax.input_pipeline.reading.dataset import MissingDataError

    try:
        with own_code("the data"):
            return data.spec(), "the data that are here"
    except MissingDataError as error:
        if not hasattr(data, "published_spec"):
            raise ConfigError(str(error)) from None
        return data.published_spec(), "counts and shapes of the published set"
    except ValueError as error:  # a field of the dataset's config that lies outside its range
        raise ConfigError(str(error)) from None


def identity_of(request: "Request", spec: Any) -> str:
    """Identity of an experiment and its data, with options that change its programs."""
    from dawnjax.config.own_files import file_of

    own = file_of(request.experiment)
    shapes = [sorted(spec.example_shapes(split).items()) for split in ("train", "eval")]
    counts = (spec.num_train_examples, spec.num_eval_examples)
    options = [getattr(request.options, name) for name in OPTIONS]
    made_of = [request.experiment.recipe_fields(), spec.fingerprint, counts, shapes, options]
    return f"{made_of} {own.code() if own else ''}"
