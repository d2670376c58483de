# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What became of the data of jobs: the records in their KVS, and the reports about jobs
that have ended before their data was out.

The KVS directory of a job gets ``rabbit_data_out``, where the plugin looks for jobs
that depend on the data. A job that ended before its data was out takes no exceptions:
the plugin is told, an event is published, and the log has a line. The event
:data:`EVENT` has ``id`` and ``success``, and not what is lost: all users may subscribe
to it.
"""

from __future__ import annotations

import base64
import errno
import json
import syslog
from dataclasses import replace
from typing import Optional

from flux_k8s.control.coroutines import call
from flux_k8s.formats.timestamps import format_seconds
from flux_k8s.jobs.losses import UNKNOWN_LOSS, late_nodes
from flux_k8s.jobs.records import is_purged, look_up
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import Flux, Json, RpcError
from flux_k8s.reasons import Note, Reason, read_reason
from flux_k8s.text import NOTE, printable

DATA_OUT = "rabbit_data_out"
"""``{"success": true}``, or ``{"success": false, "errstr": "...", "reason": "..."}``,
as JSON, with a ``note`` if nodes have unmounted late."""

NODES_RELEASED = "rabbit_nodes_released"
"""The UNIX time at which a job gave its nodes back before its data was out. Of such a
job, :data:`DATA_OUT` is missing until the data is out."""

KEPT_FOR = "rabbit_kept_for"
"""The nodes for which a job's storage was kept, when and until what, as JSON."""

FAILED = "rabbit_data_failed"
"""Why a job's data could not be copied out, when, and until when its storage is kept so
that it can be rescued, as JSON."""

EVENT = "dws.data-out"

LOST = Note(UNKNOWN_LOSS, Reason.CAUSE_UNKNOWN)
UNRECORDED = Note("the job ended without a record of its data", Reason.CAUSE_UNKNOWN)


