"""Seconds of a decoder's train step, from its sizes and arrangement alone.

    step = sum over terms of seconds at the data sheets' rates (`terms.py`) x a factor

The factors are fitted on published steps (`steps.csv`): MaxText's recipes for TPUs and an
H200, and MLPerf Training v5.1 on NVIDIA's GPUs. The fit is least squares of relative errors, with a
prior on each factor; steps of the planned chip weigh more than steps of others of its platform.

A part of the exchanges is hidden behind computation. The factor of `weights and gradients` is the
part that is not: 0.3 to 0.7.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import nnls

from dawnjax import records
from dawnjax.config.experiment import Experiment
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.plan.decoders.terms import RECOMPUTED, TERMS, Arrangement, parameters, terms
from dawnjax.plan.epochs.epochs import NORMAL_90
from dawnjax.plan.epochs.interval import Interval, around, octaves_outside
from dawnjax.plan.hardware.systems import Accelerator, System, parse_system
from dawnjax.plan.steps.efficiency import Efficiency

if TYPE_CHECKING:
    from dawnjax.models.configs.llama import Llama

_PRIORS = dict(
    zip(
        TERMS,
        ((1.4, 0.3), (1.5, 0.3), (2.3, 0.6), (3.0, 0.8), (1.0, 0.3), (0.4, 0.3), (0.8, 0.5)),
        strict=False,
    )
)
_STEP_PRIORS = {"tpu": (0.3, 0.5), "gpu": (1.0, 0.7)}
"""Centre and standard deviation of each factor. Products of large arrays reach 60 to 80 % of the
peak, causal attention about a third; a TPU starts a whole step as one program."""

SAME_CHIP, OTHER_CHIP = 0.05, 0.5
"""Standard deviations of the relative error of a step on the planned chip, and on another."""

ERRORS = {True: 0.115, False: 0.27}
"""Error of the logarithm that 9 of 10 published steps stay within, by whether other steps of their
chip and dtype are known: predicted without their family, which is a model on TPUs or on GPUs, or
without their chip. Each family, and each chip, counts as much as any other, however many entries
ran the same program. `python -m benchmarks plan_validation` counts the steps inside by errors of
the other families and chips alone. A dtype of no step of the chip has the factor of other chips,
as H100 and B200 do in bfloat16.
"""


OUTSIDE = 0.05
"""Standard deviation for each doubling of the devices beyond the chip's published steps. 29 steps
that far away, predicted without their system or chip, have no larger errors than the points
within."""


@dataclasses.dataclass(frozen=True)
class PublishedStep:
    """A measured step of a decoder.

    Attributes:
      seconds: Seconds of a step.
      minutes: To the target; None where it was not trained to one.
      examples: Rows to the target; None as before.
      source: Log or page of the figures; of an MLPerf result its configuration too.
    """

    name: str
    model: "Llama"
    arrangement: Arrangement
    seconds: float
    minutes: float | None
    examples: float | None
    source: str

    @property
    def chip(self) -> str:
        """Key of the steps that share their factors."""
        return chip_of(self.arrangement.system.accelerator)


def chip_of(accelerator: Accelerator) -> str:
    """Key of an accelerator's chip: its compiler's, which products of one generation share."""
    return accelerator.compiler or accelerator.name


@functools.cache
def published_steps() -> tuple[PublishedStep, ...]:
    columns = ("id", "system", "model", "sequence", "rows", "mesh", "products", "seconds", "source")
    return tuple(
        PublishedStep(
            row["id"],
            *arranged(row),
            seconds=float(row["seconds"]),
            minutes=float(row["minutes"]) if row["minutes"] else None,
            examples=float(row["examples"]) if row["examples"] else None,
            source=row["source"],
        )
        for _, row in records.csv_rows(Path(__file__).parent / "steps.csv", columns)
    )


def arranged(row: Mapping[str, str]) -> tuple["Llama", Arrangement]:
    """Model and arrangement of a row of a table such as `steps.csv`."""
    from dawnjax.models.configs.llama import LLAMA_SIZES

    model = LLAMA_SIZES[row["model"]]
    if row["adapters"]:
        lora = dataclasses.replace(model.lora, rank=int(row["adapters"]))
        model = dataclasses.replace(model, lora=lora)
    arrangement = Arrangement(
        system=parse_system(row["system"]),
        slices=int(row["slices"] or 1),
        rows=int(row["rows"]),
        sequence_length=int(row["sequence"]),
        vocabulary_size=int(row["vocabulary"]),
        mesh=_mesh(row["mesh"]),
        recomputed=tuple(name for name in row["recomputed"].split(";") if name),
        products=row["products"],
        gathers=int(row["gathers"]),
        gradient_bytes=int(row["gradient_bytes"]),
        spans_texts=True,
        capacity=float(row["capacity"] or 0),
    )
    return model, arrangement


def _mesh(text: str) -> MeshShape:
    sizes = {name: int(size) for name, _, size in (part.partition("=") for part in text.split())}
    return MeshShape(**{"data": 1, **sizes})


@functools.cache
def _published_terms() -> dict[str, dict[str, float]]:
    return {row.name: terms(row.model, row.arrangement) for row in published_steps()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factors:
    """Fitted factors of a chip.

    Attributes:
      of: Factor of each term.
      spread: Standard deviation of the logarithm of a predicted step.
      unknown: The same in a dtype of none of the chip's own steps.
      fitted_on: Names of the chip's own steps; empty where none is published.
      sizes: Devices of those, or of all steps of the platform.
      parameters: Of the models of those.
      products: Dtypes of the chip's own steps.
    """

    of: dict[str, float]
    spread: float
    unknown: float
    fitted_on: tuple[str, ...]
    sizes: tuple[int, ...]
    parameters: tuple[int, ...]
    products: frozenset[str]

    def parts(self, at_rates: dict[str, float]) -> dict[str, float]:
        """Seconds of each term, given those at the data sheets' rates."""
        return {name: self.of[name] * seconds for name, seconds in at_rates.items()}

    def spread_of(self, model: "Llama", arrangement: Arrangement) -> float:
        """The spread, wider beyond the published models' sizes and for another dtype."""
        spread = self.spread
        if arrangement.products not in self.products:
            spread = self.unknown
        count = parameters(model, arrangement.vocabulary_size)
        return math.hypot(spread, OTHER_SIZE * octaves_outside(self.parameters, count))

    def spread_at(self, model: "Llama", arrangement: Arrangement) -> float:
        """Spread of a step: wider beyond published models and systems, and for other parts."""
        away = octaves_outside(self.sizes, arrangement.system.num_devices)
        other = 0.0 if _is_published(model, arrangement) else UNPUBLISHED
        return math.hypot(self.spread_of(model, arrangement), OUTSIDE * away, other)

    def step(self, model: "Llama", arrangement: Arrangement) -> Interval:
        seconds = sum(self.parts(terms(model, arrangement)).values())
        return around(seconds, self.spread_at(model, arrangement))


