"""Compile programs for a system, in a process with that system's environment.

    python -m dawnjax.plan.compiling.worker < request.json

A request has `system`, a `folder` for XLA's files, and one of these; the answer is a JSON object.

- `argv`: flags of an experiment. Extracts of its train and evaluation steps.
- `argv` and `is_memory`: memory of its train step, or of all programs of a task that makes its
  examples.
- `exported`: file of an exported function, and which of its arguments are `donated`. Its memory.

Where there is no answer, a `reason` says why.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan.compiling.assigned import Assigned, assigned, leave
from dawnjax.plan.compiling.compilers import described_devices
from dawnjax.plan.compiling.extract import extract_of
from dawnjax.plan.compiling.limits import does_not_fit
from dawnjax.plan.hardware.systems import System, parse_system

if TYPE_CHECKING:
    from dawnjax.train_step import Recipe


def main() -> None:
    print(records.json_text(answer_to(records.load_json(sys.stdin.read()))))
    leave()


def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer to a request; a failure of the compiler is an answer too."""
    try:
        return compile_programs(request)
    except (ConfigError, RunError) as error:
        return {"reason": str(error)}
    except Exception as error:  # the compiler is another's: whatever it raises is its answer
        return {"reason": reason_of(str(error) or type(error).__name__)}


def reason_of(message: str) -> str:
    """One line of a compiler's message; for too little memory, the bytes needed and present."""
    used = re.search(
        r"Used ([\d.]+)([KMGT])\w* of ([\d.]+)([KMGT])\w* hbm|"
        r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)",
        message,
    )
    if used:
        size, unit, limit, limit_unit = (part for part in used.groups() if part)
        needs, has = float(size) * _UNITS[unit], float(limit) * _UNITS[limit_unit]
        return does_not_fit(needs, has)
    if "ptxas too old" in message:  # how XLA of jax 0.12 tells that ptxas knows no such GPU
        return "the compiler refuses: CUDA 13 has no kernels for this GPU; jax 0.10 plans a V100"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"the compiler refuses: {lines[0][:300] if lines else 'it gives no reason'}"


_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def recipes_of(argv: list[str], system: System) -> tuple[list["Recipe"], int, str]:
    """Recipe of each stage on a system, examples of an evaluation batch, source of the counts."""
    from dawnjax.config.experiment_flags import parse_request
    from dawnjax.machine import jax_settings
    from dawnjax.machine.mesh import batch_shards, make_mesh
    from dawnjax.plan.compiling.compiled import spec_of
    from dawnjax.train_step import make_recipe

    jax_settings.prepare()
    request, _ = parse_request("plan", argv)
    experiment = request.experiment
    spec, note = spec_of(experiment.data)
    mesh = make_mesh(request.options.mesh, described_devices(system))
    shards = batch_shards(mesh)
    # Rounded up as a run does it: every device takes an equal share.
    batch = -(-experiment.evaluation.global_batch_size // shards) * shards
    options = request.options
    recipes = [
        make_recipe(
            experiment,
            spec,
            mesh,
            span.index,
            options.weight_update_sharding,
            context_keys=options.context_keys,
        )
        for span in experiment.spans(spec)
    ]
    return recipes, batch, note


def compile_programs(request: Mapping[str, Any]) -> dict[str, Any]:
    """JSON fields of `compiled.Programs`, or of `memory.Memory`."""
    from dawnjax.feed import InputShapes
    from dawnjax.machine.mesh import batch_shards

    folder = Path(request["folder"])
    if "exported" in request:
        return {"programs": {"function": _memory(_exported(request, folder))}, "data_bytes": 0}
    recipes, batch, note = recipes_of(request["argv"], parse_system(request["system"]))
    last, spec, shards = recipes[-1], recipes[0].spec, batch_shards(recipes[0].mesh)
    shapes = [InputShapes(recipe.experiment, spec, "host", batch) for recipe in recipes]
    steps = (
        train_program(recipe, shape, folder / str(place))
        for place, (recipe, shape) in enumerate(zip(recipes, shapes, strict=True))
    )
    if "is_memory" in request:
        name = "train step of stage {}" if len(recipes) > 1 else "train step"
        programs = {name.format(place): _memory(step) for place, step in enumerate(steps, 1)}
        if not last.experiment.task.makes_examples:
            return {"programs": programs, "data_bytes": _data_bytes(shapes, shards)}
        return {"programs": programs | _between_steps(last, shapes[-1], folder), "data_bytes": 0}
    stages = [
        {
            "steps": recipe.span.last_step - recipe.span.first_step,
            "examples_per_step": recipe.experiment.global_batch_size,
            "train": _extract(step, 1),
        }
        for recipe, step in zip(recipes, steps, strict=True)
    ]
    evaluation = evaluation_program(last, shapes[-1], folder / "evaluation")
    return {
        "stages": stages,
        "evaluate": _extract(evaluation, max(_longest(spec), 1)),
        "model_flops_per_example": model_flops(last),
        "eval_batches": -(-spec.num_eval_examples // batch),
        "train_examples": spec.num_train_examples,
        "data_note": note,
    }


def model_flops(recipe: Any) -> float | None:
    """Model FLOPs of an example in a train step; None where counting needs the data."""
    from dawnjax.input_pipeline.reading.dataset import DataError

    try:
        return float(recipe.train_flops_per_example())
    except (DataError, ValueError):
        return None


def _longest(spec: Any) -> int:
    """Length of the longest sequence of an evaluation example; 0 without sequences."""
    shapes = [shape for shape, _ in spec.example_shapes("eval").values()]
    return max((shape[0] for shape in shapes if len(shape) == 1), default=0)


def _between_steps(recipe: "Recipe", shapes: Any, folder: Path) -> dict[str, Any]:
    """Memory of the programs that take turns with the train step of a task that makes its data."""
    import jax

    from dawnjax.generations import MADE, generation_calls

    found = {}
    for phase, call, arguments, whole in generation_calls(recipe):
        jitted = jax.jit(call, out_shardings=whole, donate_argnums=MADE)
        found[phase] = _memory(_program(jitted, arguments, {}, folder / phase))
    evaluation = evaluation_program(recipe, shapes, folder / "evaluation")
    return {**found, "evaluation": _memory(evaluation)}


def _data_bytes(shapes: Sequence[Any], shards: int) -> int:
    """Bytes of the data set on a device where a run keeps it there, else of batches that wait."""
    from dawnjax.feed import BATCHES_AHEAD, LARGEST_RESIDENT_BYTES
    from dawnjax.input_pipeline.reading.dataset import num_bytes

    size = num_bytes(shapes[0].spec)
    if size <= LARGEST_RESIDENT_BYTES:
        return size
    batches = (stage.train_inputs(1).values() for stage in shapes)
    largest = max(sum(a.size * a.dtype.itemsize for a in batch) for batch in batches)
    return BATCHES_AHEAD * largest // shards


def _exported(request: Mapping[str, Any], folder: Path) -> Assigned:
    """Program of a function of the user's, on the devices that it was exported for."""
    import jax
    import jax.export
    import numpy as np

    exported = jax.export.deserialize(bytearray(Path(request["exported"]).read_bytes()))
    devices = described_devices(parse_system(request["system"]))[: exported.nr_devices]
    meshes = [aval.sharding.mesh for aval in exported.in_avals if not aval.sharding.mesh.empty]
    names, sizes = (meshes[0].axis_names, meshes[0].axis_sizes) if meshes else (("one",), (1,))
    types = meshes[0].axis_types if meshes else None
    mesh = jax.sharding.Mesh(np.array(devices).reshape(sizes), names, axis_types=types)
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arguments = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding or whole)
        for aval, sharding in zip(exported.in_avals, exported.in_shardings_jax(mesh), strict=True)
    ]
    donated = [place for place, is_donated in enumerate(request["donated"]) if is_donated]
    jitted = jax.jit(
        exported.call, donate_argnums=donated, out_shardings=[*exported.out_shardings_jax(mesh)]
    )
    return _program(jitted, arguments, {}, folder / "function")


