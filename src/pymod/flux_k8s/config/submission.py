# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The check of a job's request for storage at its submission.

The rules are those that the module applies in ``dws.create``, those of DWS for each
directive, and that the machine has as much storage as the job asks for. Only DWS knows
whether nodes share a capacity: a job is refused here for what it asks for even if its
nodes share all of it, and in Proposal for the rest.
"""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from itertools import islice
from typing import Any, Iterable, Optional, Sequence

from flux_k8s.config.policy import check_request, check_stage_limits
from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError, DirectiveError, show
from flux_k8s.formats.directives import GIB, is_empty, parse_attribute
from flux_k8s.json_reader import check_extent, is_integer
from flux_k8s.limits import NODES
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.storagerequest import AHEAD, RELEASES, STAGES, StorageRequest
from flux_k8s.objects.workflowdirectives import CREATING
from flux_k8s.rules.directivebreakdown.resources import (
    NO_NODES,
    requested_chassis,
    requested_nodes,
)
from flux_k8s.rules.directiverules import NO_RULES, RuleSet
from flux_k8s.rules.room import empty_rabbits, least_allocation, why_never

_ANY_USER = 0

ATTRIBUTES = ("dw", "dw_failure_tolerance", "dw_release", "dw_stage")
"""The attributes of a job that are about its storage."""

_SIMILAR = 0.7
"""How similar to one of them, from 0 to 1, the name is that a user has misspelt."""

_GUESSES = 64
_LENGTH = 64
"""Unknown attributes that are compared with them, and characters of one of these. A
guest may have a hundred thousand, and others' jobs wait meanwhile."""


@dataclasses.dataclass(frozen=True)
class Site:
    """The facts of a site that a job is checked against.

    Attributes:
        table: the ``[rabbit]`` table. A wrong table refuses no job: the module logs
            the error, and keeps the table that it had before.
        rules: the rules for each directive.
        mapping: the Rabbits of the machine; None if they are not known.
        owner: the user ID of the instance's owner.
        scheduler: whether the scheduler knows Rabbits, so that the module adds storage
            to the resources of jobs; False if that is not known.
    """

    table: Any
    rules: RuleSet = NO_RULES
    mapping: Optional[RabbitMapping] = None
    owner: int = _ANY_USER
    scheduler: bool = False


def check_submission(
    system: Any, resources: list[Any], site: Site, userid: Optional[int] = None
) -> None:
    """Refuse a job that the module or DWS would refuse.

    Args:
        system: ``attributes.system`` of the jobspec.
        resources: ``resources`` of the jobspec.
        userid: the job's owner. None if that is not known: rules that depend on the
            user refuse no job then.

    Raises:
        DirectiveError: a directive is invalid or forbidden.
        BadObject: ``resources`` are not as RFC 14 says, or too large.
    """
    _check_names(system)
    dw = system.get("dw")
    if dw is None or is_empty(dw):
        return
    try:
        config = Config.parse(site.table)
    except ConfigError:
        return
    directives = parse_attribute(dw, config.presets, most=config.directives_limit)
    site.rules.check(directives)
    check_extent("jobspec", "resources", resources)
    if userid is None:
        userid = site.owner
    release = _choice(system, "dw_release", RELEASES)
    stage = _choice(system, "dw_stage", STAGES)
    request = StorageRequest(userid, directives, resources, release, stage)
    check_request(request, config, site.owner)
    nodes = requested_nodes(resources)
    if site.scheduler and not nodes:
        for directive in directives:
            if directive.command in CREATING:
                raise directive.wrong_command(NO_NODES)
    if "dw_failure_tolerance" in system:
        _check_tolerance(system["dw_failure_tolerance"], nodes)
    if site.mapping is not None:
        _check_machine(request, config, site.mapping, site.scheduler)


def _choice(system: Any, attribute: str, choices: Sequence[str]) -> Optional[str]:
    """The value of an attribute that a job may have."""
    value = system.get(attribute)
    if value is None:
        return None
    if value not in choices:
        expected = " or ".join(f'"{each}"' for each in choices)
        raise _wrong_attribute(attribute, value, f"expected {expected}")
    return str(value)


def _check_tolerance(tolerance: Any, nodes: int) -> None:
    """Refuse a failure tolerance that is no number of nodes, or is all nodes of the
    job."""
    most = nodes - 1 if nodes else NODES
    if not (is_integer(tolerance) and 0 <= tolerance <= most):
        problem = f"expected an integer from 0 to {most}"
        if nodes:
            problem += ", less than the nodes of the job"
        raise _wrong_attribute("dw_failure_tolerance", tolerance, problem)


def _wrong_attribute(name: str, value: Any, problem: str) -> DirectiveError:
    line = f"{name}={show(value)}"
    return DirectiveError(line, len(name) + 1, len(line), problem)


def _check_machine(
    request: StorageRequest, config: Config, mapping: RabbitMapping, scheduler: bool
) -> None:
    """Refuse a request that the Rabbits could not serve if no other job ran. No job is
    refused where the mapping lacks the capacity of a Rabbit.

    Args:
        scheduler: a scheduler gives each node its share of all storage on its own
            Rabbit.

    Raises:
        DirectiveError: names the directive with which the job exceeds what is there.
    """
    rabbits = empty_rabbits(mapping)
    if not rabbits:
        return
    machine = sum(rabbit.units for rabbit in rabbits)
    nodes = max(requested_nodes(request.resources), 1)
    chassis = requested_chassis(request.resources) or 0
    asked = share = 0
    for directive in request.directives:
        before, asked = asked, asked + directive.capacity
        share += -(-directive.capacity // nodes)
        problem = ""
        if asked > machine:
            more = f", {asked / GIB:.9g} GiB with those before it" if before else ""
            problem = (
                f"asks for {directive.capacity / GIB:.9g} GiB{more}; all Rabbits"
                f" together have {machine / GIB:.9g} GiB"
            )
        elif scheduler and directive.capacity:
            problem = why_never(nodes, share, rabbits, chassis)
        if problem:
            raise directive.wrong_value("capacity", problem)
    if request.stage == AHEAD:
        share = -(-least_allocation(share) // GIB) * GIB
        check_stage_limits(share * nodes, machine, config)


def _check_names(attributes: Iterable[str]) -> None:
    """Refuse an attribute that is misspelt, and would have no effect. Others that begin
    with ``dw`` may be a site's own."""
    unknown = (
        name
        for name in attributes
        if name.startswith("dw") and name not in ATTRIBUTES and len(name) <= _LENGTH
    )
    for name in islice(unknown, _GUESSES):
        for meant in get_close_matches(name, ATTRIBUTES, 1, _SIMILAR):
            raise DirectiveError(name, 0, len(name), "unknown attribute", meant)
