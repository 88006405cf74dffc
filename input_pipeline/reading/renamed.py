"""Secret names of what is to be learnt: classes of images or tokens of text, permuted.

Whoever learns from the examples notices nothing. Weights that were trained under other names are at
chance, unless their owner first finds the new names from training examples.
"""

from typing import Any

import numpy as np


def new_names(spec: Any, seed: int) -> tuple[str, np.ndarray]:
    """Array of the examples that is renamed, and the new name of each class or token.

    The separator of documents keeps its name, and tokens change names only with those of as many
    bytes. Data of neither kind have no array to rename: the name is empty.
    """
    random = np.random.default_rng(seed)
    if hasattr(spec, "num_classes"):
        return "label", random.permutation(spec.num_classes)
    if not hasattr(spec, "separator"):
        return "", np.arange(0)
    names = np.arange(spec.vocabulary_size)
    sizes = np.asarray(spec.bytes_of_token or [1] * len(names))
    for size in np.unique(sizes):
        alike = np.flatnonzero((sizes == size) & (names != spec.separator))
        names[alike] = random.permutation(alike)
    return "tokens", names


def renamed(array: np.ndarray, names: np.ndarray) -> np.ndarray:
    """The same classes or tokens under their new names."""
    return names[array].astype(array.dtype)
