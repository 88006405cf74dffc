"""The train step's switches: accumulation, moving averages, float16 and its loss scale."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dataset_specs import SMALL_IMAGES
from flax import nnx
from networks import assert_close, recipe_of

from dawnjax import programs
from dawnjax.config.experiment import Constant, Experiment, Sgd
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.config.run_options import MeshShape
from dawnjax.machine.mesh import make_mesh, replicated
from dawnjax.models.configs.amoebanet import AmoebaNetD
from dawnjax.models.configs.resnet import ResNet
from dawnjax.models.execution import TrainingMoment
from dawnjax.optim import loss_scaling
from dawnjax.session import alone, checked
from dawnjax.train_step import PRNG_IMPLEMENTATION, TrainState, make_recipe

pytestmark = pytest.mark.compiles

SPEC = dataclasses.replace(SMALL_IMAGES, num_train_examples=32)
BASE = dataclasses.replace(
    load_experiment("synthetic_image"),
    model=ResNet(stage_sizes=(1,), stage_widths=(8,)),
    global_batch_size=16,
    batch_norm_group_size=2,
    optimizer=Sgd(base_learning_rate=0.1),
    schedule=Constant(),
)


def batch(size: int = 16) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 256, (size, *SPEC.image_shape)).astype(np.uint8),
        "label": rng.integers(0, SPEC.num_classes, size).astype(np.int32),
        "index": np.arange(size, dtype=np.int32),
        "epoch": np.zeros(size, np.int32),
    }


@functools.cache
def initial(experiment: Experiment) -> TrainState:
    key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
    return jax.jit(recipe_of(experiment, SPEC).initial_state)(key)


@functools.cache
def compiled(experiment: Experiment, num_devices: int = 1) -> tuple[TrainState, Any]:
    """Makes an experiment's initial state and compiles its step, once."""
    recipe = recipe_of(experiment, SPEC, num_devices)
    key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
    # How a batch is cut changes nothing of the state.
    state = initial(dataclasses.replace(experiment, accumulation_steps=1))
    state = jax.device_put(state, replicated(recipe.mesh))
    return state, jax.jit(recipe.train_step).lower(state, batch(), key).compile()


def trained(
    experiment: Experiment, num_steps: int, state: TrainState | None = None, num_devices: int = 1
) -> tuple[TrainState, list[float]]:
    """Trains some steps on one batch; returns the state and the losses."""
    start, step = compiled(experiment, num_devices)
    now: TrainState = state or start
    losses: list[float] = []
    for _ in range(num_steps):
        now, loss = step(now, batch(), jax.random.key(0, impl=PRNG_IMPLEMENTATION))
        losses.append(float(loss))
    return now, losses


def test_accumulation_in_parts_gives_the_same_steps():
    whole, losses = trained(BASE, 3)
    for num_devices, parts in ((1, 2), (4, 8)):
        experiment = dataclasses.replace(BASE, accumulation_steps=parts)
        state, accumulated = trained(experiment, 3, num_devices=num_devices)
        # Sums in another order: rounding, which three steps do not magnify beyond 1e-5.
        np.testing.assert_allclose(accumulated, losses, atol=1e-5)
        assert_close(
            (state.params, state.batch_stats), (whole.params, whole.batch_stats), atol=2e-5
        )


def test_a_step_returns_the_norm_of_its_gradient_if_asked():
    recipe = dataclasses.replace(recipe_of(BASE, SPEC), records_norm=True)
    state = initial(BASE)
    gradients = jax.tree.map(jnp.zeros_like, state.params)
    classifier = gradients["classifier"]
    classifier["bias"] = classifier["bias"].at[:2].set(jnp.array([3.0, -4.0]))
    _, measured = recipe.updated(state, gradients, jnp.float32(2.5), state.batch_stats)
    assert measured.tolist() == [2.5, 5.0]


@pytest.mark.parametrize("has_warmup", [False, True])
def test_the_moving_average_is_that_computed_by_hand(has_warmup):
    experiment = dataclasses.replace(BASE, ema_decay=0.5, ema_has_warmup=has_warmup)
    state, _ = trained(experiment, 0)
    average = np.asarray(state.ema_params["classifier"]["bias"], np.float64)
    for step in range(3):
        state, _ = trained(experiment, 1, state)
        # TensorFlow's: 1/10, 2/11, 3/12, all below 0.5.
        decay = (1 + step) / (10 + step) if has_warmup else 0.5
        average = decay * average + (1 - decay) * np.asarray(state.params["classifier"]["bias"])
        np.testing.assert_allclose(state.ema_params["classifier"]["bias"], average, rtol=1e-5)


def test_float16_learns_what_float32_does():
    _, wanted = trained(BASE, 4)
    state, losses = trained(dataclasses.replace(BASE, compute_dtype="float16"), 4)
    # Float16 has eleven bits: the first loss differs by rounding, later ones by its growth.
    assert abs(losses[0] - wanted[0]) < 5e-3
    np.testing.assert_allclose(losses, wanted, atol=5e-2)
    assert losses[-1] < losses[0]
    assert int(state.loss_scale["finite_steps"]) == 4
    assert not trained(BASE, 0)[0].loss_scale


