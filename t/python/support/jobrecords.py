# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Records of jobs in Flux, and the job objects made of them."""

from __future__ import annotations

import json
import re
from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.ports import Json
from rabbitsim.flux.events import encode_eventlog
from rabbitsim.flux.options import submit_jobspec
from rabbitsim.system import VirtualSystem
from sssjob import Element, read, walk, write
from sssjob.from_flux.convert import (
    EVENTLOG,
    KEYS,
    ExportOptions,
    JobRecord,
    job_object,
)
from support.service import XFS, settle, started

SAVING = Config(save_datamovements=10, presets={"fast": (XFS,)})


def record_of(system: VirtualSystem, jobid: int) -> JobRecord:
    """The record of a job in Flux."""
    job = system.instance.job(jobid)
    kvs = {**job.kvs, EVENTLOG: encode_eventlog(job.events)}
    return JobRecord(jobid, {key: kvs[key] for key in KEYS if key in kvs})


def told(system: VirtualSystem, jobid: int, **options: Any) -> Element:
    """A job as others read it, without a warning."""
    warnings: list[str] = []
    export = ExportOptions(warn=warnings.append, **{"environment": True, **options})
    written = write(job_object(record_of(system, jobid), export))
    assert not warnings
    return read(written)


def ran(spec: Json, **options: Any) -> tuple[VirtualSystem, int]:
    """A system in which a job ran to its end."""
    system = started(**{"config": SAVING, **options})
    jobid = system.instance.submit(spec)
    settle(system)
    return system, jobid


def says(parent: Optional[Element], tag: str, /, **attributes: str) -> list[Any]:
    """What the elements of a name, with these attributes, say in another."""
    assert parent is not None
    return [
        inner.value
        for inner in parent.all(tag)
        if all(inner.attribute(key) == value for key, value in attributes.items())
    ]


def extensions(job: Element) -> dict[str, Any]:
    """The values of the Extensions, but the one that names Rabbits."""
    return {
        str(inner.attribute("name")): json.loads(str(inner.value))
        for inner in job.all("Extension")
        if inner.attribute("type") == "Flux" and inner.attribute("name") != "rabbits"
    }


JOBID = 6731191091817518
T = 1_700_000_000.25
SUBMIT = {"userid": 5588, "urgency": 16, "flags": 0, "version": 1}


def eventlog(*events: Any, submit: Any = None) -> str:
    """An eventlog with an event each second. Each is a name, or one with its
    context."""
    lines = [("submit", submit or SUBMIT), *events]
    entries = []
    for seconds, event in enumerate(lines):
        name, context = event if isinstance(event, tuple) else (event, None)
        entry: Json = {"timestamp": T + seconds, "name": name}
        entries.append(entry if context is None else {**entry, "context": context})
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def spec(*options: str, **system: Any) -> Json:
    """The jobspec of ``flux submit OPTIONS``, with some more attributes."""
    jobspec = submit_jobspec(["app", "-x", "a b"], list(options))
    jobspec["attributes"]["system"].update(system)
    return jobspec


def job_of(
    jobspec: Any, *events: Any, warnings: Optional[list[str]] = None, **kvs: Any
) -> Element:
    """The job object of what Flux has, as others read it."""
    texts = {
        "eventlog": eventlog(*events),
        "jobspec": json.dumps(jobspec),
        **{key: json.dumps(value) for key, value in kvs.items()},
    }
    told: list[str] = []
    job = job_object(
        JobRecord(JOBID, texts), ExportOptions(warn=told.append, environment=True)
    )
    if warnings is None:
        assert not told
    else:
        warnings += told
    return read(write(job))


def facts(job: Element) -> list[str]:
    """What a job object says, one text an element: its place in the job, its value and
    its attributes. Of an Extension, the place in the jobspec and the value."""
    found = []
    for path, inner in walk(job):
        attributes = dict(inner.attributes)
        if inner.value is None:
            continue
        if attributes.get("type") == "Flux" and inner.name == "Extension":
            assert attributes["awarenessPolicy"] == "Ignore"
            found.append(f"{attributes['name']}: {inner.value}")
        else:
            place = re.sub(r"^/Job/|\[[0-9]+\]", "", path)
            parts = (f"{key}={value}" for key, value in attributes.items())
            found.append(" ".join([place, str(inner.value), *parts]))
    return found
