# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The parts of a Workflow that the service reads."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Union

from msgspec import Struct, field, to_builtins

from flux_k8s.errors import BadObject
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.timestamps import parse_go_duration, parse_timestamp
from flux_k8s.json_reader import is_integer, read_string
from flux_k8s.objects.decoding import Filled, decode, named, plain
from flux_k8s.objects.workflowdirectives import (
    COPYING,
    read_directives,
)
from flux_k8s.objects.workflowmarks import (
    INSTANCE,
    NO_FAILURE,
    read_copies,
    read_hosts,
    read_marks,
)
from flux_k8s.objects.workflowstate import (
    ERROR,
    NO_TIMES,
    STATES,
    TROUBLES,
    Driver,
    State,
    Times,
    times_ended,
    unsaved_copies,
)
from flux_k8s.ports import Encoded, Json
from flux_k8s.reasons import Note
from flux_k8s.text import NOTE, printable

FINALIZER = "flux-framework.readthedocs.io/workflow"
"""The finalizer of the service, by which Kubernetes keeps a Workflow."""

NAMED = "Workflow {name}"
"""A Workflow in messages."""

WLM_ID = "flux"
"""``spec.wlmID`` of the service's Workflows."""


class WorkflowView(Struct, frozen=True, kw_only=True):
    """The parts of a Workflow that the service reads: the object itself, what its
    directives ask for, its drivers, and the service's marks, by the annotations in
    :mod:`flux_k8s.objects.workflowmarks`. Times are UNIX times.

    Attributes:
        desired, state: None where the object has none, or an unknown one.
        status, message: of ``state``, which lags behind ``desired``.
        changed: when DWS began with ``state``.
        breakdowns, computes, token: namespace and name of each DirectiveBreakdown, of
            the Computes, and of the Secret with the workflow token.
        damage: the error in a malformed object, or None.
        forced: whether DWS takes ``desired`` for reached (``forceReady``).
        userid: None where ``spec.userID`` is no user ID.
        ours: by its label it may be one of this Flux instance.
        types: of the file systems that the directives make.
        mounts: the number of file systems that each compute node mounts.
        persistent_storage, made_to_last: the names of the persistent storage that the
            job uses, and that it makes.
        moves_data, runs_containers: whether it may have NnfDataMovements, containers.
        outstanding: the commands of the directives that DWS has not completed in
            ``state``.
        ended: for each state, when the last of its drivers completed it; None where
            there is none, or one has not.
        unsaved: source and destination of each copy_out directive that DWS has not
            carried out, without those of which the annotation :data:`COPIES` says that
            it has.
        copies_noted: whether that annotation is set.
        begun: for each state, when the service requested it, as far as is recorded.
        kept_for, left_mounted: nodes (RFC 29), or "".
        forced_at: when the service has had DWS take a state for reached last.
        failure: why data could not be copied out, or :data:`NO_FAILURE`.
        remade: how often it was made again.
        gone: it does not exist any more. Whoever keeps the view says so.
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
    changed: Optional[float] = None
    elapsed: Optional[float] = None
    breakdowns: tuple[tuple[str, str], ...] = ()
    computes: Optional[tuple[str, str]] = None
    environment: Mapping[str, str] = {}
    token: Optional[tuple[str, str]] = None
    damage: Optional[str] = None
    forced: bool = False
    userid: Optional[int] = None
    instance: str = ""
    ours: bool = True

    directives: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    mounts: int = 0
    persistent_storage: tuple[str, ...] = ()
    made_to_last: tuple[str, ...] = ()
    moves_data: bool = False
    runs_containers: bool = False
    copies_out: bool = False

    outstanding: tuple[str, ...] = ()
    ended: Times = NO_TIMES
    unsaved: tuple[str, ...] = ()

    copies_noted: bool = False
    begun: Times = NO_TIMES
    teardown_requested: bool = False
    warned: bool = False
    cut_off: bool = False
    releases_unmounted: bool = False
    nodes_released: bool = False
    stages_ahead: bool = False
    staged_for: Optional[str] = None
    kept_for: str = ""
    left_mounted: str = ""
    given_up: bool = False
    forced_at: Optional[float] = None
    failed_until: Optional[float] = None
    rescued: Optional[float] = None
    failure: Note = NO_FAILURE
    remade: int = 0
    gone: bool = False

    def is_of(self, jobid: int) -> bool:
        """Whether the Workflow was made for this job of this Flux instance."""
        return self.ours and self.wlm == WLM_ID and self.jobid == f58(jobid)

    @property
    def copy_failed(self) -> bool:
        """Whether copying the data of the job out has failed once, and the storage was
        kept."""
        return self.failed_until is not None or self.rescued is not None

    @property
    def is_not_kept(self) -> bool:
        """Whether copying the data of the job out has failed, and the storage could not
        be kept."""
        return bool(self.failure.text) and not self.copy_failed

    @property
    def kept_for_nodes(self) -> tuple[str, ...]:
        """The nodes in ``kept_for``; none if it cannot be read."""
        return read_hosts(self.kept_for)

    @property
    def left_mounted_nodes(self) -> tuple[str, ...]:
        """The nodes in ``left_mounted``; none if it cannot be read."""
        return read_hosts(self.left_mounted)

    @property
    def has_servers(self) -> bool:
        """Whether DWS has made storage by Servers that it deletes in Teardown. (Those
        of persistent storage may not be labelled as the job's.)"""
        made = self.ended[State.Setup] is not None
        made = made and bool(self.types) and not self.made_to_last
        return made and self.desired is not State.Teardown and not self.deleting

    @property
    def has_clientmounts(self) -> bool:
        """Whether DWS has made ClientMounts on the nodes, which it deletes in
        Teardown."""
        made = self.mounts > 0 and self.ended[State.PreRun] is not None
        return made and self.desired is not State.Teardown and not self.deleting

    @property
    def may_be_mounted(self) -> bool:
        """Whether nodes may have the storage mounted, as far as the service has
        requested states: it requests DataOut when none could write."""
        known = [state for state, at in zip(State, self.begun) if at is not None]
        asked = [state for state in known if state is not State.Teardown]
        return not asked or State.PreRun <= max(asked) < State.DataOut

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
        requested = None if self.desired is None else self.begun[self.desired]
        if requested is not None:
            return requested
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
    def decisive(self) -> tuple[object, ...]:
        """What a decision may rest on at once: of a later view in which this is the
        same only details have changed. Most changes of a Workflow are such: DWS begins
        with the state that was requested, and the drivers of the state begin and end,
        one after the other, before it is complete. In trouble everything counts."""
        tearing_down = self.deleting or self.state is State.Teardown
        return (
            self.uid,
            self.damage,
            self.desired,
            self.forced,
            self.deleting,
            self.kept_for,
            self.complete,
            self.copying,  # stall_timeout runs
            tearing_down and FINALIZER in self.finalizers,
            self if self.status in TROUBLES else None,
        )

    @classmethod
    def parse(
        cls, workflow: Encoded, may_own: Callable[[str], bool] = lambda label: True
    ) -> WorkflowView:
        """Read a Workflow. One that is malformed gives a view with ``damage``.

        Args:
            may_own: whether a Workflow with a label may be one of this Flux instance.
        """
        try:
            found = _read(decode(_Workflow, workflow, NAMED))
        except BadObject as error:
            damage = str(error)
            try:
                found = _read_damaged(plain(workflow), damage)
            except BadObject:
                found = _read_damaged({}, damage)
        return cls(**found, ours=may_own(found["instance"]))


# What is declared here is what a Workflow must be right in.


class _Metadata(Struct):
    uid: Filled
    resource_version: Filled = field(name="resourceVersion")
    name: Optional[str] = None
    finalizers: Optional[tuple[str, ...]] = None
    deletion: Any = field(name="deletionTimestamp", default=None)
    labels: Optional[dict[str, str]] = None
    annotations: Optional[dict[str, str]] = None


class _Spec(Struct):
    desired: str = field(name="desiredState")
    wlm: str = field(name="wlmID")
    jobid: Any = field(name="jobID", default=None)
    userid: Any = field(name="userID", default=None)
    directives: Optional[tuple[str, ...]] = field(name="dwDirectives", default=None)
    forced: Optional[bool] = field(name="forceReady", default=None)


class _Reference(Struct):
    namespace: Optional[str] = None
    name: Optional[str] = None


class _Secret(Struct):
    namespace: Optional[str] = field(name="secretNamespace", default=None)
    name: Optional[str] = field(name="secretName", default=None)


class _Status(Struct):
    state: Optional[str] = None
    ready: Optional[bool] = None
    status: Optional[str] = None
    message: Optional[str] = None
    changed: Optional[str] = field(name="desiredStateChange", default=None)
    elapsed: Optional[str] = field(name="elapsedTimeLastState", default=None)
    breakdowns: Optional[list[_Reference]] = field(
        name="directiveBreakdowns", default=None
    )
    computes: Optional[_Reference] = None
    env: Optional[dict[str, str]] = None
    token: Optional[_Secret] = field(name="workflowToken", default=None)
    drivers: Optional[list[Driver]] = None


class _Workflow(Struct):
    metadata: _Metadata
    spec: _Spec
    status: Optional[_Status] = None

    def bad(self, path: str, value: Any, expected: str) -> BadObject:
        name = named(NAMED, {"metadata": {"name": self.metadata.name}})
        return BadObject(name, path, value, expected)

    def state(self, path: str, name: str) -> State:
        """The state of this name."""
        if name not in STATES:
            raise self.bad(path, name, f"one of {', '.join(STATES)}")
        return STATES[name]

    def reference(
        self, path: str, found: Union[_Reference, _Secret]
    ) -> tuple[str, str]:
        """Namespace and name of another object."""
        if not (found.namespace and found.name):
            raise self.bad(path, to_builtins(found), "a namespace and a name")
        return found.namespace, found.name

    def optional_reference(
        self, path: str, found: Union[_Reference, _Secret, None]
    ) -> Optional[tuple[str, str]]:
        """The same, where there may be none. Go may write an empty one."""
        if found is None or found.namespace is found.name is None:
            return None
        return self.reference(path, found)


def _read(workflow: _Workflow) -> dict[str, Any]:
    """The attributes of a view.

    Raises:
        BadObject: the Workflow is malformed.
    """
    metadata, spec, status = workflow.metadata, workflow.spec, workflow.status
    status = status or _Status()
    desired, state = workflow.state("spec.desiredState", spec.desired), None
    if status.state is not None:
        state = workflow.state("status.state", status.state)
    annotations = metadata.annotations or {}
    directives = read_directives(spec.directives or ())
    drivers = status.drivers or ()
    copied = read_copies(annotations)
    userid = spec.userid
    return {
        "uid": metadata.uid,
        "resource_version": metadata.resource_version,
        "finalizers": metadata.finalizers or (),
        "deleting": metadata.deletion is not None,
        "instance": (metadata.labels or {}).get(INSTANCE, ""),
        **read_marks(annotations),
        "userid": userid if is_integer(userid) and userid >= 0 else None,
        "jobid": _jobid(spec.jobid if isinstance(spec.jobid, str) else ""),
        "wlm": spec.wlm,
        "desired": desired,
        "forced": spec.forced or False,
        **directives.storage,
        "state": state,
        "ready": status.ready or False,
        "status": printable(status.status or "", NOTE),
        "message": printable(status.message or "", NOTE),
        "changed": parse_timestamp(status.changed or ""),
        "elapsed": parse_go_duration(status.elapsed or ""),
        "breakdowns": tuple(
            workflow.reference(f"status.directiveBreakdowns[{number}]", item)
            for number, item in enumerate(status.breakdowns or ())
        ),
        "computes": workflow.optional_reference("status.computes", status.computes),
        "environment": status.env or {},
        "token": workflow.optional_reference("status.workflowToken", status.token),
        "outstanding": tuple(
            directives.commands.get(driver.dwd_index, "")
            for driver in drivers
            if driver.watch_state == status.state and not driver.completed
        ),
        "ended": times_ended(drivers),
        "unsaved": unsaved_copies(directives, drivers, copied or {}),
        "copies_noted": copied is not None,
    }


def _read_damaged(workflow: Any, damage: str) -> dict[str, Any]:
    """The attributes of the view of a malformed Workflow: enough to follow its
    Teardown."""
    metadata, spec, status = (
        _part(workflow, key) for key in ("metadata", "spec", "status")
    )
    finalizers = metadata.get("finalizers")
    annotations = _part(metadata, "annotations")
    return {
        "uid": read_string(metadata, "uid"),
        "resource_version": read_string(metadata, "resourceVersion"),
        "jobid": _jobid(read_string(spec, "jobID")),
        "wlm": read_string(spec, "wlmID"),
        "desired": STATES.get(read_string(spec, "desiredState")),
        "state": STATES.get(read_string(status, "state")),
        "ready": status.get("ready") is True,
        "status": printable(read_string(status, "status"), NOTE),
        "message": printable(read_string(status, "message"), NOTE),
        "finalizers": tuple(finalizers) if isinstance(finalizers, list) else (),
        "deleting": "deletionTimestamp" in metadata,
        **read_marks(annotations),
        "instance": read_string(_part(metadata, "labels"), INSTANCE),
        "damage": damage,
    }


def _jobid(text: str) -> str:
    """The job ID with the prefix that :func:`flux_k8s.formats.jobid.f58` writes."""
    return f"f{text[1:]}" if text.startswith("ƒ") else text


def _part(value: Json, key: str) -> Json:
    found = value.get(key)
    return found if isinstance(found, dict) else {}
