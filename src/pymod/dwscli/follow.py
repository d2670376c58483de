# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A job's storage until it is gone: each change is shown as it comes.

The module holds a request until the job changes. It may be reloaded meanwhile, and
Flux's job-list may know a little later than the module that a job has ended.
"""

from __future__ import annotations

import errno

from dwscli.details import AWAY, ask_about, look_up, look_up_ended
from dwscli.ended import NONE
from dwscli.instance import Instance, Refused
from dwscli.page import old_line
from dwscli.painters import Painter
from dwscli.reading import number, text
from dwscli.terminal import warn
from dwscli.units import f58
from flux_k8s.command import CommandError
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Json

OF_ANSWERS = ("serial", "now", "kubernetes", "incomplete", "age")
"""The keys that are about an answer, and not about its job."""

PAUSE = 0.5
"""Seconds before the next request where the module did not hold the last one."""


def follow(instance: Instance, id: int, painter: Painter) -> None:
    """Show a job until its storage is gone.

    Raises:
        CommandError: its storage has failed, or data is lost.
        Refused: it cannot be shown.
    """
    answer, has_ended = look_up(instance, id)
    failed = ""
    try:
        while not has_ended:
            painter.show(answer)
            failed = _failure(answer) or failed
            before = answer
            answer, has_ended = _next(instance, id, before, painter)
            answer = _with_known(before, answer)
    except BaseException:
        painter.stop()
        raise
    painter.finish(answer)
    failed = _failure(answer) or failed
    if failed:
        raise CommandError(f"job {f58(id)}: {failed}")


def _failure(answer: Json) -> str:
    """Why the storage of a job has failed, if its data cannot be rescued any more."""
    return text(answer, "failed") if answer.get("kept_until") is None else ""


def _with_known(before: Json, answer: Json) -> Json:
    """An answer, with what was known before where the job's Workflow is gone after its
    Teardown, or where the module that gives the answer was loaded since, and Kubernetes
    has not told it of the Workflow."""
    is_over = text(before, "state") == State.Teardown.name
    if text(answer, "state") != NONE or not (is_over or old_line(answer)):
        return answer
    return {**before, **{key: answer[key] for key in OF_ANSWERS if key in answer}}


def _next(
    instance: Instance, id: int, answer: Json, painter: Painter
) -> tuple[Json, bool]:
    """The next answer, and whether the job has ended."""
    request = {"id": id, "seen": int(number(answer, "serial") or 0)}
    is_away = False
    while True:
        try:
            return ask_about(instance, request, painter.tick), False
        except Refused as error:
            if error.errno not in (errno.EAGAIN, errno.ENOENT, *AWAY):
                raise
            # So many requests are held that this one was not (EAGAIN), or the next
            # answer is of another service, whose clock may have been set back.
            request = {"id": id}
            if error.errno in AWAY and not is_away:
                is_away = True
                painter.stop()
                warn("the dws module is away: waiting for it")
            if error.errno != errno.EAGAIN:
                found = look_up_ended(instance, id)
                if found is not None:
                    return found, True
        painter.tick()
        instance.sleep(PAUSE)
