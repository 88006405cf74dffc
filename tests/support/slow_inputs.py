"""The experiment `synthetic_image`, whose profile is slow to make inputs on one process.

DAWNJAX_TEST_SLOW is that process, and by how many seconds: `1:0.2`.
"""

import os
import time
from typing import Any

from dawnjax.capture import traced_steps
from dawnjax.cluster import launched
from dawnjax.experiments.synthetic_image import EXPERIMENT  # noqa: F401  The suite looks for it.
from dawnjax.feed import TrainFeed

process, _, seconds = os.environ["DAWNJAX_TEST_SLOW"].partition(":")
profile_run = traced_steps.profile_run


def profile_slowly(stepper: Any, *arguments: Any, **more: Any) -> Any:
    inputs = TrainFeed.inputs

    def slow_inputs(self: TrainFeed, *call: Any) -> Any:
        time.sleep(float(seconds))
        return inputs(self, *call)

    TrainFeed.inputs = slow_inputs  # pyright: ignore[reportAttributeAccessIssue]
    return profile_run(stepper, *arguments, **more)


if os.environ.get(launched.PROCESS_ID, "0") == process:
    traced_steps.profile_run = profile_slowly
