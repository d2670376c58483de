# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws free``: let a job go whose storage does not get on.

The way out depends on how far the job is. A job that runs is cancelled, and its storage
goes through the states that follow any job; a cancel while its tasks are still ending
does not change that. Otherwise, until the storage is in Teardown, an exception of the
type cancel has it moved there. A Teardown that does not end is given up by an exception
of the type dws-epilog-timeout, which the instance owner may raise: it takes out of
service what the job still uses.
"""

from __future__ import annotations

import argparse
import errno
from dataclasses import dataclass
from typing import Iterator, Optional

from dwscli.details import look_up, not_yours
from dwscli.ended import CLEANUP, RUNNING, is_inactive
from dwscli.instance import Instance, job_id, refusal
from dwscli.page import lacks_jobs, old_line, state_line
from dwscli.reading import id_of, number, text, texts
from dwscli.table import warn_of_age
from dwscli.terminal import screen, write
from dwscli.units import f58
from dwscli.width import wrapped
from flux_k8s.command import CommandError
from flux_k8s.errors import DirectiveError
from flux_k8s.formats import directives
from flux_k8s.objects.workflowstate import STATES, State
from flux_k8s.ports import Json
from flux_k8s.text import printable

TEARDOWN = State.Teardown.name

CANCEL, EPILOG_TIMEOUT = "cancel", "dws-epilog-timeout"
"""Types of exceptions (RFC 21)."""

COPIED = "copied"
"""A cancel loses no data that is copied out later (``flux_k8s.jobs.jobrows``)."""

DESCRIPTION = """
Show what would let a stuck job go, and what would be lost by it; with --yes, do it. A
job that runs is cancelled, and what is to be copied out is. Any other job whose storage
is not in Teardown yet is cancelled, and its storage is deleted. A Teardown that does
not end is given up: nodes that still mount the storage are drained, and Rabbits that
still hold it are disabled. Only the instance owner may do that.
"""


@dataclass(frozen=True)
class Plan:
    """The exception that frees a job's storage.

    Attributes:
        exception: its type.
        effects: the effects of the exception.
        losses: the data that is lost.
    """

    exception: str
    effects: tuple[str, ...]
    losses: tuple[str, ...]


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws free`` takes."""
    args.description = DESCRIPTION
    args.add_argument("jobid", metavar="JOBID", help="the job")
    args.add_argument("--yes", action="store_true", help="do it")
    args.set_defaults(function=free)


def free(args: argparse.Namespace, instance: Instance) -> None:
    """Show what would let a job go, or do it.

    Raises:
        CommandError: the job needs nothing, or the user may not do it.
    """
    id = job_id(instance, args.jobid)
    answer, has_ended = look_up(instance, id)
    if has_ended:
        raise CommandError(f"job {f58(id)} has ended: there is nothing to be freed")
    warn_of_age(answer)
    job = instance.job(id)
    if job is None or is_inactive(job):  # one that was purged, too
        if answer.get("kept_until") is not None:
            raise CommandError(
                f"job {f58(id)} has ended, and its storage is kept for data that is not"
                f" out: flux dws rescue --give-up {f58(id)} gives it back"
            )
        head = f"job {f58(id)} has ended: no exception lets its storage go"
        raise CommandError(f"{head}; {situation(answer)}")
    if may_be_ending(answer, job):
        copied = text(answer, "cancel") == COPIED
        then = "data is copied out" if copied else "storage is freed"
        raise CommandError(
            f"job {f58(id)}: its tasks are still ending: a cancel changes nothing, its"
            f" {then} after that"
        )
    if text(answer, "cancel") == "nothing" and text(answer, "state") != TEARDOWN:
        raise CommandError(
            f"job {f58(id)}: a cancel changes nothing any more; {situation(answer)}"
        )
    found = plan(answer, job)
    if found.exception == EPILOG_TIMEOUT and not instance.is_owner:
        raise CommandError(
            f"job {f58(id)}: its storage is in Teardown, which only the instance owner"
            " may give up"
        )
    write(lines(answer, found, screen().width))
    if not args.yes:
        write(["", f"Nothing was done: flux dws free --yes {f58(id)} does it."])
        return
    try:
        instance.raise_exception(id, found.exception, "flux dws free")
    except OSError as error:
        if error.errno == errno.EPERM:
            raise not_yours(id) from None
        raise refusal(error) from None
    write(["", f"Done: flux dws wait {f58(id)} shows what comes of it."])


