"""The watchdog: ends this process, with the name of the host at fault, when a run cannot go on.

In a run of several hosts one that is gone or stuck leaves all others waiting in a collective, where
they neither fail nor learn why. So each process says once a second on the board that it is alive
and how far it is. Process 0 reads what all say; the others read what process 0 says, so the
messages grow with the number of hosts and not with its square. Whoever finds the host at fault
leaves the verdict on the board, and every process ends with that one line.

Four things end a run:
  - A process says nothing for most of the heartbeat timeout: killed, stopped, or cut off. JAX's own
    heartbeat, a little slower, stands behind this one.
  - No process reports progress for the progress deadline. Then the host at fault is the one that
    handed the fewest steps to its devices, or else made the fewest reports: the others ran ahead of
    it until they had to wait.
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
from dawnjax.cluster import launched
from dawnjax.cluster.board import Board
from dawnjax.cluster.roll_call import SHORT_SILENCE_SECONDS, Progress, RollCall, Verdict
from dawnjax.errors import ExitStatus

EXCHANGE_SECONDS = 1.0
"""How often a process says how far it is. The whole watch takes half a percent of one core."""

_JUDGE_SECONDS = 0.5
"""How often it is judged whether the run can go on."""

_FOLDER = "dawnjax/watchdog"

_SILENCE_FRACTION = 0.8
"""The part of the heartbeat timeout after which a silent process is given up. The rest is for the
others to hear of it, which takes up to 2.5 s, so that all end within timeouts of 13 s and more."""

_NEWS_SECONDS = 6.0
"""How long all may take to learn that a host is silent, beyond the silence itself. Its last word
waits for process 0 to read it, which tells the others, who read that: an exchange each and two
judgements, 4 s on an idle machine."""

_ACKNOWLEDGE_SECONDS = 3.0
"""How long process 0 stays when it ends the run, so that the others can read why: its end takes the
board away, and JAX aborts processes that lose it."""

_FAREWELL_SECONDS = 20.0
"""How long JAX's farewell may take, once every process has come to its end."""

_ON_DEATH_SECONDS = 2.0
"""How long a last record may take; it must not keep a process whose disk hangs."""

_FOREVER_SECONDS = 10.0**6


