# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules for storage that is made before the job has nodes."""

from __future__ import annotations

from typing import Optional

from flux_k8s.config.table import Config
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import GIB, Directive
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.storagerequest import AHEAD, STAGED_COMMANDS, StorageRequest
from flux_k8s.rules.directivebreakdown import requested_chassis, requested_nodes
from flux_k8s.rules.room import capacity_per_node, least_allocation
from flux_k8s.rules.stagechoice import choose_nodes

STAGED = f"dw_stage={AHEAD}"


def stages_ahead(request: StorageRequest, config: Config, scheduler: bool) -> bool:
    """Whether a job's storage is made before the job has nodes: the job asks for that,
    or the site has it for all jobs that can do so."""
    if not scheduler or (request.stage or config.stage) != AHEAD:
        return False
    try:
        check_stages_ahead(request)
    except DirectiveError:
        return False
    return True


def check_stages_ahead(request: StorageRequest) -> None:
    """Refuse a request whose storage cannot be made before the job has nodes.

    Raises:
        DirectiveError: names the directive, or the attribute, and the reason.
        BadObject: the job's ``resources`` are not as RFC 14 says.
    """
    _refuse_container(request.container)
    for directive in request.directives:
        if directive.command not in STAGED_COMMANDS:
            raise directive.wrong_command(
                f"is not for storage that is made before the job has nodes ({STAGED})"
            )
    problem = ""
    if not any(d.command == "copy_in" for d in request.directives):
        problem = "there is no copy_in, so the job gains nothing from it"
    elif requested_chassis(request.resources) is None:
        problem = "it needs a fixed number of whole nodes (-N)"
    if problem:
        raise _refusal(problem)


def _refuse_container(directive: Optional[Directive]) -> None:
    if directive is not None:
        problem = f"needs nodes when its storage is made ({STAGED})"
        if "requires" in directive.arguments:
            raise directive.wrong_key("requires", problem)
        raise directive.wrong_command(problem)


def _refusal(problem: str) -> DirectiveError:
    return DirectiveError(STAGED, 0, len(STAGED), problem)


def check_fits_ahead(
    request: StorageRequest, config: Config, mapping: RabbitMapping
) -> None:
    """Refuse a request that :func:`check_stages_ahead` accepts, and that no Rabbits
    fit. No job is refused where the mapping lacks the capacity of a Rabbit.

    Each node gets whole GiB.

    Raises:
        DirectiveError: has the reason.
        BadObject: the job's ``resources`` are not as RFC 14 says.
    """
    sizes = {rabbit: mapping.capacity(rabbit) for rabbit in mapping.rabbits}
    if not sizes or not all(sizes.values()):
        return
    nodes = requested_nodes(request.resources)
    least = least_allocation(capacity_per_node(request.directives, nodes))
    share = -(-least // GIB) * GIB
    check_limits(share * nodes, sum(sizes.values()), config)
    below = {rabbit: mapping.hosts_of(rabbit) for rabbit in sizes}
    chassis = requested_chassis(request.resources) or 0
    if choose_nodes(nodes, share, below, sizes, {}, chassis) is None:
        raise no_rabbits(nodes, share)


def check_limits(size: int, machine: int, config: Config) -> None:
    """Refuse so many bytes, of those of all Rabbits, if no job may have them ahead.

    Raises:
        DirectiveError: names the limit.
    """
    limits = {
        "stage_limit": config.stage_limit,
        "stage_user_limit": config.stage_user_limit,
    }
    key = min(limits, key=limits.__getitem__)
    most = int(machine * limits[key] / 100)
    if size > most:
        raise _refusal(
            f"it needs {-(-size // GIB)} GiB; jobs without nodes may have"
            f" {most // GIB} GiB (rabbit.{key})"
        )


def no_rabbits(nodes: int, share: int) -> DirectiveError:
    """The refusal of a request of which each node needs so many bytes."""
    return _refusal(
        f"no Rabbits have room for {nodes} nodes of {-(-share // GIB)} GiB each that"
        " may get this job"
    )
