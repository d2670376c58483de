# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The storage that a job asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flux_k8s.dws.directives import Directive


@dataclass(frozen=True)
class StorageRequest:
    """The directives and resources of a job, from ``dws.create``."""

    userid: int
    directives: tuple[Directive, ...]
    resources: list[Any]
