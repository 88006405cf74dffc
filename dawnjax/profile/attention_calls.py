"""FLOPs of cuDNN's attention, from the configuration of its call in a compiled program."""

import re

import numpy as np

ATTENTION_CALL = "__cudnn$fmha"
"""Prefix of the target of such a call."""


def attention_call_flops(config: str, channels: int, *, is_gradient: bool) -> int:
    """FLOPs of two products, and of five in the gradient, which recomputes the scores.

    Only the pairs of query and key that a causal mask or window lets through count, although
    cuDNN computes whole blocks. 0 where the configuration lacks the shape of the scores.
    """
    scores = re.search(r'"dimensions":\s*\[([^\]]*)\]', config)
    if not scores:
        return 0
    batch, heads, queries, keys = (int(size.strip(' "')) for size in scores[1].split(","))
    seen = np.full(queries, keys)
    if re.search(r'"mask_type":\s*"(?:PADDING_)?CAUSAL"', config):
        seen = np.minimum(seen, np.arange(queries) + 1)
    window = re.search(r'"sliding_window_length":\s*"?(\d+)', config)
    if window and int(window[1]):
        seen = np.minimum(seen, int(window[1]))
    products = 5 if is_gradient else 2
    return 2 * products * batch * heads * int(seen.sum()) * channels
