# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons for which a job of a plan may fail, as far as the plan, and the course of
the run, allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Collection, Mapping, Optional

from flux_k8s.formats import hostlist
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.reasons import Reason
from rabbitsim.flux.job import Job
from rabbitsim.torture.record import RESOLUTION, Record, Told

if TYPE_CHECKING:
    from rabbitsim.torture.allowances import PlannedAllowances

RABBIT = re.compile(r"\brabbit-\d+\b")

GIVEN_UP = (Reason.GIVEN_UP, Reason.UNMOUNT_FAILED)
"""The reasons by which data goes with the storage of a job that was cancelled."""


def tells_loss(job: Job, told: Told) -> bool:
    """Whether an exception only tells a job that ran, be it for a moment after it was
    cancelled, that its output is lost."""
    if told.reason not in GIVEN_UP or not job.was_posted("start"):
        return False
    dw = str(job.jobspec["attributes"]["system"]["dw"])
    return "copy_out" in dw or "persistentdw" in dw


@dataclass(frozen=True)
class Case:
    """What a job, or the record of its data, is told at a time."""

    job: Job
    record: Record
    told: Told
    now: float

    @property
    def rabbits(self) -> list[str]:
        """The Rabbits that are named."""
        return RABBIT.findall(self.told.note)


Rule = Callable[["PlannedAllowances", Case], bool]


