# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""DWS's admission webhooks: which Workflows may be, and how they may change."""

from __future__ import annotations

from typing import Callable, Optional

from flux_k8s.ports import WORKFLOW, Json, Kind
from rabbitsim.dws.directive import STATES, InvalidDirective, Rules
from rabbitsim.dws.workflow import first_status
from rabbitsim.kube.errors import denied

WEBHOOK = "vworkflow.kb.io"
IMMUTABLE = ("wlmID", "jobID", "userID", "groupID", "dwDirectives")

Admission = Callable[[str, Kind, Optional[Json], Optional[Json]], None]


def admission(rules: Rules) -> Admission:
    """An admission hook for a :class:`rabbitsim.kube.store.Store`.

    It gives a new Workflow its drivers and first variables, and refuses with
    403 what DWS refuses, in the same words.
    """

    def hook(
        operation: str, kind: Kind, new: Optional[Json], old: Optional[Json]
    ) -> None:
        if kind != WORKFLOW or new is None:
            return
        if operation == "CREATE":
            _create(rules, new)
        elif operation == "UPDATE" and old is not None:
            _update(new, old)

    return hook


def _create(rules: Rules, workflow: Json) -> None:
    spec = workflow["spec"]
    try:
        directives = rules.validate(spec["dwDirectives"])
    except InvalidDirective as error:
        raise denied(WEBHOOK, str(error)) from None
    if spec["desiredState"] != "Proposal":
        _refuse("desiredState", spec["desiredState"], "the first state is Proposal")
    workflow["status"] = first_status(workflow, rules.drivers(directives))


def _update(new: Json, old: Json) -> None:
    if "deletionTimestamp" in old["metadata"]:
        return
    before, after = old["spec"], new["spec"]
    for field in IMMUTABLE:
        if after.get(field) != before.get(field):
            _refuse(field, after.get(field), "the field is immutable")
    current, wanted = before["desiredState"], after["desiredState"]
    if wanted == current:
        return
    if current == "Teardown":
        _refuse("desiredState", wanted, "Teardown is the last state")
    if wanted == "Teardown":
        return
    steps = STATES.index(wanted) - STATES.index(current)
    if steps < 0:
        _refuse("desiredState", wanted, "states cannot be gone back to")
    if steps > 1:
        _refuse("desiredState", wanted, "states cannot be skipped")
    status = old.get("status") or {}
    if not status.get("ready") or status.get("state") != current:
        _refuse("desiredState", wanted, f"state '{current}' is not ready")


def _refuse(field: str, value: object, why: str) -> None:
    raise denied(WEBHOOK, f'Spec.{field}: Invalid value: "{value}": {why}')
