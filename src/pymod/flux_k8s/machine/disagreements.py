# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Follows whether mapping, resource graph and cluster agree about the Rabbits
(:mod:`flux_k8s.rules.agreement`): when they are known, and after each change."""

from __future__ import annotations

import syslog
from itertools import chain
from typing import Any, Iterable, Sequence

from flux_k8s.config.context import Context
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.storages import Storages
from flux_k8s.reasons import Reason
from flux_k8s.rules import agreement
from flux_k8s.rules.agreement import Disagreement, Files, Kind

LOGGED_ELSEWHERE = frozenset({Kind.NOT_IN_CLUSTER})
"""The log says of these that their state is "not there"."""


class Disagreements:
    """All that is known now."""

    def __init__(self, context: Context, rabbits: Storages, fluxion: Fluxion) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._rabbits = rabbits
        self._fluxion = fluxion
        self._compared: Any = None
        self._found: dict[str, list[Disagreement]] = {}

    @property
    def known(self) -> bool:
        """Whether they have been compared, or there is no graph."""
        return self._compared is not None

    def update(self) -> None:
        """Compare them again if one of them has changed. All Storages have been seen,
        and the mapping stays the same until the module is loaded again."""
        graph, sizes = self._fluxion.graph, self._rabbits.sizes
        if graph is None or self._compared == (graph, sizes):
            return
        self._compared = graph, sizes
        settings = self._settings
        files = Files(
            settings.config.mapping or Files.mapping,
            self._fluxion.graph_name(settings.graph_file),
        )
        before = {(each.kind, each.rabbit) for each in self._all()}
        self._found = {}
        for each in agreement.compare(settings.mapping, graph, sizes, files):
            self._found.setdefault(each.rabbit, []).append(each)
        # What is new is logged, with all Rabbits that it is true of.
        logged = [each for each in self._all() if each.kind not in LOGGED_ELSEWHERE]
        new = {e.template for e in logged if (e.kind, e.rabbit) not in before}
        for line in agreement.lines(e for e in logged if e.template in new):
            self._flux.log(syslog.LOG_WARNING, line, Reason.MAPPING_DISAGREES)

    @property
    def avoided(self) -> frozenset[str]:
        """The Rabbits on which no job is to get storage."""
        return frozenset(each.rabbit for each in self._all() if each.is_avoided)

    @property
    def unmapped(self) -> Sequence[str]:
        """The Rabbits of the graph that the mapping lacks."""
        return [each.rabbit for each in self._all() if each.kind is Kind.UNMAPPED]

    def sentence(self, rabbit: str) -> str:
        """What does not agree about a Rabbit; "" if all does."""
        found = self._found.get(rabbit, ())
        return "; ".join(e.sentence for e in found if e.kind is not Kind.UNUSED)

    def _all(self) -> Iterable[Disagreement]:
        return chain.from_iterable(self._found.values())
