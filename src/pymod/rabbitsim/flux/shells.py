# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job shells: each runs the shipped shell plugin before tasks start."""

from __future__ import annotations

import errno
from typing import Any, Callable, Iterable, Mapping

from flux_k8s.ports import Json
from rabbitsim.flux.events import Event
from rabbitsim.flux.execution import Launch
from rabbitsim.flux.tasks import shell_options, task_count
from rabbitsim.shellplugin import ShellPluginError, run_shell_init


class Shell:
    """One shell of a job (:class:`rabbitsim.shellplugin.ShellHost`).

    Attributes:
        variables: what the plugin set in the environment of the tasks.
    """

    def __init__(
        self,
        launch: Launch,
        rank: int,
        events: Iterable[Event],
        kvs: Mapping[str, str],
        log: Callable[[int, str], None],
    ) -> None:
        """
        Args:
            rank: of the shell: the node's index in the job.
            events: the job's eventlog so far; ``start`` is in it.
            kvs: the job's KVS directory.
        """
        self._launch = launch
        self._rank = rank
        self._events = events
        self._kvs = kvs
        self._log = log
        self.variables: dict[str, str] = {}

    @property
    def jobspec(self) -> Mapping[str, Any]:
        return self._launch.jobspec

    @property
    def info(self) -> Mapping[str, Any]:
        info: Json = {
            "jobid": self._launch.jobid,
            "rank": self._rank,
            "ntasks": task_count(self._launch.jobspec, len(self._launch.hosts)),
            "service": f"shell-{self._launch.jobid}",
            "options": shell_options(self._launch.jobspec),
            "jobspec": self._launch.jobspec,
            "R": self._launch.R,
        }
        return info

    def eventlog(self, jobid: int) -> Iterable[Mapping[str, Any]]:
        return self.posted(jobid)

    def posted(self, jobid: int) -> list[Mapping[str, Any]]:
        return [event.as_json() for event in self._events]

    def kvs_lookup(self, jobid: int, key: str, leader: bool = False) -> str:
        if key not in self._kvs:
            raise OSError(errno.ENOENT, f"{key}: key not found")
        return self._kvs[key]

    def setenv(self, name: str, value: str) -> None:
        self.variables[name] = value

    def log(self, level: int, message: str) -> None:
        self._log(level, message)


def initialize_shell(
    launch: Launch,
    rank: int,
    events: Iterable[Event],
    kvs: Mapping[str, str],
    log: Callable[[int, str], None],
) -> Mapping[str, str]:
    """Run the shell plugin in one shell; the variables that it set.

    Raises:
        OSError: it does not let the job run.
    """
    shell = Shell(launch, rank, events, kvs, log)
    try:
        run_shell_init(shell)
    except ShellPluginError as error:
        host = launch.hosts[rank]
        raise OSError(f"shell rank {rank} (on {host}): {error}") from None
    return shell.variables
