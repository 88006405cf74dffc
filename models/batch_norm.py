"""Batch normalization over fixed groups of consecutive examples of the global batch."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from dawnjax.models.activations import Activation, activate
from dawnjax.models.execution import Execution


class BatchNorm(nnx.Module):
    """Normalize each channel by the mean and variance of a group of examples.

    The recipe fixes the size of a group (`Execution.batch_norm_group_size`), so the result does not
    depend on the number of devices. A device that holds whole groups needs no communication.

    In training, each call sets the running statistics to [groups, channels], the update by each
    group alone. The train step averages these for all layers at once.

    Source: Ioffe and Szegedy 2015, "Batch Normalization", algorithm 1. Running variances are biased
    too (PyTorch's are not).
    """

    def __init__(
        self,
        num_channels: int,
        *,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        scale: float | None = 1.0,
        has_bias: bool = True,
        execution: Execution,
    ):
        """Make parameters and statistics; a `scale` of None makes no factor,
        without `has_bias` there is no summand.

        `momentum` is the fraction of the running statistics that a step keeps, 1 minus PyTorch's.
        """
        if execution.batch_norm_group_size < 1:
            raise ValueError(
                f"batch_norm_group_size={execution.batch_norm_group_size} must be 1 or more: this "
                "model normalizes over groups of examples"
            )
        initial_scale = None if scale is None else jnp.full(num_channels, scale, jnp.float32)
        self.scale = None if initial_scale is None else nnx.Param(initial_scale)
        self.bias = nnx.Param(jnp.zeros(num_channels, jnp.float32)) if has_bias else None
        self.mean = nnx.BatchStat(jnp.zeros(num_channels, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(num_channels, jnp.float32))
        self.momentum = momentum
        self.epsilon = epsilon
        self.group_size = execution.batch_norm_group_size

    def __call__(
        self, inputs: jax.Array, *, train: bool, activation: Activation | None = None
    ) -> jax.Array:
        """Normalize [batch, ..., channels] in float32 over all axes but the last one."""
        origin, values = lax.stop_gradient(self.mean[...]), inputs.astype(jnp.float32)
        if train:
            # [groups, group * positions, channels]
            values = values.reshape(self._num_groups(len(inputs)), -1, inputs.shape[-1])
        # With an origin near the mean nothing cancels in E[x^2] - E[x]^2, however far the mean is
        # from 0, and the data are read once.
        centred = values - origin
        shift, var = jnp.zeros_like(origin), self.var[...]
        if train:
            shift = centred.mean(1)
            var = jnp.maximum(jnp.square(centred).mean(1) - jnp.square(shift), 0.0)
            for running, of_groups in ((self.mean, origin + shift), (self.var, var)):
                kept = self.momentum * running[...]
                running.set_value(kept + (1 - self.momentum) * lax.stop_gradient(of_groups))
            shift, var = shift[:, None], var[:, None]
        factor = lax.rsqrt(var + self.epsilon)
        if self.scale is not None:
            factor *= self.scale[...]
        outputs = (centred - shift) * factor
        if self.bias is not None:
            outputs += self.bias[...]
        outputs = outputs.reshape(inputs.shape).astype(inputs.dtype)
        return outputs if activation is None else activate(outputs, activation)

    def _num_groups(self, batch: int) -> int:
        if batch % self.group_size:
            raise ValueError(
                f"a batch of {batch} examples does not divide into BatchNorm groups of "
                f"{self.group_size}"
            )
        return batch // self.group_size
