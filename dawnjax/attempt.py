"""One attempt at a trial, from its first logged event to its last."""

import contextlib
import shlex
import socket
import time
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

import dawnjax
from dawnjax.call_queue import CallQueue, step_statistics
from dawnjax.capture import run_profile
from dawnjax.capture.traced_steps import Hooks
from dawnjax.checkpointed import initial_parameters
from dawnjax.checkpoints.location import refuse_unwritable
from dawnjax.checkpoints.saved import SavePoint
from dawnjax.checkpoints.store import Checkpoints, Restored
from dawnjax.cluster import launched, processes
from dawnjax.cluster.preemption import Preemption
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.config import own_sources
from dawnjax.config.config_json import to_json
from dawnjax.errors import CheckpointError, ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import declared
from dawnjax.journal import Journal
from dawnjax.machine import jax_settings
from dawnjax.machine.device_counters import DeviceCounters
from dawnjax.machine.hosts import HostSampler
from dawnjax.page import words
from dawnjax.progress import Display
from dawnjax.run_record import OpenRun
from dawnjax.run_result import write_result
from dawnjax.runs import past, summary, versions
from dawnjax.runs.binding import record_hash
from dawnjax.runs.clock import Phase, Phases, boot_id
from dawnjax.runs.directory import refuse_other_settings, texts_of
from dawnjax.runs.log import SCHEMA_VERSION, is_moment
from dawnjax.runs.summary import RunResult
from dawnjax.stepper import Stepper
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, TrainState, platform_of


