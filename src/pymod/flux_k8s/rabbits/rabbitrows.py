# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rows of Rabbits that queries answer with (doc/queries.md)."""

from __future__ import annotations

from typing import AbstractSet, Callable, Iterator

from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rabbits.disagreements import Disagreements
from flux_k8s.rabbits.ssds import Ssds
from flux_k8s.rabbits.storage import RabbitManager, RabbitState
from flux_k8s.rfc import hostlist
from flux_k8s.text import SHOWN, printable

UNKNOWN = RabbitState("unknown", False)
"""The state of a Rabbit before Kubernetes has shown it."""

HELD_DOWN = "back only just now"


def rabbit_rows(
    mapping: RabbitMapping,
    rabbits: RabbitManager,
    down: AbstractSet[str],
    ssds_of: Callable[[str], Ssds],
    disagreements: Disagreements,
) -> Iterator[Json]:
    """The row of each Rabbit of the mapping, and of those of the resource graph that
    the mapping lacks, without its jobs.

    Args:
        down: the Rabbits that are out of service.
        ssds_of: the ``ssd`` of a Rabbit that jobs may have.
    """
    storage = rabbits.free_storage
    free, unscheduled = storage.left(()), storage.unscheduled
    for name in (*mapping.rabbits, *disagreements.unmapped):
        state = rabbits.state(name) or UNKNOWN
        is_known = state is not UNKNOWN and storage.counted
        disabled = state.disabled
        reason = "" if state.serving else state.status
        if name in down and state.serving:
            reason = HELD_DOWN
        sentence = disagreements.sentence(name) or ""
        if not reason and name in disagreements.avoided:
            reason = sentence
        ssds = ssds_of(name)
        yield {
            "name": name,
            "state": printable(state.reported or state.status, SHOWN),
            "reason": printable(reason, SHOWN),
            **({"disagreement": printable(sentence, SHOWN)} if sentence else {}),
            "capacity": mapping.capacity(name),
            "free": free.get(name, 0) if is_known else None,
            "withheld": unscheduled.get(name, 0) if is_known else None,
            "ssd_size": ssds.size,
            "ssds": ssds.count,
            "ssds_withheld": ssds.withheld,
            "nodes": hostlist.encode(mapping.hosts_of(name)),
            "broken": hostlist.encode(sorted(state.lost, key=hostlist.natural_key)),
            "disabled": None
            if disabled is None
            else {"by": disabled.by, "at": disabled.at, "reason": disabled.reason},
        }
