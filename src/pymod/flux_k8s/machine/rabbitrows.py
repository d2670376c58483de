# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rows of Rabbits that queries answer with (doc/queries.md)."""

from __future__ import annotations

from typing import Callable, Iterator

from flux_k8s.formats import hostlist
from flux_k8s.machine.disagreements import Disagreements
from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.ssds import Ssds
from flux_k8s.machine.storages import RabbitState, Storages
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.text import SHOWN, printable

UNKNOWN = RabbitState("unknown", False)
"""The state of a Rabbit before Kubernetes has shown it."""


def rabbit_rows(
    mapping: RabbitMapping,
    rabbits: Storages,
    ledger: Ledger,
    disagreements: Disagreements,
    why_not: Callable[[str], str],
    ssds_of: Callable[[str], Ssds],
) -> Iterator[Json]:
    """The row of each Rabbit of the mapping, and of those of the resource graph that
    the mapping lacks, without its jobs.

    Args:
        why_not: why a Rabbit takes no new job; "" if it does.
        ssds_of: the ``ssd`` of a Rabbit that jobs may have.
    """
    free, withheld = ledger.left(()), ledger.withheld
    for name in (*mapping.rabbits, *disagreements.unmapped):
        state = rabbits.state(name) or UNKNOWN
        is_known = state is not UNKNOWN and ledger.counted
        disabled = state.disabled
        sentence = disagreements.sentence(name) or ""
        ssds = ssds_of(name)
        yield {
            "name": name,
            "state": printable(state.reported or state.status, SHOWN),
            "reason": printable(why_not(name), SHOWN),
            **({"disagreement": printable(sentence, SHOWN)} if sentence else {}),
            "capacity": mapping.capacity(name),
            "free": free.get(name, 0) if is_known else None,
            "withheld": withheld.get(name, 0) if is_known else None,
            "ssd_size": ssds.size,
            "ssds": ssds.count,
            "ssds_withheld": ssds.withheld,
            "nodes": hostlist.encode(mapping.hosts_of(name)),
            "broken": hostlist.encode(sorted(state.lost, key=hostlist.natural_key)),
            "disabled": None
            if disabled is None
            else {"by": disabled.by, "at": disabled.at, "reason": disabled.reason},
        }
