# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The request of a job for storage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flux_k8s.dws.directives import Directive
from flux_k8s.dws.workflowdirectives import file_system_types


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

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of the file systems that the job makes. A query looks at them for
        each job, and a job may have many directives."""
        return file_system_types((d.command, d.arguments) for d in self.directives)