def test_a_step_that_overflows_changes_nothing_but_the_scale():
    experiment = dataclasses.replace(BASE, compute_dtype="float16", ema_decay=0.5)
    state, _ = trained(experiment, 1)
    huge = {"scale": jnp.float32(2.0**40), "finite_steps": jnp.int32(7)}
    state = dataclasses.replace(state, loss_scale=huge)
    after, _ = trained(experiment, 1, state)
    for name in ("params", "batch_stats", "opt_state", "ema_params"):
        jax.tree.map(np.testing.assert_array_equal, getattr(after, name), getattr(state, name))
    assert int(after.step) == 2 and int(after.first_nonfinite_step) == 0
    assert float(after.loss_scale["scale"]) == loss_scaling.LARGEST_SCALE  # half of it, clipped
    assert int(after.loss_scale["finite_steps"]) == 0


def test_the_loss_scale_doubles_after_2000_finite_steps_and_halves_at_an_overflow():
    gradients = {"w": jnp.float32([8.0, -4.0])}
    state = {"scale": jnp.float32(4.0), "finite_steps": jnp.int32(1998)}
    unscaled, state, are_finite = loss_scaling.unscale(gradients, state)
    np.testing.assert_array_equal(unscaled["w"], [2.0, -1.0])
    assert bool(are_finite) and float(state["scale"]) == 4.0
    _, state, _ = loss_scaling.unscale(gradients, state)
    assert float(state["scale"]) == 8.0 and int(state["finite_steps"]) == 0
    _, state, are_finite = loss_scaling.unscale({"w": jnp.float32([jnp.inf, 0.0])}, state)
    assert not bool(are_finite) and float(state["scale"]) == 4.0


Told = tuple[jax.Array, jax.Array] | None
"""Keys, and the progress of the run; None where a model is called without them."""


@dataclasses.dataclass(frozen=True)
class Probe(AmoebaNetD):
    """A model that tells what it is told in training, and whose heads give logits made by hand."""

    tell: Callable[[Told], None] = lambda told: None
    has_auxiliary_head: bool = False

    def build(self, *, num_classes: int, **_: Any) -> nnx.Module:
        return ProbeModule(self, num_classes)


class ToldNothing(Probe):
    takes_moment: ClassVar[bool] = False


class ProbeModule(nnx.Module):
    def __init__(self, config: Probe, num_classes: int):
        self.config = config
        self.bias = nnx.Param(jnp.zeros(num_classes))

    def __call__(
        self, images: jax.Array, *, train: bool, moment: TrainingMoment | None = None
    ) -> jax.Array | tuple[jax.Array, jax.Array]:
        tell = self.config.tell
        if moment is None:
            tell(None)
        else:
            keys = jax.random.key_data(moment.keys)
            jax.debug.callback(lambda *told: tell(told), keys, moment.progress)
        logits = jnp.broadcast_to(self.bias[...], (len(images), len(self.bias)))
        # Half of the probability is class 0's.
        return (
            (logits, logits.at[:, 0].add(np.log(9))) if self.config.has_auxiliary_head else logits
        )


def step_of(model: Probe, step: int = 0) -> float:
    """The loss of one step of a model, on four examples of class 0, of which two are the same."""
    experiment = dataclasses.replace(BASE, model=model, global_batch_size=4, num_epochs=1)
    recipe = recipe_of(experiment, SPEC)
    key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
    state = dataclasses.replace(recipe.initial_state(key), step=jnp.int32(step))
    chosen = {"index": np.array([3, 9, 3, 5], np.int32), "label": np.zeros(4, np.int32)}
    _, loss = jax.jit(recipe.train_step)(state, batch(size=4) | chosen, key)
    jax.effects_barrier()
    return float(loss)


def test_a_model_that_draws_is_told_the_examples_keys_and_the_progress():
    told: list[Told] = []
    for step in (2, 3):
        step_of(Probe(tell=told.append), step)
    (keys, progress), (later_keys, later_progress) = filter(None, told)
    # Of 32 examples, four a step.
    assert (progress, later_progress) == (2 / 8, 3 / 8)
    rows = list(map(tuple, np.asarray(keys)))
    assert len(rows) == 4 and rows[0] == rows[2] and len(set(rows)) == 3
    assert not set(rows) & set(map(tuple, np.asarray(later_keys)))
    told.clear()
    step_of(ToldNothing(tell=told.append), 2)
    assert told and all(moment is None for moment in told)


def test_an_auxiliary_heads_loss_is_added_with_its_weight():
    np.testing.assert_allclose(step_of(Probe()), np.log(10), rtol=1e-6)
    both = step_of(Probe(has_auxiliary_head=True))
    np.testing.assert_allclose(both, np.log(10) + 0.4 * np.log(2), rtol=1e-6)


def test_deterministic_programs_ask_the_compiler_of_a_gpu_alone(monkeypatch):
    experiment = load_experiment("digits")
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    recipe = make_recipe(experiment, experiment.data.spec(), mesh, is_deterministic=True)
    name = "xla_gpu_deterministic_ops"
    assert name not in programs.xla_options(recipe)
    monkeypatch.setattr(programs, "platform_of", lambda mesh: "gpu")
    assert programs.xla_options(recipe)[name] is True
    assert name not in programs.xla_options(dataclasses.replace(recipe, is_deterministic=False))


def test_the_key_of_a_seed_is_that_of_jax_whole_on_every_device():
    request, _ = parse_request("train", ["--experiment=synthetic_image"])
    spec = checked(request.experiment, request.options)
    session = alone(request.experiment, spec, request.options, 4)
    for seed in (0, 7, 2**31 - 1):
        key = session.root_key(seed)
        wanted = jax.random.key_data(jax.random.key(seed, impl=PRNG_IMPLEMENTATION))
        np.testing.assert_array_equal(jax.random.key_data(key), wanted)
        assert len(key.sharding.device_set) == 4 and key.sharding.is_fully_replicated