class Attempt:
    """Everything that runs beside the loop; a context that ends it, also after an error."""

    def __init__(
        self, run: OpenRun, mesh: Mesh, watchdog: Watchdog, argv: list[str], *, shows: bool = True
    ):
        """Log the attempt and start what runs beside the loop; takes over the run's open log."""
        options, log = run.request.options, run.log
        self._has_ended = False
        self._run, self._options, self.watchdog = run, options, watchdog
        self._is_first = jax.process_index() == 0
        with contextlib.ExitStack() as opened:
            opened.callback(log.close)
            # Closed late: a signal that comes while the rest is closed changes nothing.
            self.preemption = Preemption(watchdog)
            opened.callback(self.preemption.close)
            self.preemption.install()
            self._checkpoint_directory = options.checkpoint.directory or str(
                run.directory.checkpoints
            )
            # Check before logging: a refused start must not count as an attempt.
            refuse_unwritable(self._checkpoint_directory)
            _describe(run, mesh)
            is_shown = shows and self._is_first
            self._display = Display(run.request.experiment, run.spec, enabled=is_shown)
            opened.callback(self._display.close)
            self.journal = Journal(run, self._display, is_first=self._is_first)
            opened.callback(self.journal.close)
            for message in run.warnings:
                self.journal.warn(message)
            new_dir = [] if options.run_dir else [f"--run_dir={run.directory.path}"]
            resume_command = shlex.join(["dawnjax", "train", *argv, *new_dir])
            self._resume_command = launched.resume_command(resume_command)
            self._display.begin(run.directory.path, mesh, self._resume_command)
            for event in log.events:
                if event["event"] == "evaluation":
                    self._display.remember(event["metrics"])
            watchdog.resume_command = resume_command
            watchdog.on_death = lambda message: log.append("warning", message=message)
            self._sampler = HostSampler(
                record=lambda sample: self._run.log.append("host_sample", **sample),
                devices=jax.local_devices(),
                counters=DeviceCounters(platform_of(mesh)),
            )
            opened.callback(self._sampler.stop)
            self._sampler.start()
            self.phases = Phases(self._record_phase)
            self.checkpoints = Checkpoints(
                self._checkpoint_directory,
                keep=options.checkpoint.keep,
                warn=self.journal.warn,
            )
            self.profile = run_profile.RunProfile(
                options.profile,
                run.directory.profile / f"process_{jax.process_index():05d}",
                self.journal.warn,
            )
            self._last_save = time.perf_counter()
            self._is_save_put_off = False
            # Only now: an error above closes all that was opened; from here `__exit__` does.
            self._opened = opened.pop_all()

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._opened:
            if error is not None:
                self.watchdog.explain(error)  # ends the process here if another host is at fault
                self._fail(error)

    def get_on(self) -> None:
        """Report progress to the watchdog; all processes must report alike."""
        self._report(self.phases.current)

    def _report(self, phase: str) -> None:
        # The steps of a profile are handed to the devices too, and recorded nowhere.
        self.watchdog.report(phase, max(self.watchdog.step, self.journal.step))

    def record_program(self, name: str, seconds: float, cache: str) -> None:
        self.get_on()
        self._run.log.append("compiled", program=name, seconds=round(seconds, 6), cache=cache)
        self._display.compiled(name, seconds, cache)

    def agree(self, wish: bool) -> bool:
        """Wish of process 0, on all processes; waits for all."""
        return bool(self._told_by_first(wish))

    def restore(self, recipe: Recipe, like: TrainState) -> Restored | None:
        """Restore the newest checkpoint that can be, with the run's past if the log lost it.

        Without one it returns None: the time of earlier attempts counts, their steps do not.
        """
        restored = initial_parameters.restore_newest(self.checkpoints, recipe, like, self.get_on)
        if restored is None:
            if self._is_first and self.journal.clock_runs:
                self.journal.warn(
                    f"there is no checkpoint in {self._checkpoint_directory}: the run begins again "
                    "from step 0, and the time so far counts"
                )
            return None
        metadata, record, log = restored.metadata, self._run.record, self._run.log
        events = metadata.get("events")
        if not isinstance(events, list) or not all(map(is_moment, events)):
            raise CheckpointError(
                f"checkpoint {restored.step} in {self._checkpoint_directory} holds no log as a "
                "save writes it; delete it or bring back a copy"
            )
        refuse_other_settings(metadata, record, self._checkpoint_directory)
        for name in ("identity", "seed"):
            if metadata.get(name) != record[name]:
                raise ConfigError(
                    f"the checkpoints are of another run: {name} is {metadata.get(name)!r} there "
                    f"and {record[name]!r} here; choose another --checkpoint.directory"
                )
        # The past is that of process 0, of whose log the result is made.
        is_lost = self._is_first and past.lacks_some_of(events, log.events)
        lost: dict[str, Any] = {"past": events} if is_lost else {}
        log.append("restored", **_fields(restored.point), **lost)
        self.journal.step = self.journal.first_step = restored.step
        self._display.note(f"resumed from {restored.point}, {self._gap(events)}")
        return restored

    def _gap(self, past_events: list[dict[str, Any]]) -> str:
        """Time since the last moment that an earlier attempt logged, in words."""
        log = self._run.log
        earlier = [event for event in log.events if event["attempt"] < log.events[-1]["attempt"]]
        last = (earlier or past_events)[-1].get("unix_seconds")
        if last is None:
            return "after a gap of unknown length"
        gap = words.duration(max(0.0, time.time() - last))
        return f"{gap} after the earlier attempt's last record"

    def take_initial(self, recipe: Recipe, state: TrainState) -> TrainState:
        state, taken = initial_parameters.take(recipe, state, self.get_on)
        source = recipe.experiment.initial_state
        self._run.log.append(
            "initialized_from",
            source=source,
            source_step=taken.step,
            source_model=taken.model,
            weights=taken.weights,
            taken=list(taken.taken),
            fresh=list(taken.fresh),
        )
        self._display.note(f"begins with {taken.text(recipe.experiment.initialize_from)}")
        return state

    def start_clock(self) -> None:
        """Start or continue the run's clock once all processes are ready."""
        self.journal.start_clock(self.agree(self.journal.clock_runs))
        self._sampler.begin()

    def reached_before(self) -> int:
        """Step whose evaluation reached the target in an earlier attempt; 0 if none did."""
        return self._told_by_first(self.journal.step_that_reached())

    def save_due(self) -> bool:
        """True if `checkpoint.every_seconds` have passed on this process since its last save.

        While that one is still being written the next is put off, or the loop would wait for it.
        """
        every = self._options.checkpoint.every_seconds
        if every <= 0 or time.perf_counter() - self._last_save <= every:
            return False
        if not self.checkpoints.is_saving:
            return True
        if not self._is_save_put_off:
            self._is_save_put_off = True
            self.journal.warn(
                f"a save takes longer than checkpoint.every_seconds={every:g}: the next one waits "
                "until it is written"
            )
        return False

    def save(self, recipe: Recipe, step: int, state: TrainState, calls: int) -> None:
        """Begin an asynchronous save of the state, with the log so far.

        `calls` are those since the step that made examples.
        """
        self._last_save = time.perf_counter()
        point = SavePoint(step, calls)
        if self.checkpoints.holds(point):
            return
        log, record = self._run.log, self._run.record
        log.append("checkpoint", **_fields(point))
        metadata = {n: record[n] for n in ("identity", "seed", "settings") if n in record}
        if initial_parameters.left_out(recipe):
            metadata["base"] = recipe.experiment.initial_state
        saved = initial_parameters.saved_part(recipe, state)
        self.checkpoints.save(point, saved, {**metadata, "events": list(log.events)}, "")

    def host_used(self, queue: CallQueue, input_wait_seconds: float) -> dict[str, Any]:
        """Wait for the last save, and sum up what the run used of this host."""
        self.phases.enter("checkpoint")
        self.checkpoints.wait()  # a save beside the profile would be seen in it
        shortfall = self.checkpoints.shortfall()
        if shortfall:
            self.journal.warn(shortfall)
        seconds = queue.total_seconds
        return {
            "process_index": jax.process_index(),
            "hostname": socket.gethostname(),
            **self._sampler.used(),
            "step_seconds": step_statistics(queue),
            "input_wait_fraction": round(input_wait_seconds / seconds, 6) if seconds else None,
        }

    def take_profile(self, stepper: Stepper) -> None:
        """Profile further real steps after the run; all processes call it alike.

        With several processes a failure ends the attempt, whose result is written: one process that
        stopped alone would leave the others waiting.
        """
        steps = step_statistics(stepper.queue)
        seconds = None if steps is None else steps["p50"]
        # The profile's calls are no calls of the run.
        stepper.queue = CallQueue(stepper.queue.in_flight)
        hooks = Hooks(self.record_program, self.get_on, self._why_no_profile)
        try:
            self.phases.enter("profile")
            self.profile.after_run(stepper, seconds, hooks)
        except RunError as error:
            if jax.process_count() > 1:
                raise
            self._drop_profile(error)

    def keep_result(self, status: str, step: int) -> None:
        """Write the result before the profile is taken, which may fill the disk."""
        self._run.log.append("trained", durable=True, status=status, step=step)
        if self._is_first:
            write_result(self._run.directory, summary.up_to_profile(self._run.log.events))

    def _why_no_profile(self) -> str:
        limit = self._run.request.experiment.max_seconds
        if limit and (self.preemption.is_budget_spent or self.journal.run_seconds() > limit):
            return f"max_seconds={limit:g} left no time for a profile"
        if self.preemption.is_asked():
            return "the run was asked to stop before its profile was taken"
        return ""

    def finish(self, status: str, step: int, host: dict[str, Any]) -> None:
        """Log the end of the attempt, and write and show the result."""
        self.phases.enter("checkpoint")
        self.checkpoints.close()
        self.phases.enter("other")
        self.journal.flush()
        hosts = processes.gather(host | self.profile.host_fields(host["input_wait_fraction"]))
        straggler, no_straggler = self.profile.straggler()
        messages = run_profile.disagreements(hosts) + ([straggler["message"]] if straggler else [])
        texts, is_file = texts_of(self._run.record.get("source")), self._run.request.experiment_file
        if is_file and (late := own_sources.modules_not_in(texts)):
            messages.append(
                f"{', '.join(late[:5])}: imported after the run was described, so no part of its "
                "identity; import it by a line of the experiment's file"
            )
        log = self._run.log

        def end() -> RunResult | None:
            log.append("host_summary", hosts=hosts, straggler=straggler, no_straggler=no_straggler)
            for message in messages:
                log.append("warning", message=message)
            self._sampler.stop()
            log.append("attempt_end", durable=True, status=status, step=step)
            # After the last event: an error in `write_result` must not log a second end.
            self._has_ended = True
            return write_result(self._run.directory, log.events) if self._is_first else None

        try:
            result = end()
        except RunError as error:
            self._drop_profile(error)
            result = end()
        if result is not None:
            self.journal.summarize(result)
            self._display.closing_table(result, self._run.directory.path)
            if status == "interrupted":
                self._display.note(
                    f"interrupted at step {step}; resume with: {self._resume_command}"
                )

    def _drop_profile(self, error: RunError) -> None:
        if not self.profile.delete():
            raise error
        self.journal.warn(f"the profile was deleted to make room: {error}")

    def _fail(self, error: BaseException) -> None:
        if self._has_ended:
            return  # the run finished; only writing its result failed
        if jax.process_count() == 1:
            self.checkpoints.wait()  # another run in this process would take it for a killed save
        log = self._run.log
        with contextlib.suppress(RunError):
            log.append("warning", message=f"{type(error).__name__}: {error}")
            self._sampler.stop()
            log.append("attempt_end", status="failed", step=self.journal.step)
            if self._is_first:
                write_result(self._run.directory, log.events)

    def _record_phase(self, name: Phase) -> None:
        self._report(name)
        self._run.log.append("phase", name=name)
        self._display.phase(name)
        if self._sampler.has_counters:
            self._sampler.sample()  # a phase's energy is the difference of two samples

    def _told_by_first(self, number: int) -> int:
        if jax.process_count() == 1:
            return number
        return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def _fields(point: SavePoint) -> dict[str, Any]:
    return {name: value for name, value in point._asdict().items() if name == "step" or value}


