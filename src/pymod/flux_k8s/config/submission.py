# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The check of a job's directives at its submission.

The rules are those that the module applies in ``dws.create``, except for the rules that
depend on the user. DWS applies its own rules later.
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
    """Refuse a job that the module would refuse for any user.

    Args:
        dw: ``attributes.system.dw`` of the jobspec.
        resources: ``resources`` of the jobspec.
        table: the ``[rabbit]`` table. A wrong table refuses no job: the module logs
            the error, and keeps the table that it had before.

    Raises:
        DirectiveError: a directive is invalid or forbidden.
        BadObject: ``resources`` are not as RFC 14 says.
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
