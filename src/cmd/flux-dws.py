#!/bin/false
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws: jobs and their storage, as job objects (seed 003)."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import pwd
import sys
from typing import Any, Iterable, Mapping, Optional, Sequence

import sssjob as jobobject
from flux_k8s.command import STDIN, CommandError, parser, run, write_message
from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError
from flux_k8s.rfc import jobid
from sssjob import Element
from sssjob.from_flux import convert as from_flux
from sssjob.from_flux import history
from sssjob.from_flux.convert import ExportOptions, JobRecord
from sssjob.schema.model import ObjectError
from sssjob.schema.properties import AWARENESS_POLICY, REJECT
from sssjob.to_jobspec import convert as to_jobspec
from sssjob.to_jobspec.attributes import Submitter
from sssjob.to_jobspec.convert import Submission
from sssjob.xml import markup

NAME = "dws"
DESCRIPTION = """
Tell jobs and their storage to others, and take them from others, as job objects:
XML documents of the Scalable Systems Software Job Object Specification.
"""

Commands = Any
"""What ``argparse`` adds subcommands to."""

URGENCY = 16
"""What Flux gives a job that asks for no other."""

Presets = Mapping[str, Sequence[str]]
"""``rabbit.presets`` of the configuration."""


def arguments() -> argparse.Namespace:
    """What the command line says. ``function`` of it is the subcommand's."""
    args = parser(NAME, DESCRIPTION)
    commands = args.add_subparsers(dest="command", required=True)
    add_job_object(commands)
    add_submit_object(commands)
    return args.parse_args()


def warn(message: str) -> None:
    """Tell what a job object does not say, or not quite."""
    write_message(NAME, "WARNING", message)


# ---- flux dws job-object ---------------------------------------------------------

JOB_OBJECT = """
Write jobs as a job object (XML): what they asked for, what they got, and when. One
job is a Job, several are a JobGroup.
"""
NOT_A_RECORD = "expected the files jobspec and eventlog in it, or directories with them"


def add_job_object(commands: Commands) -> None:
    """Add the subcommand that writes jobs as job objects."""
    args = commands.add_parser(
        "job-object",
        help="write jobs as a job object",
        description=JOB_OBJECT,
        allow_abbrev=False,
    )
    add = args.add_argument
    add("jobids", metavar="JOBID", nargs="*", help="jobs, active or not")
    add("--steps", action="store_true", help="the jobs of a batch job that runs, too")
    add(
        "--from",
        dest="directory",
        metavar="DIR",
        type=pathlib.Path,
        help="take what Flux has of a job from the files in DIR, which are called as"
        " in Flux's KVS (jobspec, eventlog, R, rabbit_...); several jobs from"
        " directories in it, each called as its job or with the ID in a file id",
    )
    add("--group", metavar="ID", help="make a JobGroup of this ID")
    add("--machine", metavar="NAME", help="the name of the system, to be told as well")
    add(
        "--environment",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="write the variables of jobs as well, but for those that seem to be"
        " secret, as with TOKEN in their name or a password in a URL",
    )
    add("-o", "--output", metavar="FILE", help="write to FILE")
    args.set_defaults(function=job_object, error=args.error)


def job_object(args: argparse.Namespace) -> None:
    """Write jobs as a job object."""
    if bool(args.jobids) == (args.directory is not None):
        args.error("one JOBID or more, or --from=DIR, is required")
    if args.steps and len(args.jobids) != 1:
        args.error("--steps is about one JOBID")
    presets: Presets = {}
    if args.directory is not None:
        records = saved(args.directory)
    else:
        records, presets = known(args.jobids, args.steps)
    options = ExportOptions(presets, user_name, args.machine, args.environment, warn)
    jobs = [from_flux.job_object(record, options) for record in records]
    if len(jobs) == 1 and args.group is None and not args.steps:
        write_object(jobs[0], args.output)
        return
    first = jobs[0].text("Id") if args.steps else f"group-{jobs[0].text('Id')}"
    name = jobs[0].text("Name") if args.steps else None
    group = from_flux.group_object(args.group or str(first), jobs, name)
    write_object(group, args.output)


def write_object(root: Element, path: Optional[str]) -> None:
    """Write a job object to a file, or to standard output, in UTF-8."""
    document = jobobject.write(root).encode("utf-8")
    if path is None:
        sys.stdout.buffer.write(document)
    else:
        pathlib.Path(path).write_bytes(document)


