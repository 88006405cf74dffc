"""One attempt at a trial: run directory, log, clock, and whatever runs beside the loop."""

import contextlib
import shlex
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from dawnjax import run_profile
from dawnjax.call_queue import CallQueue, step_statistics
from dawnjax.capture import Trainer
from dawnjax.checkpoints.store import Checkpoints, refuse_unwritable
from dawnjax.cluster import launched, processes
from dawnjax.cluster.preemption import Preemption
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import Request
from dawnjax.errors import ConfigError, RunError
from dawnjax.evaluation import reaches
from dawnjax.input_pipeline.dataset import AnySpec
from dawnjax.machine.device_counters import DeviceCounters
from dawnjax.machine.hosts import HostSampler
from dawnjax.progress import Display
from dawnjax.runs import summary, versions
from dawnjax.runs.clock import Phase, Phases, RunClock, boot_id
from dawnjax.runs.directory import (
    RunDirectory,
    flatten,
    new_run_id,
    read_record,
    refuse_other_run,
    write_json,
)
from dawnjax.runs.log import SCHEMA_VERSION, RunLog, log_path
from dawnjax.runs.logged_run import FINAL_STATUSES
from dawnjax.runs.scalars import ScalarWriter
from dawnjax.train_step import PRNG_IMPLEMENTATION, TrainState, platform_of

FIRST_LOSSES = 10
"""How many of the first losses a result keeps: enough to tell two mathematics apart."""

LIVE_RECORD_SECONDS = 1.0
RECORD_SECONDS = 10.0
"""How often the steps that ended are recorded between evaluations: a record takes half a
millisecond of the thread that feeds the devices. A person at a terminal wants to see it more often;
the heartbeat is another thread's."""


