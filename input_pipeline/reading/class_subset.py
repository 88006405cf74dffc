"""Some classes of a dataset of labelled images, as a dataset of its own with labels from 0."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Declaration, Split


def subset_spec(
    spec: DatasetSpec,
    kept: Sequence[int],
    class_counts: Mapping[Split, Sequence[int]],
    name: str,
) -> DatasetSpec:
    """Specification of the `kept` labels, renumbered in that order; `name` is the whole set's."""
    listed = ",".join(map(str, kept))
    if (
        len(set(kept)) != len(kept)
        or len(kept) < 2
        or not set(kept) <= set(range(spec.num_classes))
    ):
        raise ValueError(
            f"data.kept_classes={listed} must be two or more different labels from 0 to "
            f"{spec.num_classes - 1}"
        )
    # Another choice or order of classes is other data: a run must not resume on it.
    content = f"{spec.fingerprint} classes {listed}"
    return dataclasses.replace(
        spec,
        num_train_examples=sum(class_counts["train"][label] for label in kept),
        num_eval_examples=sum(class_counts["eval"][label] for label in kept),
        num_classes=len(kept),
        fingerprint=hashlib.sha256(content.encode()).hexdigest()[:16],
        declaration=Declaration(
            name=f"classes {listed} of {name}", evidence="some of its classes are left out"
        ),
    )


def subset(arrays: Mapping[str, Any], kept: Sequence[int]) -> dict[str, np.ndarray]:
    """Examples of some classes, in their order, labelled by their places in `kept`."""
    labels = np.asarray(arrays["label"])
    # A label may exceed every kept one: the table needs a place for each.
    places = np.full(max(int(labels.max()), *kept) + 1, -1, np.int32)
    places[list(kept)] = np.arange(len(kept))
    rows = np.flatnonzero(places[labels] >= 0)
    chosen = {name: np.asarray(array[rows]) for name, array in arrays.items()}
    return {**chosen, "label": places[labels[rows]]}