def _asked_for_too_much(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.planned(case.job).uncertain


def _no_room(allowed: PlannedAllowances, case: Case) -> bool:
    """Others' storage fills the Rabbits for too long, or one does not serve, without
    whose nodes the job cannot do."""
    if _asked_for_too_much(allowed, case) or allowed.waited(case.job, case.now):
        return True
    return _rabbit_broken(allowed, case) and not _tolerable(allowed, case)


def _tolerable(allowed: PlannedAllowances, case: Case) -> bool:
    """Whether a job may do without the nodes below the Rabbits that are named."""
    if case.job.R is None:
        return False
    nodes = hostlist.decode_all(case.job.R["execution"]["nodelist"])
    lost = [host for host in nodes if allowed.rabbit_of(host) in case.rabbits]
    tolerance = case.job.jobspec["attributes"]["system"].get("dw_failure_tolerance", 0)
    return bool(lost) and len(lost) <= tolerance and len(lost) < len(nodes)


def _rabbit_broken(allowed: PlannedAllowances, case: Case) -> bool:
    if allowed.planned(case.job).uncertain:
        return True
    named = case.rabbits
    return bool(named) and all(allowed.was_unfit(name, case.now) for name in named)


def _waited(allowed: PlannedAllowances, case: Case) -> bool:
    uncertain = allowed.planned(case.job).uncertain
    return uncertain or allowed.waited(case.job, case.now)


def _other_nodes(allowed: PlannedAllowances, case: Case) -> bool:
    planned = allowed.planned(case.job)
    return planned.uncertain or allowed.is_about(case.job, "queue")


def _staged_for_long(allowed: PlannedAllowances, case: Case) -> bool:
    limit, copied = allowed.config.stage_timeout, case.record.reached.get("DataIn")
    if limit is None or copied is None:
        return False
    return case.now + allowed.on_its_way - copied >= limit - RESOLUTION


def _dws_failed(allowed: PlannedAllowances, case: Case) -> bool:
    planned = allowed.dws_troubles(case.job)
    return any(
        ("error", state) in planned
        or ("copy", state) in planned
        or allowed.planned(case.job).uncertain
        for state in case.record.errors
    )


def _transient(allowed: PlannedAllowances, case: Case) -> bool:
    limit = allowed.config.tc_timeout
    return any(
        case.record.was_transient(state, limit, case.now)
        and allowed.holds_up(case.job, state, "transient", "mount")
        for state in STATES
    )


def _limit(key: str, *states: str) -> Rule:
    """One of the states took longer than a limit: DWS was held up, or Kubernetes took
    no request for the next one."""

    def rule(allowed: PlannedAllowances, case: Case) -> bool:
        limit: Optional[float] = getattr(allowed.config, key)
        if limit is None:
            return False
        record, now = case.record, case.now + allowed.on_its_way
        if record.was_refused(limit):
            return True
        late = [state for state in states if record.exceeded(state, limit, now)]
        return any(
            allowed.holds_up(
                case.job, state, "never", "slow", "transient", "mount", "error", "stall"
            )
            or ((allowed.delays or record.held_up) and record.began_late(state, limit))
            for state in late
        )

    return rule


def _torn_down_after(allowed: PlannedAllowances, case: Case) -> bool:
    """Whatever held PostRun and DataOut up, an outage as well: they took that long."""
    limit, now = allowed.config.teardown_after, case.now + allowed.on_its_way
    if limit is None:
        return False
    together = case.record.exceeded("DataOut", limit, now, first="PostRun")
    return together or _limit("teardown_after", "PostRun", "DataOut")(allowed, case)


def _nodes_failed(allowed: PlannedAllowances, case: Case) -> bool:
    """Nodes lack their storage: they are passed over, or were held up."""
    if allowed.passed_over:
        return True
    return (
        _limit("setup_timeout", "Setup")(allowed, case)
        or _limit("prerun_timeout", "PreRun")(allowed, case)
        or _dws_failed(allowed, case)
        or _transient(allowed, case)
        or _rabbit_broken(allowed, case)
    )


def _given_up(allowed: PlannedAllowances, case: Case) -> bool:
    """The job's user, or somebody else, has given up the job, or its data."""
    others = any(told.type != "dws" for told in case.record.fatal)
    return others or allowed.is_given_up(case.job)


def _not_unmounted(allowed: PlannedAllowances, case: Case) -> bool:
    """A node had trouble with the storage, or the job was given up before it had time
    to unmount."""
    states = ("PreRun", "PostRun", "Teardown")
    troubles = ("mount", "never", "slow", "transient", "error", "stall")
    late = any(allowed.holds_up(case.job, state, *troubles) for state in states)
    return late or allowed.passed_over or _given_up(allowed, case)


def _aborted(allowed: PlannedAllowances, case: Case) -> bool:
    return case.record.aborted


def _use_unknown(allowed: PlannedAllowances, case: Case) -> bool:
    return case.record.aborted or _nodes_failed(allowed, case)


def _meddled(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.is_meddled(case.job)


def _name_taken(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.is_name_taken(case.job)


def _planned_fault(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.is_about(case.job, "fault")


def _unguarded(allowed: PlannedAllowances, case: Case) -> bool:
    return allowed.unguarded(case.job)


RULES: Mapping[Optional[Reason], Rule] = {
    Reason.BAD_REQUEST: _asked_for_too_much,
    Reason.UNSATISFIABLE: _asked_for_too_much,
    Reason.DWS_REFUSED: _asked_for_too_much,
    Reason.NO_ROOM: _no_room,
    Reason.RABBIT_BROKEN: _rabbit_broken,
    Reason.PROLOG_TIMEOUT: _waited,
    Reason.OTHER_NODES: _other_nodes,
    Reason.STAGE_TIMEOUT: _staged_for_long,
    Reason.DWS_FAILED: _dws_failed,
    Reason.TRANSIENT_CONDITION: _transient,
    Reason.SETUP_TIMEOUT: _limit("setup_timeout", "Proposal", "Setup", "DataIn"),
    Reason.PRERUN_TIMEOUT: _limit("prerun_timeout", "PreRun"),
    Reason.POSTRUN_TIMEOUT: _limit("postrun_timeout", "PostRun", "Teardown"),
    Reason.TEARDOWN_AFTER: _torn_down_after,
    # In torture a copy takes one step, or is held up as a whole.
    Reason.STALL_TIMEOUT: _limit("stall_timeout", "DataIn", "DataOut"),
    Reason.NODES_FAILED: _nodes_failed,
    Reason.GIVEN_UP: _given_up,
    Reason.UNMOUNT_FAILED: _not_unmounted,
    Reason.EPILOG_GIVEN_UP: _aborted,
    Reason.USE_UNKNOWN: _use_unknown,
    Reason.WORKFLOW_DELETED: _meddled,
    Reason.WORKFLOW_MOVED: _meddled,
    Reason.NAME_TAKEN: _name_taken,
    Reason.SERVICE_FAULT: _planned_fault,
    Reason.PLUGIN_MISSING: _unguarded,
}
"""For each reason for which a job of a plan may fail, or lose its data, the rule."""

WITHOUT_TROUBLE = (
    Reason.BAD_REQUEST,
    Reason.DATA_OUT,
    Reason.FLUX_ERROR,
    Reason.FLUXION_ERROR,
    Reason.KUBERNETES_ERROR,
    Reason.NO_ROOM,
    Reason.NOT_READY,
    Reason.ORPHAN,
    Reason.STARTED,
    Reason.WISH_UNMET,
)
"""The reasons of what may be told or logged when all is well."""

UNREACHED = ("abort", "api", "outage", "watch")
RELOADS = ("abort", "exec", "module", "plugin")

OF_TROUBLE: Mapping[Reason, Collection[str]] = {
    Reason.FENCED: ("unmount",),
    Reason.KUBERNETES_AWAY: UNREACHED,
    Reason.KUBERNETES_BACK: UNREACHED,
    Reason.MAPPING_DISAGREES: RELOADS,
    Reason.NODE_DISABLED: ("operator",),
    Reason.OBJECTS_UNSEEN: UNREACHED,
    Reason.PLUGIN_MISSING: ("abort", "plugin"),
    Reason.RESCUE: ("dws",),
    Reason.SERVICE_FAULT: ("fault",),
    Reason.USE_UNKNOWN: UNREACHED,
    Reason.WORKFLOW_DELETED: ("admin",),
    Reason.WORKFLOW_REMADE: ("admin",),
}
"""The kinds of trouble that there must be for others."""

OF_ANY_TROUBLE = (
    Reason.CAUSE_UNKNOWN,
    Reason.NODE_BACK,
    Reason.NODES_EXCLUDED,
    Reason.NOT_RUN,
    Reason.PERSISTENT_LEFT,
    Reason.RABBIT_BACK,
    Reason.RECORD_INCOMPLETE,
    Reason.TEARDOWN_FAILED,
    Reason.TEARDOWN_LATE,
    Reason.UNMOUNTED_LATE,
    *RULES,
)
"""Those that follow from trouble of many kinds."""


def may_be_told(reason: Reason, kinds: Collection[str]) -> bool:
    """Whether something may be told or logged for a reason with these kinds of trouble.
    One that is not known here may not."""
    if reason in OF_TROUBLE:
        return any(kind in kinds for kind in OF_TROUBLE[reason])
    return reason in WITHOUT_TROUBLE or bool(kinds) and reason in OF_ANY_TROUBLE
