# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is told of an abort, to people and to DWS. What becomes of it is in the stories
(:mod:`stories.aborts`)."""

from __future__ import annotations

from typing import Optional

from flux_k8s.formats.timestamps import parse_timestamp
from flux_k8s.objects.cleanup import DISABLE_DATE, DISABLE_REASON
from flux_k8s.ports import STORAGE, KubeError, Request
from flux_k8s.rules.drainreason import IN_USE, drain_reason
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.kube.direct import Fault
from support.rabbits import drained
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    exceptions,
    jobspec,
    lines,
    started,
)

EPILOG_TIMEOUT = 60.0


def test_a_refused_part_of_an_abort_delays_no_other_and_is_left_to_a_person() -> None:
    def fault(request: Request) -> Optional[Fault]:
        refused = request.verb == "patch" and request.name == "rabbit-01"
        error = KubeError(403, "Forbidden", "may not patch it")
        return Fault(error=error) if refused else None

    stuck = DwsFault("PostRun", "mount", node="compute-02")
    conf = {"epilog-timeout": EPILOG_TIMEOUT}
    system = started(options=Options(faults=(stuck,)), plugin_conf=conf, faults=fault)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=4))
    assert system.loop.run(system.instance.idle, timeout=200.0)
    assert drained(system) == {"compute-02": drain_reason(jobid, IN_USE)}
    storages = system.store.list(STORAGE, None)["items"]
    states = [storage["spec"].get("state") for storage in storages]
    assert states == ["Enabled", "Disabled"]
    system.loop.run(timeout=300.0)
    (line,) = lines(system, "see to it by hand")
    assert "rabbit-01 still holds its storage: may not patch it" in line
    _, found, let_go = (entry["note"] for entry in exceptions(system, jobid))
    assert "rabbit-02: still allocated, disabled; rabbit-01 still holds its" in found
    assert "the dws module has not finished in time" in let_go


def test_an_abort_says_on_rabbits_why_they_are_disabled_and_has_dws_hurry() -> None:
    stuck = DwsFault("PostRun", "mount", node="compute-02")
    conf = {"epilog-timeout": EPILOG_TIMEOUT}
    system = started(options=Options(faults=(stuck,)), plugin_conf=conf)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=4))
    assert system.loop.run(system.instance.idle, HOUR)
    ended = system.loop.now()
    storage = system.store.get(STORAGE, "default", "rabbit-01")
    assert storage["spec"]["state"] == "Disabled"
    notes = storage["metadata"]["annotations"]
    assert notes[DISABLE_REASON] == drain_reason(jobid, IN_USE)
    since = parse_timestamp(notes[DISABLE_DATE])
    assert since is not None and ended - 10.0 < since <= ended
    system.loop.run(timeout=1.0)
    (spec,) = (workflow["spec"] for workflow in system.workflows())
    assert (spec["desiredState"], spec["hurry"]) == ("Teardown", True)
