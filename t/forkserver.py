# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Run Python programs in forks of a process that has imported what they need.

usage: forkserver.py SOCKET MODULE...

An import of Flux takes ten times as long as what most of its commands do then, and
t/*.t run hundreds of them. :file:`forkclient.c` asks for a program, and is to the
test what that would be: it has the same arguments, environment, folder, standard files
and exit status, but another process ID, which ``-p FILE`` before the arguments has it
write to a file.

A request is one message with the three files: the folder, the number of arguments, the
arguments and the environment, each with a zero byte behind it. The arguments are those
of Python: ``-c TEXT``, ``-m MODULE`` or a file, and what follows. The answer is an int,
the status as of :manpage:`wait(2)`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import signal
import socket
import struct
import sys
import traceback

LONGEST = 1 << 20
"""Bytes of a request. Linux sends none that is longer than its buffer."""

ANSWER = struct.Struct("i")


def reap(*_: object) -> None:
    """Wait for those that have ended: the time that they used is that of the server,
    and of who waits for that."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(path: str) -> socket.socket:
    """Accept clients. This returns in the processes that serve one, with its client."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(100)
    signal.signal(signal.SIGCHLD, reap)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return client
        client.close()


def start(client: socket.socket) -> bytes:
    """Read a request; return in a process for its program, with the files of the
    client. The process that serves waits for it, answers, and exits."""
    request, files, _, _ = socket.recv_fds(client, LONGEST, 3)
    child = os.fork()
    if child:
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):  # the client was killed
            client.send(ANSWER.pack(status))
        os._exit(0)
    client.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    return request


def run(request: bytes) -> int:
    """Run the program; its exit status."""
    folder, count, *words = map(os.fsdecode, request.split(b"\0")[:-1])
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(word.split("=", 1) for word in words[int(count) :])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv[:] = words[: int(count)]
    if sys.argv[0] == "-p":
        with open(sys.argv[1], "w") as file:
            print(os.getpid(), file=file)
        del sys.argv[:2]
    try:
        if sys.argv[0] == "-c":
            exec(sys.argv.pop(1), {"__name__": "__main__"})
        elif sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()
    status = run(start(serve(sys.argv[1])))
    # Without what Python does at its end, which takes longer than the fork: it frees
    # what was imported.
    atexit._run_exitfuncs()
    for stream in sys.stdout, sys.stderr:
        if not stream.closed:
            stream.flush()
    os._exit(status & 0xFF)
