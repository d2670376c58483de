# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The request of a job for storage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Optional

from flux_k8s.formats.directives import Directive
from flux_k8s.objects.workflowdirectives import file_system_types, runs_container

TEARDOWN = "teardown"
UNMOUNTED = "unmounted"
RELEASES = (TEARDOWN, UNMOUNTED)
"""When a job's nodes go to other jobs: when its storage is torn down, or as soon as all
nodes have unmounted it."""

PROLOG = "prolog"
AHEAD = "ahead"
STAGES = (PROLOG, AHEAD)
"""When a job's storage is made and its data copied in: in the prolog, while its nodes
wait, or ahead, before the job has nodes."""

URGENCY_HOLD = 0
URGENCY_DEFAULT = 16

STAGED_COMMANDS = ("jobdw", "copy_in", "copy_out")
"""The commands of directives that need no nodes before PreRun."""


@dataclass(frozen=True)
class StorageRequest:
    """The request of a job for storage, from ``dws.create``.

    Attributes:
        userid: the job's owner.
        directives: the job's directives.
        resources: ``resources`` of the jobspec.
        release: ``attributes.system.dw_release`` of the jobspec, one of
            :data:`RELEASES`; None for what the site has.
        stage: ``attributes.system.dw_stage``, one of :data:`STAGES`; None likewise.
        constraints: those of the jobspec (RFC 31), or None.
        urgency: of the job; :data:`URGENCY_HOLD` holds it.
        depends: another dependency than that on its storage holds the job.
    """

    userid: int
    directives: tuple[Directive, ...]
    resources: list[Any]
    release: Optional[str] = None
    stage: Optional[str] = None
    constraints: Any = None
    urgency: int = URGENCY_DEFAULT
    depends: bool = False

    @property
    def held(self) -> bool:
        """Whether the job could not run if it had nodes."""
        return self.depends or self.urgency == URGENCY_HOLD

    @property
    def container(self) -> Optional[Directive]:
        """A directive of which something runs beside the job's tasks until its nodes
        are given back; None if there is none."""
        running = (d for d in self.directives if runs_container(d.command, d.arguments))
        return next(running, None)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of the file systems that the job makes. A query looks at them for
        each job, and a job may have many directives."""
        return file_system_types((d.command, d.arguments) for d in self.directives)
