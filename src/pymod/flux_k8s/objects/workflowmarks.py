# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service writes down on a Workflow: its label and its annotations."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from flux_k8s.formats import hostlist
from flux_k8s.formats.timestamps import format_timestamp, parse_timestamp
from flux_k8s.json_reader import decimal, read_string
from flux_k8s.objects.storagerequest import AHEAD, UNMOUNTED
from flux_k8s.objects.workflowstate import STATES, State, Times
from flux_k8s.reasons import Note, Reason, read_reason
from flux_k8s.text import NOTE, printable

INSTANCE = "flux-framework.readthedocs.io/instance"
"""A label: the Flux instance whose job the Workflow belongs to."""

TEARDOWN_REQUESTED = "flux-framework.readthedocs.io/dismissed"
"""An annotation that the service writes when it requests Teardown. When a Workflow in
Teardown lacks it, another program has requested Teardown."""

CUT_OFF = "flux-framework.readthedocs.io/cut-off"
"""An annotation: the abort of the job was carried out. It keeps a service that is
started later from draining nodes and disabling Rabbits again that an administrator has
put back into service."""

REQUESTED = "flux-framework.readthedocs.io/requested"
"""An annotation: the states that the service has requested, each with the time by its
own clock, as ``Proposal=2026-11-21T02:30:40.003340Z Setup=...``. Time limits start
then. It is one annotation since Kubernetes keeps a second entry about each, and DWS
writes the whole Workflow some forty times for a job."""

WARNED = "flux-framework.readthedocs.io/warned"
"""An annotation: the job has an exception about its Teardown, which makes no
progress."""

RELEASE = "flux-framework.readthedocs.io/release"
"""An annotation: when the job's nodes go to other jobs, one of
:data:`flux_k8s.objects.storagerequest.RELEASES`; where it is missing, after
Teardown."""

NODES_RELEASED = "flux-framework.readthedocs.io/nodes-released"
"""An annotation that the service writes when it requests DataOut, with
:data:`KEPT_FOR`, or in Teardown: the job's nodes have unmounted, or are drained, and
the job may end before its storage is gone. A Workflow that has it is no orphan when its
job has ended."""

KEPT_FOR = "flux-framework.readthedocs.io/kept-for"
"""An annotation: the nodes (RFC 29) that had not unmounted in time, when some of them
could write. The storage is kept until none can, or DWS waits for them in Teardown."""

LEFT_MOUNTED = "flux-framework.readthedocs.io/left-mounted"
"""An annotation that the service writes when it requests the state after PostRun: the
nodes (RFC 29) that have not unmounted, and cannot write any more."""

GIVEN_UP = "flux-framework.readthedocs.io/given-up"
"""An annotation of a Workflow that is kept: the data of its job is given up."""

FORCED = "flux-framework.readthedocs.io/forced"
"""An annotation that the service writes when it has DWS take a state for reached: the
time. One of before the request for the state is about an earlier one."""

STAGE = "flux-framework.readthedocs.io/stage"
"""An annotation: when the job's storage is made, one of
:data:`flux_k8s.objects.storagerequest.STAGES`; where it is missing, in the prolog."""

STAGED_FOR = "flux-framework.readthedocs.io/staged-for"
"""An annotation that the service writes when it requests Setup before the job has
nodes: the nodes that the job may get (RFC 29), or empty if it may get any."""

FAILED_UNTIL = "flux-framework.readthedocs.io/failed-until"
"""An annotation: the data of the job could not be copied out, and the time until which
its storage is kept so that the data can be rescued."""

FAILURE = "flux-framework.readthedocs.io/failure"
"""An annotation that goes with :data:`FAILED_UNTIL`: the reason, in words. Alone: the
storage could not be kept."""

FAILURE_REASON = "flux-framework.readthedocs.io/failure-reason"
"""An annotation that goes with :data:`FAILURE`, and with what is requested when a job
has failed: the reason, as one of :class:`~flux_k8s.reasons.Reason`."""

RESCUED = "flux-framework.readthedocs.io/rescued"
"""An annotation in place of :data:`FAILED_UNTIL`: the time since which the data is
copied again."""

