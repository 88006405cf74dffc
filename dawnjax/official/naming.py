"""Classes of frameworks and machines, by the words that entries use for them."""

import functools
import re
from pathlib import Path

from dawnjax import records

# The first row whose word is in the text counts. `tensorpack` runs on TensorFlow, `fastai` on
# PyTorch.
_FRAMEWORKS = (
    ("tensorpack", "TensorFlow"),
    ("tensorflow", "TensorFlow"),
    ("pytorch", "PyTorch"),
    ("fastai", "PyTorch"),
    ("mxnet", "MXNet"),
    ("caffe", "Caffe"),
    ("bigdl", "BigDL"),
    ("jax", "JAX"),
    ("keras", "Keras"),
    ("paddle", "PaddlePaddle"),
    ("mindspore", "MindSpore"),
    ("poptorch", "PyTorch"),
    ("popart", "PopART"),
    ("merlin", "HugeCTR"),
    ("hugectr", "HugeCTR"),
    ("nemo", "PyTorch"),
    ("tensorrt", "TensorRT"),
    ("torch", "PyTorch"),
)

_TPU = re.compile(r"\btpu|tpu-?v\d", re.I)
_GPU = re.compile(
    r"\b[VKPTMAHB]\d{2,3}[A-Z]*\b|[VKPTMAHB]100|\bP4\b|\bT4\b|tesla|nvidia|geforce|gtx|rtx"
    r"|\bdgx|gpu|volta|instinct|\bmi\d{3}|\bp[234]d?\.\d*x|\bg[345]\.\d*x|ecs\.gn\d",
    re.I,
)
_CPU = re.compile(r"xeon|epyc|\bcpu|vcpu|\bc[45]\.\d*x|n1-standard|platinum|skylake", re.I)

CHIPS_OF_A_CLOUD_TPU = 4
"""An accelerator is a chip. A Cloud TPU of 2018 was a board of four with two cores each, and names
such as `tpuv3-512` count cores.

Source: Jouppi et al. 2020, "A domain-specific supercomputer for training deep neural networks"
(Communications of the ACM 63:7).
"""

_MODEL = r"(?:NVidia\s+|Nvidia\s+|Tesla[ -])*(?:[VKPTMABH]\d{1,3}|GTX|RTX|2080|TPU)"


@functools.cache
def _instances() -> dict[str, int]:
    path = Path(__file__).with_name("instances.csv")
    filled = ("name", "accelerators", "source")
    return {row["name"]: int(row["accelerators"]) for _, row in records.csv_rows(path, filled)}


def framework_family(framework: str) -> str:
    """Framework family in a text; empty if it names none."""
    text = re.sub(r"[\s_.-]", "", framework.lower())
    return next((family for word, family in _FRAMEWORKS if word in text), "")


def processor_class(hardware: str) -> str:
    """Class of a machine by its description: `GPU`, `TPU` or `CPU`; empty if unknown."""
    if _TPU.search(hardware):
        return "TPU"
    if re.search(r"\bnpu\b", hardware, re.I):
        return ""
    if _GPU.search(hardware):
        return "GPU"
    return "CPU" if _CPU.search(hardware) else ""


def machine_counts(hardware: str) -> tuple[int | None, int | None]:
    """Accelerators and hosts in a text like `64 * V100 (8 machines - AWS p3.16xlarge)`, or None."""
    hosts = _hosts(hardware)
    if processor_class(hardware) == "CPU":
        return 0, hosts
    if re.search(r"\bpod\b", hardware, re.I):
        return None, None
    if re.search(r"\bCloud TPU\b|\b1 TPUv2\b", hardware):
        return CHIPS_OF_A_CLOUD_TPU, hosts
    if match := re.search(rf"\b(\d+) ?\* ?(\d+) ?\* ?{_MODEL}", hardware):
        return int(match[1]) * int(match[2]), int(match[1])
    instances = _instances()
    instance = next((name for name in instances if name in hardware), None)
    if instance is not None and not re.search(r"\d ?\* ?[VKPTM]\d|\*\d", hardware):
        return None if hosts is None else hosts * instances[instance], hosts
    per_node = "each node" in hardware.lower()
    for pattern in (rf"\b(\d+) ?[*x] ?{_MODEL}", rf"{_MODEL} ?\* ?(\d+)", rf"\b(\d+) {_MODEL}"):
        if match := re.search(pattern, hardware, re.I):
            number = int(match[1])
            return (number * hosts if per_node and hosts else number), hosts
    if not processor_class(hardware):
        return None, None
    if re.search(r"\b(?:Volta \(V100\)|V100 \(AWS)", hardware):
        return 1, hosts
    return None, hosts


def _hosts(hardware: str) -> int | None:
    if match := re.search(r"\b(\d+) (?:nodes|machines|hosts)\b", hardware):
        return int(match[1])
    if match := re.match(r"(\d+) (?:ecs\.|p[23]\.)", hardware):
        return int(match[1])
    return None if re.search(r"\bpod\b|\bcluster", hardware, re.I) else 1
