# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The data that a job loses when its storage goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.formats.timestamps import format_seconds
from flux_k8s.jobs.workflowinfo import DELETED, WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.reasons import Note, Reason
from flux_k8s.text import NOTE, printable

UNKNOWN_LOSS = "what was to be copied may not be copied"
"""The loss of a job whose Workflow is gone, and with it the directives."""


def losses(info: WorkflowInfo, view: WorkflowView) -> str:
    """The data that a job that ran loses if its storage is given up; "" if none."""
    found = []
    if view.damage is not None and (info.failed or view.desired is not State.Teardown):
        found.append(UNKNOWN_LOSS)  # it does not say which copies there were to be
    if view.unsaved:
        found.append(_not_copied(view.unsaved))
    hosts = view.left_mounted or hostlist.encode(info.mounts.left)
    if hosts and view.persistent_storage:
        names = ", ".join(view.persistent_storage)
        found.append(f"{hosts} may not have written everything to {names}")
    if view.left_mounted and view.copies_out:
        found.append(
            f"{view.left_mounted} has not unmounted: what it had not written is not"
            " copied"
        )
    return "; ".join(found)


def cause_of(info: WorkflowInfo) -> Reason:
    """The reason for which a job loses its data, or its storage."""
    view, known = info.view, info.told or info.interference
    if known is not None:
        return known.reason
    if view is None:
        return Reason.WORKFLOW_DELETED
    if not view.is_of(info.jobid):
        return Reason.NAME_TAKEN
    if view.damage is not None:
        return Reason.BAD_OBJECT
    if view.failure.reason is not Reason.CAUSE_UNKNOWN:
        return view.failure.reason
    if info.aborted:
        return Reason.EPILOG_GIVEN_UP
    if not info.failed and (info.abandoned or view.given_up):
        return Reason.GIVEN_UP
    mounted = view.left_mounted or info.mounts.left
    return Reason.UNMOUNT_FAILED if mounted else Reason.CAUSE_UNKNOWN


def loss_of(info: WorkflowInfo, view: WorkflowView) -> Optional[Note]:
    """The data that a job that ran loses, and why; None if none."""
    found = losses(info, view)
    return Note(found, cause_of(info)) if found else None


def with_losses(note: Note, info: WorkflowInfo, view: WorkflowView) -> Note:
    """``note``, and the data that is lost, for which a long note leaves room."""
    found = losses(info, view)
    if not found:
        return note
    return replace(note, text=f"{printable(note.text, NOTE // 2)}; {found}")


def kept_note(info: WorkflowInfo, view: WorkflowView) -> Note:
    """Why data could not be copied out, and how it can be rescued."""
    name, until = info.f58, format_seconds(view.failed_until or 0.0)
    hint = f"; its storage is kept until {until}: flux dws rescue {name} copies again"
    loss = with_losses(view.failure, info, view)
    return replace(loss, text=printable(loss.text, NOTE - len(hint)) + hint)


def loss_when_gone(info: WorkflowInfo) -> Optional[Note]:
    """The data that a job loses with its Workflow, which is gone; None if none."""
    if info.interference is not None:
        return info.interference
    if info.last is None:  # no Workflow of the job was seen by this service
        return info.interference_note(DELETED, f"; {UNKNOWN_LOSS}")
    unsaved = info.last.unsaved
    return Note(_not_copied(unsaved), cause_of(info)) if unsaved else None


def data_loss(info: WorkflowInfo) -> Optional[Note]:
    """What a job that ends with its storage loses of its data; None if nothing."""
    if info.aborted:
        given_up = Note("its epilog was given up", Reason.EPILOG_GIVEN_UP)
        return None if _is_copied(info) else given_up
    if not info.ran:
        return Note("the job did not run", Reason.NOT_RUN)
    if info.view is not None and info.view.is_of(info.jobid):
        return loss_of(info, info.view)
    if info.view is None and info.last is not None:
        return loss_when_gone(info)
    return info.interference or Note(UNKNOWN_LOSS, cause_of(info))


def left_persistent(info: WorkflowInfo) -> str:
    """A sentence about persistent storage that a job has made, although it did not run;
    "" without any. DWS keeps it from Setup on, whatever becomes of the job."""
    view = info.view
    if info.ran or view is None or not view.made_to_last or not view.is_of(info.jobid):
        return ""
    if view.ended[State.Setup] is None:
        return ""
    names = ", ".join(view.made_to_last)
    verb = "exists" if len(view.made_to_last) == 1 else "exist"
    return (
        f"the job did not run, but its persistent storage {names} {verb}:"
        " #DW destroy_persistent removes it"
    )


def late_nodes(info: WorkflowInfo) -> str:
    """A sentence about nodes that have unmounted, but not in time: nobody knows whether
    they were booted meanwhile, and lost what they had not written. "" without any."""
    view = info.view
    if view is None or not (view.kept_for and view.copies_out):
        return ""
    left = frozenset(view.left_mounted_nodes)
    late = [host for host in view.kept_for_nodes if host not in left]
    if not late:
        return ""
    return (
        f"{hostlist.encode(late)} unmounted late: if it was booted, what it had not"
        " written is not copied"
    )


def _is_copied(info: WorkflowInfo) -> bool:
    """Whether a job that ran has copy_out, and DWS has done all of it."""
    view = info.view
    if not info.ran or view is None or not view.is_of(info.jobid):
        return False
    return view.copies_out and not losses(info, view)


def _not_copied(unsaved: Sequence[str]) -> str:
    return f"not copied: {', '.join(unsaved)}"
