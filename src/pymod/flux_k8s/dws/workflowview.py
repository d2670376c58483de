# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The parts of a Workflow that the service reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, Optional

from flux_k8s.dws.goduration import parse_go_duration
from flux_k8s.dws.workflowdirectives import (
    COPYING,
    WorkflowDirectives,
    read_directives,
)
from flux_k8s.dws.workflowdrivers import (
    Driver,
    outstanding,
    read_drivers,
    times_ended,
    unsaved_copies,
)
from flux_k8s.dws.workflowmarks import (
    KEPT_FOR,
    NO_FAILURE,
    annotations_of,
    instance_of,
    read_copies,
    read_hosts,
    read_marks,
    requested_times,
)
from flux_k8s.dws.workflowstate import (
    ERROR,
    NO_TIMES,
    STATES,
    TROUBLES,
    State,
    Times,
)
from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader, is_integer, read_string
from flux_k8s.ports import Json
from flux_k8s.reasons import Note
from flux_k8s.rfc.timestamps import parse_timestamp
from flux_k8s.text import NOTE, printable

FINALIZER = "flux-framework.readthedocs.io/workflow"
"""The finalizer of the service, by which Kubernetes keeps a Workflow."""

WLM_ID = "flux"
"""``spec.wlmID`` of the service's Workflows."""


