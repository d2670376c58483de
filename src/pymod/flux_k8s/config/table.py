# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``[rabbit]`` table of Flux's configuration.

:meth:`Config.parse` refuses unknown keys: the administrator hears of a misspelt key
before users notice its effect.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, Optional

from flux_k8s.config import values
from flux_k8s.config.values import FILE_SYSTEMS, Daemon
from flux_k8s.errors import show
from flux_k8s.objects.storagerequest import PROLOG, RELEASES, STAGES, TEARDOWN

__all__ = ["FILE_SYSTEMS", "KEEP", "UNMOUNT_FAILURES", "Config", "Daemon", "misspelt"]

KEEP = "keep"
UNMOUNT_FAILURES = (TEARDOWN, KEEP)
"""What becomes of storage that a node does not unmount in time: DWS deletes it, or it
is kept until that node cannot write to it any more."""

READ_ONCE = ("mapping", "kubeconfig", "instance", "dws_api_version", "nnf_api_version")
"""Keys that are read when a service starts: when the module is loaded, and after a
service has died. A reload of the configuration alone does not put new values in
force."""


def _key(
    default: Any, read: Callable[[str, Any], Any], name: Optional[str] = None
) -> Any:
    """A key of the table.

    Args:
        read: reads the value, or raises a ConfigError.
        name: of the key, where it is not that of the field.
    """
    metadata = {"read": read, "name": name}
    return dataclasses.field(default_factory=lambda: default, metadata=metadata)


@dataclass(frozen=True)
class Config:
    """The values of the table. Times are in seconds; None means off."""

    mapping: Optional[str] = _key(None, values.string)
    kubeconfig: Optional[str] = _key(None, values.string)
    instance: Optional[str] = _key(None, values.label)
    """The name of the instance, in a label of its Workflows."""
    tc_timeout: float = _key(10.0, values.tolerated)
    setup_timeout: Optional[float] = _key(None, values.limit)
    prerun_timeout: Optional[float] = _key(None, values.limit)
    postrun_timeout: Optional[float] = _key(None, values.limit)
    teardown_after: Optional[float] = _key(None, values.limit)
    """The longest time for PostRun and DataOut together."""
    stall_timeout: Optional[float] = _key(None, values.limit)
    """The longest time for which no data of a copy_in or copy_out may move."""
    keep_failed: Optional[float] = _key(None, values.kept)
    """How long the storage of a job is kept whose data could not be copied out."""
    keep_failed_limit: float = _key(10.0, values.per_cent)
    """Per cent of the storage of all Rabbits that the jobs of one user may have kept
    so."""
    prolog_timeout: Optional[float] = _key(1800.0, values.limit)
    """That of the site's prolog script. A job with nodes waits for storage for half of
    it."""
    drain_compute_nodes: bool = _key(True, values.boolean)
    soft_drain: bool = _key(True, values.boolean)
    save_datamovements: int = _key(0, values.count)
    restrict_persistent_creation: bool = _key(True, values.boolean)
    release: str = _key(TEARDOWN, partial(values.choice, choices=RELEASES))
    """One of :data:`RELEASES`, for jobs that do not say."""
    unmount_failure: str = _key(
        TEARDOWN, partial(values.choice, choices=UNMOUNT_FAILURES)
    )
    """One of :data:`UNMOUNT_FAILURES`."""
    fence_command: tuple[str, ...] = _key((), values.program)
    """A program, and arguments, that says which nodes cannot write any more."""
    stage: str = _key(PROLOG, partial(values.choice, choices=STAGES))
    """One of :data:`STAGES`, for jobs that do not say."""
    stage_limit: float = _key(50.0, values.per_cent)
    """Per cent of the storage of all Rabbits that jobs without nodes may have."""
    stage_user_limit: float = _key(25.0, values.per_cent)
    """The same for the jobs of one user."""
    stage_timeout: Optional[float] = _key(86400.0, values.limit)
    """The longest time for which data that was copied in waits for nodes."""
    user_workflows: int = _key(10, values.count)
    """The most Workflows of one user that DWS has to plan, or to tear down, without
    storage that was made; 0 for no limit."""
    directives_limit: int = _key(8192, values.directives_limit)
    """The most bytes of the directives of a job, as it is submitted."""
    user_directives_limit: int = _key(2**20, values.count)
    """The most bytes of the directives of all active jobs of one user; 0 for no
    limit."""
    maximums: Mapping[str, float] = _key(
        MappingProxyType({}), values.maximums, "policy"
    )
    """By file system type, the GiB per node that a job may request."""
    presets: Mapping[str, tuple[str, ...]] = _key(MappingProxyType({}), values.presets)
    dws_api_version: Optional[str] = _key(None, values.version)
    nnf_api_version: Optional[str] = _key(None, values.version)
    module_nopanic: Optional[bool] = _key(None, values.boolean)
    """Accepted, and without effect."""
    daemons: Mapping[str, Daemon] = _key(MappingProxyType({}), values.daemons)

    @property
    def keeps_mounted(self) -> bool:
        """Whether storage is kept that a node has mounted."""
        return self.unmount_failure == KEEP

    @classmethod
    def parse(cls, table: Any) -> Config:
        """Read and check a ``[rabbit]`` table; None for a configuration without one.

        Raises:
            ConfigError: a key is unknown, or its value is invalid.
        """
        given = values.table("rabbit", {} if table is None else table)
        known = {f.metadata["name"] or f.name: f for f in dataclasses.fields(cls)}
        values.refuse_unknown("rabbit", given, known)
        return cls(
            **{
                known[key].name: known[key].metadata["read"](
                    f"rabbit.{key}", given[key]
                )
                for key in given
            }
        )

    def not_in_force(self, loaded: Config) -> list[str]:
        """The keys whose new values are not in force until the module is loaded again.

        Args:
            loaded: the values with which the module was loaded.
        """
        return [
            f"rabbit.{key}"
            for key in READ_ONCE
            if getattr(self, key) != getattr(loaded, key)
        ]


def misspelt(tables: Iterable[str]) -> str:
    """A hint at the table of Flux's configuration whose name is nearly ``rabbit``;
    empty if there is none."""
    others = [name for name in tables if name != "rabbit"]
    found = get_close_matches("rabbit", others, n=1, cutoff=0.8)
    return f"; there is one named {show(found[0])}: did you mean that?" if found else ""
