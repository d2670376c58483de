# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobspecs of job objects: what to submit so that the same runs (again).

Objects may come from Flux (:mod:`~sssjob.from_flux.convert`) or from anywhere. What of
them cannot be told to Flux, the awarenessPolicy decides (the specification, section 9);
:mod:`~sssjob.to_jobspec.handling` has what becomes of each element.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from typing import Mapping, Optional, Union

from flux_k8s.errors import show
from flux_k8s.formats import jobid
from flux_k8s.ports import Json
from sssjob.schema.defaults import effective
from sssjob.schema.model import Element, ObjectError, ObjectErrors
from sssjob.schema.properties import JOB, JOB_GROUP, REJECT
from sssjob.shape import SLOT
from sssjob.to_jobspec.attributes import (
    CWD,
    Submitter,
    add_attributes,
    check_command,
    check_place,
    command_of,
)
from sssjob.to_jobspec.building import DURATION, Builder, extensions_of
from sssjob.to_jobspec.dependencies import Group, add_dependencies, resolved
from sssjob.to_jobspec.requests import (
    Problems,
    Request,
    Requests,
    Warn,
    requests_of,
    within,
)
from sssjob.to_jobspec.resources import TASKS, ResourceBuilder
from sssjob.to_jobspec.storage import add_storage
from sssjob.xml.reading import UnreadableObject, read


@dataclass(frozen=True)
class Submission:
    """A job to submit.

    Attributes:
        index: how many jobs of the object come before it.
        id: its Id in the object.
        path: that of its element.
        line: where that begins; None when it was not read.
        jobspec: RFC 25 version 1. Dependencies on jobs of the same group have what
            the object calls these for a value.
        held: it is to be submitted with urgency 0.
        dependencies: of each dependency on a job of the same group, its value in
            the jobspec and the Id of the job.
    """

    index: int
    id: str
    path: str
    jobspec: Json
    held: bool
    dependencies: tuple[tuple[str, str], ...] = ()
    line: Optional[int] = None

    def resolved(self, jobids: Mapping[str, str]) -> Json:
        """The jobspec with the IDs that jobs of the group got in Flux.

        Args:
            jobids: by the Id in the object.
        """
        if not self.dependencies:
            return self.jobspec
        values = {value: jobids[id] for value, id in self.dependencies}
        return resolved(self.jobspec, values)


def jobspecs_in(
    document: Union[str, bytes],
    warn: Warn,
    submitter: Optional[Submitter] = None,
    policy: str = REJECT,
) -> tuple[Submission, ...]:
    """The submissions for the Job or the JobGroup in an XML document.

    Args:
        policy: the awarenessPolicy of an object that has none.

    The others are those of :func:`to_jobspecs`.

    Raises:
        ObjectError: the document is no job object, or its jobs cannot be submitted. Of
            one that is XML, all that is wrong is told.
    """
    try:
        root = read(document, warn, policy)
    except UnreadableObject as error:
        raise ObjectErrors([*error.errors, *_others(error, warn, submitter)]) from None
    return to_jobspecs(root, warn, submitter)


def _others(
    unreadable: UnreadableObject, warn: Warn, submitter: Optional[Submitter]
) -> list[ObjectError]:
    """The errors in the readable rest of an object. An error of an element that is
    unreadable, or has an unreadable one in it, may follow from that, and is left
    out."""
    if unreadable.rest is None:
        return []
    known = {
        error.path[:end]
        for error in unreadable.errors
        for end in [*(m.start() for m in re.finditer("/", error.path)), None]
    }
    try:
        to_jobspecs(unreadable.rest, warn, submitter)
    except ObjectErrors as found:
        return [error for error in found.errors if error.path not in known]
    except ObjectError:
        pass
    return []


def to_jobspecs(
    root: Element, warn: Warn, submitter: Optional[Submitter] = None
) -> tuple[Submission, ...]:
    """The submissions for a Job or a JobGroup.

    The steps of a batch job are not submitted: it runs them itself.

    Args:
        root: a valid job object.
        warn: is called with one line for each part that is left out with Warn.
        submitter: who submits; without one, it may be anybody.

    Returns:
        The jobs, each after those that it depends on.

    Raises:
        ObjectErrors: a request of the object cannot be expressed in Flux, contradicts
            itself, or is wrong. The error has all problems.
    """
    problems = Problems(warn, root)
    jobs = _jobs(effective(root), problems)
    _check_ids(jobs, problems)
    jobs = _without_steps(jobs, problems)
    group = Group((_id(job), job.element.text("Name")) for job in jobs)
    submitter = submitter or Submitter()
    found = [
        _submission(index, job, group, submitter, problems)
        for index, job in enumerate(jobs)
    ]
    problems.check()
    ordered = _ordered(found, problems)
    problems.check()
    return ordered


