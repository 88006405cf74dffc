"""Limits of fields, declared beside them, and which models need groups of examples."""

import dataclasses
from typing import Annotated, Any, ClassVar

import pytest
from each_change import rows
from flax import nnx

from dawnjax.config.choices import CHOICES, Choice
from dawnjax.config.config_json import from_json, to_json
from dawnjax.errors import ConfigError
from dawnjax.limits import FractionBelowOne, Limit, OneOrMore, Positive, check_fields, require
from dawnjax.models.execution import Execution


@dataclasses.dataclass(frozen=True)
class Shop:
    """A config of a stranger's."""

    TAG: ClassVar[str] = "shop"
    price: Positive[float] = 1.0
    seats: Annotated[OneOrMore[int], Limit(lambda value: value % 2 == 0, "be even")] = 4
    discount: FractionBelowOne = 0.0
    remark: str = "anything"

    def check_together(self, prefix: str) -> None:
        is_cheap = self.price <= self.seats
        require(is_cheap, f"{prefix}price", self.price, f"not exceed {prefix}seats={self.seats}")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"price": 0.0}, "shop.price=0.0 must be above 0"),
        ({"price": float("nan")}, "shop.price=nan must be above 0"),
        ({"seats": 0}, "shop.seats=0 must be 1 or more"),
        ({"seats": 3}, "shop.seats=3 must be even"),
        ({"discount": 1.0}, "shop.discount=1.0 must lie in [0, 1)"),
        ({"price": 9.0}, "shop.price=9.0 must not exceed shop.seats=4"),
    ],
)
def test_a_value_outside_its_limit_is_one_line(fields, line):
    with pytest.raises(ConfigError) as caught:
        check_fields(Shop(**fields), "shop.")
    assert str(caught.value) == line
    assert isinstance(caught.value, ValueError)  # for who builds a model without a command


def test_declared_fields_are_read_and_written_as_their_types():
    fields = to_json(Shop(price=3))
    assert fields["tag"] == "shop" and fields["seats"] == 4
    assert isinstance(fields["price"], float)  # 3 and 3.0 are one experiment
    assert from_json(Shop, to_json(Shop(seats=6))) == Shop(seats=6)


@pytest.mark.compiles
# One with groups, one of text, and one with other inputs.
@pytest.mark.parametrize("tag", rows(CHOICES["model"], ("resnet", "transformer", "policy_value")))
def test_models_with_batch_norm_say_so_and_refuse_groups_of_none(tag):
    model = Choice("model").load(tag)
    execution = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
    # Images large enough for each of them.
    images = {"image_shape": (136, 136, 3), "num_classes": 10}
    text = {"vocabulary_size": 20}
    others = {
        "transformer": text,
        "gnmt": text,
        "bidaf": text,
        "qanet": text,
        "neumf": {"num_users": 3, "num_items": 4},
        "language_model": {**text, "sequence_length": 8, "separator": 19},
        "llama": {**text, "sequence_length": 8, "separator": 19},
        "policy_value": {"observation_shape": (9, 9, 17), "num_actions": 82},
    }
    data: dict[str, Any] = others.get(model.TAG, images)

    def build():
        return nnx.eval_shape(lambda: model().build(**data, execution=execution, rngs=nnx.Rngs(0)))

    if getattr(model, "has_batch_norm_groups", False):
        with pytest.raises(ValueError, match="^batch_norm_group_size=0 must be 1 or more"):
            build()
    else:
        assert nnx.state(build(), nnx.Param)
