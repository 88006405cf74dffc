"""Regression on the diabetes data of scikit-learn (pip install it): dataset, model and task."""

import dataclasses

import jax.numpy as jnp
import sklearn.datasets
from flax import nnx

from dawnjax.own import Adam, Arrays, Evaluation, Experiment, Metric, Target, Task, WarmupCosine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diabetes(Arrays):
    TAG = "diabetes"

    def arrays(self, split):
        x, y = sklearn.datasets.load_diabetes(return_X_y=True)
        rows = slice(0, 320) if split == "train" else slice(320, None)
        return {"x": (20 * x[rows]).astype("float32"), "y": (y[rows] / 100).astype("float32")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearModel:
    TAG = "linear_model"

    def build(self, *, spec, rngs):
        return nnx.Linear(spec.example_shapes("train")["x"][0][0], 1, rngs=rngs)


class Regression(Task):
    TAG = "regression"
    metrics = (Metric(name="mean_squared_error", title="MSE", unit="1", direction="at_most"),)
    arrays, inputs = ("x", "y"), ("x",)

    def answer(self, module, inputs, setting):
        return module(inputs["x"])[:, 0]

    def loss(self, module, batch, moment, setting):
        return jnp.square(self.answer(module, batch, setting) - batch["y"]), len(batch["y"])

    def measure(self, module, batch, setting):
        return {"mean_squared_error": self.loss(module, batch, None, setting)[0]}


EXPERIMENT = Experiment(
    name="diabetes",
    task=Regression(),
    model=LinearModel(),
    data=Diabetes(),
    optimizer=Adam(base_learning_rate=0.1),
    schedule=WarmupCosine(),
    num_epochs=30,
    global_batch_size=32,
    evaluation=Evaluation(every_epochs=2, global_batch_size=50),
    targets=(Target(metric="mean_squared_error", value=0.291, direction="at_most"),),
)
