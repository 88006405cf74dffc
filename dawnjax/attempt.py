"""One attempt at a trial, from its first logged event to its last."""

import contextlib
import math
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import jax
from jax.sharding import Mesh

import dawnjax
from dawnjax.call_queue import CallQueue, step_statistics
from dawnjax.capture import run_profile
from dawnjax.capture.traced_steps import Hooks
from dawnjax.checkpointed import initial_parameters
from dawnjax.checkpoints.location import refuse_unwritable
from dawnjax.checkpoints.saved import SavePoint
from dawnjax.checkpoints.store import Checkpoints, Restored
from dawnjax.cluster import launched, peers, processes, slow_hosts
from dawnjax.cluster.key_value_store import coordinator_port
from dawnjax.cluster.slow_hosts import Pace
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.config import own_files
from dawnjax.config.config_json import to_json
from dawnjax.errors import RunError
from dawnjax.input_pipeline.reading.dataset import declared
from dawnjax.journal import Journal
from dawnjax.machine import jax_settings, load
from dawnjax.machine.device_counters import DeviceCounters
from dawnjax.machine.hosts import HostSampler
from dawnjax.page import words
from dawnjax.progress import Display
from dawnjax.run_record import OpenRun, write_result
from dawnjax.runs import versions
from dawnjax.runs.clock import Phase, Phases, boot_id
from dawnjax.runs.directory import texts_of
from dawnjax.runs.log import SCHEMA_VERSION, log_path, read_events
from dawnjax.stepper import Stepper
from dawnjax.stops import Stops, Wish
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, TrainState, platform_of
from dawnjax.trials.trial import Trial

SAVE_FRACTION = 0.02
"""Largest share of the time that saves may take: a save of 10 s is made each 500 s."""

FIRST_SAVE_SECONDS = 10.0
"""Before the first save; each later interval is twice the one before, up to the option's."""


