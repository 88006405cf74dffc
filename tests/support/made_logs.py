"""Logs for tests, made event by event at moments that a reader can add up."""

from dawnjax.runs.log import SCHEMA_VERSION
from dawnjax.tasks.metric import TOP_1_ACCURACY, TOP_5_ACCURACY, loss_metric

EXPERIMENT = {
    "name": "x",
    "global_batch_size": 10,
    "targets": [{"metric": "top_1_accuracy", "value": 0.9, "direction": "at_least"}],
    "target_note": "",
}
METRICS = (TOP_1_ACCURACY, TOP_5_ACCURACY, loss_metric("nats an example"))
SPAN = {"index": 0, "first_step": 0, "last_step": 80, "first_example": 0, "global_batch_size": 10}
"""Eight epochs."""


class Log:
    """Writes events of attempts at given moments."""

    def __init__(self, boot_id="boot"):
        self.events, self.attempt, self.start = [], 0, 0.0
        self.boot_id = boot_id

    def begin(self, start, price=None, hosts=2):
        self.attempt, self.start = self.attempt + 1, start
        start = {"schema_version": SCHEMA_VERSION, "run_id": "r", "boot_id": self.boot_id}
        self.add("attempt_start", 0.5, **start, versions={})
        self.add(
            "experiment",
            0.5,
            experiment=EXPERIMENT,
            identity="i",
            overrides={},
            seed=0,
            num_train_examples=100,
            num_eval_examples=20,
            data={"name": "made data", "benchmark": "", "evidence": "no data of a benchmark"},
            run_options={"price_per_hour_usd": price},
            metrics=[metric.to_json() for metric in METRICS],
            example_unit="examples",
            spans=[{**SPAN, "values": {}}],
        )
        self.add(
            "devices",
            0.5,
            device_kind="cpu",
            platform="cpu",
            num_devices=2,
            num_processes=2,
            num_hosts=hosts,
            mesh={},
        )
        self.add("phase", 0.5, name="setup")
        return self

    def add(self, event, t, /, **fields):
        self.events.append(
            {
                "event": event,
                "attempt": self.attempt,
                "t": t,
                "boot_seconds": self.start + t,
                "unix_seconds": 1e9 + self.start + t,
                **fields,
            }
        )
        return self

    def train(self, t, step, steps):
        return self.add(
            "train", t, step=step, epoch=step / 10, loss=1.0, steps=steps, input_wait_seconds=0.0
        )

    def evaluate(self, t, step, accuracy):
        return self.add(
            "evaluation",
            t,
            step=step,
            epoch=step / 10,
            metrics={"top_1_accuracy": accuracy},
            reached=accuracy >= 0.9,
        )


def one_attempt(price=None):
    """Compiles from 2 to 7 with run_start at 8; evaluated at 10, it reaches the target at 12.25."""
    log = Log().begin(100.0, price)
    log.add("phase", 2.0, name="compile").add("phase", 7.0, name="setup")
    log.add("run_start", 8.0).add("phase", 8.0, name="train")
    log.add("train", 9.0, step=10, epoch=1.0, loss=2.0, steps=10, input_wait_seconds=0.0)
    log.add("phase", 9.5, name="eval").evaluate(10.0, 10, 0.5).add("phase", 10.0, name="train")
    log.add("train", 11.0, step=20, epoch=2.0, loss=1.0, steps=10, input_wait_seconds=0.0)
    log.add("phase", 11.5, name="eval").evaluate(12.25, 20, 0.95)
    log.add("phase", 12.5, name="checkpoint")
    return log.add("attempt_end", 14.0, status="reached", step=20)


def interrupted_run():
    """Run start at 8, killed after 20 s, 1,000 s gap, then reached 30 s into the second attempt."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0).add("phase", 8.0, name="train").evaluate(12.0, 10, 0.5)
    log.add("host_sample", 20.0)
    log.begin(1020.0)
    log.add("restored", 6.0, step=10).evaluate(25.0, 20, 0.7)
    log.evaluate(30.0, 30, 0.9)
    return log.add("attempt_end", 31.0, status="reached", step=30)


def recompiling_run(reached=0.9):
    """Compiles from 2 to 7 with run_start at 8, killed at 20; resumed, it compiles from 1 to 4."""
    log = Log().begin(0.0)
    log.add("phase", 2.0, name="compile").add("compiled", 6.0, program="train", cache="cold")
    log.add("phase", 7.0, name="setup").add("run_start", 8.0).add("phase", 8.0, name="train")
    log.add("host_sample", 20.0).begin(1020.0)
    log.add("phase", 1.0, name="compile").add("compiled", 3.0, program="train", cache="warm")
    log.add("phase", 4.0, name="train").evaluate(30.0, 30, reached)
    log.add("phase", 31.0, name="profile").add("compiled", 32.0, program="twin", cache="off")
    return log.add("attempt_end", 33.0, status="reached", step=30)
