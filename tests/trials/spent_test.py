"""Time of a trial until its training ended, from logs with answers computed by hand."""

import pytest
from made_logs import Log

from dawnjax.trials.from_log import trial_of


def spent(events):
    trial = trial_of(events)
    return trial.clock_seconds, trial.seconds_cost_usd, trial.prices_per_hour_usd


def missed(price=None):
    """Run start at 8; the last step ends at 20, the last evaluation at 21, nothing is reached."""
    log = Log().begin(0.0, price, hosts=1)
    log.add("run_start", 8.0).train(20.0, 10, 10).evaluate(21.0, 10, 0.5)
    return log.add("phase", 21.5, name="checkpoint").add("checkpoint", 22.0, step=10)


def profiled(log, until):
    return log.add("phase", 23.0, name="profile").add("host_sample", until)


def test_what_a_trial_took_ends_with_its_training():
    # 13 s to the evaluation, at 0.01 USD a second; neither the save nor the profile counts.
    took = (13.0, pytest.approx(0.13), (36.0,))
    for status in ("not_reached", "interrupted"):
        log = profiled(missed(36.0), 90.0).add("attempt_end", 91.0, status=status, step=10)
        assert spent(log.events) == took
    log = profiled(missed(36.0), 90.0)  # and killed
    assert spent(log.events) == took
    # Resumed with nothing to train: the gap, the restart and the second profile are outside too.
    log.begin(200.0, 36.0, hosts=1).add("restored", 6.0, step=10)
    log.add("phase", 7.0, name="profile").add("attempt_end", 60.0, status="not_reached", step=10)
    assert spent(log.events) == took
    # 12 s to the step whose loss was NaN.
    log = Log().begin(0.0, 36.0, hosts=1).add("run_start", 8.0).train(20.0, 10, 10)
    log.add("diverged", 20.0, step=7).add("attempt_end", 25.0, status="diverged", step=10)
    assert spent(log.events) == (12.0, pytest.approx(0.12), (36.0,))


def test_what_a_trial_took_that_has_not_ended_goes_on_to_its_last_event():
    log = missed().train(24.0, 20, 10).add("host_sample", 27.0)
    assert spent(log.events)[0] == 19.0
    # 22 s of the killed attempt count whole, then 5 s of one that was killed as it restored.
    log = missed().add("host_sample", 30.0)
    log.begin(200.0).add("phase", 1.0, name="restore").add("host_sample", 5.0)
    assert spent(log.events)[0] == 27.0
    log.train(9.0, 20, 10).evaluate(10.0, 20, 0.5)
    profiled(log, 90.0).add("attempt_end", 91.0, status="not_reached", step=20)
    assert spent(log.events)[0] == 32.0
    assert spent(Log().begin(0.0).events) == (None, None, (None,))


def test_the_cost_of_a_trial_that_reached_is_that_of_its_time_to_accuracy():
    log = Log().begin(0.0, price=36.0, hosts=1)
    log.add("run_start", 8.0).add("host_sample", 20.0)
    log.begin(100.0, price=72.0, hosts=3).evaluate(30.0, 30, 0.9).train(35.0, 40, 10)
    log.add("attempt_end", 40.0, status="reached", step=30)
    # 12 s at 0.01 USD and 30 s at 0.06.
    assert spent(log.events) == (47.0, pytest.approx(1.92), (36.0, 216.0))