class Attempt:
    """Everything that runs beside the loop; a context that ends it, also after an error.

    Attributes:
      earlier: What earlier attempts logged.
      ended: The status that training has ended with; empty before. An error after it is a warning.
      save_at: When to save next, by `time.perf_counter`; infinite on all processes but 0.
    """

    def __init__(
        self, run: OpenRun, mesh: Mesh, watchdog: Watchdog, argv: list[str], *, shows: bool = True
    ):
        """Log the attempt and start what runs beside the loop; takes over the run's open log."""
        options, log = run.request.options, run.log
        self._run, self._options, self.watchdog = run, options, watchdog
        self.earlier = run.earlier
        self._is_first = jax.process_index() == 0
        self._stops: Stops | None = None
        self.ended = ""
        self._has_result = False
        self.save_at, self._save_interval = math.inf, 0.0
        self._waits: peers.Waits | None = None
        self._compare_at, self._paces, self._named_slow = 0.0, list[Pace](), set[int]()
        with contextlib.ExitStack() as opened:
            opened.callback(log.close)
            # Check before logging: a refused start must not count as an attempt.
            refuse_unwritable(run.checkpoints)
            self._machines, self._platform = processes.machines(), platform_of(mesh)
            num_hosts = len(set(self._machines))
            _describe(run, mesh, num_hosts)
            is_shown = shows and self._is_first
            self._display = Display(run.request.experiment, run.spec, enabled=is_shown)
            opened.callback(self._display.close)
            self.journal = Journal(run, self._display, is_first=self._is_first, num_hosts=num_hosts)
            opened.callback(self.journal.close)
            for message in run.warnings:
                self.journal.warn(message)
            new_dir = [] if options.run_dir else [f"--run_dir={run.directory.path}"]
            resume_command = shlex.join(["dawnjax", "train", *argv, *new_dir])
            self._resume_command = launched.resume_command(resume_command)
            self._display.begin(run.directory.path, mesh, self._resume_command)
            line, idle = processes.devices_line()
            if jax.process_count() > 1 or idle:
                self._display.note(line)
            if idle and self._is_first:
                self.journal.warn(idle)
            for evaluation in run.earlier.evaluations:
                self._display.remember(evaluation["metrics"])
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
                run.checkpoints, keep=options.checkpoint.keep, warn=self.journal.warn
            )
            self.profile = run_profile.RunProfile(
                options.profile,
                run.directory.profile / f"process_{jax.process_index():05d}",
                self.journal.warn,
            )
            # Only now: an error above closes all that was opened; from here `__exit__` does.
            self._opened = opened.pop_all()

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        with self._opened:
            if error is None:
                return False
            self.watchdog.explain(error)  # ends the process here if another host is at fault
            self._fail(error)
            # Of several processes, those that have not failed wait for this one.
            stands = bool(self.ended) and self._has_result and jax.process_count() == 1
            return stands and isinstance(error, Exception)

    def listen(self, stops: Stops, queue: CallQueue) -> None:
        """Take signals as requests from now on: there is a state to save.

        The other processes are told how the queue's steps go.
        """
        self._stops = stops

        def pace() -> Pace:
            owed = -1.0 if self._waits is None else self._waits.owed_seconds
            seconds = queue.total_seconds
            return Pace(queue.steps_done, seconds, seconds - queue.waited_seconds, owed)

        self.watchdog.pace = pace
        self._opened.enter_context(stops.listening())
        self._plan_save()

    def name_slow_host(self) -> None:
        """Warn once of a host that is slow, and log each that is, on process 0."""
        if not self._is_first or time.perf_counter() < self._compare_at:
            return
        self._compare_at = time.perf_counter() + slow_hosts.WINDOW_SECONDS
        notes = self.watchdog.notes
        paces = [Pace(*note.pace) for note in notes if note.pace]
        if len(paces) < jax.process_count():
            return
        before, self._paces = self._paces, paces
        found = slow_hosts.slow_host(before, paces) if before else None
        if found is None:
            return
        step, name = notes[found.host].step, notes[found.host].hostname
        self._run.log.append(
            "slow_host", host=found.host, step=step, seconds_per_step=found.seconds_per_step
        )
        if found.host not in self._named_slow:
            self._named_slow.add(found.host)
            self.journal.warn(f"host {found.host} ({name}) {found.message}")

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

    def meet(self) -> None:
        processes.gather(None)

    def meet_peers(self) -> None:
        """Meet after every program has run once; from now on the peers' waits are counted."""
        own = {}
        if self._platform == "cpu" and jax.process_count() > 1 and sys.platform == "linux":
            own = peers.connections(without_port=coordinator_port())
        of_all = processes.gather(list(own.values()))
        if numbers := peers.between(own, of_all):
            self._waits = peers.Waits(numbers, lambda: self.phases.current == "train")
            self._opened.callback(self._waits.stop)

    def restore(self, recipe: Recipe, like: TrainState) -> Restored | None:
        """Restore the newest checkpoint that can be read.

        Without one it returns None: the time of earlier attempts counts, their steps do not.
        """
        restored = initial_parameters.restore_newest(self.checkpoints, recipe, like, self.get_on)
        if restored is None:
            if self.earlier.clock_seconds is not None:
                self.journal.warn(
                    f"there is no checkpoint in {self._run.checkpoints}: the run begins again "
                    "from step 0, and the time so far counts; "
                    f"--checkpoint.every_seconds={self._options.checkpoint.every_seconds:g} is the "
                    "longest time between saves"
                )
            return None
        self._run.log.append("restored", **_fields(restored.point))
        self.journal.step = self.journal.first_step = restored.step
        self._display.note(f"resumed from {restored.point}, {self._gap()}")
        return restored

    def _gap(self) -> str:
        """Time since the last moment that an earlier attempt logged, in words."""
        last = self.earlier.ended_unix_seconds
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
        self._sampler.begin()  # reads the drivers' counters, which must not fall on the clock
        self.meet()
        self.journal.start_clock(self.earlier.clock_seconds)

    def spend(self, queue: CallQueue, limit_seconds: float) -> None:
        """Ask for the end of training where the next call would begin after the limit."""
        if not self._is_first or self._stops is None:
            return
        ahead = self._stops.seconds_ahead(queue)
        if self.journal.run_seconds() + queue.pending_seconds() + ahead > limit_seconds:
            queue.drain()  # near the limit the host waits for each call
            if self.journal.run_seconds() + ahead > limit_seconds:
                self._stops.ask(Wish.BUDGET)

    def save_if_due(self) -> None:
        """Ask for a save, once the one before is written."""
        now = time.perf_counter()
        if now > self.save_at and self._stops is not None:
            if self.checkpoints.is_saving:
                self.save_at = now + 1.0
            else:
                self._stops.ask(Wish.SAVE)

    def _plan_save(self) -> None:
        most = self._options.checkpoint.every_seconds
        if self._is_first and most:
            # Early at first: a run that is killed within its first minute goes on from somewhere.
            self._save_interval = min(most, 2 * self._save_interval or FIRST_SAVE_SECONDS)
            least = (self.checkpoints.last_save_seconds or 0.0) / SAVE_FRACTION
            self.save_at = time.perf_counter() + max(self._save_interval, least)

    def save(self, recipe: Recipe, step: int, state: TrainState, calls: int) -> None:
        """Begin an asynchronous save of the state, with the log so far.

        `calls` are those since the step that made examples.
        """
        self.phases.enter("checkpoint")
        self._plan_save()
        if self._stops is not None:
            self._stops.has_saved()
        point = SavePoint(step, calls)
        if self.checkpoints.holds(point):
            return
        log, record = self._run.log, self._run.record
        if jax.process_count() > 1:
            self._record_hosts(self._host_so_far())
        log.append("checkpoint", **_fields(point))
        metadata = {n: record[n] for n in ("identity", "seed", "settings") if n in record}
        if initial_parameters.left_out(recipe):
            metadata["base"] = recipe.experiment.initial_state
        saved = initial_parameters.saved_part(recipe, state)
        self.checkpoints.save(point, saved, metadata, log.text())

    def host_used(self, queue: CallQueue, input_wait_seconds: float) -> dict[str, Any]:
        """Wait for the last save, and sum up what the run used of this host."""
        self.phases.enter("checkpoint")
        self.checkpoints.wait()  # a save beside the profile would be seen in it
        shortfall = self.checkpoints.shortfall()
        if shortfall:
            self.journal.warn(shortfall)
        seconds = queue.total_seconds
        return {
            **self._host_so_far(),
            "step_seconds": step_statistics(queue),
            "input_wait_fraction": round(input_wait_seconds / seconds, 6) if seconds else None,
        }

    def _host_so_far(self) -> dict[str, Any]:
        self._processors = self._sampler.processors_used()
        return {
            "process_index": jax.process_index(),
            "hostname": socket.gethostname(),
            **self._sampler.used(),
        }

    def take_profile(self, stepper: Stepper) -> None:
        """Profile further real steps after the run; all processes call it alike.

        The run has ended: whatever goes wrong here costs the profile alone.
        """
        steps = step_statistics(stepper.queue)
        seconds = None if steps is None else steps["p50"]
        # The profile's calls are no calls of the run.
        stepper.queue = CallQueue(stepper.queue.in_flight)
        self.phases.enter("profile")
        self.profile.after_run(
            stepper, seconds, Hooks(self.record_program, self.get_on, self._why_no_profile)
        )

    def record_work(self, recipes: Sequence[Recipe], params: Any) -> None:
        """Log the number of parameters, and the model FLOPs of an example in each stage.

        The clock of the target has stopped: the FLOPs are counted in a trace of the model.
        """
        if not self._is_first:
            return
        # Of self-play most FLOPs make the examples: those of training alone would be too few.
        is_told = not recipes[0].experiment.task.makes_examples
        flops = [recipe.known_flops[0] for recipe in recipes] if is_told else [None]
        self._run.log.append(
            "work",
            num_params=sum(leaf.size for leaf in jax.tree.leaves(params)),
            flops_per_example=None if None in flops else flops,
        )

    def keep_result(self, status: str, step: int) -> None:
        """Write the result before the profile is taken, which may fill the disk."""
        self.ended = status
        self._run.log.append("trained", durable=True, status=status, step=step)
        self._write_result()

    def _why_no_profile(self) -> str:
        limit = self._run.request.experiment.max_seconds
        if limit and self.journal.run_seconds() > limit:
            return f"max_seconds={limit:g} left no time for a profile"
        if self._stops is not None and self._stops.wish == Wish.INTERRUPT:
            return "the run was asked to stop before its profile was taken"
        return ""

    def finish(self, status: str, step: int, host: dict[str, Any]) -> None:
        """Log the end of the attempt, and write and show the result."""
        self.phases.enter("checkpoint")
        self.checkpoints.close()
        self.phases.enter("other")
        self.journal.flush()
        straggler, _ = self.profile.straggler()
        messages = [straggler["message"]] if straggler else []
        texts, is_file = texts_of(self._run.record.get("source")), self._run.request.experiment_file
        if is_file and (late := own_files.modules_not_in(texts)):
            messages.append(
                f"{', '.join(late[:5])}: imported too late to be part of the run's identity; "
                "import it at the top of the experiment's file"
            )
        for message in messages:
            self.journal.warn(message)
        self._record_hosts(host)
        self._sampler.stop()
        self._end(status, step)
        if status == "interrupted" and self._is_first:
            self._display.note(f"interrupted at step {step}; resume with: {self._resume_command}")

    def _record_hosts(self, host: dict[str, Any]) -> None:
        """Log what every process has measured and warned of; all of them call it alike."""
        host |= self.profile.host_fields(host.get("input_wait_fraction"))
        mine = {"warnings": self.journal.untold(), "processors": self._processors}
        told = processes.gather({"host": host, **mine})
        loads = [other["processors"] for other in told]
        straggler, no_straggler = self.profile.straggler()
        for index, other in enumerate(told):
            for message in other["warnings"]:
                self.journal.warn(f"host {index}: {message}")
        self._run.log.append(
            "host_summary",
            hosts=[other["host"] for other in told],
            load=load.load_of(self._machines, loads, self._platform),
            straggler=straggler,
            no_straggler=no_straggler,
        )

    def _end(self, status: str, step: int) -> None:
        self._run.log.append("attempt_end", durable=True, status=status, step=step)
        result = self._write_result()
        if result is not None:
            self.journal.summarize(result)
            self._display.closing_table(result, self._run.directory.path)

    def _write_result(self) -> Trial | None:
        directory = self._run.directory
        if not self._is_first:
            return None
        result = write_result(directory, read_events(log_path(directory.path)))
        self._has_result = True
        return result

    def _fail(self, error: BaseException) -> None:
        if jax.process_count() == 1:
            self.checkpoints.wait()  # another run in this process would take it for a killed save
        message, log = f"{type(error).__name__}: {error}", self._run.log
        with contextlib.suppress(RunError):
            self._sampler.stop()
            if self.ended:
                self.profile.delete()  # it may have filled the disk
                self.journal.warn(message)
                self._end(self.ended, self.journal.step)
            else:
                log.append("warning", message=message)
                log.append("attempt_end", status="failed", step=self.journal.step)
                self._write_result()

    def _record_phase(self, name: Phase) -> None:
        self._report(name)
        self._run.log.append("phase", name=name)
        self._display.phase(name)


def _fields(point: SavePoint) -> dict[str, Any]:
    return {name: value for name, value in point._asdict().items() if name == "step" or value}


def _describe(run: OpenRun, mesh: Mesh, num_hosts: int) -> None:
    log, request = run.log, run.request
    log.append(
        "attempt_start",
        schema_version=SCHEMA_VERSION,
        run_id=run.record["run_id"],
        boot_id=boot_id(),
        runs_before=dawnjax.runs_before,
        versions=versions.installed(),
        # With the start: an attempt that dies before it restores must not hide the loss.
        lost_log=run.earlier.lost_log,
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
        parts_of_examples=request.experiment.task.parts_of_examples(run.spec),
        spans=request.experiment.spans_to_json(run.spec),
    )
    log.append(
        "devices",
        device_kind=mesh.devices.flat[0].device_kind,
        platform=platform_of(mesh),
        num_devices=mesh.devices.size,
        num_processes=jax.process_count(),
        num_hosts=num_hosts,
        mesh=dict(mesh.shape),
        prng_implementation=PRNG_IMPLEMENTATION,
        settings=jax_settings.recorded(),
    )
