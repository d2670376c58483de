# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes that cannot write to Rabbit storage any more, by ``rabbit.fence_command``.

A site may cut a node off in ways that neither Flux nor Kubernetes shows. Its program
gets the names of nodes as its last argument (RFC 29), and prints those of them that
are cut off for good, as hostlists. It is asked again each time, for a node may be back.
"""

from __future__ import annotations

import syslog
from functools import partial
from typing import Callable, Iterable, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Answer, Call, call, drive, pause
from flux_k8s.formats import hostlist
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.reasons import Reason
from flux_k8s.text import NOTE, printable

PATIENCE = 30.0
"""Seconds after which the program is killed."""

PAUSE = 10.0
"""Seconds from its end until it is run again, for which its answer counts. Each job
whose storage is kept asks once a minute."""


class Fences:
    """Asks the site's program.

    Args:
        changed: is called when other nodes are fenced.

    Attributes:
        nodes: those that are fenced, by the last answer.
    """

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        flux, settings = context.flux, context.settings
        self.nodes: frozenset[str] = frozenset()
        self._flux = flux
        self._settings = settings
        self._changed = changed
        self._program = settings.config.fence_command
        self._failure = ""
        self._away: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()  # that the program answers about
        self._waiting: list[tuple[Sequence[str], Answer]] = []
        self._running = self._pausing = False

    async def ask(self, hosts: Sequence[str]) -> None:
        """Find out which of these nodes are fenced. None are if the program fails. It
        is not run more often for many jobs: the next run, after a pause, is for the
        nodes of all that have asked meanwhile."""
        if not (self._settings.config.fence_command and hosts):
            self._note(self.nodes.difference(hosts))
        elif not (self._pausing and self._asked.issuperset(hosts)):
            await Call(partial(self._enqueue, hosts))

    def _enqueue(self, hosts: Sequence[str], answer: Answer) -> None:
        self._waiting.append((hosts, answer))
        if not self._running:
            self._running = True
            drive(self._run(), lambda result: None, ())

    async def _run(self) -> None:
        """Run the program for all that wait, until nobody does."""
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                hosts = dict.fromkeys(host for asked, _ in waiting for host in asked)
                await self._find(tuple(hosts))
                self._pausing = True
                for _, answer in waiting:
                    answer(None)
                await pause(self._flux, PAUSE)
                self._pausing = False
        finally:
            self._running = self._pausing = False

    async def _find(self, hosts: Sequence[str]) -> None:
        """Run the program for these nodes, unless it is configured no more."""
        program = self._settings.config.fence_command
        found: frozenset[str] = frozenset()
        self._asked = frozenset(hosts)
        if program:
            try:
                argv = [*program, hostlist.encode(hosts)]
                run = self._flux.run_program
                found = await call(run, argv, PATIENCE, read=_read_nodes)
                self._failure = ""
            except (OSError, ValueError) as error:
                self._note_failure(error)
            if program != self._settings.config.fence_command:
                return
        self._note(self.nodes.difference(hosts) | found & self._asked)

    def config_changed(self) -> None:
        """What another program has said does not count."""
        program = self._settings.config.fence_command
        if program != self._program:
            self._program, self._failure = program, ""
            self._asked = frozenset()
            self._note(frozenset())

    def nodes_changed(self, states: NodeStates) -> None:
        """A node that serves again is not fenced."""
        away = {*states.offline, *states.drained}
        self._asked -= self._away - away  # the answer may be older than its return
        self._away = frozenset(away)
        self._note(self.nodes & self._away)

    def _note_failure(self, error: Exception) -> None:
        """Log an error of the program, unless it has failed so before."""
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        failure = printable(reason, NOTE)
        if failure != self._failure:
            self._failure = failure
            text = f"rabbit.fence_command: {failure}; no node is taken for fenced"
            self._flux.log(syslog.LOG_ERR, text, Reason.FENCE_FAILED)

    def _note(self, nodes: frozenset[str]) -> None:
        if nodes == self.nodes:
            return
        fenced = "cannot write any more, by rabbit.fence_command"
        self._log(nodes - self.nodes, fenced, Reason.FENCED)
        self._log(self.nodes - nodes, "is not fenced any more", Reason.NODE_BACK)
        self.nodes = nodes
        self._changed()

    def _log(self, nodes: Iterable[str], text: str, reason: Reason) -> None:
        if nodes:
            names = hostlist.encode_sorted(nodes)
            self._flux.log(syslog.LOG_NOTICE, f"{names} {text}", reason)


def _read_nodes(output: str) -> frozenset[str]:
    """The nodes that the program prints. 11,136 names take 25 ms.

    Raises:
        ValueError: it prints what is no hostlist.
    """
    return frozenset(hostlist.decode(",".join(output.split())))
