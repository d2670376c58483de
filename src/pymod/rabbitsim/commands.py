# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The subcommands of ``flux dws`` on a system under virtual time.

What they show comes from the service and from the stand-in Flux, as it does on a real
one from the module and from Flux.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from dwscli.instance import Instance, Tick
from flux_k8s.config.submission import Site
from flux_k8s.ports import Json
from flux_k8s.rules.directiverules import read_rules
from rabbitsim.flux.options import batch_jobspec
from rabbitsim.system import VirtualSystem

TICK = 1.0
"""Seconds between the calls of ``tick``."""

Answer = tuple[int, str, Optional[Json]]
"""errno, the text of the error, the payload."""


class VirtualInstance(Instance):
    """Time passes while an answer is
    awaited, and the whole system goes on meanwhile.

    Args:
        userid: who runs the commands, by default the instance owner.
        table: the ``[rabbit]`` table that directives are checked against.
    """

    def __init__(
        self,
        system: VirtualSystem,
        userid: Optional[int] = None,
        table: Optional[Json] = None,
    ) -> None:
        self._system = system
        self._table: Json = table or {}
        self._owner = system.instance.broker.owner
        self._userid = self._owner if userid is None else userid

    @property
    def userid(self) -> int:
        return self._userid

    @property
    def is_owner(self) -> bool:
        return self.userid == self._owner

    def ask(self, topic: str, request: Json, tick: Optional[Tick] = None) -> Json:
        answers: list[Answer] = []
        self._system.instance.request(
            topic, request, lambda *answer: answers.append(answer), self.userid
        )
        while not self._system.loop.run(lambda: bool(answers), TICK):
            if tick is not None:
                tick()
        errnum, text, payload = answers[0]
        if errnum:
            raise OSError(errnum, text)
        return payload or {}

    def sleep(self, seconds: float) -> None:
        self._system.loop.run(timeout=seconds)

    def site(self) -> Site:
        answer = self.ask("dws.rules", {})
        rules, scheduler = read_rules(answer["rules"]), bool(answer["scheduler"])
        return Site(self._table, rules, self._system.mapping, self._owner, scheduler)

    def batch_jobspec(self, script: str, nodes: Optional[int]) -> Json:
        text = Path(script).read_text(encoding="utf-8")
        jobspec, _ = batch_jobspec(text, script, nodes=nodes, cwd="/", environment={})
        return jobspec
