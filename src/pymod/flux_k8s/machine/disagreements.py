# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Follows whether mapping, resource graph and cluster agree about the Rabbits
(:mod:`flux_k8s.rules.agreement`): when they are known, and after each change."""

from __future__ import annotations

import syslog
from typing import Any, Iterable, Optional

from flux_k8s.config.context import Context
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.storages import Storages
from flux_k8s.reasons import Reason
from flux_k8s.rules import agreement
from flux_k8s.rules.agreement import Disagreement, Files, Kind

LOGGED_ELSEWHERE = frozenset({Kind.NOT_IN_CLUSTER})
"""The log says of these that their state is "not there"."""


class Disagreements:
    """All that is known now.

    Attributes:
        avoided: the Rabbits on which no job is to get storage.
        unmapped: the Rabbits of the graph that the mapping lacks.
    """

    def __init__(self, context: Context, rabbits: Storages, fluxion: Fluxion) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._rabbits = rabbits
        self._fluxion = fluxion
        self._compared: Any = None
        self._logged: frozenset[tuple[Kind, str]] = frozenset()
        self._sentences: dict[str, str] = {}
        self.avoided: frozenset[str] = frozenset()
        self.unmapped: tuple[str, ...] = ()

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
        found = agreement.compare(settings.mapping, graph, sizes, files)
        self._log(found)
        counted = [each for each in found if each.kind is not Kind.UNUSED]
        self._sentences = {}
        for each in counted:
            before = self._sentences.get(each.rabbit)
            text = each.sentence if before is None else f"{before}; {each.sentence}"
            self._sentences[each.rabbit] = text
        self.avoided = frozenset(each.rabbit for each in counted if each.is_avoided)
        unmapped = (e.rabbit for e in counted if e.kind is Kind.UNMAPPED)
        self.unmapped = tuple(unmapped)

    def sentence(self, rabbit: str) -> Optional[str]:
        """What does not agree about a Rabbit."""
        return self._sentences.get(rabbit)

    def _log(self, found: Iterable[Disagreement]) -> None:
        """Log what is new, with all Rabbits that it is true of."""
        known = [each for each in found if each.kind not in LOGGED_ELSEWHERE]
        keys = frozenset((each.kind, each.rabbit) for each in known)
        new = {
            each.template
            for each in known
            if (each.kind, each.rabbit) not in self._logged
        }
        for line in agreement.lines(e for e in known if e.template in new):
            self._flux.log(syslog.LOG_WARNING, line, Reason.MAPPING_DISAGREES)
        self._logged = keys