class Outcomes:
    """Records and reports what became of jobs' data."""

    def __init__(self, flux: Flux) -> None:
        self._flux = flux

    async def record(self, info: WorkflowInfo, loss: Optional[Note]) -> None:
        """Record what became of the data of a job that is about to end with its
        storage: the plugin looks for the record as soon as the job has ended. All that
        was written to the job's KVS before is there then, too.

        What a service has recorded that knew the Workflow stands where this one has
        never seen it: a request about a job may be late, when all that was of the job
        is gone.

        Args:
            loss: what is lost, and why; None if nothing is. A module that was loaded
                before may have recorded a reason that is not known any more.

        Raises:
            RpcError: it was not written.
        """
        loss = _shown(loss)
        if info.last is None:
            if await self._recorded(info.jobid) is not None:
                return
        elif loss is not None and loss.reason is Reason.CAUSE_UNKNOWN:
            recorded = await self._recorded(info.jobid)
            known = None if recorded is None else _loss_in(recorded)
            loss = known if known is not None and known.text == loss.text else loss
        text = json.dumps(_record(loss))
        await call(self._flux.kvs_commit, info.jobid, DATA_OUT, text)

    async def write_release(self, info: WorkflowInfo) -> None:
        """Record that a job is about to end before its data is out.

        Raises:
            RpcError: it was not written.
        """
        now = f"{self._flux.now():.3f}"
        await call(self._flux.kvs_commit, info.jobid, NODES_RELEASED, now)

    async def write_kept(self, info: WorkflowInfo, nodes: str, until: str) -> None:
        """Record for which nodes the storage of a job is kept, and until what. The
        epilog script on these nodes reads that.

        Raises:
            RpcError: a request to Flux failed, and is to be repeated.
        """
        record = {"nodes": nodes, "at": self._flux.now(), "until": until}
        await call(self._flux.kvs_commit, info.jobid, KEPT_FOR, json.dumps(record))

    async def write_failed(self, info: WorkflowInfo, until: float, note: Note) -> None:
        """Record that the data of a job could not be copied out, and until when its
        storage is kept.

        Raises:
            RpcError: it was not written.
        """
        record = {
            "errstr": printable(note.text, NOTE),
            "reason": note.reason.value,
            "at": self._flux.now(),
            "until": until,
        }
        if not (info.released and await is_purged(self._flux, info.jobid)):
            text = json.dumps(record)
            await call(self._flux.kvs_commit, info.jobid, FAILED, text)

    def log_failed(self, info: WorkflowInfo, until: float, note: Note) -> None:
        """Log that the data of a job is not out, and until when its storage is kept."""
        kept = f"its storage is kept until {format_seconds(until)}"
        text = f"{info.f58}: its data is not out: {note.text}; {kept}"
        self._flux.log(syslog.LOG_ERR, text, note.reason)

    async def report(self, info: WorkflowInfo, loss: Optional[Note]) -> None:
        """Report that the data of a job that has ended is out, or what of it is lost.
        A report may be repeated.

        Args:
            loss: what is lost, and why; None if nothing is.

        Raises:
            RpcError: a request to Flux failed, and is to be repeated.
        """
        loss = _shown(loss)
        note = printable(late_nodes(info), NOTE)
        if not await is_purged(self._flux, info.jobid):
            # A module that was loaded before knew the reason, which is lost with it, or
            # that the job did not run. Data that was out then is not lost with its
            # Workflow, nor is what was lost lost again.
            record = await self._recorded(info.jobid)
            loss = loss if record is None else _loss_in(record)
            text = json.dumps(_record(loss, note))
            await call(self._flux.kvs_commit, info.jobid, DATA_OUT, text)
        await self._notify_plugin(info.jobid, loss)
        await self._publish({"id": info.jobid, "success": loss is None})
        info.data_reported = True
        self._log_report(info, loss, note)

    def _log_report(self, info: WorkflowInfo, loss: Optional[Note], note: str) -> None:
        level, outcome, reason = syslog.LOG_INFO, "its data is out", Reason.DATA_OUT
        if note:
            level, reason = syslog.LOG_WARNING, Reason.UNMOUNTED_LATE
        if loss is not None:
            outcome = f"its data is not out: {loss.text}"
            level, reason = syslog.LOG_ERR, loss.reason
        text = "; ".join(filter(None, (outcome, note)))
        self._flux.log(level, f"{info.f58}: {text}", reason)

    async def repeat(self, jobid: int) -> bool:
        """Tell the jobs that depend on the data of a job what is recorded of it. They
        fail if the job was purged, or has left neither a record nor a Workflow. Return
        whether that is so, and not that the data still goes out.

        Raises:
            RpcError: a request to Flux failed, and is to be repeated.
        """
        record = await self._recorded(jobid)
        if record is not None:
            loss = _loss_in(record)
        elif await is_purged(self._flux, jobid):
            loss = LOST
        elif await self.ended_before(jobid):
            return False
        else:
            loss = UNRECORDED
        await self._notify_plugin(jobid, loss)
        return True

    async def ended_before(self, jobid: int) -> bool:
        """Whether a job has ended, or is about to, before its data was out.

        Raises:
            RpcError: that is not known.
        """
        return await look_up(self._flux, jobid, NODES_RELEASED) is not None

    async def _recorded(self, jobid: int) -> Optional[Json]:
        """The record of a job's data; None if it has none that can be read, or was
        purged."""
        text = await look_up(self._flux, jobid, DATA_OUT)
        return None if text is None else _read_record(text)

    async def _notify_plugin(self, jobid: int, loss: Optional[Note]) -> None:
        """Tell the jobs that depend on the data. Without the plugin none does; it reads
        the record when it is loaded."""
        payload: Json = {"id": jobid, **_why(loss)}
        try:
            await call(self._flux.rpc, "job-manager.dws.data-out", payload)
        except RpcError as error:
            if error.errnum not in (errno.ENOSYS, errno.ENOENT):
                raise

    async def _publish(self, payload: Json) -> None:
        """Publish the event (RFC 3)."""
        text = json.dumps(payload).encode() + b"\0"
        event = {
            "topic": EVENT,
            "flags": 0,
            "payload": base64.b64encode(text).decode(),
        }
        await call(self._flux.rpc, "event.publish", event)


def _read_record(text: str) -> Optional[Json]:
    """The record in ``text``; None if it cannot be read."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(record, dict) and isinstance(record.get("success"), bool)
    return record if is_record else None


def _loss_in(record: Json) -> Optional[Note]:
    """What is lost by a record; None if nothing is. One of an older module has no
    reason."""
    if record["success"]:
        return None
    text = str(record.get("errstr", UNKNOWN_LOSS))
    return Note(text, read_reason(record.get("reason")))


def _shown(loss: Optional[Note]) -> Optional[Note]:
    return None if loss is None else replace(loss, text=printable(loss.text, NOTE))


def _why(loss: Optional[Note]) -> Json:
    """The part of a message about a loss."""
    if loss is None:
        return {}
    return {"errstr": loss.text, "reason": loss.reason.value}


def _record(loss: Optional[Note], note: str = "") -> Json:
    record: Json = {"success": loss is None, **_why(loss)}
    if note:
        record["note"] = note
    return record
