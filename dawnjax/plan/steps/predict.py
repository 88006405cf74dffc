"""Prediction of an experiment on absent hardware: its step, its run, its cost.

    step = each op at the efficiency of its kind of device + collectives, all of them exposed
    time to accuracy = epochs x steps an epoch x step + evaluations

Ends of intervals are two standard deviations of the logarithm away. `python -m benchmarks
plan_validation` counts the left-out results that lie inside. The lower end of a step, and of a
time, has no exposed communication, as if all were hidden, but for decoders, whose published steps
say how much is (`decoders/step.py`).
"""

import dataclasses
import math

from dawnjax.config.experiment import Evaluation
from dawnjax.errors import RunError
from dawnjax.machine.prices import Price, SystemPrice
from dawnjax.plan.compiling.compiled import Programs
from dawnjax.plan.compiling.compilers import cautions
from dawnjax.plan.compiling.extract import Extract
from dawnjax.plan.compiling.limits import does_not_fit, lacks_code, needs_larger_share
from dawnjax.plan.epochs.epochs import Epochs
from dawnjax.plan.epochs.interval import Interval, around
from dawnjax.plan.hardware.interconnect import exchange_seconds
from dawnjax.plan.hardware.systems import System
from dawnjax.plan.steps.efficiency import LAUNCHES, Efficiency, compute_seconds, peak_flops

COMMUNICATION = "exposed communication"
SLOWEST_HOST = "waiting for the slowest host"

GIVE_EPOCHS = "give --epochs, or --epochs_from=RUNS"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """Prediction of an experiment on a system.

    Attributes:
      device: The product.
      num_devices: JAX devices.
      global_batch: Examples a step, of the last stage.
      step_seconds: A train step of the last stage.
      parts: Seconds of that step by class of op, and exposed communication.
      examples_per_second: Rate of that step.
      mfu: Model FLOPs over time and peak; None with an entry in `reasons`.
      memory_bytes: Peak bytes that a device needs.
      memory_limit_bytes: Bytes that it has.
      evaluation_seconds: One evaluation of the whole split.
      epochs: To the target; None where nothing is known, or nothing near enough.
      epochs_basis: Source of the epochs, or why none knows them.
      epochs_source: Kind of that source, as `sources` names it.
      time_to_accuracy_seconds: None without epochs.
      cost_usd: None without a price or a time.
      budget_seconds: Seconds of a run to the end of its budget; None without one.
      price: Row of the list of prices; None where the user gave it, or none is listed.
      price_basis: Source of the price, or why there is none.
      reasons: Why something is None, by attribute.
      notes: Cautions for readers of the numbers.
    """

    system: str
    device: str
    num_devices: int
    global_batch: int
    step_seconds: Interval
    parts: dict[str, float]
    examples_per_second: Interval
    mfu: float | None
    memory_bytes: int
    memory_limit_bytes: int
    evaluation_seconds: float
    epochs: Interval | None
    epochs_basis: str
    epochs_source: str
    time_to_accuracy_seconds: Interval | None
    cost_usd: Interval | None
    budget_seconds: Interval | None
    price: Price | None
    price_basis: str
    reasons: dict[str, str]
    notes: tuple[str, ...]


LAUNCH_SPREAD = 0.5
"""Standard deviation of the logarithm of a step that is all launches of kernels. No observation is:
a step of `digits` on an H200, beside nine other processes, took 1.3 to 2.4 ms, predicted 0.67."""

BETWEEN_SECONDS = 0.17
"""Of a run, besides its steps and evaluations: 0.172 and 0.178 s in the means of 10 and 9 trials on
an H200 (`seeds_cifar10_*_nvidia_h200.json`). The lower end of a time has none of it."""


def step_parts(extract: Extract, system: System, efficiency: Efficiency) -> dict[str, float]:
    """Seconds of one call of a program, by class of op, and its communication."""
    parts = compute_seconds(extract, system.accelerator.device, efficiency)
    exchanges = () if efficiency.hides_all else extract.exchanges
    parts[COMMUNICATION] = sum(exchange_seconds(e, system) for e in exchanges)
    parts[SLOWEST_HOST] = 0.0
    if extract.exchanges:
        parts[SLOWEST_HOST] = efficiency.host_seconds * math.log2(system.num_hosts)
    return {name: efficiency.scale * seconds for name, seconds in parts.items()}


