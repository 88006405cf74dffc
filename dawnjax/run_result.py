"""Result of a run: computed from its log, written, and shown again once the run has ended."""

import jax

from dawnjax import records
from dawnjax.checkpoints.saved import newest_saved
from dawnjax.errors import RunError
from dawnjax.progress import Display
from dawnjax.run_record import OpenRun
from dawnjax.runs import past, summary
from dawnjax.runs.directory import RunDirectory
from dawnjax.runs.summary import RunResult


def write_result(directory: RunDirectory, events: list[past.Event]) -> RunResult:
    """Compute the result from the log of process 0, and write `result.json`."""
    try:
        result = summary.summarize(events)
    except records.FORGED as error:
        raise RunError(f"{directory.path}: {summary.of_another_kind(error)}") from None
    records.write_json(directory.result_file, result.to_json(), durable=True)
    return result


def report_finished(run: OpenRun, *, shows: bool = True) -> str:
    """Show the result of a trial that an earlier attempt ended; returns its status."""
    if jax.process_index() == 0:
        display = Display(run.request.experiment, run.spec, enabled=shows)
        _recover_lost_lines(run)
        # The attempt may have been killed after its last event and before this.
        result = write_result(run.directory, run.log.events)
        display.closing_table(result, run.directory.path)
        for message in run.warnings:
            display.warning(message)
        price = run.request.options.price_per_hour_usd
        if price is not None and price != result.run_options["price_per_hour_usd"]:
            display.warning(
                f"this run has ended and keeps the price it had: {price:g} USD an hour is not "
                "added; its cost is time_to_accuracy_seconds / 3600 x price x hosts"
            )
    run.log.close()
    return run.finished


def _recover_lost_lines(run: OpenRun) -> None:
    """Copy the past that a checkpoint holds into the log of an ended run that lost lines."""
    # A resumed run restores lost lines itself; an ended one comes here alone.
    if not any(event["event"] == past.LOST for event in run.log.events):
        return
    directory = run.request.options.checkpoint.directory or str(run.directory.checkpoints)
    saved = newest_saved(directory)
    if saved is None or any(saved[0][n] != run.record[n] for n in ("identity", "seed")):
        return
    metadata = saved[0]
    if past.lacks_some_of(metadata["events"], run.log.events):
        step = max((event.get("step", 0) for event in metadata["events"]), default=0)
        run.log.append(past.RECOVERED, durable=True, step=step, past=metadata["events"])
