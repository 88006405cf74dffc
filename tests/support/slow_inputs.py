"""The experiment `synthetic_image`, whose profile is slow to make inputs on one process.

DAWNJAX_TEST_SLOW is that process, and by how many seconds: `1:0.2`.
"""

import os
import time
from typing import Any

from dawnjax.capture import traced_steps as capture
from dawnjax.cluster import launched
from dawnjax.experiments.synthetic_image import EXPERIMENT  # noqa: F401  The suite looks for it.

process, _, seconds = os.environ["DAWNJAX_TEST_SLOW"].partition(":")
inputs = capture.Trainer.inputs


def slow_inputs(self: capture.Trainer, num_steps: int) -> Any:
    time.sleep(float(seconds))
    return inputs(self, num_steps)


if os.environ.get(launched.PROCESS_ID, "0") == process:
    capture.Trainer.inputs = slow_inputs
