# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws submit-object``: submit the jobs of job objects."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Mapping, Optional, Sequence

from dwscli.instance import Instance
from dwscli.terminal import NAME, warn
from dwscli.units import user_name
from flux_k8s.command import STDIN, CommandError, write_message
from sssjob.schema.model import ObjectError
from sssjob.schema.properties import AWARENESS_POLICY, REJECT
from sssjob.to_jobspec import convert as to_jobspec
from sssjob.to_jobspec.attributes import Submitter
from sssjob.to_jobspec.convert import Submission
from sssjob.xml import markup

URGENCY = 16
"""The value that Flux gives a job that asks for no other."""

SUBMIT_OBJECT = """
Submit the jobs of a job object (XML), and print their IDs, one in a line, in the
order in which the object has the jobs. All are looked at before the first is
submitted, and none runs before all are. A job that the object has on Hold is
submitted with urgency 0.
"""
SUBMIT_OBJECT_NOTES = """
What Flux cannot be told, such as an amount of memory, is an error. Where the
element, or one around it, has awarenessPolicy="Warn" or "Ignore", it is left out as a
whole. All errors are told at once, each with its line.

A job gets the variables in its Environment, and those of this command only if that
has export="true". Without an InitialWorkingDirectory it runs where this command
does. A ~ at the beginning of it, and of the names of files, is your home directory.

A Resource name="Storage" of type xfs, gfs2, raw or lustre is storage on Rabbits. The
first of a job is called storage1, and is found as $DW_JOB_storage1.
"""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws submit-object`` takes."""
    args.description = SUBMIT_OBJECT + SUBMIT_OBJECT_NOTES
    args.formatter_class = argparse.RawDescriptionHelpFormatter
    add = args.add_argument
    add("file", metavar="FILE", help="the job object, - for standard input")
    add(
        "--dry-run",
        action="store_true",
        help="print the jobspecs, one in a line, and submit nothing. A dependency on"
        " another job of the object has its Id there",
    )
    add("--machine", metavar="NAME", help="what objects for this system call it")
    add(
        "--awareness",
        type=str.lower,
        choices=[policy.lower() for policy in AWARENESS_POLICY.choices],
        default=REJECT.lower(),
        help="the awarenessPolicy of an object that has none (default: %(default)s)",
    )
    args.set_defaults(function=submit_object)


def submit_object(args: argparse.Namespace, _: Instance) -> None:
    """Submit the jobs of a job object."""
    document = read_document(args.file)
    by_default = args.awareness.capitalize()
    found = to_jobspec.jobspecs_in(document, warn, submitter(args.machine), by_default)
    if args.dry_run:
        lines = {one.id: json.dumps(one.jobspec) for one in found}
    else:
        lines = submit_all(found)
    for one in sorted(found, key=lambda one: one.index):
        print(lines[one.id])


def read_document(path: str) -> bytes:
    """A job object's text, or the beginning of one that is far too long."""
    if path == STDIN:
        return sys.stdin.buffer.read(markup.MAX_SIZE + 1)
    with open(path, "rb") as file:
        return file.read(markup.MAX_SIZE + 1)


def submitter(machine: Optional[str]) -> Submitter:
    """Who runs this command, and where."""
    userid = os.getuid()
    name = user_name(userid)
    return Submitter(
        users=tuple(filter(None, [name, str(userid)])),
        machine=machine,
        environment=os.environ,
        cwd=os.getcwd(),
        home=os.path.expanduser("~"),
    )


def submit_all(submissions: Sequence[Submission]) -> dict[str, str]:
    """Submit the jobs; their IDs in Flux, by those in the object. Those of a group
    are on hold until all are there."""
    import flux

    handle = flux.Flux()
    together = len(submissions) > 1
    jobids: dict[str, Any] = {}
    try:
        for one in submissions:
            jobids[one.id] = submit_one(handle, one, jobids, together or one.held)
        for one in submissions:
            if together and not one.held:
                request = {"id": int(jobids[one.id]), "urgency": URGENCY}
                handle.rpc("job-manager.urgency", request).get()
    except BaseException as error:
        take_back(handle, jobids)
        if isinstance(error, ObjectError) and jobids:
            gone = f"cancelled: {' '.join(str(id) for id in jobids.values())}"
            raise CommandError(f"{error}\n{gone}") from None
        raise
    return {id: str(jobids[id]) for id in jobids}


def submit_one(
    handle: Any, one: Submission, jobids: Mapping[str, Any], held: bool
) -> Any:
    """Submit a job; its ID.

    Args:
        jobids: of those that it may depend on, by their Ids.
    """
    from flux.job import JobID
    from flux.job import submit as flux_submit

    known = {id: given.f58plain for id, given in jobids.items()}
    jobspec = json.dumps(one.resolved(known))
    try:
        return JobID(flux_submit(handle, jobspec, urgency=0 if held else URGENCY))
    except OSError as error:
        problem = str(error.strerror or error)
        raise ObjectError(one.path, problem, one.line) from None


def take_back(handle: Any, jobids: Mapping[str, Any]) -> None:
    """Cancel jobs that were submitted."""
    from flux.job import cancel

    for id in jobids.values():
        try:
            cancel(handle, id, "the rest of its job object cannot be submitted")
        except OSError as error:
            write_message(NAME, "ERROR", f"{id} is not cancelled: {error.strerror}")
