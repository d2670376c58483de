# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Keeps persistent storage from a second mount.

DWS mounts the file systems of persistent storage for each job that uses it, and again
on the Rabbits to copy from and to it. With ``rabbit.unmount_failure = "keep"``, a node
may still have one of them mounted that another job has left. A file system that one
node at a time may mount would be mounted twice then.
"""

from __future__ import annotations

from flux_k8s.dws.directivebreakdown import Reference, is_networked
from flux_k8s.dws.workflowstate import State
from flux_k8s.errors import StorageUnavailable
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.rabbits.freestorage import FreeStorage
from flux_k8s.reasons import Reason

MOUNTING = (State.DataIn, State.PreRun, State.DataOut)
"""The states in which DWS mounts storage."""


class SharedStorage:
    """The persistent storage of all jobs.

    Args:
        jobs: all jobs, and the Workflows that belong to none of them: a service that
            was just started knows late of a job that has ended.
        namespace: where DWS has it.
    """

    def __init__(
        self,
        jobs: JobTable,
        free_storage: FreeStorage,
        namespace: str,
    ) -> None:
        self._free_storage = free_storage
        self._namespace = namespace
        self._jobs = jobs

    def check(self, info: WorkflowInfo) -> None:
        """Refuse to mount the storage of a job for now, if a node may still write to
        some of it that is mounted there for another job.

        Raises:
            StorageUnavailable: names the storage, the nodes and the other job, or not
                all Workflows have been seen.
        """
        view = info.view
        if view is None or not view.persistent_storage:
            return
        unclaimed = self._jobs.unclaimed_views()
        if unclaimed is None:
            raise StorageUnavailable("Workflows are not listed yet", Reason.NOT_READY)
        # As long as DWS waits, a node that could not write may come back.
        others = [
            other.view
            for other in self._jobs.infos()
            if other.view is not None
            and other is not info
            and not (other.view.complete and other.writers == ())
        ]
        for held in [*others, *unclaimed]:
            if not held.awaits_unmount:
                continue
            for name in view.persistent_storage:
                if name in held.persistent_storage and self._is_exclusive(name):
                    raise StorageUnavailable(
                        f"{held.kept_for} has not unmounted the persistent storage"
                        f" {name} of job {held.jobid}",
                        Reason.STORAGE_IN_USE,
                    )

    def _is_exclusive(self, name: str) -> bool:
        """Whether one node at a time may mount a file system of persistent storage, or
        that is not known: any number may mount one that they reach over the network."""
        servers = Reference(self._namespace, name)
        return not is_networked(len(self._free_storage.labels_of(servers)))