def user_name(userid: int) -> Optional[str]:
    """The name of a user, None for one that this machine does not know."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return None


# What Flux had of jobs, in files


def saved(directory: pathlib.Path) -> list[JobRecord]:
    """The jobs that were saved in a directory, in the order of their IDs."""
    if not directory.is_dir():
        raise CommandError(f"{directory}: is not a directory")
    directory = directory.resolve()
    if (directory / from_flux.EVENTLOG).exists():
        return [record_in(directory)]
    found = [record_in(path.parent) for path in directory.rglob(from_flux.JOBSPEC)]
    if not found:
        raise CommandError(f"{directory}: is no record of a job: {NOT_A_RECORD}")
    return sorted(found, key=lambda record: record.jobid)


def record_in(directory: pathlib.Path) -> JobRecord:
    """What was saved of one job."""
    kvs = {}
    for key in from_flux.KEYS:
        path = directory / key
        if path.exists():
            kvs[key] = read_text(path)
    for key in (from_flux.EVENTLOG, from_flux.JOBSPEC):
        if key not in kvs:
            raise CommandError(f"{directory}: has no file {key}")
    return JobRecord(id_of(directory), kvs)


def id_of(directory: pathlib.Path) -> int:
    """The ID of the job that was saved in a directory: what its file ``id`` says,
    or its name; in an unpacked ``flux dump``, the end of its path."""
    path = directory / "id"
    if path.exists():
        return decode_id(read_text(path).strip(), f"{path}: ")
    for text in (".".join(directory.parts[-4:]), directory.name):
        try:
            return jobid.decode(text)
        except ValueError:
            pass
    raise CommandError(
        f"{directory}: is not called as a job; put the ID of the job into a file id"
        " in it"
    )


def decode_id(text: str, place: str = "") -> int:
    """The job ID that ``text`` says."""
    try:
        return jobid.decode(text)
    except ValueError as error:
        raise CommandError(f"{place}{error}") from None


def read_text(path: pathlib.Path) -> str:
    """The text in a file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CommandError(f"{path}: is not UTF-8 text") from None


# What Flux has of jobs


def known(texts: Iterable[str], steps: bool) -> tuple[list[JobRecord], Presets]:
    """Jobs of this instance, and the presets of its configuration.

    Args:
        steps: with the one job, those of the instance that it is.
    """
    import flux

    handle = flux.Flux()
    # A job that is named twice is told once.
    jobids = dict.fromkeys(parse_id(text) for text in texts)
    records = [look_up(handle, id) for id in jobids]
    if steps:
        records += steps_of(records[0])
    return records, presets_of(handle)


def parse_id(text: str) -> int:
    """The job ID that the command line says, in any form that Flux knows."""
    from flux.job import JobID

    try:
        return int(JobID(text))
    except ValueError:
        raise CommandError(f"not the ID of a job: {text}") from None


def look_up(handle: Any, id: int, parent: str = "") -> JobRecord:
    """What Flux has of a job."""
    job = parent + jobid.f58(id)
    kvs = {}
    for key in from_flux.KEYS:
        text = look_up_key(handle, id, key, job)
        if text is not None:
            kvs[key] = text
        elif key == from_flux.EVENTLOG:
            raise CommandError(f"job {job} not found")
    return JobRecord(id, kvs, parent)


def look_up_key(handle: Any, id: int, key: str, job: str) -> Optional[str]:
    """What stands under a key of a job's KVS directory; None for nothing. The
    jobspec is as it was submitted, before the instance added its defaults."""
    from flux.job import job_kvs_lookup

    try:
        found = job_kvs_lookup(handle, id, keys=[key], decode=False, original=True)
    except PermissionError:
        raise CommandError(f"job {job} is not yours") from None
    return None if found is None else str(found[key])


def presets_of(handle: Any) -> Presets:
    """``rabbit.presets`` of the configuration; none, and a warning, if the table
    is wrong."""
    try:
        return Config.parse(handle.conf_get("rabbit")).presets
    except ConfigError as error:
        warn(f"presets are not known: {error}")
        return {}


def steps_of(batch: JobRecord) -> list[JobRecord]:
    """The jobs of the instance that a batch job is, in the order of their IDs."""
    from flux.constants import FLUX_USERID_UNKNOWN
    from flux.job.list import job_list
    from flux.uri import JobURI

    from flux import Flux

    past = history.parse(batch.kvs[from_flux.EVENTLOG], batch.id)
    if past.finished is not None or past.ended is not None:
        raise CommandError(
            f"job {batch.id} has ended: its steps are known only while it runs (flux"
            " batch --dump keeps them: unpack the archive, and give it with --from)"
        )
    uri = past.memos.get("uri")
    if uri is None:
        raise CommandError(
            f"job {batch.id} has no steps: it is no instance of Flux that runs (yet)"
        )
    try:
        place = JobURI(uri)
        here = place.netloc == platform.node()
        handle = Flux(place.local if here else str(place))
        jobs = job_list(handle, 0, [], userid=FLUX_USERID_UNKNOWN).get_jobs()
    except (OSError, ValueError) as error:
        raise CommandError(
            f"job {batch.id}: its instance cannot be asked at {uri}: {error}"
        ) from None
    return [
        look_up(handle, id, f"{batch.id}/") for id in sorted(job["id"] for job in jobs)
    ]


# ---- flux dws submit-object ------------------------------------------------------

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


def add_submit_object(commands: Commands) -> None:
    """Add the subcommand that submits the jobs of job objects."""
    args = commands.add_parser(
        "submit-object",
        help="submit the jobs of a job object",
        description=SUBMIT_OBJECT + SUBMIT_OBJECT_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
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
        choices=[policy.lower() for policy in AWARENESS_POLICY.choices],
        default=REJECT.lower(),
        help="the awarenessPolicy of an object that has none (default: %(default)s)",
    )
    args.set_defaults(function=submit_object)


def submit_object(args: argparse.Namespace) -> None:
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


def main() -> None:
    """Do what the subcommand says."""
    args = arguments()
    args.function(args)


if __name__ == "__main__":
    sys.exit(run(NAME, main))
