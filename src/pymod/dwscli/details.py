# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""All about one job: from the module, or from Flux when the job has ended."""

from __future__ import annotations

import errno
from typing import Optional

from dwscli import ended
from dwscli.instance import (
    PAUSES,
    Instance,
    Refused,
    Tick,
    ask,
    unknown_job,
    with_nodes,
)
from dwscli.units import f58
from flux_k8s.ports import Json

TOPIC = "dws.job-show"

AWAY = (errno.ENOSYS, errno.EHOSTUNREACH, errno.ETIMEDOUT)
"""The errors of a module that is not loaded, or hangs."""


def look_up(instance: Instance, id: int) -> tuple[Json, bool]:
    """An answer of ``dws.job-show``, and whether the job has ended.

    A job that was submitted a moment ago is waited for: the module may not know it yet.

    Raises:
        Refused: there is no such job, it is another user's, it asks for no storage, or
            it is active and the module does not answer.
    """
    for pause in (*PAUSES, None):
        try:
            return ask_about(instance, {"id": id}), False
        except Refused as error:
            if error.errno not in (errno.ENOENT, *AWAY):
                raise
            found = look_up_ended(instance, id)
            if found is not None:
                return found, True
            if error.errno != errno.ENOENT:
                raise
            if not asks_for_storage(instance, id):
                raise no_storage(id) from None
            if pause is None:
                problem = f"job {f58(id)}: the dws module does not know it yet"
                raise Refused(errno.ENOENT, problem) from None
        instance.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def ask_about(instance: Instance, request: Json, tick: Optional[Tick] = None) -> Json:
    """The answer to ``dws.job-show``, with the nodes and the exceptions of the job:
    those that are not fatal are in its eventlog only.

    Raises:
        Refused: the request has failed.
    """
    (answer,) = with_nodes(instance, [ask(instance, TOPIC, request, tick)])
    return {**answer, "exceptions": ended.exceptions(instance, request["id"])}


def look_up_ended(instance: Instance, id: int) -> Optional[Json]:
    """A job that has ended, as an answer of ``dws.job-show``; None for an active job,
    and for one whose data still goes out.

    Raises:
        Refused: there is no such job, it is another user's, or it asked for no storage.
    """
    job = instance.job(id)
    if job is None:
        raise unknown_job(instance, id)
    if not ended.is_inactive(job):
        return None
    try:
        if ended.is_moving_data(instance, id):
            return None
        found = ended.all_of(instance, ended.DETAILS, [job])
    except PermissionError:
        raise not_yours(id) from None
    if not found:
        raise no_storage(id)
    return found[0]


def asks_for_storage(instance: Instance, id: int) -> bool:
    """Whether the jobspec of a job has directives.

    Raises:
        Refused: the job is another user's.
    """
    try:
        jobspec = instance.kvs([(id, ended.JOBSPEC)]).get((id, ended.JOBSPEC), "")
    except PermissionError:
        raise not_yours(id) from None
    return ended.has_directives(jobspec)


def no_storage(id: int) -> Refused:
    return Refused(errno.ENOENT, f"job {f58(id)} has no #DW directives")


def not_yours(id: int) -> Refused:
    return Refused(errno.EPERM, f"job {f58(id)} is not yours")
