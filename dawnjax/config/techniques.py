"""Named techniques of a recipe: parts that a lesion study removes, one at a time."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Technique:
    """A part of a recipe, and the fields without it.

    An experiment's module declares its recipe's techniques as `TECHNIQUES = (Technique(...), ...)`.

    Attributes:
      name: Such as `label_smoothing`: letters, digits and `_`.
      without: The flags that take it away, such as `("--task.label_smoothing=0",)`.
    """

    name: str
    without: tuple[str, ...]
