"""Memory of train steps from shapes beside XLA's, with other batches and devices.

    DAWNJAX_DATA=data python -m benchmarks plan_other_steps [--predict_only]

The steps that `plan_memory` compares decided the rules, and of these here the first list one. They
are small, so that the compiler takes minutes for all. `--predict_only` keeps XLA's figures.
"""

import argparse
import json
import sys

from benchmarks import harness, plan_memory

DECIDED = {
    "cells_ssd_small": ((8, (16, 32, 64)), (1, (8, 32))),
    "cifar10_resnet18": ((8, (128, 1024)), (1, (128,))),
    "cifar10_wide_resnet34": ((8, (1024,)),),
    "digits": ((8, (256,)), (1, (64, 512))),
    "imagenet_resnet50": ((8, (512,)), (1, (64,))),
    "imagenet_resnet_tiny": ((1, (64,)),),
    "movielens_ml100k_neumf": ((1, (256,)),),
    "multi30k_transformer": ((1, (64,)),),
    "nuclei_mask_rcnn_small": ((8, (8, 32)),),
    "squad_bidaf": ((8, (120,)),),
    "squad_qanet": ((1, (16,)),),
    "squad_small": ((8, (64,)), (1, (16,))),
    "synthetic_image": ((1, (64,)),),
    "tatoeba_transformer": ((1, (64,)),),
    "wikipedia_bytes_small": ((8, (64,)), (1, (16,))),
    "wikipedia_llama_small": ((1, (8,)),),
}
"""Devices and batches of steps that decided when gradients of kernels are late."""

HELD_OUT = {
    "cifar10_resnet164": ((8, (256,)), (4, (256,))),
    "cifar10_resnet18": ((4, (512,)), (16, (4096,))),
    "digits": ((4, (64,)),),
    "imagenet_resnet50": ((16, (2048,)), (4, (128,))),
    "multi30k_transformer": ((4, (512,)), (16, (512,))),
    "squad_bidaf": ((4, (64,)), (1, (32,))),
    "squad_small": ((4, (128,)),),
    "tatoeba_transformer": ((4, (256,)),),
    "wikipedia_bytes_small": ((4, (128,)), (2, (8,))),
}
"""Of steps that decided nothing."""

NAME = "plan_other_steps_h100"


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--predict_only", action="store_true")
    arguments = parser.parse_args()
    results = harness.Results(NAME, packages=plan_memory.packages())
    earlier = _earlier()
    rows = []
    for is_held_out, kinds in ((False, DECIDED), (True, HELD_OUT)):
        cases = [(n, d, b) for n, at in kinds.items() for d, batches in at for b in batches]
        for experiment, devices, batch in cases:
            flags = [f"--global_batch_size={batch}"]
            row = plan_memory.predicted(experiment, f"h100:{devices}", flags)
            row["is_held_out"] = is_held_out
            if arguments.predict_only:
                row = earlier.get((experiment, devices, batch), {}) | row
            elif "reason" not in row:
                row |= plan_memory.of_compiler(row)
            rows.append(row | {"devices": devices, "batch": batch})
            results.add(rows=rows)
            print(experiment, devices, batch, row.get("xla"), row.get("reason", ""), flush=True)
    print(results.path)
    return 0


def _earlier() -> dict[tuple[str, int, int], dict[str, dict[str, int]]]:
    """XLA's figures of the result file by experiment, devices and batch."""
    path = harness.folder() / f"{NAME}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {
        (row["experiment"], row["devices"], row["batch"]): {"xla": row["xla"]}
        for row in rows
        if "xla" in row
    }


if __name__ == "__main__":
    sys.exit(main())
