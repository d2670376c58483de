# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The check of a job's request for storage at its submission.

The rules are those that the module applies in ``dws.create``, those of DWS for each
directive, and that the machine has as much storage as the job asks for.
"""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from itertools import islice
from typing import Any, Iterable, Optional

from flux_k8s.config.policy import (
    check_machine,
    check_nodes,
    check_release,
    check_request,
    check_stage,
    check_tolerance,
)
from flux_k8s.config.stagepolicy import check_fits_ahead
from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError, DirectiveError
from flux_k8s.formats.directives import check_submitted_size, is_empty, parse_attribute
from flux_k8s.json_reader import check_extent
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.storagerequest import AHEAD, StorageRequest
from flux_k8s.rules.directiverules import NO_RULES, RuleSet

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
    check_submitted_size(dw, config.directives_limit)
    directives = parse_attribute(dw, config.presets)
    site.rules.check(directives)
    check_extent("jobspec", "resources", resources)
    if userid is None:
        userid = site.owner
    release = system.get("dw_release")
    if release is not None:
        check_release(release)
    stage = system.get("dw_stage")
    if stage is not None:
        check_stage(stage)
    request = StorageRequest(userid, directives, resources, release, stage)
    check_request(request, config, site.owner)
    if site.scheduler:
        check_nodes(request)
    if "dw_failure_tolerance" in system:
        check_tolerance(system["dw_failure_tolerance"], resources)
    if site.mapping is not None:
        check_machine(request, site.mapping)
        if stage == AHEAD:
            check_fits_ahead(request, config, site.mapping)


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
