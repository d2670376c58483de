# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws job-object``: jobs as job objects."""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import sys
from typing import Any, Iterable, Mapping, Optional, Sequence

import sssjob as jobobject
from dwscli.instance import Instance, job_id
from dwscli.terminal import warn
from dwscli.units import user_name
from flux_k8s.command import CommandError
from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError
from flux_k8s.formats import jobid
from sssjob import Element
from sssjob.from_flux import convert as from_flux
from sssjob.from_flux import history
from sssjob.from_flux.convert import ExportOptions, JobRecord

Presets = Mapping[str, Sequence[str]]
"""``rabbit.presets`` of the configuration."""

JOB_OBJECT = """
Write jobs as a job object (XML): what they asked for, what they got, and when. One
job is a Job, several are a JobGroup.
"""
NOT_A_RECORD = "expected the files jobspec and eventlog in it, or directories with them"


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws job-object`` takes."""
    args.description = JOB_OBJECT
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


def job_object(args: argparse.Namespace, instance: Instance) -> None:
    """Write jobs as a job object."""
    if bool(args.jobids) == (args.directory is not None):
        args.error("one JOBID or more, or --from=DIR, is required")
    if args.steps and len(args.jobids) != 1:
        args.error("--steps is about one JOBID")
    presets: Presets = {}
    if args.directory is not None:
        records = saved(args.directory)
    else:
        jobids = [job_id(instance, word) for word in args.jobids]
        records, presets = known(jobids, args.steps)
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
    """The saved files of one job."""
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


def known(ids: Iterable[int], steps: bool) -> tuple[list[JobRecord], Presets]:
    """Jobs of this instance, and the presets of its configuration.

    Args:
        steps: with the one job, those of the instance that it is.
    """
    import flux

    handle = flux.Flux()
    # A job that is named twice is told once.
    records = [look_up(handle, id) for id in dict.fromkeys(ids)]
    if steps:
        records += steps_of(records[0])
    return records, presets_of(handle)


def look_up(handle: Any, id: int, parent: str = "") -> JobRecord:
    """The records that Flux keeps of a job."""
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
    """The value of a key in a job's KVS directory; None if there is none. The
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
    """The jobs of the instance that a batch job is, in the order of their IDs.

    Its user can write any URI into the memo, and Flux gives the name of a host to
    ssh(1) as it is, also one that is an option: whoever else follows the URI may run
    programs of that user.
    """
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
    if past.userid != os.getuid():
        raise CommandError(
            f"job {batch.id} is not yours: only its user can ask for its steps"
        )
    uri = past.memos.get("uri")
    if not isinstance(uri, str):
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