def step_spread(parts: dict[str, float], efficiency: Efficiency, num_devices: int) -> float:
    """Standard deviation of the logarithm of a step on so many devices."""
    launches = parts[LAUNCHES] / sum(parts.values())
    return math.hypot(efficiency.spread_at(num_devices), LAUNCH_SPREAD * launches)


def train_seconds(
    programs: Programs, system: System, efficiency: Efficiency, epochs: float
) -> float:
    """Seconds of training for some epochs, through the stages of the run in order."""
    left = epochs * programs.train_examples
    seconds = 0.0
    for index, stage in enumerate(programs.stages):
        examples = stage.steps * stage.examples_per_step
        is_last = index == len(programs.stages) - 1
        here = left if is_last else min(left, examples)
        step = sum(step_parts(stage.train, system, efficiency).values())
        seconds += here / stage.examples_per_step * step
        left -= here
    return seconds


def evaluations_until(evaluation: Evaluation, epochs: float, steps_per_epoch: float) -> int:
    """Evaluations of a run that reaches its target after some epochs, the last one included."""
    every = evaluation.epochs_between(steps_per_epoch)
    if epochs <= evaluation.first_epoch:
        return 1
    skipped = max(0, math.ceil(evaluation.first_epoch / every) - 1)
    return max(1, math.ceil(epochs / every) - skipped)


def first_evaluation(evaluation: Evaluation, steps_per_epoch: float) -> float:
    """Epochs before the first evaluation."""
    every = evaluation.epochs_between(steps_per_epoch)
    return every * max(1, math.ceil(evaluation.first_epoch / every))


def run_seconds(
    programs: Programs,
    system: System,
    efficiency: Efficiency,
    evaluation: Evaluation,
    epochs: float,
) -> float:
    """Seconds from the start of training to the evaluation that reaches the target.

    A run that comes near its target before the first evaluation trains until that evaluation, or
    to the end of its budget, where it evaluates too.
    """
    steps_per_epoch = programs.train_examples / programs.stages[-1].examples_per_step
    first = first_evaluation(evaluation, steps_per_epoch)
    epochs = max(epochs, evaluation.first_epoch, min(first, programs.budget_epochs))
    count = evaluations_until(evaluation, epochs, steps_per_epoch)
    train = train_seconds(programs, system, efficiency, epochs)
    return train + count * evaluation_seconds(programs, system, efficiency)


def evaluation_seconds(programs: Programs, system: System, efficiency: Efficiency) -> float:
    """Seconds of one evaluation of the whole split."""
    batch = sum(step_parts(programs.evaluate, system, efficiency).values())
    return programs.eval_batches * batch


