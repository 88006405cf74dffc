"""Goals, and the figures that meet or miss them."""

import dataclasses
import json
import statistics
from collections.abc import Callable

from benchmarks.result_tables import result_files
from benchmarks.result_tables.cells import interval, machine, when
from benchmarks.result_tables.result_files import Record, Rows
from benchmarks.result_tables.steps import pytorch_settings

MISSED = "**missed**"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A measured value that a goal is about.

    Attributes:
      value: The value.
      runs: How many rounds or trials it is from.
      interval: Its 95 % interval, or None where it has none.
      against: What it is compared with.
    """

    value: float
    runs: str
    interval: tuple[float, float] | None = None
    against: str = ""

    def __str__(self) -> str:
        """The value and its interval, with the digits that the value needs."""
        digits = 0 if self.value >= 1000 else 3 if self.value >= 0.01 else 4
        ends = f" ({interval(*self.interval, digits)})" if self.interval else ""
        return f"{self.value:,.{digits}f}{ends}"


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal, and the figures that meet or miss it.

    Attributes:
      title: In words.
      pattern: Glob of the result files; each is a row.
      figure: Reads the figure from a result.
      least: The figure is to be this or more; None where `most` is the goal.
      most: The figure is to be this or less.
    """

    title: str
    pattern: str
    figure: Callable[[Record], Figure]
    least: float | None = None
    most: float | None = None

    def state(self, figure: Figure) -> str:
        """`met` or `missed`, and whether the interval holds the limit."""
        limit = self.most if self.least is None else self.least
        assert limit is not None
        is_met = figure.value <= limit if self.least is None else figure.value >= limit
        is_open = figure.interval and figure.interval[0] <= limit <= figure.interval[1]
        return ("met" if is_met else MISSED) + (", limit in the interval" if is_open else "")

    def needed(self) -> str:
        """The limit, with the side on which the figure must lie."""
        side, limit = ("at most", self.most) if self.least is None else ("at least", self.least)
        return f"{side} {limit:,g}"


def _comparison(record: Record, *path: str) -> tuple[Record, str]:
    """A comparison that lies at `path`, and how many rounds it has."""
    for key in path:
        record = record[key]
    return record, f"{len(record['first'])} rounds"


def _ratio(field: str, against: str) -> Callable[[Record], Figure]:
    """Our figure over that of another library."""

    def figure(record: Record) -> Figure:
        facts, rounds = _comparison(record, field)
        return Figure(facts["ratio_median"], rounds, facts["ratio_interval_95"], against)

    return figure


def _median(*path: str) -> Callable[[Record], Figure]:
    """Our median of a comparison."""

    def figure(record: Record) -> Figure:
        facts, rounds = _comparison(record, *path)
        return Figure(facts["first_median"], rounds)

    return figure


def _step_speed(record: Record) -> Figure:
    """Our throughput over PyTorch's; on a CPU of the faster of our two ways to hold memory."""
    against = f"PyTorch, {pytorch_settings(record)}"
    if "network" in record:  # an older file, with times in place of throughputs
        facts, rounds = _comparison(record, "float32")
        low, high = facts["ratio_interval_95"]
        return Figure(1 / facts["ratio_median"], rounds, (1 / high, 1 / low), against)
    ours = max(
        (record["variants"].get(way, {}) for way in ("base", "memory_kept")),
        key=lambda way: way.get("units_per_second", 0.0),
    )
    facts, rounds = _comparison(ours, "against_pytorch")
    return Figure(facts["ratio_median"], rounds, facts["ratio_interval_95"], against)


def _step(field: str) -> Callable[[Record], Figure]:
    """A figure of our step alone."""

    def figure(record: Record) -> Figure:
        facts = record["variants"]["base"]
        return Figure(facts[field], f"{len(facts['rounds'])} rounds")

    return figure


def _peer(record: Record) -> tuple[Record, str, str]:
    """The comparison of record mode with the peer of its job, how many runs, and the peer."""
    ((peer, facts),) = record["comparisons"].items()
    return facts, f"{facts['first_rounds']} and {facts['second_rounds']} runs", f"`{peer}.py`"


def _record_time(record: Record) -> Figure:
    """Our mean time over the peer's."""
    facts, runs, peer = _peer(record)
    return Figure(facts["ratio_of_means"], runs, facts["ratio_interval_95"], peer)


def _record_accuracy(record: Record) -> Figure:
    """Our mean accuracy less the peer's, and 1.96 standard errors to either side."""
    facts, runs, peer = _peer(record)
    mean, error = facts["accuracy_difference"], 1.96 * facts["accuracy_difference_standard_error"]
    return Figure(mean, runs, (mean - error, mean + error), peer)


def _trial_time(record: Record) -> Figure:
    """Our mean time to accuracy over PyTorch's."""
    ratio = record["ratios"]["time to accuracy, s"]
    runs = f"{record['dawnjax']['num_trials']} and {record['pytorch']['num_trials']} trials"
    return Figure(
        ratio["ratio"], runs, ratio["interval_95"], f"PyTorch, {pytorch_settings(record)}"
    )