class Watchdog:
    """Watches this process and, where there are several, the others, from `start` to `leave`.

    Attributes:
      board: Where the processes leave notes; None for one process alone.
      resume_command: The command that goes on with the run, for the line about its end; empty
        until it is known.
      step: Steps handed to the devices; -1 before the first report. The innermost loop writes it
        just before each call, with the steps done once it is made; that too says that this process
        is getting on.
      on_death: Called with that line before the process ends, such as to log it; it has 2 seconds.
    """

    def __init__(
        self,
        board: Board | None,
        *,
        heartbeat_timeout_seconds: float,
        progress_deadline_seconds: float,
    ):
        """Args:
        board: Where the processes leave notes; None for one process alone.
        heartbeat_timeout_seconds: A process that dies ends the others within this time.
        progress_deadline_seconds: No progress of any process for this long, counted from the
          first report, ends the run; 0 sets no deadline.
        """
        self.board = board
        self.resume_command = ""
        self.on_death: Callable[[str], object] | None = None
        self.process_index = 0 if board is None else board.process_index
        self.num_processes = 1 if board is None else board.num_processes
        self._heartbeat_timeout_seconds = heartbeat_timeout_seconds
        # Process 0 judges all, and the others judge process 0: by its silence alone, since its own
        # judge says when none makes progress.
        self._roll = RollCall(
            self.num_processes if self.process_index == 0 else 1,
            float("inf") if board is None else _SILENCE_FRACTION * heartbeat_timeout_seconds,
            progress_deadline_seconds if self.process_index == 0 else 0.0,
        )
        self._hostname = socket.gethostname()
        self.step = -1
        self._phase = "start"
        self._reports = 0
        self._moved_at = time.monotonic()  # the last report, or new step that the judge saw
        self._awake_seconds = 0.0  # that the judge has seen this process run
        self._beat = 0
        self._heard: dict[int, Progress] = {}
        self._told: Verdict | None = None
        self._suspect: Verdict | None = None  # silent, but not yet for too long
        self._failure = "its own output says why"
        self._left_with: int | None = None
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._written: launched.Status | None = None

    def report(self, phase: str, step: int) -> None:
        """Says that this process is getting on, and with what.

        Report before each thing that waits for other hosts, and in the same order on all: the host
        with the fewest steps and reports is the one that the others wait for.

        Args:
          phase: What it does now.
          step: Steps handed to the devices.
        """
        self._phase, self.step = phase, step
        self._reports += 1
        self._moved_at = time.monotonic()

    def start(self) -> None:
        """Begins to watch."""
        self._tell_launcher()
        loops = [self._judge_loop]
        if self.board is not None:
            self._abort_handler = _handle_abort(self._on_abort)  # C does not keep it alive
            loops.append(self._exchange_loop)
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def explain(self, error: BaseException) -> None:
        """Takes what ended the main thread; returns if it is this process's own failure.

        A host that dies shows in the others as a broken connection in the middle of a collective.
        The error says neither which host nor what to do, so this waits for the verdict, or for a
        host that is silent, which ends the process; should nobody be at fault, it ends with what
        the error says.
        """
        self._failure = f"{type(error).__name__}: {first_line(error)}"
        if self.board is None or not is_broken_connection(error):
            return
        # Until the news of a silent host has come round, a slow host may look silent too. A short
        # heartbeat timeout passes before that, and JAX's then ends this process.
        heartbeat = self._heartbeat_timeout_seconds + EXCHANGE_SECONDS
        news = SHORT_SILENCE_SECONDS + _NEWS_SECONDS
        end = time.monotonic() + max(heartbeat, news)
        time.sleep(min(heartbeat, news))
        while time.monotonic() < end:
            self._end_by_silence()
            time.sleep(_JUDGE_SECONDS)
        self.end(f"lost another host ({first_line(error)})", ExitStatus.FAILED)

    def end(self, what: str, exit_status: int, *, announce: bool = True) -> NoReturn:
        """Ends the run on every host, now, with this one named as the cause.

        Args:
          what: What happened here, as the end of a sentence that begins with the host.
          exit_status: What every process ends with.
          announce: Whether to print the line here; False where the reason stands there already.
        """
        progress = self._progress()
        verdict = Verdict.about(self.process_index, progress, what, exit_status=int(exit_status))
        self._end(verdict, announce=announce, publish=True)

    def leave(self, exit_status: int) -> int:
        """Ends the watch, and this process's part in the run.

        A status that all processes come to together (reached, budget spent, diverged, interrupted)
        waits for all of them. A failure of this process alone (1, 2) ends it here, and the others
        with it: they would wait for it in vain.

        Args:
          exit_status: What this process ends with.

        Returns:
          The exit status.
        """
        board = self.board
        if board is not None:
            if exit_status in (ExitStatus.FAILED, ExitStatus.WRONG_USE):
                self.end(f"failed ({self._failure})", exit_status, announce=False)
            try:
                if self._reports:
                    self.report("end", self.step)
                board.wait_for_all(f"{_FOLDER}/end", _FOREVER_SECONDS)
            except Exception as error:
                self.explain(error)
                self.end(f"could not end ({first_line(error)})", ExitStatus.FAILED)
            # All results are written; what fails from here on is the farewell alone.
            self._left_with = exit_status
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout=_ACKNOWLEDGE_SECONDS)
        faulthandler.cancel_dump_traceback_later()
        if board is not None:
            import jax

            if not _within(_FAREWELL_SECONDS, jax.distributed.shutdown):
                _flush_and_exit(exit_status)
            signal.signal(signal.SIGABRT, signal.SIG_DFL)
        return exit_status

    # What follows runs in the watchdog's own threads, since the main thread may never come back.

    def _exchange_loop(self) -> None:
        while True:
            # The service may be gone; the judge counts how long nothing was heard.
            with contextlib.suppress(Exception):
                self._exchange()
            if self._stopped.wait(EXCHANGE_SECONDS):
                return

    def _exchange(self) -> None:
        board = self.board
        assert board is not None
        self._beat += 1
        progress = self._progress()
        if self.process_index == 0:
            told = board.read(f"{_FOLDER}/progress")
            heard = {int(i): records.decode(text, Progress) for i, text in told.items()}
            self._heard = {0: progress, **heard}
            self._suspect = self._roll.silent(self._awake_seconds, SHORT_SILENCE_SECONDS)
            board.put(f"{_FOLDER}/group/first", _to_text(progress))
            # Before the silence is too long: JAX may abort the others first.
            board.put(f"{_FOLDER}/group/suspect", _to_text(self._suspect))
        else:
            board.put(f"{_FOLDER}/progress/{self.process_index}", _to_text(progress))
        notes = board.read(f"{_FOLDER}/group")
        if self.process_index != 0 and "first" in notes:
            self._heard = {0: records.decode(notes["first"], Progress)}
            suspect = notes.get("suspect", "null")
            self._suspect = None if suspect == "null" else records.decode(suspect, Verdict)
        if "verdict" in notes:
            self._told = records.decode(notes["verdict"], Verdict)
            self._end(self._told)

    def _judge_loop(self) -> None:
        # Counts only the time that this process ran: one that was stopped, or whose machine
        # slept, must not blame the others for the gap.
        before = time.monotonic()
        seen_step = -1
        while not self._stopped.wait(_JUDGE_SECONDS):
            now = time.monotonic()
            self._awake_seconds += min(now - before, 2 * _JUDGE_SECONDS)
            before = now
            if self.step != seen_step:
                seen_step, self._moved_at = self.step, now
            self._tell_launcher()
            if self.board is not None:
                # Put off from judgement to judgement: where C code holds the interpreter for good,
                # none of these threads can run, and the interpreter's own timer ends the process.
                timeout = self._heartbeat_timeout_seconds + 2 * _ACKNOWLEDGE_SECONDS
                faulthandler.dump_traceback_later(timeout, exit=True, file=2)
            heard = {0: self._progress()} if self.board is None else self._heard
            for process_index, progress in heard.items():
                self._roll.hear(process_index, progress, self._awake_seconds)
            verdict = self._killed() or self._roll.verdict(self._awake_seconds)
            if verdict is not None:
                self._end(self._with_step(verdict), publish=self.process_index == 0)

    def _killed(self) -> Verdict | None:
        """Verdict of process 0 about a process that the launcher saw killed."""
        killed = launched.read_killed() if self.board and self.process_index == 0 else None
        if killed is None:
            return None
        process_index, how = killed
        progress = self._heard.get(process_index, Progress())
        return Verdict.about(process_index, progress, how, is_silent=True)

    def _end_by_silence(self) -> None:
        """Ends the run if another host is silent, though the judge has not given it up yet.

        A broken connection and a silent host are proof enough together. And on a busy machine the
        judge, whose clock counts only the time that this process ran, can be later than JAX's
        heartbeat.
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

    def _with_step(self, verdict: Verdict) -> Verdict:
        """Adds a step to a verdict about a host that died before it said how far it was.

        All hosts take the same steps, so it was not far from this one.
        """
        if verdict.step >= 0 or self.step < 0:
            return verdict
        return dataclasses.replace(verdict, step=self.step, phase=self._phase)

    def _end(self, verdict: Verdict, *, announce: bool = True, publish: bool = False) -> NoReturn:
        self._conclude(verdict, announce=announce, publish=publish)
        _flush_and_exit(verdict.exit_status)

    def _conclude(self, verdict: Verdict, *, announce: bool, publish: bool) -> None:
        """Tells everyone why the run ends; only the first thread that comes here returns."""
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        board, on_death = self.board, self.on_death
        if publish and board is not None:
            key = f"{_FOLDER}/group/verdict"
            _within(_ACKNOWLEDGE_SECONDS, lambda: board.put_first(key, _to_text(verdict)))
        line = verdict.line(launched.resume_command(self.resume_command))
        self._tell_launcher(line)
        if announce:
            _write_line(f"dawnjax: {line}")
        if on_death is not None:
            _within(_ON_DEATH_SECONDS, lambda: on_death(line))
        silent = verdict.process_index if verdict.is_silent else None
        if board is not None and silent != 0:  # the board goes with process 0
            _within(_ACKNOWLEDGE_SECONDS, lambda: self._acknowledge(silent))

    def _acknowledge(self, silent: int | None) -> None:
        """Says that this process knows why it ends; process 0 waits until all but one do."""
        assert self.board is not None
        folder = f"{_FOLDER}/knows"
        self.board.put(f"{folder}/{self.process_index}", "1")
        expected = {str(index) for index in range(self.num_processes) if index != silent}
        while self.process_index == 0 and not expected <= self.board.read(folder).keys():
            time.sleep(0.05)

    def _tell_launcher(self, verdict: str = "") -> None:
        resume_command = launched.resume_command(self.resume_command)
        status = launched.Status(self.step, self._phase, resume_command, verdict)
        if status != self._written:
            launched.write_status(status)
            self._written = status

    def _on_abort(self) -> None:
        """Finds the host at fault when JAX's own runtime aborts this process."""
        if self._left_with is not None:
            _flush_and_exit(self._left_with)
        if self._told is not None:
            self._end(self._told)
        if self.process_index != 0 and self.board and not self.board.coordinator_answers():
            first = self._heard.get(0, Progress())
            verdict = Verdict.about(0, first, "is gone (killed, or cut off)", is_silent=True)
            self._end(self._with_step(verdict))
        self._end_by_silence()
        # Process 0 takes the board with it; the rest of the abort waits until all know.
        what = "aborted (its own output says why)"
        verdict = Verdict.about(self.process_index, self._progress(), what)
        self._conclude(verdict, announce=True, publish=True)


