# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What can be said of a job's directives when it is submitted.

The rules are those that the module applies in ``dws.create``, less those that
need to know the user; what only DWS knows, it says later.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from flux_k8s.config.policy import check_request
from flux_k8s.config.table import Config
from flux_k8s.dws.directives import is_empty, parse_attribute
from flux_k8s.dws.storagerequest import StorageRequest
from flux_k8s.errors import ConfigError

_ANY_USER = 0


def check_submission(dw: Any, resources: list[Any], table: Any) -> None:
    """Refuse a job that the module would refuse in any case.

    Args:
        dw: ``attributes.system.dw`` of the jobspec.
        resources: ``resources`` of the jobspec.
        table: the ``[rabbit]`` table. When it is wrong nothing is refused: the
            module tells the administrator, and goes on with the table before.

    Raises:
        DirectiveError: naming the directive and what is wrong with it.
        BadObject: ``resources`` are not what RFC 14 says.
    """
    if is_empty(dw):
        return
    try:
        config = Config.parse(table)
    except ConfigError:
        return
    request = StorageRequest(_ANY_USER, parse_attribute(dw, config.presets), resources)
    anybody = dataclasses.replace(config, restrict_persistent_creation=False)
    check_request(request, anybody, _ANY_USER)
