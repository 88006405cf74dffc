"""Types of settings that several networks share."""

from typing import Literal

ComputeDtype = Literal["float32", "bfloat16", "float16"]
"""The dtypes that a network may compute in."""

Activation = Literal["relu", "gelu", "silu"]
"""max(x, 0); x times the normal distribution function of x; x times the logistic function of x.

Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415), section 2, for the second and the third.
"""

ImageShape = tuple[int, int, int]
"""Height, width and channels."""

Axes = tuple[str | None, ...]
"""Names of an array's axes, which `sharding.RULES` places; None for one that stays whole."""