def predict(
    programs: Programs,
    system: System,
    efficiency: Efficiency,
    evaluation: Evaluation,
    epochs: Epochs,
    price: SystemPrice,
    *,
    has_budget: bool = True,
) -> Prediction:
    """Predict a run.

    Args:
      evaluation: When the run evaluates.
      price: Price of the whole system.
      has_budget: Whether the stages' steps are the run's budget, and not a bound of its length.

    Raises:
      RunError: It does not fit into a device's memory, or a peak is not known.
    """
    device = system.accelerator.device
    if programs.memory_bytes > device.memory_bytes:
        raise RunError(does_not_fit(programs.memory_bytes, device.memory_bytes))
    last = programs.stages[-1]
    parts = step_parts(last.train, system, efficiency)
    whole = sum(parts.values())
    spread = step_spread(parts, efficiency, system.num_devices)
    fastest = efficiency.at_best
    least = sum(step_parts(last.train, system, fastest).values())
    step = dataclasses.replace(around(whole, spread), low=around(least, spread).low)
    rate = last.examples_per_step
    mfu, why_no_mfu = _mfu(programs, system, whole)
    if mfu is not None and mfu > 1:
        raise RunError(
            f"the compiled step has fewer FLOPs than the model (MFU would be {mfu:.0%}): "
            "a loop in it could not be counted"
        )
    reasons = {} if mfu is not None else {"mfu": why_no_mfu}
    count = time = cost = budget = None
    if has_budget:
        least, most = (
            run_seconds(programs, system, eff, evaluation, programs.budget_epochs)
            for eff in (fastest, efficiency)
        )
        budget = around(most + BETWEEN_SECONDS, spread)
        budget = dataclasses.replace(budget, low=around(least, spread).low)
    if epochs.mean is None:
        reasons["time_to_accuracy_seconds"] = f"{epochs.basis}: {GIVE_EPOCHS}"
    else:
        first = first_evaluation(evaluation, programs.train_examples / rate)
        count = epochs.interval(first)
        seconds = run_seconds(programs, system, efficiency, evaluation, epochs.mean)
        whole_spread = math.hypot(spread, epochs.spread)
        # No run ends before its first evaluation.
        least, mean = (
            run_seconds(programs, system, fastest, evaluation, count)
            for count in (min(first, epochs.mean), epochs.mean)
        )
        low = max(around(mean, whole_spread).low, around(least, spread).low)
        time = around(seconds + BETWEEN_SECONDS, whole_spread)
        time = dataclasses.replace(time, low=low)
    if price.usd_per_hour is None:
        reasons["cost_usd"] = price.basis
    else:
        cost = time and time.times(price.usd_per_hour / 3600)
        if time is None:
            reasons["cost_usd"] = reasons["time_to_accuracy_seconds"]
    return Prediction(
        system=system.name,
        device=device.name,
        num_devices=system.num_devices,
        global_batch=rate,
        step_seconds=step,
        parts=parts,
        examples_per_second=Interval(rate / step.value, rate / step.high, rate / step.low),
        mfu=mfu,
        memory_bytes=programs.memory_bytes,
        memory_limit_bytes=device.memory_bytes,
        evaluation_seconds=evaluation_seconds(programs, system, efficiency),
        epochs=count,
        epochs_basis=epochs.basis,
        epochs_source=epochs.source,
        time_to_accuracy_seconds=time,
        cost_usd=cost,
        budget_seconds=budget,
        price=price.listed,
        price_basis=price.basis,
        reasons=reasons,
        notes=_notes(programs, system, efficiency, price),
    )


def _mfu(programs: Programs, system: System, step_seconds: float) -> tuple[float | None, str]:
    """Model FLOPs of the last stage's step over its time and peak; or None and the reason."""
    last = programs.stages[-1]
    products = max(last.train.work, key=lambda work: work.flops)
    if programs.model_flops_per_example is None:
        return None, "counting the model FLOPs needs the data, which are not here"
    if not products.flops:
        return None, "the program has no matrix product"
    peak = peak_flops(system.accelerator.device, products.dtype) * system.num_devices
    return programs.model_flops_per_example * last.examples_per_step / step_seconds / peak, ""


def _notes(
    programs: Programs, system: System, efficiency: Efficiency, price: SystemPrice
) -> tuple[str, ...]:
    basis = ", ".join(efficiency.fitted_on) or "no observation: priors alone"
    notes = [f"data: {programs.data_note}", f"efficiencies fitted on: {basis}"]
    if efficiency.octaves_outside(system.num_devices):
        sizes = f"{min(efficiency.sizes):,} to {max(efficiency.sizes):,}"
        notes.append(f"observed systems have {sizes} devices: the step's interval is widened")
    if count := programs.stages[-1].train.recomputed:
        notes.append(
            f"to fit, XLA recomputes {count:,} kernels of a step: a smaller batch may "
            "take less time per example"
        )
    for caution in (needs_larger_share, lacks_code):
        if note := caution(programs.memory_bytes, system.accelerator.device):
            notes.append(note)
    return (*notes, *cautions(system.accelerator), *filter(None, [price.others]))
