# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Dependencies: from a job object to ``attributes.system.dependencies``."""

from __future__ import annotations

import json
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from flux_k8s.errors import show
from flux_k8s.formats import jobid
from flux_k8s.ports import Json
from sssjob.terms import BEGIN_TIME, CONDITIONS, SYSTEM
from sssjob.to_jobspec.building import Builder
from sssjob.to_jobspec.requests import Problems, Request, Requests

DEPENDENCIES = (*SYSTEM, "dependencies")

_SCHEMES = {condition: scheme for scheme, condition in CONDITIONS.items()}
_OF_JOBS = (*CONDITIONS, "after", "afterstart", "afterexcept")

MAX_DEPENDENCIES = 200_000
"""How many dependencies the jobs of an object may have in all. A JobName may be that
of many jobs."""


class Group:
    """The jobs that are submitted together."""

    def __init__(self, jobs: Iterable[tuple[str, Optional[str]]]) -> None:
        """``jobs`` has the Id and the Name of each, in the order of the document."""
        self._names: dict[str, list[str]] = {}
        self._ids: dict[Union[str, int], str] = {}
        for id, name in jobs:
            self._ids[id] = id
            if name is not None:
                self._names.setdefault(name, []).append(id)
        for id in list(self._ids.values()):
            number = jobid.of_flux(id)
            if number is not None:
                self._ids.setdefault(number, id)
        self._dependencies = 0

    def find(self, text: str) -> Optional[str]:
        """The Id of the job that ``text`` refers to, which may write an ID of Flux
        with the other prefix; None for none of these."""
        number = jobid.of_flux(text)
        return self._ids.get(text, None if number is None else self._ids.get(number))

    def named(self, name: str) -> Sequence[str]:
        """The Ids of the jobs that are called so."""
        return self._names.get(name, ())

    def has_room(self, count: int) -> bool:
        """Whether its jobs may have so many dependencies more, which they get."""
        self._dependencies += count
        return self._dependencies <= MAX_DEPENDENCIES


def add_dependencies(
    requests: Requests, group: Group, builder: Builder, problems: Problems
) -> tuple[tuple[str, str], ...]:
    """Say what the job waits for, those of elements before those of an Extension.

    Returns:
        Of each dependency on a job of the group, its value in the jobspec and the
        Id of the job.
    """
    found: list[Json] = []
    path = requests.path
    for request in requests.all("Dependency"):
        found.extend(_dependencies(request, group, problems))
    eligible = requests.one("EligibleTime", problems)
    if eligible is not None:
        # As Flux's own commands write it.
        time = str(float(eligible.value))
        found.append({"scheme": BEGIN_TIME, "value": time})
    others = builder.take_extension(DEPENDENCIES)
    if others is not None:
        path = others.path
        if isinstance(others.value, list):
            known = {json.dumps(entry, sort_keys=True) for entry in found}
            for entry in others.value:
                text = json.dumps(entry, sort_keys=True)
                if text not in known:
                    known.add(text)
                    found.append(entry)
        else:
            problems.wrong(path, f"is {show(others.value)}, expected an array")
    if found or others is not None:
        builder.assign(DEPENDENCIES, found, path)
    return tuple(link for entry in found for link in _links(entry, group))


def resolved(jobspec: Json, values: Mapping[str, str]) -> Json:
    """A jobspec with IDs of jobs in Flux in the place of what an object calls them.

    Args:
        values: the IDs, by what stands there.
    """
    attributes = jobspec["attributes"]
    system = attributes["system"]
    dependencies = [
        {**entry, "value": values.get(str(entry.get("value")), entry.get("value"))}
        if isinstance(entry, dict) and entry.get("scheme") in _OF_JOBS
        else entry
        for entry in system["dependencies"]
    ]
    system = {**system, "dependencies": dependencies}
    return {**jobspec, "attributes": {**attributes, "system": system}}


def _dependencies(request: Request, group: Group, problems: Problems) -> list[Json]:
    """The dependencies of one Dependency. A JobName may be that of several jobs."""
    if request.attribute("code") is not None:
        problem = "Flux can wait for success, failure, or the end, not for a code"
        problems.unsupported(request, problem)
        return []
    scheme = _SCHEMES[request.attribute("condition") or "OnSuccess"]
    text = request.text.strip()
    values: Sequence[str] = [text]
    if request.attribute("designator") == "JobName":
        values = group.named(text)
        if not values:
            problems.unsupported(
                request, f"no job of the group has the Name {show(text)}"
            )
    elif group.find(text) is None and jobid.of_flux(text) is None:
        problem = f"{show(text)} is neither the Id of a job of the group"
        problems.unsupported(request, f"{problem} nor an ID of Flux, like ƒ26cdPmUM")
        return []
    if not group.has_room(len(values)):
        problem = f"more than {MAX_DEPENDENCIES} dependencies of all jobs"
        problems.wrong(request.path, problem)
        return []
    return [{"scheme": scheme, "value": value} for value in values]


def _links(entry: Any, group: Group) -> list[tuple[str, str]]:
    """The value and the Id of the job, if a dependency is on one of the group."""
    if not isinstance(entry, dict) or entry.get("scheme") not in _OF_JOBS:
        return []
    value = str(entry.get("value"))
    id = group.find(value)
    return [] if id is None else [(value, id)]