COPIES = "flux-framework.readthedocs.io/copies"
"""An annotation: what became of each copy_out directive that DWS had not reported on
when data was given up, by its number, as ``1=copied 2=failed``. One that is missing was
not begun, or had not ended."""

REMADE = "flux-framework.readthedocs.io/remade"
"""An annotation of a Workflow that was made again, since the one before was lost: how
often that was so."""

NO_FAILURE = Note("", Reason.CAUSE_UNKNOWN)
"""The failure of a Workflow without one."""

COPIED, COPY_FAILED = "copied", "failed"

LONGEST_NOTE = 64 * len(State)
"""Characters of the annotation :data:`REQUESTED`, at most."""

_LONGEST_COPIES = 65536
"""Characters of the annotation :data:`COPIES`, at most: a Workflow has fewer copies."""


def read_marks(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a :class:`~flux_k8s.objects.workflowview.WorkflowView` that are
    annotations."""
    return {
        "begun": requested_times(annotations),
        "teardown_requested": TEARDOWN_REQUESTED in annotations,
        "warned": WARNED in annotations,
        "cut_off": CUT_OFF in annotations,
        "releases_unmounted": annotations.get(RELEASE) == UNMOUNTED,
        "nodes_released": NODES_RELEASED in annotations,
        "kept_for": printable(read_string(annotations, KEPT_FOR)),
        "left_mounted": printable(read_string(annotations, LEFT_MOUNTED)),
        "stages_ahead": annotations.get(STAGE) == AHEAD,
        "staged_for": annotations.get(STAGED_FOR),
        "given_up": GIVEN_UP in annotations,
        "forced_at": parse_timestamp(read_string(annotations, FORCED)),
        "failed_until": parse_timestamp(read_string(annotations, FAILED_UNTIL)),
        "rescued": parse_timestamp(read_string(annotations, RESCUED)),
        "failure": _failure(annotations),
        "remade": decimal(read_string(annotations, REMADE)) or 0,
    }


def requested_times(annotations: Mapping[str, Any]) -> Times:
    """When the service requested each state, as far as that is recorded."""
    note = read_string(annotations, REQUESTED)
    words = note.split() if len(note) <= LONGEST_NOTE else ()
    entries = (word.partition("=") for word in words)
    found = {name: parse_timestamp(stamp) for name, _, stamp in entries}
    return tuple(map(found.get, STATES))


def requested_note(times: Mapping[State, float]) -> str:
    """The annotation :data:`REQUESTED`."""
    return " ".join(
        f"{state.name}={format_timestamp(times[state])}" for state in sorted(times)
    )


def copies_note(copied: Mapping[int, bool]) -> str:
    """The annotation :data:`COPIES`.

    Args:
        copied: by the number of the directive, whether its data is copied.
    """
    words = (COPIED if done else COPY_FAILED for done in copied.values())
    return " ".join(map("{}={}".format, copied, words))


def read_copies(annotations: Mapping[str, Any]) -> Optional[dict[int, bool]]:
    """By the number of the directive, whether its data is copied, as far as the
    annotation :data:`COPIES` says; None where it is missing."""
    if COPIES not in annotations:
        return None
    note = read_string(annotations, COPIES)
    words = note.split() if len(note) <= _LONGEST_COPIES else ()
    copied: dict[int, bool] = {}
    for word in words:
        number, _, outcome = word.partition("=")
        index = decimal(number)
        if index is not None and outcome in (COPIED, COPY_FAILED):
            copied[index] = outcome == COPIED
    return copied


def read_hosts(text: str) -> tuple[str, ...]:
    """The nodes of an annotation, as far as it can be read."""
    try:
        return hostlist.decode(text)
    except ValueError:
        return ()


def _failure(annotations: Mapping[str, Any]) -> Note:
    """Why data could not be copied out; without a text if the job has failed for
    something else, or not at all."""
    text = printable(read_string(annotations, FAILURE), NOTE)
    reason = read_reason(annotations.get(FAILURE_REASON))
    return Note(text, reason) if text or reason is not NO_FAILURE.reason else NO_FAILURE
