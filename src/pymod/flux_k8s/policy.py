# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the administrator lets users ask for."""

from __future__ import annotations

from flux_k8s.config import Config
from flux_k8s.errors import DirectiveError
from flux_k8s.workflow import StorageRequest


def check_request(request: StorageRequest, config: Config, owner: int) -> None:
    """Refuse what the configuration forbids.

    Args:
        request: what the job asks for.
        config: with ``restrict_persistent_creation``.
        owner: the user ID of the instance's owner, who may do everything.

    Raises:
        DirectiveError: naming the directive and the rule.
    """
    if request.userid == owner:
        return
    for directive in request.directives:
        if (
            config.restrict_persistent_creation
            and directive.command == "create_persistent"
        ):
            raise DirectiveError(
                directive.text,
                "only the instance owner may create persistent storage here "
                "(rabbit.restrict_persistent_creation)",
            )