def _jobs(root: Element, problems: Problems) -> list[Request]:
    """The jobs of an object."""
    path, policy = f"/{root.name}", root.policy(REJECT)
    if root.is_reference:
        kind = "job group" if root.name == JOB_GROUP else "job"
        problems.wrong(path, f"refers to a {kind} that is not here")
        return []
    if root.name != JOB_GROUP:
        return [Request(path, root, policy)]
    jobs = []
    for request in within(path, root, policy):
        if request.element.name == JOB and request.element.is_reference:
            problems.unsupported(request, "refers to a job that is not here")
        elif request.element.name == JOB:
            jobs.append(request)
    return jobs


def _id(job: Request) -> str:
    return job.element.text("Id") or ""


def _check_ids(jobs: list[Request], problems: Problems) -> None:
    seen: dict[str, str] = {}
    for job in jobs:
        other = seen.setdefault(_id(job), job.path)
        if other != job.path:
            problems.wrong(job.path, f"has the Id of {other}, {show(_id(job))}")


def _without_steps(jobs: list[Request], problems: Problems) -> list[Request]:
    """The jobs less the steps of batch jobs among them."""
    ids = {_id(job) for job in jobs}
    kept = []
    for job in jobs:
        batch, slash, _ = _id(job).rpartition("/")
        # Elsewhere, a slash may be part of any Id.
        of_flux = all(jobid.of_flux(part) is not None for part in _id(job).split("/"))
        if slash and of_flux and batch in ids:
            step = f"{show(_id(job))} is a step of {show(batch)}, which runs it itself"
            problems.warn(job.path, f"{step}: it is not submitted")
        else:
            kept.append(job)
    return kept


def _submission(
    index: int, job: Request, group: Group, submitter: Submitter, problems: Problems
) -> Submission:
    requests = requests_of(job.path, job.element, job.policy, problems)
    builder = Builder(extensions_of(requests, problems))
    builder.put(("version",), 1)
    builder.put(DURATION, 0)
    if submitter.cwd is not None:
        builder.put(CWD, submitter.cwd)
    check_place(requests, submitter, problems)
    size = ResourceBuilder(requests, problems)
    count = size.add_to(builder)
    if builder.extension(TASKS) is None:
        task = {"command": command_of(requests, problems), "slot": SLOT, "count": count}
        builder.assign(TASKS, [task], requests.path)
    add_attributes(requests, submitter, builder, problems)
    add_storage(requests, builder, problems)
    dependencies = add_dependencies(requests, group, builder, problems)
    jobspec = builder.build(problems)
    size.check(jobspec, builder)
    given = builder.extension(TASKS)
    if given is not None:
        check_command(requests, given, problems)
    return Submission(
        index,
        requests.id,
        requests.path,
        jobspec,
        _is_held(requests),
        dependencies,
        problems.line(requests.path),
    )


def _is_held(requests: Requests) -> bool:
    states = [request.text.strip() for request in requests.all("State")]
    return "Hold" in states or bool(requests.all("Hold"))


def _ordered(
    submissions: list[Submission], problems: Problems
) -> tuple[Submission, ...]:
    """The jobs, each after those that it depends on, else as they were."""
    missing = {one.id: {id for _, id in one.dependencies} for one in submissions}
    waiting: dict[str, list[Submission]] = {}
    for one in submissions:
        for id in missing[one.id]:
            waiting.setdefault(id, []).append(one)
    ready = [one.index for one in submissions if not missing[one.id]]
    ordered: list[Submission] = []
    while ready:
        done = submissions[heapq.heappop(ready)]
        ordered.append(done)
        for one in waiting.get(done.id, ()):
            missing[one.id].remove(done.id)
            if not missing[one.id]:
                heapq.heappush(ready, one.index)
    for one in submissions:
        if missing[one.id]:
            circle = _circle(one.id, missing)
            first = next(one for one in submissions if one.id == circle[0])
            shown = circle if len(circle) <= 10 else [*circle[:9], "...", circle[-1]]
            waits = " for ".join(map(show, shown))
            problems.wrong(first.path, f"waits for itself: {waits}")
            break
    return tuple(ordered)


def _circle(id: str, missing: Mapping[str, set[str]]) -> list[str]:
    """The Ids of jobs each of which waits for the next, the last for the first.

    Args:
        id: of a job that waits for some in a circle.
        missing: what each job still waits for.
    """
    walked: dict[str, None] = {}
    while id not in walked:
        walked[id] = None
        id = min(missing[id])
    circle = list(walked)
    return [*circle[circle.index(id) :], id]
