"""FLOPs of a model from its own mathematics, whatever a compiler made of it.

2 x multiply-adds of every matrix product and convolution in the forward pass, times three for
training: forward, gradient of the inputs, gradient of the weights. Each gradient of a convolution
multiplies the same pairs of pixel and weight as the forward pass. Recomputation, padding and
element-wise work do not count.
"""

import math
from collections.abc import Iterator
from typing import Any

from dawnjax.profile.convolution_windows import WindowDim, valid_taps

TRAINING_FACTOR = 3
"""Forward, and the two gradients of each product."""


def product_flops(jaxpr: Any) -> int:
    """2 x multiply-adds of a jaxpr's products; `ValueError` if a loop's rounds are unknown."""
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            lhs = equation.invars[0].aval.shape
            depth = math.prod(lhs[dim] for dim in contracted)
            total += 2 * depth * math.prod(equation.outvars[0].aval.shape)
        elif name.startswith("ragged_dot"):
            # Rows [m, k] by the matrix of each one's group, of [groups, k, n].
            rows, matrices = (variable.aval.shape for variable in equation.invars[:2])
            total += 2 * math.prod(rows) * matrices[-1]
        elif name == "conv_general_dilated":
            total += 2 * _convolution_multiply_adds(equation)
        elif name == "cond":
            total += max(product_flops(branch.jaxpr) for branch in params["branches"])
        else:
            inner = sum(map(product_flops, inner_jaxprs(params)))
            if inner and name == "while":
                raise ValueError("a while loop holds products: its rounds are not known")
            total += inner * params["length"] if name == "scan" else inner
    return total


def _convolution_multiply_adds(equation: Any) -> int:
    params = equation.params
    numbers = params["dimension_numbers"]
    image, kernel = (variable.aval.shape for variable in equation.invars)
    result = equation.outvars[0].aval.shape
    # A spec lists the positions of batch (or out features), features, and the spatial dimensions.
    in_features = kernel[numbers.rhs_spec[1]]
    taps = 1
    for index, stride in enumerate(params["window_strides"]):
        dim = WindowDim(
            kernel[numbers.rhs_spec[2 + index]],
            stride,
            params["padding"][index][0],
            params["lhs_dilation"][index],
            params["rhs_dilation"][index],
        )
        out_size, in_size = result[numbers.out_spec[2 + index]], image[numbers.lhs_spec[2 + index]]
        taps *= valid_taps(out_size, in_size, dim)
    return result[numbers.out_spec[0]] * result[numbers.out_spec[1]] * in_features * taps


def inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Yield the programs inside an equation, by its parameters; a loop's condition is left out."""
    for name, value in params.items():
        if name in ("fwd_jaxpr_thunk", "bwd", "jvp_jaxpr_fun", "cond_jaxpr"):
            continue
        for part in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner
