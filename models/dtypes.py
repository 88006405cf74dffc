"""The dtypes that a model may compute in; needs no JAX."""

from typing import Literal

ComputeDtype = Literal["float32", "bfloat16", "float16"]
