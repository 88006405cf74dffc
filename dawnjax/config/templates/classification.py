"""A small convolutional network of Flax's own layers on scikit-learn's digits."""

import dataclasses

import jax.numpy as jnp
from flax import nnx

from dawnjax.own import Adam, Digits, Evaluation, Experiment, Target, WarmupCosine


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallNet:
    """Two convolutions and a classifier.

    Attributes:
      width: Channels of the first convolution.
      dropout_rate: Dropout before the classifier.
    """

    TAG = "small_net"
    width: int = 32
    dropout_rate: float = 0.1

    def build(self, *, image_shape, num_classes, rngs):
        return SmallNetModule(self, image_shape[-1], num_classes, rngs)


class SmallNetModule(nnx.Module):
    def __init__(self, config, channels, num_classes, rngs):
        self.first = nnx.Conv(channels, config.width, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(config.width, momentum=0.9, rngs=rngs)
        self.second = nnx.Conv(config.width, 2 * config.width, (3, 3), strides=2, rngs=rngs)
        self.dropout = nnx.Dropout(config.dropout_rate, rngs=rngs)
        self.head = nnx.Linear(2 * config.width, num_classes, rngs=rngs)

    def __call__(self, images):
        hidden = nnx.relu(self.norm(self.first(images)))
        hidden = nnx.relu(self.second(hidden))
        return self.head(self.dropout(jnp.mean(hidden, axis=(1, 2))))


EXPERIMENT = Experiment(
    name="digits_small_net",
    model=SmallNet(),
    data=Digits(),
    optimizer=Adam(base_learning_rate=0.01),
    schedule=WarmupCosine(),
    num_epochs=12,
    global_batch_size=64,
    targets=(Target(value=0.9),),
    evaluation=Evaluation(every_epochs=1, global_batch_size=300),
)