def _input_wait(record: Record) -> Figure:
    """The mean share of time that a paced consumer waited."""
    fractions = record["paced"]["input_wait_fractions"]
    return Figure(statistics.fmean(fractions), f"{len(fractions)} rounds")


_SPEEDRUN = "record_cifar10_nvidia_h200_beside_speedrun.json"
_AIRBENCH = "record_cifar10_nvidia_h200.json"
_RESNET50 = "steps_resnet50_nvidia_h200.json"
_AMOEBANET = "steps_amoebanet_d_nvidia_h200.json"
_TRANSFORMER = "steps_transformer_big_nvidia_h200.json"
_TEXT = "steps_multi30k_transformer"
_RESIZED = _ratio("decode_for_training", "Pillow's RandomResizedCrop")
_HELP = _median("commands", "dawnjax --help")
_ANALYSIS = _median("commands", "import dawnjax.analysis")
GOALS = (
    Goal("CIFAR-10 in record mode: our time / the best peer's", _SPEEDRUN, _record_time, most=0.5),
    Goal("the same / that of the recipe's own program", _AIRBENCH, _record_time, most=0.5),
    Goal("our mean accuracy less the best peer's", _SPEEDRUN, _record_accuracy, least=0.0),
    Goal("the same less that of the recipe's own program", _AIRBENCH, _record_accuracy, least=0.0),
    Goal("ResNet-50 step, images/s", _RESNET50, _step("units_per_second"), least=12000),
    Goal("the same, times as fast as `torch.compile`", _RESNET50, _step_speed, least=2.0),
    Goal("AmoebaNet-D N6 F256 step / 7,800 images/s", _AMOEBANET, _step("share_of_limit"), 0.9),
    Goal("Transformer big step, MFU", _TRANSFORMER, _step("mfu"), least=0.55),
    Goal("the same, times as fast as compiled PyTorch with SDPA", _TRANSFORMER, _step_speed, 1.3),
    *(
        Goal(f"`{experiment}`: our time to accuracy / PyTorch's", files, _trial_time, most=most)
        for experiment, files, most in (
            ("digits", "digits_pytorch*.json", 0.67),
            ("movielens_ml100k_neumf", "recommendation_pytorch*.json", 1.0),
            ("wikipedia_bytes_small", "language_model_pytorch*.json", 1.0),
            ("multi30k_gnmt", "gnmt_pytorch*.json", 1.0),
            ("squad_small", "squad_pytorch*.json", 1.0),
        )
    ),
    Goal(
        "`digits` step, times PyTorch's speed",
        "steps_digits_cpu*.json",
        _step_speed,
        least=1.5,
    ),
    Goal(
        "CIFAR-10 record net, float32 step, times PyTorch's speed",
        "steps_record_net_float32_cpu*.json",
        _step_speed,
        least=0.9,
    ),
    Goal(
        "ResNet-18, float32 step, times PyTorch's speed",
        "steps_cifar10_resnet18_cpu*.json",
        _step_speed,
        least=0.9,
    ),
    Goal(
        "Multi30K Transformer, float32 step, times PyTorch's speed",
        f"{_TEXT}_cpu*.json",
        _step_speed,
        least=1.4,
    ),
    Goal(
        "the same in bfloat16, PyTorch under autocast (a yardstick of our own)",
        f"{_TEXT}_bfloat16_cpu*.json",
        _step_speed,
        least=1.0,
    ),
    Goal(
        "photograph to a square of 256, times Pillow's speed",
        "image_input.json",
        _ratio("decode", "Pillow"),
        least=1.6,
    ),
    Goal("the same to what a training step needs", "image_input.json", _RESIZED, least=1.6),
    Goal("prepared squares a second and core", "image_input.json", _median("feed"), least=14000),
    Goal("input wait of a consumer of 12,000 images/s", "image_input.json", _input_wait, most=0.01),
    Goal("`dawnjax --help`, s", "start_up.json", _HELP, most=0.3),
    Goal("`import dawnjax.analysis`, s", "start_up.json", _ANALYSIS, most=0.5),
)


def goals(_: list[tuple[str, Record]]) -> Rows:
    """Each goal with each figure that there is, met or missed."""
    head = "goal | needed | measured (95 %) | state | against | runs | hardware | date; versions"
    rows: Rows = [list(head.split(" | "))]
    for goal in GOALS:
        title, needed = goal.title, goal.needed()
        for file in sorted(result_files.RESULTS.glob(goal.pattern)):
            record = json.loads(file.read_text())
            where = [machine(file.stem, record), when(record, "jax")]
            try:
                figure = goal.figure(record)
                state = goal.state(figure)
                cells = [str(figure), state, figure.against, figure.runs]
            except (KeyError, ValueError):  # a side failed, so that the file has no such figure
                cells = ["none: a side failed", MISSED, "", ""]
            rows.append([title, needed, *cells, *where])
            title = needed = ""
    return rows
