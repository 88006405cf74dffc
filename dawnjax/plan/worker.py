"""Compile an experiment's programs for a system, in a process with that system's environment.

    python -m dawnjax.plan.worker < request.json

The request is `{"argv": [...], "system": NAME}`. The answer is one JSON object with the extracts
of the train and evaluation steps, or with the memory of each program where a task makes its
examples, or with a `reason`.
"""

import re
import sys
from typing import TYPE_CHECKING, Any

from dawnjax import records
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan.compilers import described_devices
from dawnjax.plan.extract import extract_of
from dawnjax.plan.predict import does_not_fit
from dawnjax.plan.systems import System, parse_system

if TYPE_CHECKING:
    from dawnjax.train_step import Recipe


def main() -> int:
    """Answer the request; a failure of the compiler is an answer too."""
    request = records.load_json(sys.stdin.read())
    try:
        answer = compile_programs(request["argv"], parse_system(request["system"]))
    except (ConfigError, RunError) as error:
        answer = {"reason": str(error)}
    except Exception as error:  # the compiler is another's: whatever it raises is its answer
        answer = {"reason": reason_of(str(error) or type(error).__name__)}
    print(records.json_text(answer))
    return 0


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
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"the compiler refuses: {lines[0][:300] if lines else 'it gives no reason'}"


_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def recipes_of(argv: list[str], system: System) -> tuple[list["Recipe"], int, str]:
    """Recipe of each stage on a system, examples of an evaluation batch, source of the counts."""
    from dawnjax.config.experiment_flags import parse_request
    from dawnjax.machine import jax_settings
    from dawnjax.machine.mesh import batch_shards, make_mesh
    from dawnjax.plan.compiled import spec_of
    from dawnjax.session import refuse_mesh
    from dawnjax.train_step import make_recipe

    jax_settings.prepare()
    request, _ = parse_request("plan", argv)
    experiment = request.experiment
    spec, note = spec_of(experiment.data)
    experiment.validate(spec)
    refuse_mesh(experiment.model, spec, request.options.mesh)
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


def compile_programs(argv: list[str], system: System) -> dict[str, Any]:
    """JSON fields of `compiled.Programs`, or of `generating.Answer`."""
    import jax

    from dawnjax.feed import InputShapes
    from dawnjax.machine.mesh import batch_shards

    recipes, batch, note = recipes_of(argv, system)
    spec, shards = recipes[0].spec, batch_shards(recipes[0].mesh)
    if recipes[0].experiment.task.makes_examples:
        shapes = InputShapes(recipes[0].experiment, spec, "host", batch)
        return {"memory_bytes": _memory_of_each(recipes[0], shapes)}
    stages = []
    for recipe in recipes:
        rows = recipe.experiment.global_batch_size
        if rows % shards:
            raise ConfigError(f"global_batch_size={rows} is no multiple of {shards} devices")
        shapes = InputShapes(recipe.experiment, spec, "host", batch)
        stages.append(
            {
                "steps": recipe.span.last_step - recipe.span.first_step,
                "examples_per_step": rows,
                "train": _train(recipe, shapes),
            }
        )
    params = recipes[-1].abstract_state.params
    last_shapes = InputShapes(recipes[-1].experiment, spec, "host", batch)
    return {
        "stages": stages,
        "evaluate": _evaluate(recipes[-1], last_shapes, max(_longest(spec), 1)),
        "eval_batches": -(-spec.num_eval_examples // batch),
        "train_examples": spec.num_train_examples,
        "model_flops_per_example": model_flops(recipes[-1]),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
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


def _memory_of_each(recipe: Any, shapes: Any) -> dict[str, int]:
    """Bytes of a device that each program of a task that makes its examples needs."""
    from dawnjax.generations import compile_generation

    programs = {
        **compile_generation(recipe, lambda *_: None),
        "train": train_program(recipe, shapes),
        "evaluation": _evaluation_program(recipe, shapes),
    }
    return {name: memory_bytes(program) for name, program in programs.items()}


def _train(recipe: Any, shapes: Any) -> dict[str, Any]:
    return _extract(train_program(recipe, shapes), 1)


def train_program(recipe: Any, shapes: Any) -> Any:
    """Compiled train step of a recipe, without any other step in its call."""
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
    return program_of(jitted.lower(*arguments), xla_options(recipe))


def _evaluate(recipe: Any, shapes: Any, rounds: int) -> dict[str, Any]:
    return _extract(_evaluation_program(recipe, shapes), rounds)


def _evaluation_program(recipe: Any, shapes: Any) -> Any:
    import jax

    from dawnjax.machine.mesh import replicated
    from dawnjax.programs import evaluation_call, xla_options

    function, arguments = evaluation_call(recipe, shapes)
    jitted = jax.jit(function, out_shardings=replicated(recipe.mesh), donate_argnums=4)
    return program_of(jitted.lower(*arguments), xla_options(recipe))


_NO_TILE = "Couldn't find output tile sizes"
"""How XLA refuses a product for whose shape Triton's default tile is none."""


def program_of(lowered: Any, options: dict[str, Any]) -> Any:
    """Compiled program of a function that JAX lowered.

    Without a GPU, XLA tries no kernels and gives each product one default tile of Triton's. Where
    that fits no shape of a product, all products of the program are cuBLAS's; on a GPU, XLA would
    have found another tile or taken cuBLAS.
    """
    import jax

    try:
        return lowered.compile(options)
    except jax.errors.JaxRuntimeError as error:
        if _NO_TILE not in str(error):
            raise
    return lowered.compile({**options, "xla_gpu_enable_triton_gemm": False})


def _extract(program: Any, rounds: int) -> dict[str, Any]:
    from dawnjax.profile.hlo import analyze

    work = analyze(program.as_text() or "", rounds)
    return records.plain(extract_of(work, memory_bytes(program)))


def memory_bytes(program: Any) -> int:
    """Bytes of a device that a compiled program needs at its peak, by XLA's own count."""
    memory = program.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes
    peak += memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    # Donated arguments share memory with outputs and would count twice.
    return peak - memory.alias_size_in_bytes


if __name__ == "__main__":
    sys.exit(main())