def train_program(recipe: Any, shapes: Any, folder: Path) -> Assigned:
    """Train step of a recipe, without any other step in its call."""
    import jax
    import jax.numpy as jnp

    from dawnjax.machine.mesh import replicated
    from dawnjax.programs import batches, call_of_steps, placed, state_shapes, xla_options
    from dawnjax.train_step import key_shape

    whole = replicated(recipe.mesh)
    state = state_shapes(recipe)
    arguments = (
        state,
        {},
        batches(shapes.train_inputs(1), recipe.mesh, 1),
        placed(jax.ShapeDtypeStruct((), jnp.int32), whole),
        placed(key_shape(), whole),
    )
    shardings = (jax.tree.map(lambda leaf: leaf.sharding, state), whole)
    jitted = jax.jit(call_of_steps(recipe, 1), out_shardings=shardings, donate_argnums=0)
    return _program(jitted, arguments, xla_options(recipe), folder)


def evaluation_program(recipe: Any, shapes: Any, folder: Path) -> Assigned:
    """Evaluation of one batch."""
    import jax

    from dawnjax.machine.mesh import replicated
    from dawnjax.programs import evaluation_call, xla_options

    function, arguments = evaluation_call(recipe, shapes)
    jitted = jax.jit(function, out_shardings=replicated(recipe.mesh), donate_argnums=4)
    return _program(jitted, arguments, xla_options(recipe), folder)


_NO_TILE = "Couldn't find output tile sizes"
"""XLA's refusal of a product that does not fit Triton's default tile."""


def _program(jitted: Any, arguments: Any, options: dict[str, Any], folder: Path) -> Assigned:
    return program_of(jitted.lower(*arguments), options, folder)


def program_of(lowered: Any, options: dict[str, Any], folder: Path) -> Assigned:
    """Program of a function that JAX lowered.

    Without a GPU, XLA tries no kernels and gives each product one default tile of Triton's. Where
    that fits no shape of a product, all products of the program are cuBLAS's; on a GPU, XLA would
    have found another tile or taken cuBLAS.
    """
    import jax

    try:
        return assigned(lowered, options, folder / "first")
    except jax.errors.JaxRuntimeError as error:
        if _NO_TILE not in str(error):
            raise
    return assigned(lowered, {**options, "xla_gpu_enable_triton_gemm": False}, folder / "second")


def _extract(program: Assigned, rounds: int) -> dict[str, Any]:
    from dawnjax.profile.hlo import analyze

    return records.plain(extract_of(analyze(program.text, rounds), program.num_bytes))


def _memory(program: Assigned) -> dict[str, Any]:
    return {
        "num_bytes": program.num_bytes,
        "argument_bytes": program.argument_bytes,
        "recomputed": _extract(program, 1)["recomputed"],
        "buffers": program.buffers,
    }


if __name__ == "__main__":
    main()
