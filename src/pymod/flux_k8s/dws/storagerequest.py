# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The request of a job for storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flux_k8s.dws.directives import Directive


@dataclass(frozen=True)
class StorageRequest:
    """The request of a job for storage, from ``dws.create``.

    Attributes:
        userid: the job's owner.
        directives: the job's directives.
        resources: ``resources`` of the jobspec.
    """

    userid: int
    directives: tuple[Directive, ...]
    resources: list[Any]
