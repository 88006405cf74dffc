"""The JPEG decoder's own verdict on an image.

OpenCV returns an image of a cut scan as if nothing were wrong; libjpeg, inside it, prints a line to
C's `stderr` that names no file. So that variable leads to a file in memory while images are
decoded. Other text that comes meanwhile is passed on.
"""

import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Callable

import numpy as np

_OF_DECODER = re.compile(
    r"(Corrupt JPEG data|Premature end of JPEG file|Invalid SOS|Inconsistent progression"
    r"|Unknown Adobe|Warning: unknown JFIF|Application transferred)"
)
_LOST = re.compile(r"remature end|bad (Huffman|arithmetic) code|found marker|Inconsistent prog")
"""Complaints after which pixels are made up. Others, such as `extraneous bytes before marker`, are
about bytes that the image does not need."""


class Verdicts:
    """Decodes images in several threads at once, and knows what libjpeg said of each."""

    def __init__(self) -> None:
        self._idle = threading.Condition()
        self._decoding = 0
        self._variable: ctypes.c_void_p | None = None
        self._stream = self._own_stream = None
        self._fd, self._is_open = -1, False

    def decode(self, decode: Callable[[], np.ndarray | None]) -> tuple[np.ndarray | None, str]:
        """Image that `decode` returns, and a complaint of lost pixels or an empty text."""
        with self._idle:
            self._begin()
            before = self._num_bytes()
        try:
            image = decode()
        finally:
            with self._idle:
                is_suspect = self._num_bytes() > before
                self._end()
        if not is_suspect:
            return image, ""
        # Another thread's image may be the one complained of: decode once more, alone.
        with self._idle:
            self._idle.wait_for(lambda: not self._decoding)
            self._begin()
            try:
                image, text = decode(), self._text()
            finally:
                self._end()
        return image, next((line for line in text.splitlines() if _LOST.search(line)), "")

    def _begin(self) -> None:
        if not self._is_open:
            self._open()
        self._decoding += 1
        if self._decoding == 1 and self._variable is not None:
            self._own_stream, self._variable.value = self._variable.value, self._stream

    def _end(self) -> None:
        self._decoding -= 1
        if self._decoding or self._variable is None:
            return
        self._variable.value = self._own_stream
        if text := self._text():
            os.ftruncate(self._fd, 0)
            for line in text.splitlines(keepends=True):
                if not _OF_DECODER.match(line):
                    with contextlib.suppress(OSError):
                        os.write(2, line.encode(errors="surrogateescape"))
        self._idle.notify_all()

    def _open(self) -> None:
        self._is_open = True
        library = ctypes.CDLL(None)
        try:
            variable = ctypes.c_void_p.in_dll(library, "stderr")
            self._fd = os.memfd_create("jpeg_verdicts")
        except (ValueError, AttributeError):
            return  # not glibc or musl: a cut scan is decoded as OpenCV does it
        library.fdopen.restype = ctypes.c_void_p
        library.setvbuf.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
        self._stream = library.fdopen(self._fd, b"a")
        unbuffered = 2  # _IONBF
        if self._stream and library.setvbuf(self._stream, None, unbuffered, 0) == 0:
            self._variable = variable

    def _num_bytes(self) -> int:
        return os.fstat(self._fd).st_size if self._variable is not None else 0

    def _text(self) -> str:
        if self._variable is None:
            return ""
        return os.pread(self._fd, 2**16, 0).decode(errors="surrogateescape")


VERDICTS = Verdicts()
"""Of the process, since the variable is the process's."""