def fitted(accelerator: Accelerator) -> Factors:
    """Factors of an accelerator's chip, from all published steps of its platform."""
    return fit(accelerator, published_steps())


def fit(
    accelerator: Accelerator,
    rows: Sequence[PublishedStep],
    errors: Mapping[bool, float] = ERRORS,
) -> Factors:
    """Factors of an accelerator's chip, from some steps; the priors without steps."""
    platform, chip = accelerator.device.platform, chip_of(accelerator)
    alike = [r for r in rows if r.arrangement.system.accelerator.device.platform == platform]
    own = [row for row in alike if row.chip == chip]
    priors = [*_PRIORS.values(), _STEP_PRIORS[platform]]
    matrix = [[(name == term) / deviation for term in TERMS]
              for name, (_, deviation) in zip(TERMS, priors, strict=True)]  # fmt: skip
    wanted = [centre / deviation for centre, deviation in priors]
    for row in alike:
        weight = 1 / (row.seconds * (SAME_CHIP if row.chip == chip else OTHER_CHIP))
        at_rates = _published_terms()[row.name]
        matrix.append([at_rates[term] * weight for term in TERMS])
        wanted.append(row.seconds * weight)
    found, _ = nnls(np.array(matrix), np.array(wanted))
    return Factors(
        of=dict(zip(TERMS, found.tolist(), strict=True)),
        spread=errors[bool(own)] / NORMAL_90,
        unknown=errors[False] / NORMAL_90,
        fitted_on=tuple(row.name for row in own),
        sizes=tuple(row.arrangement.system.num_devices for row in own or alike),
        parameters=tuple(
            parameters(row.model, row.arrangement.vocabulary_size) for row in own or alike
        ),
        products=frozenset(row.arrangement.products for row in own),
    )


FUSED_WIDTHS = range(8, 129, 8)
"""Channels of a head that cuDNN's attention takes."""

UNPUBLISHED = 0.35
"""Spread of a step with a part that no published step has: attention made of products, or experts
that drop no token. A factor of two either way holds what that leaves open."""

