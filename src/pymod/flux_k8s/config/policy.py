# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Limits on the storage that users may request.

``rabbit.policy.maximums`` limits the storage that a job requests on each of its nodes,
in GiB, for each file system type by itself:

- A ``capacity`` of xfs, gfs2 or raw is that of one allocation, and each node gets one.
  The capacity of a Lustre file system is shared by the job's nodes, so it is divided by
  the least number of nodes that the job accepts.
- With a limit of 0, no job gets storage of the type, however little it asks for.
- The directives of a job with the same type count together: two directives are no way
  around the limit. ``create_persistent`` counts like ``jobdw``, and a directive from a
  preset counts like any other.
- The ``capacity`` of the directive counts. Storage that NNF adds for its own use
  (padding, metadata targets) does not.
- The limits apply to all users, as Flux's own limits do: they are about the size of the
  system, not about rights. ``restrict_persistent_creation`` is about rights, and the
  instance owner has all rights.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from flux_k8s.config.stagepolicy import check_stages_ahead
from flux_k8s.config.table import Config
from flux_k8s.errors import DirectiveError, show
from flux_k8s.formats.directives import GIB, SHARED_TYPES, Directive
from flux_k8s.json_reader import is_integer
from flux_k8s.limits import NODES
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.storagerequest import (
    AHEAD,
    RELEASES,
    STAGES,
    UNMOUNTED,
    StorageRequest,
)
from flux_k8s.objects.workflowdirectives import CREATING
from flux_k8s.rules.directivebreakdown import (
    NO_NODES,
    requested_chassis,
    requested_nodes,
)
from flux_k8s.rules.room import rooms_of, why_never


def check_request(request: StorageRequest, config: Config, owner: int) -> None:
    """Refuse a request that the configuration forbids.

    Args:
        request: the directives and resources of a job.
        config: has ``restrict_persistent_creation`` and ``maximums``.
        owner: the user ID of the instance's owner.

    Raises:
        DirectiveError: a directive is forbidden; the error names the rule.
        BadObject: the job's ``resources`` are not as RFC 14 says.
    """
    if config.restrict_persistent_creation and request.userid != owner:
        _refuse_creation(request.directives)
    if request.release == UNMOUNTED:
        _refuse_container(request.container)
    if request.stage == AHEAD:
        check_stages_ahead(request)
    for type, maximum in config.maximums.items():
        directives = [d for d in request.directives if d.arguments.get("type") == type]
        if directives:
            sharers = requested_nodes(request.resources) if type in SHARED_TYPES else 1
            _check_maximum(directives, type, maximum, max(sharers, 1))


def _refuse_creation(directives: Sequence[Directive]) -> None:
    for directive in directives:
        if directive.command == "create_persistent":
            raise directive.wrong_command(
                "only the instance owner may create persistent storage here "
                "(rabbit.restrict_persistent_creation)"
            )


def _refuse_container(directive: Optional[Directive]) -> None:
    if directive is not None:
        problem = (
            "runs beside the job's tasks, so its nodes cannot be given back before its"
            f" storage (dw_release={UNMOUNTED})"
        )
        if "requires" in directive.arguments:
            raise directive.wrong_key("requires", problem)
        raise directive.wrong_command(problem)


def releases_unmounted(request: StorageRequest, config: Config) -> bool:
    """Whether a job's nodes go to other jobs as soon as they have unmounted its
    storage: the job asks for that, or the site has it for all jobs that can do so."""
    return (request.release or config.release) == UNMOUNTED and not request.container


