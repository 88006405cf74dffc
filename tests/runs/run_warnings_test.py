"""Warnings of a result, from its log."""

from made_logs import Log, interrupted_run, one_attempt

from dawnjax.trials.from_log import trial_of


def test_redone_evaluations_are_reported_once_and_a_difference_is_said():
    log = interrupted_run()
    assert len(trial_of(log.events).evaluations) == 3
    same = Log().begin(0.0).add("run_start", 1.0).evaluate(2.0, 10, 0.5).add("host_sample", 3.0)
    same.begin(10.0).evaluate(4.0, 10, 0.5)
    assert trial_of(same.events).warnings == ()
    same.evaluate(5.0, 10, 0.6)
    assert "step 10" in trial_of(same.events).warnings[0]
    assert [row.value for row in trial_of(same.events).evaluations] == [0.5]


def test_attempts_with_other_versions_are_named():
    def run(*versions: dict) -> Log:
        log = Log()
        for number, installed in enumerate(versions):
            log.begin(100.0 * number)
            log.events[-4]["versions"] = installed
            if number == 0:
                log.add("run_start", 1.0)
            log.evaluate(2.0, 10, 0.5)
        return log

    old, new = {"jax": "0.10", "commit": "a1"}, {"jax": "0.11", "commit": "b2+"}
    assert trial_of(run(old, dict(old)).events).warnings == ()
    result = trial_of(run(old, old, new).events)
    assert result.versions == new
    (warning,) = result.warnings
    assert "jax 0.10 (attempt 1, attempt 2), 0.11 (attempt 3); commit a1 (" in warning
    (warning,) = trial_of(run(old, {"jax": "0.10"}).events).warnings  # out of a checkout
    assert "commit a1 (attempt 1), none (attempt 2)" in warning and "jax" not in warning


def test_suspension_is_said():
    log = one_attempt()
    for event in log.events:
        if event["t"] > 9:
            event["boot_seconds"] += 100
    assert "suspended for 100 s" in trial_of(log.events).warnings[0]
