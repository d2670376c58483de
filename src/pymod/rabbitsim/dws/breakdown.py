# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The status of the DirectiveBreakdown that NNF makes of a directive.

Storage profiles are data (``profiles.yaml``); the fields are those of a
DirectiveBreakdown, the values those of the recorded breakdowns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.ports import Json
from rabbitsim.dws.directive import Directive, capacity, read_data

STRATEGIES = (
    "AllocatePerCompute",
    "AllocateAcrossServers",
    "AllocateSingleServer",
    "AllocatePerServer",
)


class UserError(Exception):
    """The driver cannot carry out a directive, and the user is to blame.

    Attributes:
        message: for the user.
        debug: for the administrator; by default the same.
        type: "User", "WLM" or "Internal": whose error it is.
    """

    def __init__(self, message: str, debug: str = "", type: str = "User") -> None:
        super().__init__(message)
        self.message = message
        self.debug = debug or message
        self.type = type


class UnknownProfile(UserError):
    """A directive names a storage profile that there is not."""


@dataclass(frozen=True)
class SetProfile:
    """One allocation set of a profile. Sizes in bytes; ``capacity`` None means
    the capacity in the directive."""

    label: str
    strategy: str
    capacity: Optional[int]
    padding: int
    scale: Optional[int]
    count: Optional[int]
    colocation: Optional[str]
    access: tuple[tuple[str, str], ...]

    def minimum_capacity(self, asked: Optional[int]) -> int:
        size = self.capacity if self.capacity is not None else asked
        if size is None:
            raise UserError(f"a capacity is needed for the '{self.label}' allocation")
        return size + self.padding

    def breakdown(self, labels: Sequence[str], asked: Optional[int]) -> Json:
        constraints: Json = {"labels": list(labels)}
        if self.scale is not None:
            constraints["scale"] = self.scale
        if self.count is not None:
            constraints["count"] = self.count
        if self.colocation is not None:
            constraints["colocation"] = [{"key": self.colocation, "type": "exclusive"}]
        return {
            "allocationStrategy": self.strategy,
            "constraints": constraints,
            "label": self.label,
            "minimumCapacity": self.minimum_capacity(asked),
        }


