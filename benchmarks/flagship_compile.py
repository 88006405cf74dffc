"""Compile seconds and memory of the flagships' train steps, for hardware that need not be here.

    python -m benchmarks flagship_compile [--target=cpu] [--devices=8] [--batch=256]
                                          [--variants=base,...] [EXPERIMENT...]

Each step is that of the full-size experiment: its own model, batch and dtype, lowered from shapes
alone, so no data and no accelerator is needed. `--target=tpu_v5e` and `tpu_v4` need libtpu,
`--target=h100` JAX's CUDA plugin and nvcc (`pip install 'dawnjax[plan]'`). One process compiles one
step; it prints a line of JSON with

    compile_seconds           XLA alone, of one process; no cache is used
    trace_and_lower_seconds   Python and JAX before it
    peak_bytes                of one device while the step runs, as XLA's memory analysis states it:
                              arguments, results that take no argument's memory, temporaries, code
    argument_bytes            of these the state and the batch
    moved_bytes               what the kernels of a step read and write on one device, as
                              `dawnjax profile` counts it for the roofline: each kernel's operands
                              and results once, so what caches keep between kernels counts too much

then all of them as a table, and writes `results/flagship_compile_TARGET.json` as they come. A
program for the CPU holds the whole batch of one device.

cuDNN makes its kernels for attention on the GPU itself: what they hold besides their operands and
results is in no figure here.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks import harness, step_settings
from dawnjax.errors import RunError
from dawnjax.plan import compilers
from dawnjax.plan.systems import parse_system

FLAGSHIPS = (
    "imagenet_resnet50",
    "imagenet_resnet50_mlperf",
    "imagenet_resnet50_progressive",
    "imagenet_amoebanet_d",
    "wmt_transformer_base",
    "wmt_transformer_big",
    "fineweb_gpt2_small",
    "cifar10_resnet18",
    "cifar10_wide_resnet34",
    "cifar10_resnet164",
    "cifar10_record",
)

SYSTEMS = {"tpu_v5e": "v5e", "tpu_v4": "v4", "h100": "h100"}
"""By the target's name here, that of `dawnjax plan --on`."""

COMPILED_VARIANTS = [
    name
    for name, variant in step_settings.VARIANTS.items()
    if name == "base" or not (variant.flags or variant.xla_flags or variant.batch_factor != 1)
]
"""Variants of `steps` that change only how a step is computed, not what or by which compiler."""

DEVICES = {"imagenet_resnet50_mlperf": 256}
"""How many devices share the batch; 8 where nothing is said, and 1 on CPU."""

CPU_BATCH_PER_DEVICE = 32
"""What one CPU device is given of a batch: a whole one would need a large machine to run."""


