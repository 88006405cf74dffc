"""A small network of Flax Linen on scikit-learn's digits."""

import dataclasses

import jax.numpy as jnp
from flax import linen, nnx

from dawnjax.config.experiment import Adam, Evaluation, Experiment, Target, WarmupCosine
from dawnjax.input_pipeline.datasets.digits import Digits


class Net(linen.Module):
    width: int
    dropout_rate: float
    classes: int

    @linen.compact
    def __call__(self, images, train: bool):
        hidden = linen.Dense(self.width)(images.reshape(len(images), -1))
        hidden = linen.BatchNorm(use_running_average=not train, momentum=0.9)(hidden)
        hidden = linen.Dropout(self.dropout_rate, deterministic=not train)(linen.relu(hidden))
        return linen.Dense(self.classes)(hidden)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinenNet:
    """One hidden layer and a classifier.

    Attributes:
      width: Units of the hidden layer.
      dropout_rate: Dropout before the classifier.
    """

    TAG = "linen_net"
    width: int = 64
    dropout_rate: float = 0.1

    def build(self, *, image_shape, num_classes, rngs):
        net = Net(self.width, self.dropout_rate, num_classes)
        # A Linen module makes its parameters at a first call.
        image = jnp.zeros((1, *image_shape))
        return nnx.bridge.ToNNX(net, rngs=rngs).lazy_init(image, train=False)


EXPERIMENT = Experiment(
    name="digits_linen_net",
    model=LinenNet(),
    data=Digits(),
    optimizer=Adam(base_learning_rate=0.01),
    schedule=WarmupCosine(),
    num_epochs=8,
    global_batch_size=60,
    targets=(Target(value=0.93),),
    evaluation=Evaluation(every_epochs=8),
)
