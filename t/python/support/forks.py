# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Programs in processes of their own, which are forks of one that has imported what
they need."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Callable, NamedTuple

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


Run = Callable[..., Done]
"""Runs a program, a text, with some words in ``sys.argv[1:]``."""


@contextlib.contextmanager
def forks(python: list[str], imports: str) -> Iterator[Run]:
    """What runs programs, one at a time.

    Args:
        python: the command of a Python.
        imports: what it runs before it forks. The programs share its names.
    """
    command = [*python, "-c", SERVER, imports]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        asked, answers = server.stdin, server.stdout
        assert asked is not None and answers is not None

        def run(program: str, *args: str) -> Done:
            print(json.dumps([program, *args]), file=asked, flush=True)
            return Done(*json.loads(answers.readline()))

        yield run
