# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A real Flux instance, as :class:`~dwscli.instance.Instance`.

This is the only module of the queries that imports ``flux``.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Iterable, Iterator, Optional

from dwscli.instance import LOOKUP, LOST, Instance, Tick, lookup
from flux_k8s.command import STDIN, CommandError
from flux_k8s.config.submission import Site
from flux_k8s.errors import DirectiveError
from flux_k8s.ingest import Ingest
from flux_k8s.ports import Json
from flux_k8s.text import quoted

TICK = 1.0
"""Seconds between the calls of ``tick``."""

PATIENCE = 60.0
"""Seconds after which a module that has not answered is given up. It holds a request
for half of that."""

LEVELS = 10_000
"""Python refuses JSON with more levels than this, once it was set. Users write memos,
which are in the list of all jobs, and Flux accepts 2048 levels of JSON."""

LOOKUPS = 256
"""Lookups in the KVS that are sent before the first answer is awaited."""


@contextmanager
def _connected() -> Iterator[None]:
    """Name a lost connection to Flux. Python has the same error for standard output
    whose reader has ended, of which nothing is said."""
    try:
        yield
    except BrokenPipeError:
        raise ConnectionResetError(errno.ECONNRESET, LOST) from None


class FluxInstance(Instance):
    """The instance that the command runs in. What needs none of it works without."""

    @property
    def userid(self) -> int:
        # Flux sends requests as this user, if it is set: a tool for tests.
        word = os.environ.get("FLUX_HANDLE_USERID", str(os.getuid()))
        try:
            return int(word)
        except ValueError:
            problem = f"FLUX_HANDLE_USERID: {quoted(word)} is not the ID of a user"
            raise CommandError(problem) from None

    @cached_property
    def _handle(self) -> Any:
        import flux

        sys.setrecursionlimit(max(LEVELS, sys.getrecursionlimit()))
        try:
            return flux.Flux()
        except OSError as error:  # which is no answer to the request
            raise CommandError(error.strerror or str(error)) from None

    @property
    def is_owner(self) -> bool:
        return str(self.userid) == str(self._handle.attr_get("security.owner"))

    @property
    def is_job(self) -> bool:
        try:
            return bool(self._handle.attr_get("parent-uri"))
        except OSError:
            return False

    @_connected()
    def ask(self, topic: str, request: Json, tick: Optional[Tick] = None) -> Json:
        # Each broker has a module resource, and only that of rank 0 knows all.
        rank = {"nodeid": 0} if topic.startswith("resource.") else {}
        future = self._handle.rpc(topic, request, **rank)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                future.wait_for(TICK)
                break
            except OSError as error:
                if error.errno != errno.ETIMEDOUT or future.is_ready():
                    raise
            if time.monotonic() >= end:
                module = topic.partition(".")[0]
                text = f"the {module} module has not answered for {PATIENCE:g} s"
                raise TimeoutError(errno.ETIMEDOUT, text)
            if tick is not None:
                tick()
        answer = future.get()
        return answer if isinstance(answer, dict) else {}

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def parse_id(self, text: str) -> int:
        try:
            return super().parse_id(text)
        except ValueError:
            from flux.job import JobID

            return int(JobID(text))

    def site(self) -> Optional[Site]:
        return Ingest().site(self._handle)

    def batch_jobspec(self, script: str, nodes: Optional[int]) -> Json:
        from flux.cli.batch import BatchCmd

        words = [] if nodes is None else [f"--nodes={nodes}"]
        words += [] if script == STDIN else [script]
        batch = BatchCmd("flux batch")
        for option in batch.plugins.options:
            batch.parser.add_argument(option.name, **option.kwargs)
        batch.argv = words
        batch.script, args = batch.process_script(batch.parser.parse_args(words))
        if not batch.script.startswith("#!"):
            # flux batch says so only after all else, without the file's name.
            raise ValueError(f"{script} is no script: it does not begin with '#!'")
        try:
            return dict(batch.jobspec_create(args).jobspec)
        except ValueError as error:
            # From the plugin of flux batch, if it is installed.
            if isinstance(error.__cause__, DirectiveError):
                raise error.__cause__ from None
            raise

    @_connected()
    def kvs(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], str]:
        found: dict[tuple[int, str], str] = {}
        items = list(wanted)
        for start in range(0, len(items), LOOKUPS):
            futures = {
                one: self._handle.rpc(LOOKUP, lookup(*one))
                for one in items[start : start + LOOKUPS]
            }
            for (id, key), future in futures.items():
                try:
                    found[id, key] = str(future.get()[key])
                except FileNotFoundError:
                    continue
        return found