def _check_maximum(
    directives: Sequence[Directive], type: str, maximum: float, sharers: int
) -> None:
    """Refuse the first directive with which a job exceeds ``maximum`` GiB of a type per
    node. ``sharers`` nodes share each capacity."""
    asked = 0
    for directive in directives:
        before, asked = asked, asked + directive.read_capacity()
        if asked > maximum * GIB * sharers:
            share = f"{directive.capacity / GIB / sharers:.9g} GiB of {type} per node"
            if sharers > 1:
                share += f", on {sharers} nodes"
            if before:
                share += f", {asked / GIB / sharers:.9g} GiB with those before it"
            raise directive.wrong_value(
                "capacity",
                f"asks for {share}; the limit is {maximum:.9g} GiB per node "
                f"(rabbit.policy.maximums.{type})",
            )
    if maximum == 0:
        # They ask for 0 bytes, or name no capacity, and would get storage.
        raise directives[0].wrong_value(
            "type", f"no job gets storage of this type (rabbit.policy.maximums.{type})"
        )


def check_machine(request: StorageRequest, mapping: RabbitMapping) -> None:
    """Refuse a request for more storage than all Rabbits have, or for storage of each
    node that they could not give if no other job ran. No job is refused where the
    mapping lacks the capacity of a Rabbit.

    Raises:
        DirectiveError: names the directive with which the job exceeds it.
        BadObject: the job's ``resources`` are not as RFC 14 says.
    """
    rooms = rooms_of(mapping)
    if not rooms:
        return
    machine = sum(room.units for room in rooms)
    nodes = max(requested_nodes(request.resources), 1)
    chassis = requested_chassis(request.resources) or 0
    asked = on_node = 0
    for directive in request.directives:
        shared = directive.arguments.get("type") in SHARED_TYPES
        before, asked = asked, asked + directive.capacity * (1 if shared else nodes)
        if asked > machine:
            share = f"{(asked - before) / GIB:.9g} GiB"
            if not shared and nodes > 1:
                share += f" on {nodes} nodes"
            if before:
                share += f", {asked / GIB:.9g} GiB with those before it"
            raise directive.wrong_value(
                "capacity",
                f"asks for {share}; all Rabbits together have {machine / GIB:.9g} GiB",
            )
        on_node += 0 if shared else directive.capacity
        problem = on_node and why_never(nodes, on_node, rooms, chassis)
        if problem:
            raise directive.wrong_value("capacity", problem)


def check_nodes(request: StorageRequest) -> None:
    """Refuse a request for storage without whole nodes. It is for instances whose
    scheduler knows Rabbits.

    Raises:
        DirectiveError: names the first directive that makes storage.
        BadObject: the job's ``resources`` are not as RFC 14 says.
    """
    if requested_nodes(request.resources):
        return
    for directive in request.directives:
        if directive.command in CREATING:
            raise directive.wrong_command(NO_NODES)


def check_tolerance(tolerance: Any, resources: Sequence[Any]) -> None:
    """Refuse a failure tolerance that is no number of nodes, or is all nodes of the
    job.

    Args:
        tolerance: ``attributes.system.dw_failure_tolerance`` of the jobspec.

    Raises:
        DirectiveError: names the attribute.
        BadObject: the job's ``resources`` are not as RFC 14 says.
    """
    nodes = requested_nodes(resources)
    most = nodes - 1 if nodes else NODES
    if is_integer(tolerance) and 0 <= tolerance <= most:
        return
    problem = f"expected an integer from 0 to {most}"
    if nodes:
        problem += ", less than the nodes of the job"
    name = "dw_failure_tolerance="
    line = name + show(tolerance)
    raise DirectiveError(line, len(name), len(line), problem)


def check_release(release: Any) -> None:
    """Refuse a ``dw_release`` of the jobspec that is none, with a DirectiveError."""
    _check_choice("dw_release", release, RELEASES)


def check_stage(stage: Any) -> None:
    """Refuse a ``dw_stage`` of the jobspec that is none, with a DirectiveError."""
    _check_choice("dw_stage", stage, STAGES)


def _check_choice(attribute: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        name = f"{attribute}="
        line = name + show(value)
        expected = " or ".join(f'"{each}"' for each in choices)
        raise DirectiveError(line, len(name), len(line), f"expected {expected}")
