"""Watchdog: ends a run that is stuck, with the name of the host at fault.

In a run of several hosts, one that is gone or stuck leaves all others waiting in a collective,
where they neither fail nor learn why. So each process reports once a second to the store. Process 0
reads all reports and the others read its report, so messages grow with the number of hosts and not
its square. Whoever finds the host at fault notes it in the store, and every process ends with that
line.

Four things end a run:
  - A process is silent for most of the heartbeat timeout: killed, stopped, or cut off. JAX's own
  heartbeat, a little slower, stands behind this one.
  - No process reports progress for the progress deadline. The host at fault handed the fewest steps
  to its devices, or made the fewest reports: the others ran ahead until they had to wait.
  - A process fails by itself and says so.
  - `dawnjax launch` saw one of its processes killed: process 0 need not wait for its silence.
"""

import contextlib
import ctypes
import dataclasses
import faulthandler
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from dawnjax import records
from dawnjax.cluster import launched, stop_signals
from dawnjax.cluster.key_value_store import KeyValueStore
from dawnjax.cluster.roll_call import SHORT_SILENCE_SECONDS, Fault, Progress, RollCall
from dawnjax.errors import ExitStatus

EXCHANGE_SECONDS = 1.0
"""Seconds between a process's reports. The whole watch takes half a percent of one core."""

JUDGE_SECONDS = 0.5

_FOLDER = "dawnjax/watchdog"

SILENCE_FRACTION = 0.8
"""Part of the heartbeat timeout after which a silent process is given up. The others need the rest,
up to 2.5 s, to hear of it, so that all end within timeouts of 13 s and more."""

NEWS_SECONDS = 6.0
"""Longest time for all to learn that a host is silent, beyond the silence itself. Its last report
waits for process 0, which tells the others: an exchange each and two judgements, 4 s on an idle
machine."""

_ACKNOWLEDGE_SECONDS = 3.0
"""Time that process 0 stays when it ends the run, so that the others can read why: its end takes
the store away, and JAX aborts processes that lose it."""

_FAREWELL_SECONDS = 20.0
"""Longest farewell of JAX, once every process has come to its end."""

_ON_DEATH_SECONDS = 2.0
"""Longest last record; it must not keep a process whose disk hangs."""

_FOREVER_SECONDS = 10.0**6


