"""Settings of the network of two heads."""

import dataclasses
from typing import Any, ClassVar, Literal

from dawnjax.limits import FractionBelowOne, NonNegative, OneOrMore, Positive
from dawnjax.models.configs.network import built


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyValue:
    """A trunk of residual blocks and two heads; the defaults are Minigo's for 9 x 9.

    With 17 planes of 9 x 9 points and 82 moves the defaults have 191,386 parameters.

    Attributes:
      num_blocks: Residual blocks, each of two 3x3 convolutions.
      width: Channels of the trunk.
      policy_width: Channels of the policy head.
      value_width: Channels of the value head.
      value_hidden_width: Units between these channels and the value.
      norm: `batch` normalizes after each convolution; `none` leaves it out, and each block begins
        as the identity.
      initializer: Initialization of all kernels: `glorot_uniform`, or `he_normal` for convolutions
        and uniform for linear layers. With `glorot_uniform`, biases start as 0.
      batch_norm_momentum: The fraction of the running statistics that a step keeps.
      batch_norm_epsilon: Added to the variance.
    """

    TAG: ClassVar[str] = "policy_value"

    num_blocks: NonNegative[int] = 9
    width: OneOrMore[int] = 32
    policy_width: OneOrMore[int] = 2
    value_width: OneOrMore[int] = 1
    value_hidden_width: OneOrMore[int] = 64
    norm: Literal["batch", "none"] = "batch"
    initializer: Literal["he_normal", "glorot_uniform"] = "he_normal"
    batch_norm_momentum: FractionBelowOne = 0.997
    batch_norm_epsilon: Positive[float] = 1e-5

    @property
    def has_batch_norm_groups(self) -> bool:
        return self.norm == "batch"

    def tiny(self) -> "PolicyValue":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, num_blocks=1, width=8, value_hidden_width=8)

    def build(
        self, *, observation_shape: tuple[int, ...], num_actions: int, execution: Any, rngs: Any
    ) -> Any:
        return built(
            self,
            "policy_value.PolicyValueModule",
            observation_shape=observation_shape,
            num_actions=num_actions,
            execution=execution,
            rngs=rngs,
        )
