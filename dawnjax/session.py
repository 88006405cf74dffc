"""Bring-up of a run: the first steps of every command that computes, in one order.

`checked` refuses wrong values before JAX looks for devices. `joined` or `alone` then chooses the
cache of compiled programs, meets the other processes and arranges the devices.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dawnjax.cluster import processes
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.config.experiment import Experiment
from dawnjax.config.own_files import line_of, own_code
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.limits import require
from dawnjax.machine import compilation, jax_settings
from dawnjax.machine.mesh import all_devices, batch_shards, make_mesh, place, replicated
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, make_recipe


def checked(experiment: Experiment, options: RunOptions) -> AnySpec:
    """The dataset's shapes and counts, once experiment and options are known to fit them."""
    jax_settings.prepare()
    with own_code("the data"):
        try:
            spec = experiment.data.spec()
        except ValueError as error:  # a field of the dataset's config that lies outside its range
            raise ConfigError(line_of(error) or str(error)) from None
    with own_code("the experiment"):
        experiment.validate(spec)
    options.validate()
    refuse_mesh(experiment.model, spec, options.mesh)
    return spec


def refuse_mesh(model: Any, spec: AnySpec, shape: MeshShape) -> None:
    """Refuse a mesh that splits parts which the model has whole, or sizes that do not divide."""
    sizes = model.split_sizes(spec) if hasattr(model, "split_sizes") else {}
    parts = {"fsdp": "", "model": "no layer", "context": "no text", "expert": "no experts"}
    for axis, part in parts.items():
        number = getattr(shape, axis)
        # A model without named axes lies over `fsdp` by `state_sharding`, whatever its sizes.
        if number == 1 or (axis == "fsdp" and axis not in sizes):
            continue
        if not sizes.get(axis):
            raise ConfigError(
                f"mesh.{axis}={number} must be 1: model={model.TAG} has {part} to split"
            )
        for name, size in sizes[axis]:
            is_even = number >= 1 and size % number == 0
            require(is_even, f"mesh.{axis}", number, f"divide {name}={size}")


@dataclasses.dataclass(frozen=True)
class Session:
    """Devices of a run, and what the run needs on all of them."""

    experiment: Experiment
    spec: AnySpec
    options: RunOptions
    mesh: Mesh

    @functools.cached_property
    def recipes(self) -> tuple[Recipe, ...]:
        """Pure functions of each stage; ConfigError if the devices cannot share a batch evenly."""
        self._refuse_uneven_batches()
        options, spans = self.options, self.experiment.spans(self.spec)
        with own_code("the experiment"):
            try:
                return tuple(
                    make_recipe(
                        self.experiment,
                        self.spec,
                        self.mesh,
                        span.index,
                        options.weight_update_sharding,
                        records_norm=options.gradient_norm,
                        is_deterministic=options.deterministic,
                        context_keys=options.context_keys,
                    )
                    for span in spans
                )
            except (ValueError, TypeError, ZeroDivisionError) as error:
                first_line = line_of(error) or str(error).splitlines()[0]
                raise ConfigError(
                    f"the model cannot be built from these fields: {first_line}"
                ) from None

    def root_key(self, seed: int) -> jax.Array:
        """The trial's key, whole on every device."""
        # The seed is an argument: one program, which the cache keeps, makes the key of every seed.
        return self._make_key(np.int32(seed))

    @functools.cached_property
    def _make_key(self) -> Any:
        return jax.jit(
            lambda seed: jax.random.key(seed, impl=PRNG_IMPLEMENTATION),
            out_shardings=replicated(self.mesh),
        )

    def counts(self, steps_per_call: int) -> list[jax.Array]:
        """Each number of steps that a call can make, from 0, on the devices."""
        whole = replicated(self.mesh)
        # Made once: a fresh Python number would be uploaded at each call.
        return [place(np.array(n, np.int32), whole) for n in range(steps_per_call + 1)]

    def _refuse_uneven_batches(self) -> None:
        shards = batch_shards(self.mesh)
        with_experts = " x mesh.expert" if self.mesh.shape["expert"] > 1 else ""
        for span in self.experiment.spans(self.spec):
            batch = span.global_batch_size
            if batch % shards:
                name = "global_batch_size" if span.index == 0 else "stages.global_batch_size"
                raise ConfigError(
                    f"{name}={batch} does not divide among {shards} devices (mesh.data x "
                    f"mesh.fsdp{with_experts}); take a multiple, such as "
                    f"{-(-batch // shards) * shards}, or other devices"
                )


def joined(experiment: Experiment, spec: AnySpec, options: RunOptions) -> tuple[Session, Watchdog]:
    """Join the other processes of the run, if there are any; all of them must call it."""
    _prepare_process(options)
    watchdog = processes.join(options.processes)
    mesh = make_mesh(options.mesh, all_devices())
    compilation.share_between_processes()
    return Session(experiment, spec, options, mesh), watchdog


def alone(
    experiment: Experiment, spec: AnySpec, options: RunOptions, num_devices: int | None = None
) -> Session:
    """Session of this process alone, even in a group; `num_devices` None takes all devices."""
    _prepare_process(options)
    return Session(experiment, spec, options, make_mesh(options.mesh, all_devices()[:num_devices]))


def _prepare_process(options: RunOptions) -> None:
    jax_settings.prepare()
    # Before JAX's first use of a device, which reads these settings once.
    compilation.configure(options.compile_cache_dir)
