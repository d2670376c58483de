# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The answers of ``flux getrabbit``: the Rabbits of compute nodes and of jobs, and the
compute nodes of Rabbits.

Each answer has every name once, in the order of the arguments.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

from flux_k8s.errors import DWSError
from flux_k8s.formats import hostlist, jgf, rset
from flux_k8s.objects.mapping import RabbitMapping

RECORD = "rabbit_hostlist"
"""The key in a job's KVS directory with the Rabbits that have its storage (RFC 29)."""


class NotFound(DWSError):
    """A name is unknown, or a job has no storage."""


def computes_of(mapping: RabbitMapping, rabbits: Iterable[str]) -> tuple[str, ...]:
    """The compute nodes of some Rabbits.

    Raises:
        NotFound: the mapping lacks a Rabbit.
    """
    names = tuple(rabbits)
    _refuse((name for name in names if not mapping.has(name)), "no such Rabbit")
    return _once(names, mapping.hosts_of)


def rabbits_of(mapping: RabbitMapping, hosts: Iterable[str]) -> tuple[str, ...]:
    """The Rabbits that some compute nodes are connected to.

    Raises:
        NotFound: the mapping has no Rabbit for a node.
    """
    names = tuple(hosts)
    unknown = (name for name in names if mapping.rabbit_of(name) is None)
    _refuse(unknown, "not connected to a Rabbit")
    return _once(names, lambda name: (mapping.rabbit_of(name) or "",))


def rabbits_of_job(job: str, recorded: str, R: Optional[Any]) -> tuple[str, ...]:
    """The Rabbits that have storage of a job, or had it when the job has ended.

    The module has recorded them, or says so while the job is active. Before the job's
    storage is placed it does neither; then the result is the Rabbits of R, if Fluxion
    scheduled the job. The job's memo
    has them as well, but the job's user may change it, and administrators' programs act
    on this answer.

    Args:
        job: the name of the job in errors.
        recorded: the hostlist at :data:`RECORD`, or from the module; "" if there is
            none.
        R: the job's resources; None before it has any.

    Raises:
        NotFound: the job has no storage, its place is not known yet, or the record is
            no hostlist.
        BadObject: R is not as RFC 20 says.
    """
    if recorded:
        try:
            return _once(hostlist.decode(recorded), lambda name: (name,))
        except ValueError as error:
            raise NotFound(f"job {job}: {RECORD}: {error}") from None
    if R is not None:
        graph = jgf.parse(rset.parse(R, f"R of job {job}").scheduling or {})
        found = tuple(name for name, size in graph.ssd.items() if size != 0)
        if found:
            return tuple(sorted(found, key=hostlist.natural_key))
    raise NotFound(f"job {job} has no storage on Rabbits (yet)")


def _refuse(names: Iterable[str], problem: str) -> None:
    wrong = tuple(dict.fromkeys(names))
    if wrong:
        raise NotFound(f"{problem}: {hostlist.encode(wrong)}")


def _once(
    names: Iterable[str], function: Callable[[str], Iterable[str]]
) -> tuple[str, ...]:
    """The results of ``function`` for the names, without repetitions."""
    return tuple(dict.fromkeys(found for name in names for found in function(name)))