class Profiles:
    """Storage profiles by name, and the labels that Rabbits must carry."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.default_name: str = data["default"]
        self.labels: tuple[str, ...] = tuple(data.get("labels", ()))
        self._profiles = {
            name: {type: _sets(name, type, sets) for type, sets in types.items()}
            for name, types in data["profiles"].items()
        }

    @classmethod
    def default(cls) -> Profiles:
        """The profiles of ``profiles.yaml`` beside this file."""
        return cls(read_data("profiles.yaml"))

    def sets(self, directive: Directive) -> tuple[SetProfile, ...]:
        """The allocation sets for a jobdw or create_persistent directive."""
        name = directive.args.get("profile", self.default_name)
        profile = self._profiles.get(name)
        if profile is None:
            raise UnknownProfile(f"Unable to find NnfStorageProfile: {name}")
        type = directive.args["type"]
        if type not in profile:
            # A profile that says nothing about a type leaves it as it is.
            profile = self._profiles[self.default_name]
        return profile[type]


def _sets(profile: str, type: str, data: Sequence[Json]) -> tuple[SetProfile, ...]:
    sets = tuple(_set(entry) for entry in data)
    for entry in sets:
        where = f"profile {profile}, {type}, {entry.label}"
        if entry.strategy not in STRATEGIES:
            raise ValueError(
                f"{where}: strategy is {entry.strategy}, expected one of "
                f"{', '.join(STRATEGIES)}"
            )
        if entry.count is not None and entry.scale is not None:
            raise ValueError(f"{where}: give count or scale, not both")
    return sets


def _set(data: Mapping[str, Any]) -> SetProfile:
    return SetProfile(
        label=data["label"],
        strategy=data["strategy"],
        capacity=capacity(data["capacity"]) if "capacity" in data else None,
        padding=capacity(data["padding"]) if "padding" in data else 0,
        scale=data.get("scale"),
        count=data.get("count"),
        colocation=data.get("colocation"),
        access=tuple(_access(text) for text in data["access"]),
    )


def _access(text: str) -> tuple[str, str]:
    priority, type = text.split()
    return priority, type


def storage_status(
    directive: Directive, profiles: Profiles, servers: Json, lifetime: str
) -> Json:
    """The status of the breakdown of a jobdw or create_persistent.

    Args:
        servers: reference to the Servers object for it.
        lifetime: "job" or "persistent".
    """
    asked = directive.args.get("capacity")
    size = None if asked is None else capacity(asked)
    sets = profiles.sets(directive)
    status: Json = {
        "ready": True,
        "storage": {
            "allocationSets": [s.breakdown(profiles.labels, size) for s in sets],
            "lifetime": lifetime,
            "reference": servers,
        },
    }
    if lifetime == "job":
        status["compute"] = compute_status(servers, [s.access for s in sets])
    if directive.requires:
        status["requires"] = list(directive.requires)
    return status


def error_status(error: UserError) -> Json:
    """The status of a breakdown of which nothing can come."""
    return {
        "ready": False,
        "error": {
            "debugMessage": error.debug,
            "severity": "Fatal",
            "type": error.type,
            "userMessage": error.message,
        },
    }


def persistentdw_status(directive: Directive, servers: Json, sets: int) -> Json:
    """The status of the breakdown of a persistentdw on ``sets`` allocation sets:
    mandatory physical access, whatever the file system (as NNF does)."""
    access = [(("mandatory", "physical"),)] * sets
    status: Json = {"ready": True, "compute": compute_status(servers, access)}
    if directive.requires:
        status["requires"] = list(directive.requires)
    return status


def compute_status(servers: Json, access: Sequence[Sequence[tuple[str, str]]]) -> Json:
    """``status.compute``: one location constraint per allocation set."""
    return {
        "constraints": {
            "location": [
                {
                    "access": [{"priority": p, "type": t} for p, t in entry],
                    "reference": {
                        **servers,
                        "fieldPath": f"servers.spec.allocationSets[{index}]",
                    },
                }
                for index, entry in enumerate(access)
            ]
        }
    }


def check_servers(breakdown: Json, spec: Json, rabbits: Mapping[str, Any]) -> None:
    """Check that the Servers that the workload manager wrote satisfies the breakdown's
    ``status.storage``. Raises :class:`UserError` when not."""
    wanted = {s["label"]: s for s in breakdown["allocationSets"]}
    given = spec.get("allocationSets") or []
    labels = [s["label"] for s in given]
    if sorted(labels) != sorted(wanted):
        raise _unsatisfied(
            f"allocation sets are {sorted(labels)}, expected {sorted(wanted)}"
        )
    for entry in given:
        for storage in entry["storage"]:
            if storage["name"] not in rabbits:
                raise _unsatisfied(f"Storage '{storage['name']}' not found")
        _check_size(wanted[entry["label"]], entry)


def _check_size(wanted: Json, given: Json) -> None:
    label, strategy = wanted["label"], wanted["allocationStrategy"]
    size, minimum = given["allocationSize"], wanted["minimumCapacity"]
    total = sum(s["allocationCount"] for s in given["storage"])
    if total == 0:
        raise _unsatisfied(f"allocation set '{label}' has no storage")
    if strategy == "AllocateSingleServer" and total != 1:
        raise _unsatisfied(f"allocation set '{label}' has {total} allocations, not 1")
    if strategy == "AllocatePerServer" and total != len(given["storage"]):
        raise _unsatisfied(f"allocation set '{label}' must have one per server")
    across = strategy == "AllocateAcrossServers"
    if (size * total if across else size) < minimum:
        raise _unsatisfied(
            f"allocation set '{label}' has {size} bytes in {total} allocations, "
            f"less than the minimum capacity {minimum}"
        )


def _unsatisfied(debug: str) -> UserError:
    return UserError(
        "storage directive requirements were not satisfied", debug, type="WLM"
    )
