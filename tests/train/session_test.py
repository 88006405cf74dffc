"""The bring-up that all commands share: its refusals, and the keys that it makes."""

import jax
import numpy as np
import pytest

from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError
from dawnjax.session import Session, alone, checked
from dawnjax.train_step import PRNG_IMPLEMENTATION

SMALL = ["--experiment=synthetic_image", "--batch_norm_group_size=6", "--global_batch_size=18"]


def session_of(argv: list[str], num_devices: int) -> Session:
    request, _ = parse_request("train", argv)
    spec = checked(request.experiment, request.options)
    return alone(request.experiment, spec, request.options, num_devices)


def test_a_later_stage_is_refused_by_its_own_name():
    stages = ["--stages.boundary_epochs=1", "--stages.global_batch_size=30"]
    session = session_of([*SMALL[:1], "--batch_norm_group_size=2", *stages], 4)
    with pytest.raises(ConfigError, match="stages.global_batch_size=30 does not divide among 4"):
        session.recipes  # noqa: B018


def test_the_key_of_a_seed_is_that_of_jax_whole_on_every_device():
    session = session_of(SMALL[:1], 4)
    for seed in (0, 7, 2**31 - 1):
        key = session.root_key(seed)
        wanted = jax.random.key_data(jax.random.key(seed, impl=PRNG_IMPLEMENTATION))
        np.testing.assert_array_equal(jax.random.key_data(key), wanted)
        assert len(key.sharding.device_set) == 4 and key.sharding.is_fully_replicated
