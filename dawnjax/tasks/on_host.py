"""Loss and accuracy from logits, by NumPy in float64: a second computation beside the device's."""

import numpy as np

from dawnjax.tasks.metric import TOP_1_ACCURACY, loss_metric


class OnHost:
    """Sums over examples or tokens."""

    def __init__(self) -> None:
        self.count = self._hits = 0
        self._nats = 0.0

    def add(self, logits: np.ndarray, targets: np.ndarray) -> None:
        """Add logits [N, classes] with the true class of each row, int [N].

        A true class hits if its logit exceeds all others; equal logits and NaN never hit.
        """
        logits = logits.astype(np.float64)
        rows = np.arange(len(targets))
        true = logits[rows, targets]
        self._hits += int(((~(logits < true[:, None])).sum(1) == 1).sum())
        with np.errstate(invalid="ignore", over="ignore"):
            below = logits - logits.max(1, keepdims=True)
            self._nats += float((np.log(np.exp(below).sum(1)) - below[rows, targets]).sum())
        self.count += len(targets)

    def metrics(self) -> dict[str, float]:
        means = self._nats / self.count, self._hits / self.count
        return dict(zip((loss_metric("nats").name, TOP_1_ACCURACY.name), means, strict=True))
