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
  - `dawnjax launch`, whose children the processes are, saw one killed: process 0 need not wait for
    its silence.
"""

import contextlib
import ctypes
import dataclasses
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

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

_ON_DEATH_SECONDS = 2.0
"""How long a last record may take; it must not keep a process whose disk hangs."""

_SHUTDOWN_SECONDS = 20.0
"""How long JAX's farewell may take, once every process has come to its end."""

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
        self._seen_step = -1  # by the judge
        self._moved_at = time.monotonic()  # the last report, or new step that the judge saw
        self._awake_seconds = 0.0  # that the judge has seen this process run
        self._beat = 0
        self._heard: dict[int, Progress] = {}
        self._told: Verdict | None = None
        self._suspect: Verdict | None = None  # silent, but not yet for too long
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._written: launched.Status | None = None
        self._left_with: int | None = None

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
        if self.board is not None:
            _guard_against_abort(self._on_abort)
            self._previous_excepthook = sys.excepthook
            sys.excepthook = self._on_uncaught
            self._threads.append(threading.Thread(target=self._exchange_loop, daemon=True))
        self._threads.append(threading.Thread(target=self._judge_loop, daemon=True))
        for thread in self._threads:
            thread.start()

    def explain(self, error: BaseException) -> None:
        """Takes what ended the main thread; returns if it is this process's own failure.

        A host that dies shows in the others as a broken connection in the middle of a collective.
        The error says neither which host nor what to do, so this waits for the verdict, which ends
        the process; should nobody be found at fault, it ends with what the error says.
        """
        if self.board is None or not is_broken_connection(error):
            return
        began = time.monotonic()
        time.sleep(self._heartbeat_timeout_seconds + EXCHANGE_SECONDS)
        self._end_by_silence()
        # A short heartbeat timeout passes before anybody can know who is silent.
        while time.monotonic() - began < SHORT_SILENCE_SECONDS + _NEWS_SECONDS:
            time.sleep(_JUDGE_SECONDS)
            self._end_by_silence()
        self.end(f"lost another host ({_first_line(error)})", ExitStatus.FAILED)

    def end(self, what: str, exit_status: int, *, announce: bool = True) -> NoReturn:
        """Ends the run on every host, now, with this one named as the cause.

        Args:
          what: What happened here, as the end of a sentence that begins with the host.
          exit_status: What every process ends with.
          announce: Whether to print the line here; False where the reason stands there already.
        """
        verdict = Verdict.about(
            self.process_index, self._progress(), what, exit_status=int(exit_status)
        )
        self._end(verdict, announce=announce, publish=True)

    def leave(self, exit_status: int) -> int:
        """Ends the watch, and this process's part in the run.

        A status that all processes come to together (reached, budget spent, diverged, interrupted)
        waits for all of them. One that befell this process alone ends the process here, and the
        others with it: they would wait for this one in vain.

        Args:
          exit_status: What this process ends with.

        Returns:
          The exit status.
        """
        board = self.board
        if board is None:
            self.stop()
            return exit_status
        if exit_status in (ExitStatus.FAILED, ExitStatus.WRONG_USE):
            self.end("failed (its own output says why)", exit_status, announce=False)
        try:
            if self._reports:
                self.report("end", self.step)
            board.wait_for_all(f"{_FOLDER}/end", _FOREVER_SECONDS)
            self.stop()
            left = dataclasses.replace(self._progress(), left=True)
            self._say(left)
        except Exception as error:
            self.explain(error)
            self.end(f"could not end ({_first_line(error)})", ExitStatus.FAILED)
        # All results are written; what fails from here on is the farewell alone.
        self._left_with = exit_status
        if not _within(_SHUTDOWN_SECONDS, _shut_down_jax):
            _flush_and_exit(exit_status)
        _release_abort()
        sys.excepthook = self._previous_excepthook
        return exit_status

    def stop(self) -> None:
        """Ends the watch alone; a second call does nothing."""
        self._stopped.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=_ACKNOWLEDGE_SECONDS)
        faulthandler.cancel_dump_traceback_later()

    # What follows runs in the watchdog's own threads, since the main thread may never come back.

    def _exchange_loop(self) -> None:
        while True:
            # The service may be gone; the judge counts how long nothing was heard.
            with contextlib.suppress(Exception):
                self._exchange()
            if self._stopped.wait(EXCHANGE_SECONDS):
                return

    def _exchange(self) -> None:
        assert self.board is not None
        self._beat += 1
        self._say(self._progress())
        notes = self.board.read(f"{_FOLDER}/group")
        if self.process_index == 0:
            told = self.board.read(f"{_FOLDER}/progress")
            self._heard = {int(i): Progress(**json.loads(text)) for i, text in told.items()}
            self._tell_suspect()
        elif "first" in notes:
            self._heard = {0: Progress(**json.loads(notes["first"]))}
            suspect = json.loads(notes.get("suspect", "null"))
            self._suspect = None if suspect is None else Verdict(**suspect)
        if "verdict" in notes:
            self._told = Verdict(**json.loads(notes["verdict"]))
            self._end(self._told)

    def _say(self, progress: Progress) -> None:
        assert self.board is not None
        text = json.dumps(dataclasses.asdict(progress))
        self.board.put(f"{_FOLDER}/progress/{self.process_index}", text)
        if self.process_index == 0:
            self.board.put(f"{_FOLDER}/group/first", text)

    def _tell_suspect(self) -> None:
        """Tells the others who is silent, before it is for too long: JAX may abort them first."""
        assert self.board is not None
        suspect = self._silent()
        if suspect != self._suspect:
            self._suspect = suspect
            note = None if suspect is None else dataclasses.asdict(suspect)
            self.board.put(f"{_FOLDER}/group/suspect", json.dumps(note))

    def _silent(self) -> Verdict | None:
        return self._roll.silent(self._awake_seconds, SHORT_SILENCE_SECONDS)

    def _end_by_silence(self) -> None:
        """Ends the run if another host is silent, though the judge has not given it up yet.

        On a busy machine the judge, whose clock counts only the time that this process ran, can be
        later than JAX's heartbeat or than the broken connection that a killed host leaves.
        """
        silent = self._silent() or self._suspect
        if silent is not None and silent.process_index != self.process_index:
            self._end(self._with_step(silent), publish=True)

    def _judge_loop(self) -> None:
        # Counts only the time that this process ran: one that was stopped, or whose machine
        # slept, must not blame the others for the gap.
        before = time.monotonic()
        while not self._stopped.wait(_JUDGE_SECONDS):
            now = time.monotonic()
            self._awake_seconds += min(now - before, 2 * _JUDGE_SECONDS)
            before = now
            self._note_step(now)
            self._keep_alive()
            self._tell_launcher()
            heard = {0: self._progress()} if self.board is None else self._heard
            for process_index, progress in heard.items():
                self._roll.hear(process_index, progress, self._awake_seconds)
            verdict = self._killed() or self._roll.verdict(self._awake_seconds)
            if verdict is not None:
                self._end(self._with_step(verdict), publish=self.process_index == 0)

    def _killed(self) -> Verdict | None:
        """Gives what the launcher saw of a process that was killed."""
        killed = launched.read_killed() if self.board is not None else None
        if killed is None or self.process_index != 0:
            return None
        process_index, how = killed
        progress = self._heard.get(process_index, Progress(hostname="not heard of"))
        if progress.left:
            return None
        return Verdict.about(process_index, progress, how, is_silent=True)

    def _progress(self) -> Progress:
        if not self._reports:
            return Progress(hostname=self._hostname, beat=self._beat)
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

    def _note_step(self, now: float) -> None:
        """Sees whether the loop has made a call since this was last asked: it says so by a number
        alone, so that the innermost loop spends nothing on it."""
        step = self.step
        if step != self._seen_step:
            self._seen_step = step
            self._moved_at = now

    def _with_step(self, verdict: Verdict) -> Verdict:
        """Gives a verdict about a host that died before it said how far it was, with a step.

        All hosts take the same steps, so it was not far from this one.
        """
        own = self._progress()
        if verdict.step >= 0 or own.step < 0:
            return verdict
        return dataclasses.replace(verdict, step=own.step, phase=own.phase)

    def _publish(self, verdict: Verdict) -> None:
        board = self.board
        if board is None:
            return
        text = json.dumps(dataclasses.asdict(verdict))

        def publish() -> None:
            board.put_first(f"{_FOLDER}/group/verdict", text)

        _within(_ACKNOWLEDGE_SECONDS, publish)

    def _end(self, verdict: Verdict, *, announce: bool = True, publish: bool = False) -> NoReturn:
        self._begin_to_end()
        if publish:
            self._publish(verdict)
        line = verdict.line(self._full_resume_command())
        self._tell_launcher(line)
        if announce:
            _write_line(f"dawnjax: {line}")
        on_death = self.on_death
        if on_death is not None:
            _within(_ON_DEATH_SECONDS, lambda: on_death(line))
        _within(_ACKNOWLEDGE_SECONDS, lambda: self._acknowledge(verdict))
        _flush_and_exit(verdict.exit_status)

    def _begin_to_end(self) -> None:
        """Returns in the first thread that ends this process, and in no other."""
        if not self._ending.acquire(blocking=False):
            while True:
                time.sleep(_FOREVER_SECONDS)

    def _acknowledge(self, verdict: Verdict) -> None:
        """Says that this process knows why it ends; process 0 waits until the others do."""
        if self.board is None or (self.process_index != 0 and verdict != self._told):
            return  # The board went with process 0.
        folder = f"{_FOLDER}/knows"
        self.board.put(f"{folder}/{self.process_index}", "1")
        if self.process_index == 0:
            expected = {str(index) for index in range(self.num_processes)}
            if verdict.is_silent:
                expected.discard(str(verdict.process_index))
            while not expected <= self.board.read(folder).keys():
                time.sleep(0.1)

    def _tell_launcher(self, verdict: str = "") -> None:
        phase = self._phase if self._reports else ""
        status = launched.Status(self.step, phase, self._full_resume_command(), verdict)
        if status != self._written:
            launched.write_status(status)
            self._written = status

    def _full_resume_command(self) -> str:
        return launched.resume_command(self.resume_command)

    def _keep_alive(self) -> None:
        """Puts off the end that the interpreter's own timer brings.

        That timer needs no Python: it ends a process whose interpreter is stuck, in which none of
        these threads can run.
        """
        if self.board is not None:
            timeout = self._heartbeat_timeout_seconds + 2 * _ACKNOWLEDGE_SECONDS
            faulthandler.dump_traceback_later(timeout, exit=True, file=2)

    def _on_uncaught(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self.end("was interrupted", ExitStatus.INTERRUPTED)
        self.explain(error)
        traceback.print_exception(kind, error, trace)
        self.end(f"failed ({kind.__name__}: {_first_line(error)})", ExitStatus.FAILED)

    def _on_abort(self) -> None:
        """Finds the host at fault when JAX's own runtime aborts this process."""
        if self._left_with is not None:
            _flush_and_exit(self._left_with)
        if self._told is not None:
            self._end(self._told)
        if self.process_index != 0 and self.board and not self.board.coordinator_answers():
            first = self._heard.get(0, Progress(hostname="not heard of"))
            verdict = Verdict.about(0, first, "is gone (killed, or cut off)", is_silent=True)
            self._end(self._with_step(verdict))
        self._end_by_silence()
        verdict = Verdict.about(
            self.process_index, self._progress(), "aborted (its own output says why)"
        )
        self._begin_to_end()
        self._publish(verdict)
        line = verdict.line(self._full_resume_command())
        self._tell_launcher(line)
        _write_line(f"dawnjax: {line}")
        # Process 0 takes the board with it; the rest of the abort may wait until all know.
        _within(_ACKNOWLEDGE_SECONDS, lambda: self._acknowledge(verdict))


def is_broken_connection(error: BaseException) -> bool:
    """Tells whether an error looks like the echo of another host's end."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if any(sign in str(link) for sign in _SIGNS_OF_A_BROKEN_CONNECTION):
            return True
        link = link.__cause__ or link.__context__
    return False


_SIGNS_OF_A_BROKEN_CONNECTION = (
    "Gloo",
    "NCCL",
    "RCCL",
    "Connection closed by peer",
    "Connection reset by peer",
    "coordination service",
    "CoordinationService",
    "stopped sending heartbeats",
)
"""What the runtimes write; they give no type or code of their own for it."""


_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_JAX_FOLDERS = {"jax", "jaxlib"}


def _where_main_thread_stands() -> str:
    """Gives the innermost line of the main thread outside JAX and the standard library."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    innermost = frame
    while frame is not None:
        name = frame.f_code.co_filename
        folders = name.split(os.sep)
        is_library = name.startswith(_STANDARD_LIBRARY) and "site-packages" not in folders
        if not (is_library or name.startswith("<") or _JAX_FOLDERS & set(folders)):
            break
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return ""
    file = os.path.basename(frame.f_code.co_filename)
    return f"{frame.f_code.co_name} ({file}:{frame.f_lineno})"


def _main_thread_waits_for_another() -> bool:
    thread = threading.main_thread().native_id
    try:
        with open(f"/proc/self/task/{thread}/wchan") as file:
            return "futex" in file.read()
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
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
    def flush() -> None:
        sys.stdout.flush()
        sys.stderr.flush()

    _within(1.0, flush)
    os._exit(exit_status)


def _shut_down_jax() -> None:
    import jax

    jax.distributed.shutdown()


_abort_handler: Any = None


def _guard_against_abort(on_abort: Callable[[], None]) -> None:
    """Calls a function when this process aborts.

    JAX's coordination service aborts a process from a thread of its own, milliseconds after
    process 0 is gone, and offers Python no say in it. `signal.signal` would run the handler in the
    main thread, which never comes to it; a C handler runs it at once, in the thread that aborts.
    That is sound here because `abort` is called, not inflicted: the thread holds no lock that
    Python needs, unless the heap is corrupt, and then the interpreter's own timer ends the process.
    """
    global _abort_handler

    def handle(_: int) -> None:
        # One that fails in here aborts as before.
        libc.signal(signal.SIGABRT, None)
        on_abort()

    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    _abort_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
    libc.signal(signal.SIGABRT, ctypes.cast(_abort_handler, ctypes.c_void_p))


def _release_abort() -> None:
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