def main() -> int:
    """Compiles each step in a process of its own, and prints what it took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks flagship_compile")
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--target", choices=["cpu", *SYSTEMS], default="cpu")
    parser.add_argument("--weight_update_sharding", action="store_true")
    parser.add_argument(
        "--variants",
        default="base",
        help=f"with commas between, of {', '.join(COMPILED_VARIANTS)}",
    )
    parser.add_argument("--devices", type=int, help="that share the batch")
    parser.add_argument("--batch", type=int, help="examples of all devices together")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one step")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.experiments if name not in FLAGSHIPS]
    if unknown:
        parser.error(f"no flagship {unknown[0]!r}; there are {', '.join(FLAGSHIPS)}")
    unknown = [name for name in arguments.variants.split(",") if name not in COMPILED_VARIANTS]
    if unknown:
        parser.error(f"no variant {unknown[0]!r}; there are {', '.join(COMPILED_VARIANTS)}")
    if arguments.one:
        (name,) = arguments.experiments
        rows = compile_step(name, arguments)
        print("\n".join(json.dumps(row) for row in rows))
        return 0
    kind = "_sharded_update" if arguments.weight_update_sharding else ""
    kind += "_variants" if arguments.variants != "base" else ""
    kind += f"_on_{arguments.devices}" if arguments.devices else ""
    kind += f"_batch_{arguments.batch}" if arguments.batch else ""
    results = harness.Results(f"flagship_compile_{arguments.target}{kind}")
    rows = []
    for name in arguments.experiments or FLAGSHIPS:
        compiled_rows = _in_own_process(name, arguments)
        print("\n".join(json.dumps(row) for row in compiled_rows), flush=True)
        rows += compiled_rows
        results.add(rows=rows)
    print(_table(rows))
    print(results.path)
    return 1 if any("reason" in row for row in rows) else 0


def _in_own_process(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks", "flagship_compile", "--one", name]
    command += [f"--target={arguments.target}", f"--variants={arguments.variants}"]
    command += [f"--devices={arguments.devices}"] if arguments.devices else []
    command += [f"--batch={arguments.batch}"] if arguments.batch else []
    if arguments.weight_update_sharding:
        command.append("--weight_update_sharding")
    failed = {"experiment": name, "target": arguments.target}
    try:
        environment = _environment(arguments.target)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=arguments.timeout
        )
    except RunError as error:
        return [{**failed, "reason": str(error)}]
    except subprocess.TimeoutExpired:
        return [{**failed, "reason": f"not compiled within {arguments.timeout:g} s"}]
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [""]
        return [{**failed, "reason": lines[-1][:300]}]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _environment(target: str) -> dict[str, str]:
    """The environment in which a target's compiler works without its hardware."""
    if target == "cpu":
        return {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    return compilers.environment("tpu" if target.startswith("tpu") else "gpu")


def compile_step(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Compiles an experiment's train step, for each stage of its run; gives what each took."""
    import dataclasses

    import jax
    import jax.numpy as jnp

    from dawnjax.config.experiment_modules import load_experiment
    from dawnjax.config.run_options import MeshShape
    from dawnjax.feed import InputShapes
    from dawnjax.machine.mesh import batch_sharding, make_mesh, replicated
    from dawnjax.profile.hlo import analyze
    from dawnjax.programs import call_of_steps, state_shapes, xla_options
    from dawnjax.train_step import execution_of, key_shape, make_recipe

    experiment = load_experiment(name)
    target, shards_update = arguments.target, arguments.weight_update_sharding
    batch = arguments.batch
    if target == "cpu" and not batch:
        batch = min(CPU_BATCH_PER_DEVICE, experiment.global_batch_size)
    if batch:
        experiment = dataclasses.replace(
            experiment,
            global_batch_size=batch,
            batch_norm_group_size=min(batch, experiment.batch_norm_group_size),
            stages=dataclasses.replace(experiment.stages, global_batch_size=()),
        )
    spec = experiment.data.published_spec()
    experiment.validate(spec)
    mesh = make_mesh(MeshShape(), _devices(name, target, arguments.devices))
    whole = replicated(mesh)
    rows = []
    variants = arguments.variants.split(",")
    for span, variant in ((stage, kind) for stage in experiment.spans(spec) for kind in variants):
        started = time.perf_counter()
        execution = dataclasses.replace(
            execution_of(experiment.in_stage(span.index), mesh),
            **dict(step_settings.VARIANTS[variant].execution),
        )
        recipe = make_recipe(experiment, spec, mesh, span.index, shards_update, execution)
        state = state_shapes(recipe)
        shapes = InputShapes(recipe.experiment, spec, "host", 0)
        inputs = {
            field: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=batch_sharding(mesh, 1))
            for field, a in shapes.train_inputs(1).items()
        }
        key = key_shape()
        lowered = jax.jit(
            call_of_steps(recipe, 1),
            out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, state), whole),
            donate_argnums=0,
        ).lower(
            state,
            {},
            inputs,
            jax.ShapeDtypeStruct((), jnp.int32, sharding=whole),
            jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=whole),
        )
        lowering = time.perf_counter() - started
        started = time.perf_counter()
        program = lowered.compile(xla_options(recipe))
        seconds = time.perf_counter() - started
        memory: Any = program.memory_analysis()
        peak = memory.argument_size_in_bytes + memory.output_size_in_bytes
        peak += memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
        peak -= memory.alias_size_in_bytes
        batch = recipe.experiment.global_batch_size
        rows.append(
            {
                "experiment": name,
                "target": target,
                "devices": mesh.devices.size,
                "batch_per_device": batch // mesh.devices.size,
                **recipe.experiment.task.stage_values(),
                "weight_update_sharding": shards_update,
                "variant": variant,
                "trace_and_lower_seconds": round(lowering, 2),
                "compile_seconds": round(seconds, 2),
                "peak_bytes": peak,
                "argument_bytes": memory.argument_size_in_bytes,
                "moved_bytes": analyze(program.as_text() or "").num_bytes,
                "collectives": _collectives(program.as_text() or ""),
                "jax": jax.__version__,
            }
        )
    return rows


def _collectives(text: str) -> dict[str, int]:
    import re

    kinds = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")
    counts = {kind: len(re.findall(rf"[ )]{kind}(?:-start)?\(", text)) for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


def _devices(name: str, target: str, count: int | None) -> list[Any]:
    import jax

    if target == "cpu":
        return jax.devices()[:1]
    size = count or DEVICES.get(name, 8)
    return compilers.described_devices(parse_system(f"{SYSTEMS[target]}:{size}"))


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| experiment | target | devices | a device | pixels | compile s | GB each | GB moved |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        variant = row.get("variant", "base")
        named = "" if variant == "base" else f", {variant.replace('_', ' ')}"
        start = f"| `{row['experiment']}`{named} | {row['target']} |"
        if "reason" in row:
            lines.append(f"{start} | | | | | {row['reason']} |")
            continue
        lines.append(
            f"{start} {row['devices']} | {row['batch_per_device']} | "
            f"{row.get('crop_pixels') or ''} | "
            f"{row['compile_seconds']:.1f} | {row['peak_bytes'] / 1e9:.2f} | "
            f"{row['moved_bytes'] / 1e9:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