class Watchdog:
    """Watches this process and, where there are several, the others, from `start` to `leave`.

    Attributes:
      store: Where the processes leave notes; None for one process alone.
      resume_command: Command that resumes the run, for the line about its end; empty until known.
      step: Steps handed to the devices; -1 before the first report. The innermost loop writes it
        just before each call, with the steps done once it is made; that too is progress.
      calls: Calls of this attempt that made examples; written as `step` is.
      on_death: Called with that line before the process ends, such as to log it; it has 2 seconds.
    """

    def __init__(
        self,
        store: KeyValueStore | None,
        *,
        heartbeat_timeout_seconds: float,
        progress_deadline_seconds: float,
    ):
        self.store = store
        self.resume_command = ""
        self.on_death: Callable[[str], object] | None = None
        self.process_index = 0 if store is None else store.process_index
        self.num_processes = 1 if store is None else store.num_processes
        self._heartbeat_timeout_seconds = heartbeat_timeout_seconds
        # Process 0 judges all, and the others judge process 0: by its silence alone, since its own
        # judge says when none makes progress.
        self._roll = RollCall(
            self.num_processes if self.process_index == 0 else 1,
            float("inf") if store is None else SILENCE_FRACTION * heartbeat_timeout_seconds,
            progress_deadline_seconds if self.process_index == 0 else 0.0,
        )
        self._hostname = socket.gethostname()
        self.step = -1
        self.calls = 0
        self._phase = "start"
        self._reports = 0
        self._moved_at = time.monotonic()  # the last report, or new step that the judge saw
        self._awake_seconds = 0.0  # that the judge has seen this process run
        self._beat = 0
        self._heard: dict[int, Progress] = {}
        self._told: Fault | None = None
        self._suspect: Fault | None = None  # silent, but not yet for too long
        self._failure = "its own output says why"
        self._left_with: int | None = None
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._written: launched.Status | None = None

    def report(self, phase: str, step: int) -> None:
        """Report that this process makes progress, and its phase.

        Report before each thing that waits for other hosts, and in the same order on all: the host
        with the fewest steps and reports is the one that the others wait for.
        """
        self._phase, self.step = phase, step
        self._reports += 1
        self._moved_at = time.monotonic()

    def start(self) -> None:
        self._tell_launcher()
        loops = [self._judge_loop]
        if self.store is not None:
            self._abort_handler = _handle_abort(self._on_abort)  # C does not keep it alive
            loops.append(self._exchange_loop)
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def explain(self, error: BaseException) -> None:
        """Handle the error of the main thread; returns if it is this process's own failure.

        A host that dies shows in the others as a broken connection in a collective, which names no
        host. So this waits for the news of it, or for a silent host, which ends the process. If
        nobody is at fault, the process ends with the error's text.
        """
        self._failure = f"{type(error).__name__}: {first_line(error)}"
        if self.store is None or not is_broken_connection(error):
            return
        # Until the news of a silent host has come round, a slow host may look silent too. A short
        # heartbeat timeout passes before that, and JAX's then ends this process.
        heartbeat = self._heartbeat_timeout_seconds + EXCHANGE_SECONDS
        news = SHORT_SILENCE_SECONDS + NEWS_SECONDS
        end = time.monotonic() + max(heartbeat, news)
        time.sleep(min(heartbeat, news))
        while time.monotonic() < end:
            self._end_by_silence()
            time.sleep(JUDGE_SECONDS)
        self.end(f"lost another host ({first_line(error)})", ExitStatus.FAILED)

    def end(self, what: str, exit_status: int, *, announce: bool = True) -> NoReturn:
        """End the run on every host, now, with this one named as the cause.

        `what` ends a sentence that begins with the host. `announce` prints the line here.
        """
        progress = self._progress()
        fault = Fault.about(self.process_index, progress, what, exit_status=int(exit_status))
        self._end(fault, announce=announce, publish=True)

    def leave(self, exit_status: int) -> int:
        """End the watch, and this process's part in the run; returns the exit status.

        A status that all processes reach together waits for all of them. A failure of this process
        alone (1, 2) ends it here, and the others with it: they would wait for it in vain.
        """
        store = self.store
        if store is not None:
            if exit_status in (ExitStatus.FAILED, ExitStatus.WRONG_USE):
                self.end(f"failed ({self._failure})", exit_status, announce=False)
            try:
                if self._reports:
                    self.report("end", self.step)
                store.wait_for_all(f"{_FOLDER}/end", _FOREVER_SECONDS)
            except Exception as error:
                self.explain(error)
                self.end(f"could not end ({first_line(error)})", ExitStatus.FAILED)
            # All results are written; what fails from here on is the farewell alone.
            self._left_with = exit_status
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout=_ACKNOWLEDGE_SECONDS)
        faulthandler.cancel_dump_traceback_later()
        if store is not None:
            import jax

            if not _within(_FAREWELL_SECONDS, jax.distributed.shutdown):
                _flush_and_exit(exit_status)
            signal.signal(signal.SIGABRT, signal.SIG_DFL)
        return exit_status

    # The methods below run in the watchdog's own threads: the main thread may never come back.

    def _exchange_loop(self) -> None:
        while True:
            # The service may be gone; the judge counts how long nothing was heard.
            with contextlib.suppress(Exception):
                self.exchange()
            if self._stopped.wait(EXCHANGE_SECONDS):
                return

    def exchange(self) -> None:
        store = self.store
        assert store is not None
        self._beat += 1
        progress = self._progress()
        if self.process_index == 0:
            words = store.read(f"{_FOLDER}/progress")
            heard = {int(i): records.decode(text, Progress) for i, text in words.items()}
            self._heard = {0: progress, **heard}
            self._suspect = self._roll.silent(self._awake_seconds, SHORT_SILENCE_SECONDS)
            store.put(f"{_FOLDER}/group/first", _to_text(progress))
            # Before the silence is too long: JAX may abort the others first.
            store.put(f"{_FOLDER}/group/suspect", _to_text(self._suspect))
        else:
            store.put(f"{_FOLDER}/progress/{self.process_index}", _to_text(progress))
        group = store.read(f"{_FOLDER}/group")
        if self.process_index != 0 and "first" in group:
            self._heard = {0: records.decode(group["first"], Progress)}
            suspect = group.get("suspect", "null")
            self._suspect = None if suspect == "null" else records.decode(suspect, Fault)
        if "fault" in group:
            self._told = records.decode(group["fault"], Fault)
            self._end(self._told)

    def _judge_loop(self) -> None:
        # Counts only the time that this process ran: one that was stopped, or whose machine
        # slept, must not blame the others for the gap.
        before = time.monotonic()
        seen_step = -1
        while not self._stopped.wait(JUDGE_SECONDS):
            now = time.monotonic()
            self._awake_seconds += min(now - before, 2 * JUDGE_SECONDS)
            before = now
            if self.step != seen_step:
                seen_step, self._moved_at = self.step, now
            self._tell_launcher()
            if self.store is not None:
                # Put off from judgement to judgement: where C code holds the interpreter for good,
                # none of these threads can run, and the interpreter's own timer ends the process.
                timeout = self._heartbeat_timeout_seconds + 2 * _ACKNOWLEDGE_SECONDS
                faulthandler.dump_traceback_later(timeout, exit=True, file=2)
            heard = {0: self._progress()} if self.store is None else self._heard
            for process_index, progress in heard.items():
                self._roll.hear(process_index, progress, self._awake_seconds)
            fault = self._killed() or self._roll.fault(self._awake_seconds)
            if fault is not None:
                self._end(self._with_step(fault), publish=self.process_index == 0)

    def _killed(self) -> Fault | None:
        killed = launched.read_killed() if self.store and self.process_index == 0 else None
        if killed is None:
            return None
        process_index, how = killed
        progress = self._heard.get(process_index, Progress())
        return Fault.about(process_index, progress, how, is_silent=True)

    def _end_by_silence(self) -> None:
        """End the run if another host is silent, though the judge has not given it up yet.

        On a busy machine the judge, whose clock counts only the time that this process ran, can be
        later than JAX's heartbeat. A broken connection and a silent host are proof enough.
        """
        silent = self._roll.silent(self._awake_seconds, SHORT_SILENCE_SECONDS) or self._suspect
        if silent is not None and silent.process_index != self.process_index:
            self._end(self._with_step(silent), publish=True)

    def _progress(self) -> Progress:
        idle_seconds = time.monotonic() - self._moved_at
        is_idle = idle_seconds > 2 * EXCHANGE_SECONDS
        return Progress(
            hostname=self._hostname,
            beat=self._beat,
            step=self.step,
            phase=self._phase,
            reports=self._reports,
            idle_seconds=idle_seconds,
            where=_where_main_thread_stands() if is_idle else "",
            waits=is_idle and _main_thread_waits_for_another(),
        )

    def _with_step(self, fault: Fault) -> Fault:
        # A host that died before its first report took the same steps as this one: name this step.
        if fault.step >= 0 or self.step < 0:
            return fault
        return dataclasses.replace(fault, step=self.step, phase=self._phase)

    def _end(self, fault: Fault, *, announce: bool = True, publish: bool = False) -> NoReturn:
        self._conclude(fault, announce=announce, publish=publish)
        _flush_and_exit(fault.exit_status)

    def _conclude(self, fault: Fault, *, announce: bool, publish: bool) -> None:
        """Tell everyone why the run ends; only the first thread that comes here returns."""
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        store, on_death = self.store, self.on_death
        if publish and store is not None:
            key = f"{_FOLDER}/group/fault"
            _within(_ACKNOWLEDGE_SECONDS, lambda: store.put_first(key, _to_text(fault)))
        line = fault.line(launched.resume_command(self.resume_command))
        self._tell_launcher(line)
        if announce:
            stop_signals.write_line(f"dawnjax: {line}")
        if on_death is not None:
            _within(_ON_DEATH_SECONDS, lambda: on_death(line))
        silent = fault.process_index if fault.is_silent else None
        if store is not None and silent != 0:  # the store goes with process 0
            _within(_ACKNOWLEDGE_SECONDS, lambda: self._acknowledge(silent))

    def _acknowledge(self, silent: int | None) -> None:
        assert self.store is not None
        folder = f"{_FOLDER}/knows"
        self.store.put(f"{folder}/{self.process_index}", "1")
        expected = {str(index) for index in range(self.num_processes) if index != silent}
        while self.process_index == 0 and not expected <= self.store.read(folder).keys():
            time.sleep(0.05)

    def _tell_launcher(self, fault: str = "") -> None:
        resume_command = launched.resume_command(self.resume_command)
        status = launched.Status(self.step, self._phase, resume_command, fault)
        if status != self._written:
            launched.write_status(status)
            self._written = status

    def _on_abort(self) -> None:
        if self._left_with is not None:
            _flush_and_exit(self._left_with)
        if self._told is not None:
            self._end(self._told)
        if self.process_index != 0 and self.store and not self.store.coordinator_answers():
            first = self._heard.get(0, Progress())
            fault = Fault.about(0, first, "is gone (killed, or cut off)", is_silent=True)
            self._end(self._with_step(fault))
        self._end_by_silence()
        # Process 0 takes the store with it; the rest of the abort waits until all know.
        what = "aborted (its own output says why)"
        fault = Fault.about(self.process_index, self._progress(), what)
        self._conclude(fault, announce=True, publish=True)


