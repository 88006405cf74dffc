"""Official results of benchmarks that no fit of a plan sees: predicted, and never learnt from."""

from dawnjax.plan import validation
from dawnjax.plan.observations import held_out, observations


def test_held_out_steps_are_predicted_and_never_fitted():
    names = [row.name for row in held_out()]
    assert {row.experiment for row in held_out()} == {"coco_ssd_resnet34"}
    checks = list(validation.held_out_checks())
    assert [check.name for check in checks] == names
    assert not set(names) & {row.name for row in observations()}
    assert not set(names) & set(validation.fitted_efficiency("v100").fitted_on)
    # The reference ran another program, in another framework, and read from disks.
    for check in checks:
        assert check.holds and check.is_within(0.5), check