OTHER_SIZE = 0.05
"""Standard deviation for each doubling of the parameters beyond the chip's published models. Of 62
steps that are 2.5 to 3.2 doublings from the others of their chip, predicted without models of their
size, 9 of 10 are within 0.13 and the worst is 0.19 off."""

SMALLEST = 10**9
"""Parameters of the smallest decoder that is predicted. The published ones have 8 to 405 times as
many; steps of small ones are starts of kernels."""


def why_unfit(experiment: Experiment, spec: Any) -> str:
    """Reason why published steps of decoders say nothing about an experiment; else empty."""
    model = experiment.model
    if not hasattr(model, "num_kv_heads"):
        return f"only steps of Llama-family decoders are known, none of model={model.TAG}"
    if experiment.compute_dtype == "float32":
        return "published steps compute in 16 bits or fewer: give --compute_dtype=bfloat16"
    if experiment.accumulation_steps > 1:
        return "published steps do not accumulate gradients: leave out --accumulation_steps"
    count = parameters(model, spec.vocabulary_size)
    if count < SMALLEST:
        return f"only decoders of a billion parameters and more are known; this one has {count:,}"
    return ""


def arrangement_of(
    experiment: Experiment,
    spec: Any,
    system: System,
    batch: int,
    remat: str,
    mesh: MeshShape,
    moment_bytes: float = 8.0,
) -> Arrangement:
    others = mesh.fsdp * mesh.expert * mesh.context * mesh.model
    return Arrangement(
        system=system,
        rows=batch,
        sequence_length=spec.sequence_length,
        vocabulary_size=spec.vocabulary_size,
        mesh=dataclasses.replace(mesh, data=mesh.data or system.num_devices // others),
        recomputed=RECOMPUTED[remat],
        is_fused=_is_fused(experiment.model, system, mesh),
        is_expanded=system.accelerator.device.platform == "gpu",
        moment_bytes=moment_bytes,
    )


def moment_bytes_of(experiment: Experiment, spec: Any) -> float:
    """Bytes that the optimizer keeps of a parameter of a matrix.

    Raises:
      ConfigError: A run refuses the optimizer too.
    """
    import jax

    from dawnjax.optim.optimizers import make_optimizer

    matrix = jax.ShapeDtypeStruct((1, 64, 64), "float32")
    params = {"blocks": {"query": matrix}}
    kept = jax.tree.leaves(jax.eval_shape(make_optimizer(experiment, spec).init, params))
    return sum(a.size * a.dtype.itemsize for a in kept if a.size >= matrix.size) / matrix.size


def _is_published(model: Any, arrangement: Arrangement) -> bool:
    """True if published steps have all parts of a step."""
    return arrangement.is_fused and (not model.experts.count or arrangement.capacity > 0)


def _is_fused(model: Any, system: System, mesh: MeshShape) -> bool:
    """True where `models.fused_attention` gives attention to cuDNN."""
    is_taken = not (model.has_sinks or model.masks_documents) and model.head_width in FUSED_WIDTHS
    return system.accelerator.has_fused_attention and mesh.context == 1 and is_taken


def scaled(
    efficiency: Efficiency,
    experiment: Experiment,
    spec: Any,
    mesh: MeshShape,
    system: System,
    batch: int,
    compiled_seconds: float,
) -> Efficiency:
    """Efficiency with which a compiled step lasts as long as published steps of decoders say.

    Unchanged where no published step has its parts: on TPUs, whose attention is no fused kernel
    here, and with experts.

    Args:
      compiled_seconds: Seconds of the compiled step, by the efficiency.
    """
    model: Any = experiment.model
    moments = moment_bytes_of(experiment, spec)
    arrangement = arrangement_of(
        experiment, spec, system, batch, model.remat, mesh, moment_bytes=moments
    )
    if not _is_published(model, arrangement):
        return efficiency
    factors = fitted(system.accelerator)
    seconds = factors.step(model, arrangement).value
    chips = "this chip" if factors.fitted_on else "other chips"
    if factors.fitted_on and arrangement.products not in factors.products:
        chips += f", none in {arrangement.products}"
    count = len(factors.fitted_on or factors.sizes)
    return dataclasses.replace(
        efficiency,
        scale=seconds / compiled_seconds,
        spread=factors.spread_of(model, arrangement),
        fitted_on=(f"{count} published steps of decoders on {chips}",),
        sizes=factors.sizes,
        knows_overlap=True,
    )
