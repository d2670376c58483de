# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Programs in processes of their own, which are forks of one that has imported what
they need."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import NamedTuple, Optional

SERVER = """
import json, os, signal, sys
exec(sys.argv[1])
for line in sys.stdin:
    program, *sys.argv[1:] = json.loads(line)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    print(json.dumps([os.waitpid(child, 0)[1], text]), flush=True)
"""


class Done(NamedTuple):
    """A program that has ended: its status as of ``wait(2)``, and what it wrote to
    either of its outputs."""

    status: int
    said: str


class Forks:
    """Runs programs, one at a time, until the end of a ``with`` statement.

    Args:
        python: the command of a Python.
        imports: what it runs before it forks. The programs share its names.
    """

    def __init__(self, python: list[str], imports: str) -> None:
        self._server = subprocess.Popen(
            [*python, "-c", SERVER, imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *args: str) -> Done:
        """Run a program, with these words in ``sys.argv[1:]``."""
        server = self._server
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps([program, *args]) + "\n")
        server.stdin.flush()
        return Done(*json.loads(server.stdout.readline()))

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