def is_broken_connection(error: BaseException) -> bool:
    """True if an error looks like the echo of another host's end."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return any(_SIGNS_OF_A_BROKEN_CONNECTION.search(str(link)) for link in chain)


_SIGNS_OF_A_BROKEN_CONNECTION = re.compile(
    "Gloo|NCCL|RCCL|Connection (closed|reset) by peer|coordination service|CoordinationService|"
    "stopped sending heartbeats"
)
"""Texts of the runtimes, which have no type or code of their own for it."""

_LIBRARIES = sys.stdlib_module_names | {"jax", "jaxlib"}


def _where_main_thread_stands() -> str:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            break
        frame = frame.f_back
    if frame is None:
        return ""
    file = os.path.basename(frame.f_code.co_filename)
    return f"{frame.f_code.co_name} ({file}:{frame.f_lineno})"


def _main_thread_waits_for_another() -> bool:
    # Only the kernel knows a host that waits in a collective from one that compiles or reads: both
    # can stand at the same Python line.
    thread = threading.main_thread().native_id
    try:
        with open(f"/proc/self/task/{thread}/wchan") as file:
            return "futex" in file.read()
    except OSError:
        return False


def _to_text(note: Progress | Fault | None) -> str:
    return json.dumps(note and dataclasses.asdict(note))


def first_line(error: BaseException) -> str:
    """First line of an error's message, at most 200 characters of it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:197] + "..."


def _within(seconds: float, function: Callable[[], object]) -> bool:
    """Run a function that may hang or fail; returns True if it came back in time."""

    def run() -> None:
        with contextlib.suppress(Exception):
            function()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _flush_and_exit(exit_status: int) -> NoReturn:
    _within(1.0, lambda: (sys.stdout.flush(), sys.stderr.flush()))
    os._exit(exit_status)


def _handle_abort(on_abort: Callable[[], None]) -> Any:
    """Call a function when this process aborts; the caller must keep the result alive.

    JAX's coordination service aborts a process from a thread of its own. `signal.signal` would run
    the handler in the main thread, which never comes to it; a C handler runs it at once. That is
    sound: the thread called `abort` and holds no lock that Python needs. If the heap is corrupt,
    the interpreter's own timer ends the process.
    """
    libc = ctypes.CDLL(None)

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handle(_: int) -> None:
        libc.signal(signal.SIGABRT, None)  # should this fail, the process aborts as before
        on_abort()

    libc.signal(signal.SIGABRT, handle)
    return handle
