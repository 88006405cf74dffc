"""The multiply-adds of a program, from its jaxpr: a count that knows nothing of the models."""

import math
from typing import Any

import jax


def multiply_adds(jaxpr: Any) -> int:
    """Counts the products of all convolutions and matrix products; padding counts like pixels."""
    total = 0
    for equation in jaxpr.eqns:
        name, result = equation.primitive.name, equation.outvars[0].aval
        if name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            numbers = equation.params["dimension_numbers"]
            out_channels = kernel[numbers.rhs_spec[0]]
            total += math.prod(result.shape) * math.prod(kernel) // out_channels
        elif name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += math.prod(result.shape) * depth
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                total += multiply_adds(getattr(value, "jaxpr", value))
    return total


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")
