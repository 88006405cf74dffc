"""Settings of neural collaborative filtering."""

import dataclasses
from typing import Annotated, Any, ClassVar

from dawnjax.limits import Limit, NonNegative, require
from dawnjax.models.configs.network import built


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuMF:
    """The size of a network that scores pairs of a user and an item.

    Without layers it is GMF; with a GMF of width 0 it is only the MLP.

    Attributes:
      gmf_width: Factors of the generalized matrix factorization; 0 leaves it out.
      layer_widths: Widths of the MLP: its input (half user embedding, half item embedding), then
        its layers. Empty leaves the MLP out.
    """

    TAG: ClassVar[str] = "neumf"
    gmf_width: NonNegative[int] = 8
    layer_widths: Annotated[
        tuple[int, ...],
        Limit(lambda widths: min(widths, default=1) >= 1, "be 1 or more each"),
    ] = (64, 32, 16, 8)

    def check_together(self, prefix: str) -> None:
        widths, name = self.layer_widths, f"{prefix}layer_widths"
        require(bool(widths) or self.gmf_width > 0, name, widths, "not be empty if gmf_width=0")
        require(len(widths) != 1, name, widths, "have the input's width and at least one layer's")
        require(not widths or widths[0] % 2 == 0, name, widths, "begin with an even number")

    def tiny(self) -> "NeuMF":
        """Network of the same kind for `--tiny`."""
        return dataclasses.replace(self, gmf_width=4, layer_widths=(16, 8, 4))

    def build(self, *, num_users: int, num_items: int, execution: Any, rngs: Any) -> Any:
        return built(
            self,
            "neumf.NeuMFModule",
            num_users=num_users,
            num_items=num_items,
            execution=execution,
            rngs=rngs,
        )
