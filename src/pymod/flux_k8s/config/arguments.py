# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The arguments of the broker module, and settings derived from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable, Optional

from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError, show
from flux_k8s.ports import DWS_GROUP, NNF_GROUP

FLUXION = "sched-fluxion-resource"
"""The module of Fluxion that gives out resources."""

NOT_WITH_FLUXION = (
    "scheduler=none: Fluxion is loaded, and would deny most jobs with #DW directives:"
    " expected no such argument, and a graph from flux dws2jgf"
)
"""Why the module refuses this argument, or why jobs wait if Fluxion comes later."""

DEFAULT_WATCHDOG = 120.0
"""Seconds. A service that works answers within a few seconds."""

MAX_WATCHDOG = 86400.0
"""Seconds."""


@dataclass(frozen=True)
class Arguments:
    """The module's arguments.

    Attributes:
        scheduler: whether the instance has a scheduler that knows Rabbits.
        queues: names of queues: only their nodes are drained or marked when a
            connection to a Rabbit breaks. Empty for all nodes.
        watchdog: seconds after which a service that does not answer is killed and
            started again; 0 for never.
    """

    scheduler: bool = True
    queues: tuple[str, ...] = ()
    watchdog: float = DEFAULT_WATCHDOG

    @classmethod
    def parse(cls, args: Iterable[str]) -> Arguments:
        """Read the arguments of ``flux module load``.

        Raises:
            ConfigError: an argument is unknown, or its value is invalid.
        """
        result = cls()
        for arg in args:
            key, _, value = arg.partition("=")
            if key == "scheduler":
                if value != "none":
                    expected = "expected scheduler=none, or no such argument"
                    raise ConfigError(arg, expected)
                result = replace(result, scheduler=False)
            elif key == "queues":
                names = tuple(name for name in value.split(",") if name)
                if not names:
                    raise ConfigError(arg, "expected queues=NAME,...")
                result = replace(result, queues=names)
            elif key == "watchdog":
                result = replace(result, watchdog=_seconds(arg, value))
            else:
                known = "known: scheduler=none, queues=NAME,..., watchdog=SECONDS"
                raise ConfigError(arg, f"unknown module argument, {known}")
        return result


def _seconds(arg: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not (0 <= seconds <= MAX_WATCHDOG):
        raise ConfigError(arg, "expected watchdog=SECONDS, 0 for none")
    return seconds


def queue_properties(
    queues: Any, names: Iterable[str]
) -> Optional[tuple[frozenset[str], ...]]:
    """The properties that each of the queues ``names`` requires of its nodes. None, for
    all nodes, when a queue requires none, and without ``names``.

    Args:
        queues: the ``[queues]`` table of Flux's configuration.

    Raises:
        ConfigError: a queue does not exist, or its ``requires`` is no array.
    """
    required: list[frozenset[str]] = []
    table = queues if isinstance(queues, dict) else {}
    for name in names:
        if not isinstance(table.get(name), dict):
            known = ", ".join(sorted(table)) or "none is configured"
            raise ConfigError(f"queues={name}", f"no such queue, known: {known}")
        requires = table[name].get("requires", [])
        if not isinstance(requires, list):
            key = f"queues.{name}.requires"
            raise ConfigError(key, f"is {show(requires)}, expected an array")
        required.append(frozenset(str(item) for item in requires))
    return tuple(required) if required and all(required) else None


def graph_file(resource: Any) -> str:
    """The file of the scheduler's resource graph; empty if none is configured.

    Args:
        resource: the ``[resource]`` table of Flux's configuration.
    """
    table = resource if isinstance(resource, dict) else {}
    return str(table.get("scheduling") or table.get("path") or "")


def api_versions(config: Config) -> dict[str, str]:
    """The API versions that the configuration sets, by API group."""
    forced = {DWS_GROUP: config.dws_api_version, NNF_GROUP: config.nnf_api_version}
    return {group: version for group, version in forced.items() if version}
