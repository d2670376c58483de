# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The live DWDirectiveRules: the rules for directives. They change when DWS or NNF is
upgraded."""

from __future__ import annotations

import syslog
from typing import Any, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller
from flux_k8s.control.kubecalls import REOPEN_DELAY, absent_or_forbidden
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import Directive
from flux_k8s.objects.decoding import plain
from flux_k8s.ports import DWDIRECTIVERULE, Kind, KubeError, Seen, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rules.directiverules import read_rules


class DirectiveRules:
    """A watch of the rules (a ``WatchHandler``). No job needs it: DWS applies them, and
    here they explain what it has refused."""

    def __init__(self, context: Context) -> None:
        self._flux = context.flux
        self._kube = context.kube
        self._specs: dict[tuple[str, str], list[Any]] = {}
        self._synced = False
        self._logged = False
        self._watch: Optional[Watch] = None
        self._controller = Controller[Kind](context.flux, self._open)

    def start(self) -> None:
        self._controller.run(DWDIRECTIVERULE)

    async def _open(self, kind: Kind) -> None:
        # A new watch does not show the deletions since the last one.
        self._specs.clear()
        self._synced = False
        self._watch = self._kube.watch(kind, None, self)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        self._controller.stop()

    @property
    def rules(self) -> Optional[list[Any]]:
        """The rules, one for each command; None while they are not known."""
        if not (self._synced and self._specs):
            return None
        return [rule for _, specs in sorted(self._specs.items()) for rule in specs]

    def explain(self, directives: Sequence[Directive]) -> str:
        """The word that is wrong in directives that DWS has refused, as far as its
        rules say so; "" if they do not."""
        try:
            read_rules(self.rules).check(directives)
        except DirectiveError as error:
            return str(error)
        return ""

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Seen) -> None:
        """A DWDirectiveRule has changed."""
        key = object.namespace, object.name
        spec = plain(object.encoded).get("spec")
        self._specs.pop(key, None)
        if type != "DELETED" and isinstance(spec, list):
            self._specs[key] = [r for r in spec if isinstance(r, dict)]

    def synced(self) -> None:
        self._synced = True

    def trouble(self, error: KubeError) -> None:
        """The rules stay as they were. A watch that Kubernetes forbids, or of a kind
        that it does not know, is closed for :data:`REOPEN_DELAY`."""
        if not absent_or_forbidden(error):
            return
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if not self._logged:
            self._logged = True
            text = f"{DWDIRECTIVERULE.plural}: {error}; queries do not show them"
            self._flux.log(syslog.LOG_INFO, text, Reason.OBJECTS_UNSEEN)
        self._controller.add(DWDIRECTIVERULE, REOPEN_DELAY)
