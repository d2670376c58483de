# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The answers of ``flux getrabbit``: the Rabbits of compute nodes and of jobs, and the
compute nodes of Rabbits.

Each answer has every name once, in the order of the arguments.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Iterable, Optional

from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import DWSError
from flux_k8s.rfc import hostlist, jgf, rset

RABBITS_MEMO = "rabbits"
"""The key of a job's memo that names the Rabbits with its storage (RFC 29)."""


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


def rabbits_of_job(job: str, eventlog: str, R: Optional[Any]) -> tuple[str, ...]:
    """The Rabbits that have storage of a job, or had it when the job has ended.

    The job's memo names them. Before the job's storage is placed there is no memo; then
    the result is the Rabbits of R, if Fluxion scheduled the job.

    Args:
        job: the name of the job in errors.
        eventlog: the job's eventlog (RFC 18).
        R: the job's resources; None before it has any.

    Raises:
        NotFound: the job has no storage, its place is not known yet, or the memo is no
            hostlist, since the job's owner has overwritten it.
        BadObject: R is not as RFC 20 says.
    """
    memo = _memo(eventlog)
    if memo is not None:
        try:
            names = hostlist.decode(memo)
        except ValueError as error:
            raise NotFound(f"job {job}: memo {RABBITS_MEMO}: {error}") from None
        return _once(names, lambda name: (name,))
    if R is not None:
        graph = jgf.parse(rset.parse(R, f"R of job {job}").scheduling or {})
        found = tuple(name for name, size in graph.ssd.items() if size != 0)
        if found:
            return tuple(sorted(found, key=hostlist.natural_key))
    raise NotFound(f"job {job} has no storage on Rabbits (yet)")


def _memo(eventlog: str) -> Optional[str]:
    """The hostlist in the last memo with the key ``RABBITS_MEMO``."""
    found: Optional[str] = None
    # Not splitlines(): that would split at separators that JSON allows in strings.
    for line in filter(None, eventlog.split("\n")):
        if RABBITS_MEMO not in line:
            continue
        try:
            event = json.loads(line)
        except RecursionError:  # a memo of the job's owner with many levels
            continue
        context = event.get("context") or {}
        if event["name"] == "memo" and RABBITS_MEMO in context:
            memo = context[RABBITS_MEMO]
            found = memo if isinstance(memo, str) else None
    return found


def _refuse(names: Iterable[str], problem: str) -> None:
    wrong = tuple(dict.fromkeys(names))
    if wrong:
        raise NotFound(f"{problem}: {hostlist.encode(wrong)}")


def _once(
    names: Iterable[str], function: Callable[[str], Iterable[str]]
) -> tuple[str, ...]:
    """The results of ``function`` for the names, without repetitions."""
    return tuple(dict.fromkeys(found for name in names for found in function(name)))
