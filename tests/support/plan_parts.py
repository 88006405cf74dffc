"""Programs and systems that tests of plans share."""

from dawnjax.plan.compiling import compiled
from dawnjax.plan.compiling.extract import Extract, Work


def work(flops, num_bytes, runs=1):
    return Work("bf16" if flops else "", flops, num_bytes, runs, has_even_rows=True)


def programs(*, memory_bytes: int = 10**9, flops: float | None = 1e12):
    """Two stages of ten steps of 100 and 200 examples: a second, then two seconds a step."""
    steps = [
        Extract(work=(work(0, 3.35e12 * s),), exchanges=(), memory_bytes=memory_bytes)
        for s in (1, 2)
    ]
    return compiled.Programs(
        stages=(
            compiled.Stage(steps=10, examples_per_step=100, train=steps[0]),
            compiled.Stage(steps=10, examples_per_step=200, train=steps[1]),
        ),
        evaluate=steps[0],
        eval_batches=3,
        train_examples=1000,
        model_flops_per_example=flops,
        data_note="",
    )
