# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which requests for storage a site accepts.

``rabbit.policy.maximums`` limits the storage that a job requests on each of its nodes,
in GiB, for each file system type by itself:

- A ``capacity`` is that of one allocation on each node, or the nodes share it. The
  allocation strategies of the job's DirectiveBreakdowns say which of the two. So a job
  is refused at its submission if it is over the limit although its nodes share all of
  it, and else in Proposal. The least number of nodes that the job accepts counts.
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

from typing import Iterable, Sequence

from flux_k8s.config.table import Config
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import GIB, Directive, parse
from flux_k8s.objects.storagerequest import (
    AHEAD,
    STAGED_COMMANDS,
    UNMOUNTED,
    StorageRequest,
)
from flux_k8s.rules.directivebreakdown.breakdown import Breakdown
from flux_k8s.rules.directivebreakdown.resources import (
    requested_chassis,
    requested_nodes,
)

STAGED = f"dw_stage={AHEAD}"


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
        problem = (
            "runs beside the job's tasks, so its nodes cannot be given back before its"
            f" storage (dw_release={UNMOUNTED})"
        )
        _refuse_container(request, problem)
    if request.stage == AHEAD:
        check_stages_ahead(request)
    if config.maximums:
        nodes = requested_nodes(request.resources)
        _check_maximums([(each, 1) for each in request.directives], nodes, config)


def check_maximums(breakdowns: Iterable[Breakdown], nodes: int, config: Config) -> None:
    """Refuse a job of so many nodes whose storage, as DWS makes it, is more than the
    configuration allows.

    Raises:
        DirectiveError: a directive is forbidden; the error names the limit.
    """
    if not config.maximums:
        return
    asked = []
    for breakdown in breakdowns:
        sets = breakdown.allocation_sets
        if sets:
            each = all(entry.strategy.each for entry in sets)
            asked.append((parse(breakdown.directive), max(nodes, 1) if each else 1))
    _check_maximums(asked, nodes, config)


def _check_maximums(
    asked: Sequence[tuple[Directive, int]], nodes: int, config: Config
) -> None:
    """Check directives, each with the number of times for which its capacity counts."""
    for type, maximum in config.maximums.items():
        of_type = [pair for pair in asked if pair[0].arguments.get("type") == type]
        if of_type:
            _check_maximum(of_type, max(nodes, 1), type, maximum)


def _check_maximum(
    asked: Sequence[tuple[Directive, int]], nodes: int, type: str, maximum: float
) -> None:
    """Refuse the first directive with which a job exceeds ``maximum`` GiB of a type per
    node."""
    total = 0
    for directive, times in asked:
        before, total = total, total + directive.read_capacity() * times
        if total > maximum * GIB * nodes:
            share = f"{(total - before) / GIB / nodes:.9g} GiB of {type} per node"
            if times < nodes:
                share += f", on {nodes} nodes"
            if before:
                share += f", {total / GIB / nodes:.9g} GiB with those before it"
            raise directive.wrong_value(
                "capacity",
                f"asks for {share}; the limit is {maximum:.9g} GiB per node "
                f"(rabbit.policy.maximums.{type})",
            )
    if maximum == 0:
        # They ask for 0 bytes, or name no capacity, and would get storage.
        raise asked[0][0].wrong_value(
            "type", f"no job gets storage of this type (rabbit.policy.maximums.{type})"
        )


def _refuse_creation(directives: Sequence[Directive]) -> None:
    for directive in directives:
        if directive.command == "create_persistent":
            raise directive.wrong_command(
                "only the instance owner may create persistent storage here "
                "(rabbit.restrict_persistent_creation)"
            )


def _refuse_container(request: StorageRequest, problem: str) -> None:
    directive = request.container
    if directive is None:
        return
    if "requires" in directive.arguments:
        raise directive.wrong_key("requires", problem)
    raise directive.wrong_command(problem)


def releases_unmounted(request: StorageRequest, config: Config) -> bool:
    """Whether a job's nodes go to other jobs as soon as they have unmounted its
    storage: the job asks for that, or the site has it for all jobs that can do so."""
    return (request.release or config.release) == UNMOUNTED and not request.container


# Storage that is made before the job has nodes


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
    _refuse_container(request, f"needs nodes when its storage is made ({STAGED})")
    for directive in request.directives:
        if directive.command not in STAGED_COMMANDS:
            raise directive.wrong_command(
                f"is not for storage that is made before the job has nodes ({STAGED})"
            )
    if not any(d.command == "copy_in" for d in request.directives):
        raise _not_ahead("there is no copy_in, so the job gains nothing from it")
    if requested_chassis(request.resources) is None:
        raise _not_ahead("it needs a fixed number of whole nodes (-N)")


def check_stage_limits(size: int, machine: int, config: Config) -> None:
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
        raise _not_ahead(
            f"it needs {-(-size // GIB)} GiB; jobs without nodes may have"
            f" {most // GIB} GiB (rabbit.{key})"
        )


def no_rabbits(nodes: int, share: int) -> DirectiveError:
    """The refusal of a request of which each node needs so many bytes."""
    return _not_ahead(
        f"no Rabbits have room for {nodes} nodes of {-(-share // GIB)} GiB each that"
        " may get this job"
    )


def _not_ahead(problem: str) -> DirectiveError:
    return DirectiveError(STAGED, 0, len(STAGED), problem)