@dataclass(frozen=True)
class WorkflowView:
    """The parts of a Workflow that the service reads. The names of annotations are
    those of :mod:`flux_k8s.dws.workflowmarks`.

    Attributes:
        desired, state: None where the object has none, or an unknown one.
        status, message: of ``state``, which lags behind ``desired``.
        changed: when DWS began with ``state`` (UNIX time), or None.
        requested: when the service requested ``desired`` (UNIX time), or None.
        unmounting: when the service requested PostRun (UNIX time), or None.
        trouble_note: the annotation :data:`TROUBLE`, or "".
        warned: whether the annotation :data:`WARNED` is set.
        out_of_reach: the annotation :data:`OUT_OF_REACH`, or 0.
        damage: the error in a malformed object, or None.
        teardown_requested: whether the service requested Teardown.
        forced: whether DWS takes ``desired`` for reached (``forceReady``).
        outstanding: the commands of the directives that DWS has not completed in
            ``state``.
        mounts: the number of file systems that each compute node mounts.
        unsaved: source and destination of each copy_out directive that DWS has not
            carried out, without those of which the annotation :data:`COPIES` says that
            it has.
        copies_noted: whether that annotation is set.
        persistent_storage: the names of the persistent storage that the job uses.
        made_to_last: the names of the persistent storage that the job makes.
        cut_off: whether the abort of the job was carried out.
        userid: the job's user by ``spec.userID``; None where that is no user ID.
        directives: the directives as they were submitted.
        types: the types of the file systems that the directives make.
        instance: the label :data:`INSTANCE`, or "".
        begun: for each state the UNIX time at which the service requested it; None
            where that is not recorded.
        ended: for each state the UNIX time at which the last of its drivers completed
            it; None where there is none, or one has not.
        releases_unmounted: by the annotation :data:`RELEASE`, whether the job's nodes
            go to other jobs when they have unmounted.
        nodes_released: whether the annotation :data:`NODES_RELEASED` is set.
        stages_ahead: by the annotation :data:`STAGE`, whether the job's storage is made
            before the job has nodes.
        staged_for: the annotation :data:`STAGED_FOR`; None where it is missing.
        moves_data: whether the Workflow may have NnfDataMovements.
        runs_containers: whether the Workflow may have containers.
        copies_out: whether it has copy_out directives.
        kept_for, left_mounted: the annotations :data:`KEPT_FOR` and
            :data:`LEFT_MOUNTED`, or "".
        given_up: whether the annotation :data:`GIVEN_UP` is set.
        failed_until, rescued: the annotations :data:`FAILED_UNTIL` and :data:`RESCUED`
            (UNIX times), or None.
        failure: the annotations :data:`FAILURE` and :data:`FAILURE_REASON`, or
            :data:`NO_FAILURE`.
        remade: the annotation :data:`REMADE`, or 0.
        misdated: whether a time that the service has written is yet to come.
    """

    uid: str
    resource_version: str
    jobid: str
    wlm: str
    desired: Optional[State]
    state: Optional[State]
    ready: bool
    status: str
    message: str
    finalizers: tuple[str, ...]
    deleting: bool
    changed: Optional[float]
    elapsed: Optional[float]
    breakdowns: tuple[tuple[str, str], ...]
    """Namespace and name of each DirectiveBreakdown."""
    computes: Optional[tuple[str, str]]
    environment: Mapping[str, str]
    token: Optional[tuple[str, str]]
    """Namespace and name of the Secret with the workflow token."""
    damage: Optional[str] = None
    teardown_requested: bool = False
    requested: Optional[float] = None
    unmounting: Optional[float] = None
    trouble_note: str = ""
    warned: bool = False
    out_of_reach: float = 0.0
    forced: bool = False
    outstanding: tuple[str, ...] = ()
    mounts: int = 0
    unsaved: tuple[str, ...] = ()
    copies_noted: bool = False
    persistent_storage: tuple[str, ...] = ()
    made_to_last: tuple[str, ...] = ()
    cut_off: bool = False
    userid: Optional[int] = None
    directives: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    instance: str = ""
    begun: Times = NO_TIMES
    ended: Times = NO_TIMES
    releases_unmounted: bool = False
    nodes_released: bool = False
    stages_ahead: bool = False
    staged_for: Optional[str] = None
    moves_data: bool = False
    runs_containers: bool = False
    copies_out: bool = False
    kept_for: str = ""
    left_mounted: str = ""
    given_up: bool = False
    failed_until: Optional[float] = None
    rescued: Optional[float] = None
    failure: Note = NO_FAILURE
    remade: int = 0
    misdated: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether copying the data of the job out has failed once, and the storage was
        kept."""
        return self.failed_until is not None or self.rescued is not None

    @property
    def kept_for_nodes(self) -> tuple[str, ...]:
        """The nodes in ``kept_for``; none if it cannot be read."""
        return read_hosts(self.kept_for)

    @property
    def left_mounted_nodes(self) -> tuple[str, ...]:
        """The nodes in ``left_mounted``; none if it cannot be read."""
        return read_hosts(self.left_mounted)

    @property
    def has_clientmounts(self) -> bool:
        """Whether DWS has made ClientMounts on the nodes, which it deletes in
        Teardown."""
        made = self.mounts > 0 and self.ended[State.PreRun] is not None
        return made and self.desired is not State.Teardown and not self.deleting

    @property
    def awaits_unmount(self) -> bool:
        """Whether the storage waits for the nodes in ``kept_for``, which may have
        unmounted, or cannot write any more."""
        if self.desired is State.Teardown:
            return bool(self.kept_for) and not self.complete
        return bool(self.kept_for) and self.desired is State.PostRun

    @property
    def awaits_copies(self) -> bool:
        """Whether the Workflow copies data now, or is about to."""
        in_state = self.desired in (State.DataIn, State.DataOut)
        return self.moves_data and in_state and not self.complete

    @property
    def awaits_mounts(self) -> bool:
        """Whether the nodes mount or unmount the storage now."""
        in_state = self.desired in (State.PreRun, State.PostRun)
        return self.mounts > 0 and in_state and not self.complete

    @property
    def complete(self) -> bool:
        """Whether the Workflow has reached ``desired``."""
        return self.ready and self.state is not None and self.state is self.desired

    @property
    def proposed(self) -> bool:
        """Whether DWS has broken down the directives: Proposal is over."""
        return self.state is not None and (
            self.desired is not State.Proposal or self.complete
        )

    @property
    def copying(self) -> bool:
        """Whether DWS works on a copy_in or copy_out."""
        moving = self.state in (State.DataIn, State.DataOut)
        begun = moving and self.state is self.desired and not self.ready
        return begun and any(command in COPYING for command in self.outstanding)

    @property
    def since(self) -> Optional[float]:
        """Since when the service waits for ``desired`` (UNIX time); None when that is
        not recorded. Until DWS begins with ``desired``, ``changed`` is about the state
        before."""
        if self.requested is not None:
            return self.requested
        return self.changed if self.state is self.desired else None

    @property
    def in_error(self) -> bool:
        """Whether DWS failed in ``desired``. (A Workflow that DWS refuses at once may
        have no state at all.)"""
        return self.status == ERROR and self.state in (self.desired, None)

    @property
    def trouble(self) -> Optional[tuple[State, str]]:
        """The state in which DWS is in trouble, and its status there."""
        if self.state is None or self.state is not self.desired:
            return None
        return (self.state, self.status) if self.status in TROUBLES else None

    @property
    def latest(self) -> float:
        """The latest of the times at which something was, or has begun (UNIX time)."""
        times = (self.changed, self.rescued, *self.begun, *self.ended)
        return max((time for time in times if time is not None), default=0.0)

    def redated(self, past: Callable[[float], float]) -> WorkflowView:
        """The view with other times.

        Args:
            past: returns the time (UNIX) that counts for one in the view.
        """

        def counts(time: Optional[float]) -> Optional[float]:
            return None if time is None else past(time)

        begun, rescued = tuple(map(counts, self.begun)), counts(self.rescued)
        return replace(
            self,
            begun=begun,
            requested=counts(self.requested),
            unmounting=counts(self.unmounting),
            changed=counts(self.changed),
            ended=tuple(map(counts, self.ended)),
            rescued=rescued,
            misdated=self.misdated or (begun, rescued) != (self.begun, self.rescued),
        )

    def shows(self, workflow: Json) -> bool:
        """Whether this is the view of this version of a Workflow."""
        metadata = workflow.get("metadata")
        return (
            isinstance(metadata, dict)
            and metadata.get("uid") == self.uid
            and metadata.get("resourceVersion") == self.resource_version != ""
        )

    def differs_in_details(self, workflow: Json) -> bool:
        """Whether another version of this Workflow is like this view but for details
        that nothing is to be done about at once. Most changes of a Workflow are such:
        DWS begins with the state that was requested, and the drivers of the state
        begin and end, one after the other, before it is complete."""
        metadata, spec, status = map(workflow.get, ("metadata", "spec", "status"))
        if not (
            isinstance(metadata, dict)
            and isinstance(spec, dict)
            and isinstance(status, dict)
        ):
            return False
        return (
            self.damage is None
            and self.desired is not None
            and metadata.get("uid") == self.uid
            and spec.get("desiredState") == self.desired.name
            and bool(spec.get("forceReady")) is self.forced
            and not self.deleting
            and "deletionTimestamp" not in metadata
            and read_string(annotations_of(metadata), KEPT_FOR) == self.kept_for
            and self.status not in TROUBLES
            and status.get("status") not in TROUBLES
            and (self._is_as_far(status) or self._is_begun(status))
        )

    def _is_as_far(self, status: Json) -> bool:
        """Whether another status of this Workflow is about the same state, and DWS is
        as far with it."""
        return (
            status.get("state") == (None if self.state is None else self.state.name)
            and status.get("status", "") == self.status
            and status.get("ready", False) is self.ready
        )

    def _is_begun(self, status: Json) -> bool:
        """Whether DWS works on the requested state in another status of this Workflow,
        and has not completed the state in either. A finalizer that is still there in
        Teardown is removed as soon as DWS has begun."""
        assert self.desired is not None
        return (
            not (self.desired is State.Teardown and FINALIZER in self.finalizers)
            and status.get("state") == self.desired.name
            and status.get("ready", False) is False
            and not self.complete
        )

    @classmethod
    def parse(cls, workflow: Json) -> WorkflowView:
        """Read a Workflow. One that is malformed gives a view with ``damage``."""
        metadata = workflow.get("metadata")
        name = read_string(metadata, "name") if isinstance(metadata, dict) else ""
        reader = Reader(f"Workflow {name}", workflow)
        try:
            return cls(**_read(reader))
        except BadObject as error:
            return cls._damaged(workflow, str(error))

    @classmethod
    def _damaged(cls, workflow: Json, damage: str) -> WorkflowView:
        """The view of a malformed Workflow: enough to follow its Teardown."""
        metadata, spec, status = (
            part if isinstance(part, dict) else {}
            for part in (workflow.get(key) for key in ("metadata", "spec", "status"))
        )
        finalizers = metadata.get("finalizers")
        annotations = annotations_of(metadata)
        begun = requested_times(annotations)
        desired = STATES.get(read_string(spec, "desiredState"))
        return cls(
            uid=read_string(metadata, "uid"),
            resource_version=read_string(metadata, "resourceVersion"),
            jobid=_jobid(spec),
            wlm=read_string(spec, "wlmID"),
            desired=desired,
            state=STATES.get(read_string(status, "state")),
            ready=status.get("ready") is True,
            status=printable(read_string(status, "status"), NOTE),
            message=printable(read_string(status, "message"), NOTE),
            finalizers=tuple(finalizers) if isinstance(finalizers, list) else (),
            deleting="deletionTimestamp" in metadata,
            **read_marks(annotations),
            instance=instance_of(metadata),
            requested=None if desired is None else begun[desired],
            begun=begun,
            changed=None,
            elapsed=None,
            breakdowns=(),
            computes=None,
            environment={},
            token=None,
            damage=damage,
        )


def _read(workflow: Reader) -> dict[str, Any]:
    """The attributes of a view.

    Raises:
        BadObject: the Workflow is malformed.
    """
    metadata, spec = workflow.object("metadata"), workflow.object("spec")
    status = workflow.optional_object("status") or Reader(workflow.name, {}, "status")
    annotations = annotations_of(metadata.value)
    begun = requested_times(annotations)
    directives = read_directives(spec.optional_strings("dwDirectives"))
    drivers = read_drivers(status)
    copied = read_copies(annotations)
    return {
        **_metadata(metadata, annotations, begun),
        **_spec(spec, begun),
        **directives.storage,
        **_status(status),
        **_progress(status, directives, drivers),
        "unsaved": unsaved_copies(directives, drivers, copied or {}),
        "copies_noted": copied is not None,
    }


def _metadata(
    metadata: Reader, annotations: Mapping[str, Any], begun: Times
) -> dict[str, Any]:
    return {
        "uid": metadata.string("uid"),
        "resource_version": metadata.string("resourceVersion"),
        "finalizers": metadata.optional_strings("finalizers"),
        "deleting": metadata.has("deletionTimestamp"),
        "unmounting": begun[State.PostRun],
        "instance": instance_of(metadata.value),
        "begun": begun,
        **read_marks(annotations),
    }


def _spec(spec: Reader, begun: Times) -> dict[str, Any]:
    desired = STATES[spec.string("desiredState", choices=STATES)]
    userid: Any = spec.value.get("userID")
    return {
        "userid": userid if is_integer(userid) and userid >= 0 else None,
        "jobid": _jobid(spec.value),
        "wlm": spec.text("wlmID"),
        "desired": desired,
        "requested": begun[desired],
        "forced": spec.optional_boolean("forceReady") or False,
    }


def _jobid(spec: Json) -> str:
    """The job ID with the prefix that :func:`flux_k8s.rfc.jobid.f58` writes."""
    text = read_string(spec, "jobID")
    return f"f{text[1:]}" if text.startswith("ƒ") else text


def _status(status: Reader) -> dict[str, Any]:
    return {
        "ready": status.optional_boolean("ready") or False,
        "status": printable(status.optional_text("status") or "", NOTE),
        "message": printable(status.optional_text("message") or "", NOTE),
        "changed": parse_timestamp(status.optional_text("desiredStateChange") or ""),
        "elapsed": parse_go_duration(
            status.optional_text("elapsedTimeLastState") or ""
        ),
        "breakdowns": tuple(
            (item.string("namespace"), item.string("name"))
            for item in status.optional_objects("directiveBreakdowns")
        ),
        "computes": _reference(status, "computes", "namespace", "name"),
        "environment": _environment(status),
        "token": _reference(status, "workflowToken", "secretNamespace", "secretName"),
    }


def _progress(
    status: Reader, directives: WorkflowDirectives, drivers: list[Driver]
) -> dict[str, Any]:
    """The state, and what DWS has done for the directives."""
    state = status.optional_string("state", choices=STATES)
    return {
        "state": None if state is None else STATES[state],
        "outstanding": outstanding(directives, drivers, state),
        "ended": times_ended(drivers),
    }


def _environment(status: Reader) -> Mapping[str, str]:
    variables = status.optional_object("env")
    if variables is None:
        return {}
    for name, value in variables.value.items():
        if not isinstance(value, str):
            raise BadObject(status.name, f"status.env[{name}]", value, "a string")
    return dict(variables.value)


def _reference(
    status: Reader, path: str, namespace: str, name: str
) -> Optional[tuple[str, str]]:
    reference = status.optional_object(path)
    if reference is None or not reference.value:
        return None
    return reference.string(namespace), reference.string(name)
