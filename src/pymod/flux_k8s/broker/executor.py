# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What may block, on threads: programs of the administrator, and the user database
(NSS), which may be on the network, and may fail.

``pwd.getpwuid`` raises KeyError both for an unknown user and for a database that fails,
so this module calls the C library itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any, BinaryIO, Callable, Optional, Sequence, Union

from flux_k8s.broker import parentdeath
from flux_k8s.ports import Deliver, ProgramDone, ReadOutput

MOST = 1 << 20
"""The most bytes that a program may print."""

CHUNK = 1 << 16
"""How many bytes are read at a time."""

LAST_WAIT = 1.0
"""Seconds within which a program has ended that was killed."""

MAX_ENTRY_SIZE = 1 << 20
"""The most bytes of an entry of the user database."""

GroupDone = Callable[[Union[int, None, OSError]], None]
"""Receives the ID of a user's primary group, None for an unknown user, or why the
database fails."""


class Executor:
    """Threads that wait, so that the service does not.

    Args:
        deliver: calls a function on the service's thread.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._users: queue.SimpleQueue[tuple[int, GroupDone]] = queue.SimpleQueue()
        threading.Thread(target=self._look_up_groups, daemon=True).start()

    def primary_group(self, userid: int, done: GroupDone) -> None:
        """Ask the user database. One thread asks it, for one user after the other."""
        self._users.put((userid, done))

    def _look_up_groups(self) -> None:
        while True:
            userid, done = self._users.get()
            found: Union[int, None, OSError]
            try:
                found = primary_group(userid)
            except OSError as error:
                found = error
            self._deliver(partial(done, found))

    def run_program(
        self, argv: Sequence[str], timeout: float, done: ProgramDone, read: ReadOutput
    ) -> None:
        """Have a thread of its own :meth:`run` a program."""

        def run() -> None:
            self._deliver(partial(done, self.run(argv, timeout, read)))

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError as error:  # there may be no more of them
            self._deliver(partial(done, OSError(errno.EAGAIN, str(error))))

    def run(self, argv: Sequence[str], timeout: float, read: ReadOutput = str) -> Any:
        """What a program prints, as it was read, or why it failed: see
        :meth:`flux_k8s.ports.Flux.run_program`."""
        try:
            program, failure = _start(argv)
        except OSError as error:
            return error
        assert program.stdout is not None
        with program.stdout, failure:
            self._running.add(program)
            if self._closed:  # meanwhile
                _kill(program)
            found = _output(program, failure, timeout, read)
            self._running.discard(program)
        return found

    def close(self) -> None:
        """Kill the programs that run, and those that are started from now on."""
        self._closed = True
        for program in tuple(self._running):
            _kill(program)


def _start(argv: Sequence[str]) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """Start a program. The threads of the service block the signals that its reactor
    receives; the program blocks none. A service that is killed kills no program, so the
    kernel does.

    Returns:
        the program, and a file from which the ``errno`` is read, after its end, if it
        could not be run.
    """
    readable, writable = os.pipe()
    ours = [sys.executable, "-I", "-S", parentdeath.__file__]
    try:
        program = subprocess.Popen(
            [*ours, str(os.getpid()), str(writable), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[writable],
            start_new_session=True,
        )
    except OSError:
        os.close(readable)
        raise
    finally:
        os.close(writable)
    return program, open(readable, "rb")


def _output(
    program: subprocess.Popen[bytes],
    failure: BinaryIO,
    timeout: float,
    read: ReadOutput,
) -> Any:
    """Wait for a program. Return what it prints, as it was read, or why it failed."""
    deadline = time.monotonic() + timeout
    try:
        output = _read(program, deadline)
        status = program.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _end_now(program)
        return OSError(errno.ETIMEDOUT, f"it took more than {timeout:g} s")
    except OverflowError:
        _end_now(program)
        return OSError(errno.EFBIG, f"it prints more than {MOST} bytes")
    except OSError as error:  # there may be no more file descriptors
        _end_now(program)
        return error
    if status:
        number = failure.read()
        if number:
            return OSError(int(number), os.strerror(int(number)))
        return OSError(errno.EIO, _end(status))
    try:
        return read(output.decode())
    except UnicodeDecodeError:
        return OSError(errno.EILSEQ, "it prints what is not UTF-8")
    except ValueError as error:
        return error


def _read(program: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What a program prints, until nobody has its output open any more.

    Raises:
        subprocess.TimeoutExpired: it takes too long.
        OverflowError: it prints more than :data:`MOST` bytes.
    """
    assert program.stdout is not None
    output = bytearray()
    with selectors.DefaultSelector() as ready:
        ready.register(program.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not ready.select(left):
                raise subprocess.TimeoutExpired(program.args, left)
            chunk = os.read(program.stdout.fileno(), CHUNK)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > MOST:
                raise OverflowError


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill a program, and what it has started: that has its process group. One that
    runs as another user, by sudo, may not be killed."""
    with contextlib.suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)


def _end_now(program: subprocess.Popen[bytes]) -> None:
    """Kill a program, and do not wait long for its end: that of one that may not be
    killed, or that waits for a file system, may never come."""
    _kill(program)
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(LAST_WAIT)


def _end(status: int) -> str:
    if status > 0:
        return f"it ended with status {status}"
    try:
        return f"it was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"it was killed by signal {-status}"


class Passwd(ctypes.Structure):
    """``struct passwd`` of Linux."""

    _fields_ = [
        ("pw_name", ctypes.c_char_p),
        ("pw_passwd", ctypes.c_char_p),
        ("pw_uid", ctypes.c_uint32),
        ("pw_gid", ctypes.c_uint32),
        ("pw_gecos", ctypes.c_char_p),
        ("pw_dir", ctypes.c_char_p),
        ("pw_shell", ctypes.c_char_p),
    ]


def primary_group(userid: int) -> Optional[int]:
    """The ID of a user's primary group; None for an unknown user. The call may take
    long.

    Raises:
        OSError: the database fails.
    """
    libc = ctypes.CDLL(None)
    entry = Passwd()
    found = ctypes.POINTER(Passwd)()
    size = 1024
    while True:
        buffer = ctypes.create_string_buffer(size)
        error = libc.getpwuid_r(
            ctypes.c_uint32(userid),
            ctypes.byref(entry),
            buffer,
            ctypes.c_size_t(size),
            ctypes.byref(found),
        )
        if error == errno.EINTR:
            continue
        if error == errno.ERANGE and size < MAX_ENTRY_SIZE:
            size *= 4
            continue
        if error:
            raise OSError(error, os.strerror(error))
        return int(entry.pw_gid) if found else None
