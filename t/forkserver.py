# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Run Python programs in forks of a process that has imported what they need.

usage: forkserver.py SOCKET MODULE...

An import of Flux takes ten times as long as what most of its commands do then, and
t/*.t run some hundred of them. :file:`forkclient.c` asks for a program, and is to the
test what that would be: it has the same arguments, environment, folder, standard files
and exit status, but another process ID.

A request is one message with the three files: the folder, the number of arguments, the
arguments and the environment, each with a zero byte behind it. The arguments are those
of Python: ``-m MODULE`` or a file, and what follows. The answers are the ID of the
process and then its status as of :manpage:`wait(2)`, an int each.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import select
import socket
import struct
import sys
import traceback

LONGEST = 1 << 20
"""Bytes of a request. Linux sends none that is longer than its buffer."""

ANSWER = struct.Struct("i")


def serve(path: str) -> bytes:
    """Serve requests. This returns in the processes of the programs only, each with its
    request, when its standard files are those of the client and no others are open."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(100)
    clients: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([listener.fileno(), *clients], [], [])
        for ended in set(ready).intersection(clients):
            child, client = clients.pop(ended)
            os.close(ended)
            _answer(client, os.waitpid(child, 0)[1])
            client.close()
        if listener.fileno() not in ready:
            continue
        client, _ = listener.accept()
        request, files, _, _ = socket.recv_fds(client, LONGEST, 3)
        child = os.fork()
        if child == 0:
            for number, file in enumerate(files):
                os.dup2(file, number)
            for process, (_, other) in clients.items():
                os.close(process)
                other.close()
            listener.close()
        else:
            clients[os.pidfd_open(child)] = (child, client)
            _answer(client, child)
        for file in files:
            os.close(file)
        if child == 0:
            client.close()
            return request


def _answer(client: socket.socket, number: int) -> None:
    try:
        client.send(ANSWER.pack(number))
    except OSError:
        pass  # it was killed


def run(request: bytes) -> int:
    """Run the program; its exit status."""
    folder, count, *words = map(os.fsdecode, request.split(b"\0")[:-1])
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(word.split("=", 1) for word in words[int(count) :])
    sys.argv[:] = words[: int(count)]
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()
    status = run(serve(sys.argv[1]))
    # Without what Python does at its end, which takes longer than the fork: it frees
    # what was imported.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)
