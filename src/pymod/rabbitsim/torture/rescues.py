# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Users whose data could not be copied out: some have it copied again, some give it up,
and some do nothing."""

from __future__ import annotations

import random
from functools import partial
from typing import Callable, Optional

from flux_k8s.formats.jobid import f58, jobid_of_workflow
from flux_k8s.formats.timestamps import parse_timestamp
from flux_k8s.objects.workflowmarks import FAILED_UNTIL
from flux_k8s.ports import WORKFLOW, Json
from rabbitsim.kube.store import Event as Change
from rabbitsim.torture.system import TorturedSystem


class Rescues:
    """Sends ``dws.rescue`` at random, after each time that storage is kept.

    Args:
        note: takes a line for the trace.

    Attributes:
        given_up: the jobs whose data was asked to be given up.
    """

    def __init__(
        self, system: TorturedSystem, seed: int, note: Callable[[str], None]
    ) -> None:
        self._system = system
        self._seed = seed
        self._note = note
        self.given_up: set[int] = set()
        self._until: dict[int, str] = {}
        version = str(system.store.version)
        system.store.watch(WORKFLOW, None, self._changed, resource_version=version)

    def _changed(self, change: Change) -> None:
        metadata = change.object["metadata"]
        jobid = jobid_of_workflow(metadata["name"])
        until = (metadata.get("annotations") or {}).get(FAILED_UNTIL)
        if jobid is None or until is None or self._until.get(jobid) == until:
            return
        self._until[jobid] = until
        rng = random.Random(f"rescue {self._seed} {jobid} {until}")
        left = (parse_timestamp(until) or 0.0) - self._system.loop.now()
        for give_up, chance in ((False, 0.5), (False, 0.2), (True, 0.2)):
            if rng.random() < chance:
                moment = rng.uniform(0.0, 1.1 * max(0.0, left))
                ask = partial(self._ask, jobid, give_up)
                self._system.loop.call_later(moment, ask)

    def _ask(self, jobid: int, give_up: bool) -> None:
        what = "gives its data up" if give_up else "has its data copied again"
        self._note(f"{f58(jobid)}: its user {what}")

        def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
            self._note(f"{f58(jobid)}: {text or answer}")

        if give_up:
            self.given_up.add(jobid)
        payload: Json = {"id": jobid, **({"give_up": True} if give_up else {})}
        self._system.instance.request("dws.rescue", payload, answered)
