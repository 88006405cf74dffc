"""The first losses of a small residual network on 1 to 8 simulated devices, as JSON.

    python tests/support/device_counts.py

It needs more devices than the other tests' process has, so it is one of its own.
"""

import json
import os
import sys

from quick_compilation import QUICK

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["NPROC"] = "16"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {QUICK}"


from first_steps import train_steps

NUM_STEPS = 4

FLAGS = [
    "--experiment=synthetic_image",
    "--data.num_train_examples=96",
    "--data.num_eval_examples=40",
    "--num_epochs=3",
    "--global_batch_size=16",
    "--batch_norm_group_size=2",
    "--model.stage_sizes=1",
    "--model.stage_widths=64",  # kernels of 36,864 parameters: large enough to be split
    "--steps_per_call=1",
]


def first_losses(num_devices: int, *flags: str) -> list[float]:
    """Trains the first steps and returns their losses."""
    return train_steps(num_devices, *FLAGS, *flags, steps=NUM_STEPS)[1]


if __name__ == "__main__":
    losses_by_case = {f"plain on {count}": first_losses(count) for count in (1, 2, 4, 8)}
    losses_by_case |= {
        f"sharded update on {count}": first_losses(count, "--weight_update_sharding")
        for count in (2, 4, 8)
    }
    losses_by_case["accumulated on 4"] = first_losses(4, "--accumulation_steps=2")
    json.dump(losses_by_case, sys.stdout)