class Attempt:
    """What is open from the first event of an attempt to its last.

    Attributes:
      directory: The run directory.
      log: This process's log.
      display: What a person sees; silent on all processes but the first.
      watchdog: Ends this process when another host is gone or stuck.
      preemption: Tells when all processes were asked to stop.
      checkpoints: The saved states.
      finished: The status that an earlier attempt ended the trial with, or None.
      run_started: Whether the run's clock is running.
      profile: Where the time goes: windows inside the run, and what is seen after it.
      step: Steps done, as far as the loop has reported them.
      first_step: Steps that this attempt began after.
      record_at: When the steps that ended are to be recorded next, by `time.perf_counter`.
    """

    def __init__(
        self,
        request: Request,
        spec: AnySpec,
        mesh: Mesh,
        clock: RunClock,
        watchdog: Watchdog,
        argv: list[str],
    ):
        """Opens the run directory and the log.

        Args:
          request: What is run.
          spec: The dataset's shapes and counts.
          mesh: The devices.
          clock: The clock of this process.
          watchdog: What ends this process when another is gone.
          argv: The command line's flags, for the line that says how to resume.

        Raises:
          ConfigError: The run directory belongs to another run.
          RunError: Another job has it open, or it cannot be written.
        """
        self._request, self._spec, self._mesh, self._clock = request, spec, mesh, clock
        self.watchdog = watchdog
        self.directory, self._record = _open_directory(request, spec)
        self._is_first = jax.process_index() == 0
        self.log = RunLog(log_path(self.directory.path, jax.process_index()), clock)
        self.display = Display(request.experiment, spec, enabled=self._is_first)
        ends = [event for event in self.log.earlier_events if event["event"] == "attempt_end"]
        last_status = ends[-1]["status"] if ends else ""
        # Process 0 decides: another's log may lack the end, or be lost with its disk.
        last_status = processes.same_text(last_status)
        self.finished = last_status if last_status in FINAL_STATUSES else None
        if self.finished is None:
            try:
                self._begin(argv)
            except BaseException:
                self.close()
                raise

    def _begin(self, argv: list[str]) -> None:
        request, options, log = self._request, self._request.options, self.log
        self._checkpoint_directory = options.checkpoint.directory or str(self.directory.checkpoints)
        # Before the attempt is logged: it is none yet.
        refuse_unwritable(self._checkpoint_directory)
        log.append(
            "attempt_start",
            schema_version=SCHEMA_VERSION,
            run_id=self._record["run_id"],
            process_index=jax.process_index(),
            boot_id=boot_id(),
            versions=versions.installed(),
        )
        log.append(
            "experiment",
            experiment=to_json(request.experiment),
            identity=self._record["identity"],
            overrides=request.overrides,
            seed=request.seed,
            num_train_examples=self._spec.num_train_examples,
            num_eval_examples=self._spec.num_eval_examples,
            run_options=to_json(options),
        )
        log.append(
            "devices",
            device_kind=self._mesh.devices.flat[0].device_kind,
            platform=platform_of(self._mesh),
            num_devices=self._mesh.devices.size,
            num_processes=jax.process_count(),
            num_hosts=len(set(processes.gather(socket.gethostname()))),
            mesh=dict(self._mesh.shape),
            prng_implementation=PRNG_IMPLEMENTATION,
        )
        for number in log.damaged_lines:
            self.warn(f"line {number} of {log.path.name} is torn or damaged and is left out")
        self.step = self.first_step = 0
        self._phases = Phases(self._record_phase)
        new_dir = [] if options.run_dir else [f"--run_dir={self.directory.path}"]
        resume_command = shlex.join(["dawnjax", "train", *argv, *new_dir])
        shown_command = launched.resume_command(resume_command)
        self.display.begin(self.directory.path, self._mesh, shown_command)
        self.watchdog.resume_command = resume_command
        self.watchdog.on_death = lambda message: log.append("warning", message=message)
        self.preemption = Preemption(self.watchdog)
        self.preemption.install()
        self.checkpoints = Checkpoints(
            self._checkpoint_directory,
            keep=options.checkpoint.keep,
            warn=self.warn,
            before_manifest=log.sync,
        )
        writes_scalars = self._is_first and options.tensorboard
        self.scalars = ScalarWriter(
            self.directory.tensorboard if writes_scalars else None, self.warn
        )
        self.profile = run_profile.RunProfile(
            options.profile,
            self.directory.profile / f"process_{jax.process_index():05d}",
            self.warn,
        )
        self._sampler = HostSampler(
            record=self._record_sample,
            devices=jax.local_devices(),
            counters=DeviceCounters(platform_of(self._mesh)),
        )
        self._sampler.start()
        self.run_started = summary.run_started(log.earlier_events)
        self._earlier_run_seconds, self._run_start_t = 0.0, 0.0
        self._diverged = False
        self._stage = -1
        self._recorded_steps = self._recorded_losses = 0
        self._host_used: dict[str, Any] = {}  # until the profile, once that has begun
        self._last_save = time.perf_counter()
        self._record_seconds = LIVE_RECORD_SECONDS if self.display.is_live else RECORD_SECONDS
        self.record_at = time.perf_counter() + self._record_seconds

    @contextlib.contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Runs a block as a phase of the clock."""
        with self._phases.phase(name):
            yield

    def enter(self, name: Phase) -> None:
        """Ends the running phase and begins another."""
        self._phases.enter(name)

    def enter_stage(self, index: int) -> None:
        """Logs which stage the next steps are of, where the run has several and it is another."""
        if self._request.experiment.stages.boundary_epochs and index != self._stage:
            self._stage = index
            self.log.append("stage", index=index)

    def _record_phase(self, name: Phase) -> None:
        self._phase = name
        self.get_on()
        self.log.append("phase", name=name)
        self.display.phase(name)
        sampler = getattr(self, "_sampler", None)  # none yet in the first phase
        if sampler is not None and sampler.has_counters:
            sampler.sample()  # so that a phase's energy can be told

    def _record_sample(self, sample: dict[str, Any]) -> None:
        self.log.append("host_sample", **sample)

    def get_on(self) -> None:
        """Says that this process is getting on with its phase; all must say it alike."""
        self.watchdog.report(self._phase, self.step)

    def warn(self, message: str) -> None:
        """Records what a reader of the result should know, and shows it."""
        self.log.append("warning", message=message)
        self.display.warning(message)

    def start_clock(self) -> None:
        """Logs `run_start` once all processes are ready; an earlier attempt's stays."""
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("run_start")
        if not self.run_started:
            options = self._request.experiment.xla_options
            self.log.append("run_start", durable=True, xla_options=list(options))
            self.run_started = True
            self._run_start_t = self.log.events[-1]["t"]
        elif self._is_first:
            history = summary.history_of([*self.log.events, self._now()])
            self._earlier_run_seconds = history["run_seconds"] - self._clock.now()
        self._host_start = (self._clock.now(), self._sampler.sample())

    def restored(self, step: int, metadata: dict[str, Any]) -> None:
        """Logs that the run goes on from a checkpoint, with its past if the log knows less."""
        for name in ("identity", "seed"):
            if metadata[name] != self._record[name]:
                raise ConfigError(
                    f"the checkpoints are of another run: {name} is {metadata[name]!r} there and "
                    f"{self._record[name]!r} here; choose another --checkpoint.directory"
                )
        past = metadata["history"]
        history = past if summary.knows_more(past, self.log.earlier_events) else None
        self.log.append("restored", step=step, history=history)
        self.step = self.first_step = step
        self.run_started = summary.run_started(self.log.events)

    def begins_without_checkpoint(self) -> None:
        """Says so where an earlier attempt began to train: its time counts, its steps do not."""
        if self._is_first and self.run_started:
            self.warn(
                f"there is no checkpoint in {self._checkpoint_directory}: the run begins again "
                "from step 0, and the time so far counts"
            )

    def record_program(self, name: str, seconds: float, cache: str) -> None:
        """Logs that a program was compiled, or read from the cache of compiled programs."""
        self.get_on()
        self.log.append("compiled", program=name, seconds=round(seconds, 6), cache=cache)
        self.display.compiled(name, seconds, cache)

    def record_steps(self, queue: CallQueue, input_wait_seconds: float) -> bool:
        """Logs the steps that ended since the last time; tells whether all losses were finite.

        Args:
          queue: The calls, with their times. The loss that is logged is that of the latest one.
          input_wait_seconds: How long the loop has waited for inputs in all.
        """
        latest = queue.latest()
        steps = queue.steps_done - self._recorded_steps
        if latest is None or steps == 0:
            return not self._diverged
        self._recorded_steps = queue.steps_done
        first_losses = queue.take_first_losses()
        if first_losses:
            start = self.first_step + self._recorded_losses
            self.log.append("first_losses", start_step=start, losses=first_losses)
            self._recorded_losses += len(first_losses)
        losses, first_nonfinite_step = latest
        loss = float(losses.mean())
        self.step = step = self.first_step + queue.steps_done
        epoch = self._request.experiment.epoch_of_step(step, self._spec)
        self.log.append(
            "train",
            step=step,
            epoch=round(epoch, 6),
            loss=loss,
            steps=steps,
            input_wait_seconds=round(input_wait_seconds, 6),
        )
        self.display.train(step, epoch, loss, queue, input_wait_seconds, self.run_seconds())
        self.scalars.write(step, {"train/loss": loss})
        self.record_at = time.perf_counter() + self._record_seconds
        if first_nonfinite_step and not self._diverged:
            self._diverged = True
            self.log.append("diverged", step=first_nonfinite_step)
        return not self._diverged

    def record_evaluation(self, step: int, metrics: dict[str, Any]) -> bool:
        """Logs an evaluation, whose end is now; tells whether it reached the target."""
        reached = reaches(self._request.experiment.targets, metrics)
        epoch = self._request.experiment.epoch_of_step(step, self._spec)
        self.log.append(
            "evaluation",
            step=step,
            epoch=round(epoch, 6),
            metrics=metrics,
            reached=reached,
            durable=reached,
        )
        self.display.evaluation(step, epoch, metrics, reached, self.run_seconds())
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        self.scalars.write(step, {f"eval/{name}": value for name, value in numbers.items()})
        return reached

    def reached_before(self) -> int:
        """Gives the step whose evaluation reached the target in an earlier attempt; 0 if none did.

        All processes are told what the first one knows.
        """
        rows = summary.history_of([*self.log.events, self._now()])["evaluations"]
        targets = self._request.experiment.targets
        step = next((int(row["step"]) for row in rows if reaches(targets, row)), 0)
        return self._told_by_first(step)

    def save(self, step: int, state: TrainState) -> None:
        """Begins to save the state, with the run's past."""
        self._last_save = time.perf_counter()
        if self.checkpoints.holds(step):
            return
        metadata = {
            "identity": self._record["identity"],
            "seed": self._record["seed"],
            "history": summary.history_of([*self.log.events, self._now()]),
        }
        # First, so that a log that lost nothing always knows more of the clock than a checkpoint.
        self.log.append("checkpoint", step=step)
        self.checkpoints.save(step, state, metadata)

    def agree(self, wish: bool) -> bool:
        """Gives what the first process wishes, the same on all; waits for all."""
        return bool(self._told_by_first(wish))

    def _told_by_first(self, number: int) -> int:
        if jax.process_count() == 1:
            return number
        return int(multihost_utils.broadcast_one_to_all(np.int32(number)))

    def report_finished(self) -> str:
        """Shows the result of a trial that an earlier attempt ended, and gives its status."""
        if self._is_first:
            result = summary.summarize(self.log.earlier_events)
            # The attempt may have been killed after its last event and before this.
            write_json(self.directory.result_file, result.to_json())
            self.display.closing_table(result, self.directory.path)
            price = self._request.options.price_per_hour_usd
            if price is not None and price != result.run_options["price_per_hour_usd"]:
                self.display.warning(
                    f"this run has ended and keeps the price it had: {price:g} USD an hour is not "
                    "added; its cost is time_to_accuracy_seconds / 3600 x price x hosts"
                )
        self.log.close()
        return str(self.finished)

    def save_due(self) -> bool:
        """Tells whether this process would save now, by the time since the last save."""
        every = self._request.options.checkpoint.every_seconds
        return every > 0 and time.perf_counter() - self._last_save > every

    def run_seconds(self) -> float:
        """Gives the seconds on the run's clock, earlier attempts included."""
        return self._earlier_run_seconds + self._clock.now() - self._run_start_t

    def _now(self) -> dict[str, Any]:
        """Gives an event that is not logged, for what the clock says at this moment."""
        return {"event": "host_sample", "attempt": self.log.attempt, **self._clock.moment()}

    def take_profile(self, trainer: Trainer, queue: CallQueue) -> None:
        """Sees where the time of a step goes, once the run has ended; all processes call it alike.

        What the host used of CPU, network and input until now is what the result tells: the
        profile's own steps are none of the run's.

        Args:
          trainer: Makes further real steps.
          queue: The run's calls, for how long a step took.
        """
        self.checkpoints.wait()  # a save that goes on beside it would be seen
        self._host_used = self._host_summary(queue, trainer.feed.wait_seconds)
        self.enter("profile")
        steps = step_statistics(queue)
        seconds = None if steps is None else steps["p50"]
        trainer.on_call, trainer.is_asked_to_stop = self.get_on, self.preemption.is_asked
        self.profile.after_run(trainer, seconds, self.record_program)

    def finish(self, status: str, step: int, queue: CallQueue, input_wait_seconds: float) -> None:
        """Ends the attempt: hosts are summed up, the log is closed, the result is written."""
        self.enter("checkpoint")
        self.checkpoints.close()
        self.enter("other")
        own = self._host_used or self._host_summary(queue, input_wait_seconds)
        own |= self.profile.host_fields(own["input_wait_fraction"])
        hosts = processes.gather(own)
        straggler = self.profile.straggler()
        self.log.append("host_summary", hosts=hosts, straggler=straggler)
        for message in run_profile.disagreements(hosts):
            self.log.append("warning", message=message)
        if straggler is not None:
            self.log.append("warning", message=straggler["message"])
        self._sampler.stop()
        self.log.append("attempt_end", durable=True, status=status, step=step)
        result = summary.summarize(self.log.events)
        if self._is_first:
            write_json(self.directory.result_file, result.to_json())
        self.display.closing_table(result, self.directory.path)
        self.close()

    def fail(self, error: BaseException) -> None:
        """Ends the attempt after an error, as far as the disk and the other hosts let it."""
        with contextlib.suppress(RunError):
            self.log.append("warning", message=f"{type(error).__name__}: {error}")
            self._sampler.stop()
            self.log.append("attempt_end", status="failed", step=self.step)
            if self._is_first:
                result = summary.summarize(self.log.events)
                write_json(self.directory.result_file, result.to_json())
        self.close()

    def close(self) -> None:
        """Ends what runs beside the loop, as far as it was begun; a second call does nothing."""
        for name, end in (("_sampler", "stop"), ("preemption", "close"), ("scalars", "close")):
            if hasattr(self, name):
                getattr(getattr(self, name), end)()
        self.display.close()
        self.log.close()

    def _host_summary(self, queue: CallQueue, input_wait_seconds: float) -> dict[str, Any]:
        """Gives what this process's host saw since `run_start`, or since this attempt's start."""
        started, first = self._host_start
        last, seconds = self._sampler.sample(), self._clock.now() - started
        stepping = queue.total_seconds
        input_wait_fraction = round(input_wait_seconds / stepping, 6) if stepping else None
        return {
            "process_index": jax.process_index(),
            "hostname": socket.gethostname(),
            "seconds": round(seconds, 6),
            "step_seconds": step_statistics(queue),
            "input_wait_fraction": input_wait_fraction,
            **self._sampler.summary(first, last, seconds),
        }