def _describe(run: OpenRun, mesh: Mesh) -> None:
    log, request = run.log, run.request
    log.append(
        "attempt_start",
        schema_version=SCHEMA_VERSION,
        run_id=run.record["run_id"],
        record_sha256=record_hash(run.record),
        process_index=jax.process_index(),
        boot_id=boot_id(),
        runs_before=dawnjax.runs_before,
        versions=versions.installed(),
    )
    log.append(
        "experiment",
        experiment=to_json(request.experiment),
        identity=run.record["identity"],
        overrides=request.overrides,
        seed=request.seed,
        num_train_examples=run.spec.num_train_examples,
        num_eval_examples=run.spec.num_eval_examples,
        data=declared(request.experiment.data, run.spec),
        run_options=to_json(request.options),
        metrics=[metric.to_json() for metric in request.experiment.task.metrics],
        example_unit=request.experiment.task.example_unit,
        spans=request.experiment.spans_to_json(run.spec),
    )
    log.append(
        "devices",
        device_kind=mesh.devices.flat[0].device_kind,
        platform=platform_of(mesh),
        num_devices=mesh.devices.size,
        num_processes=jax.process_count(),
        num_hosts=len(set(processes.gather(socket.gethostname()))),
        mesh=dict(mesh.shape),
        prng_implementation=PRNG_IMPLEMENTATION,
        settings=jax_settings.recorded(),
    )