def plan(answer: Json, job: Json) -> Plan:
    """The exception that frees the storage of a job.

    Args:
        answer: of ``dws.job-show``.
        job: of job-list.
    """
    state = STATES.get(text(answer, "state"))
    if state is State.Teardown:
        return Plan(
            EPILOG_TIMEOUT,
            (
                "the epilog ends without waiting for DWS",
                "nodes that still mount the storage are drained",
                "Rabbits that still hold the storage are disabled",
            ),
            ("what was not copied out before", "the storage, until it is cleaned up"),
        )
    has_run = may_have_run(answer, state)
    later = ""
    if old_line(answer):
        is_away = not lacks_jobs(answer)
        later = f"once {'Kubernetes answers' if is_away else 'dws-jobtap.so is loaded'}"
    if has_run and number(job, "state") == RUNNING:
        when = f"{later}, as after any job" if later else "as after any job"
        copied = text(answer, "cancel") == COPIED
        freed = (
            "unmounted, copied out and deleted" if copied else "unmounted and deleted"
        )
        effects = [
            "the job is cancelled, and its tasks are killed",
            f"the storage is {freed} {when}",
        ]
        return Plan(CANCEL, tuple(effects), ())
    effects = [f"the storage moves to Teardown {later or 'at once'} and is deleted"]
    if state is None and not (later or has_run):
        effects = ["it has no storage yet"]
    if not has_run:
        effects.insert(0, "the job is cancelled before it has run")
    return Plan(CANCEL, tuple(effects), tuple(losses(answer)) if has_run else ())


def may_be_ending(answer: Json, job: Json) -> bool:
    """Whether a job is over whose tasks have not ended yet."""
    if number(job, "state") != CLEANUP:
        return False
    state = STATES.get(text(answer, "state"))
    runs = state is State.PreRun and text(answer, "wants") == "ready"
    return text(answer, "cancel") == COPIED or (runs and may_have_run(answer, state))


def may_have_run(answer: Json, state: Optional[State]) -> bool:
    """Whether tasks of the job may have written to its storage."""
    if state is None:
        # A module that was loaded while Kubernetes is away knows from Flux how far the
        # job is, and nothing of its Workflow.
        return text(answer, "wants") not in ("", "planned")
    if state is State.PreRun:
        return answer.get("ready") is True
    return state > State.PreRun


def losses(answer: Json) -> Iterator[str]:
    """The data that is lost when the storage moves to Teardown at once."""
    yield "all that the job has written to its storage and that was not copied out"
    if text(answer, "state") == State.DataOut.name and answer.get("ready") is True:
        return
    for line in texts(answer, "directives"):
        try:
            found = directives.parse(line)
        except DirectiveError:
            continue
        if found.command == "copy_out":
            paths = ("source", "destination")
            source, target = (found.arguments.get(key, "its data") for key in paths)
            yield f"{source}, which is not copied to {target}, or not completely"


def situation(answer: Json) -> str:
    """The state of a job's storage, and what that waits for."""
    state, waits = state_line(answer, number(answer, "now") or 0), text(answer, "waits")
    return f"{state}; waits for: {waits}" if waits else state


def lines(answer: Json, found: Plan, width: int) -> list[str]:
    """A plan for a person to read."""
    id = id_of(answer)
    parts = [
        *wrapped(printable(f"Job {f58(id)}: {situation(answer)}"), width),
        "",
        *wrapped(f"An exception of the type {found.exception} lets it go:", width),
    ]
    for effect in found.effects:
        parts += wrapped(f"- {effect}", width, "  ")
    if found.losses:
        parts += ["", "Lost:"]
    for loss in found.losses:
        parts += wrapped(printable(f"- {loss}"), width, "  ")
    return parts