def _open_directory(request: Request, spec: AnySpec) -> tuple[RunDirectory, dict[str, Any]]:
    """Gives the run directory, and the record of its run: a new one, or the one to go on with."""
    experiment, options = request.experiment, request.options
    own = {
        "seed": request.seed,
        **flatten(experiment.identity_fields(spec)),
        **flatten(to_json(options)),
    }
    _refuse_different_hosts({name: value for name, value in own.items() if name not in _PER_HOST})
    run_id = processes.same_text(new_run_id(experiment.name, request.seed))
    directory = RunDirectory(Path(options.run_dir or Path("runs") / run_id))
    old = read_record(directory)
    new = {
        "schema_version": SCHEMA_VERSION,
        "run_id": processes.same_text(run_id if old is None else old["run_id"]),
        "experiment": to_json(experiment),
        "overrides": request.overrides,
        "seed": request.seed,
        "identity": experiment.identity(spec),
        "identity_fields": experiment.identity_fields(spec),
    }
    if old is not None:
        refuse_other_run(directory, old, new)
    # On a shared disk only process 0 writes, once all have looked; on disks of their own, each.
    processes.gather("looked")
    if old is None and jax.process_index() == 0:
        write_json(directory.experiment_file, new)
    processes.gather("written")
    if not directory.experiment_file.exists():
        write_json(directory.experiment_file, new)
    return directory, old or new


_PER_HOST = ("run_dir", "processes.process_id", "compile_cache_dir")
"""Options that may differ between the hosts of a run."""


def _refuse_different_hosts(own: dict[str, Any]) -> None:
    """Refuses hosts that were given different flags or data: they would hang, or mix two runs.

    Raises:
      ConfigError: Names the first difference, on every host.
    """
    everyone = processes.gather(own)
    for index, other in enumerate(everyone):
        different = sorted(name for name in other if other[name] != everyone[0].get(name))
        if different:
            name = different[0]
            raise ConfigError(
                f"host {index} was started with {name}={other[name]!r}, host 0 with "
                f"{everyone[0].get(name)!r}; all hosts need the same flags and data"
            )