def is_broken_connection(error: BaseException) -> bool:
    """Tells whether an error looks like the echo of another host's end."""
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
"""What the runtimes write; they give no type or code of their own for it."""

_LIBRARIES = sys.stdlib_module_names | {"jax", "jaxlib"}


def _where_main_thread_stands() -> str:
    """Names the innermost line of the main thread outside JAX and the standard library."""
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
    # The kernel alone tells a host that waits in a collective from one that compiles or reads: the
    # Python line can be the same.
    thread = threading.main_thread().native_id
    try:
        with open(f"/proc/self/task/{thread}/wchan") as file:
            return "futex" in file.read()
    except OSError:
        return False


def _to_text(note: Progress | Verdict | None) -> str:
    return json.dumps(note and dataclasses.asdict(note))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, at most 200 characters of it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:197] + "..."


def _within(seconds: float, function: Callable[[], object]) -> bool:
    """Runs a function that may hang or fail; tells whether it came back in time."""

    def run() -> None:
        with contextlib.suppress(Exception):
            function()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _write_line(line: str) -> None:
    """Writes to standard error past Python's buffer, whose lock a stuck thread may hold."""
    # A live display hides the cursor of a terminal and leaves it on the display's line.
    before = "\x1b[?25h\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{before}{line}\n".encode())


def _flush_and_exit(exit_status: int) -> NoReturn:
    _within(1.0, lambda: (sys.stdout.flush(), sys.stderr.flush()))
    os._exit(exit_status)


def _handle_abort(on_abort: Callable[[], None]) -> Any:
    """Calls a function when this process aborts, and returns what must be kept for that.

    JAX's coordination service aborts a process from a thread of its own, milliseconds after
    process 0 is gone, and offers Python no say in it. `signal.signal` would run the handler in the
    main thread, which never comes to it; a C handler runs it at once, in the thread that aborts.
    That is sound here because `abort` is called, not inflicted: the thread holds no lock that
    Python needs, unless the heap is corrupt, and then the interpreter's own timer ends the process.
    """
    libc = ctypes.CDLL(None)

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handle(_: int) -> None:
        libc.signal(signal.SIGABRT, None)  # should this fail, the process aborts as before
        on_abort()

    libc.signal(signal.SIGABRT, handle)
    return handle
