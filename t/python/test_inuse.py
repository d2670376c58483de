# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes of a job whose epilog is given up while Kubernetes does not answer."""

from __future__ import annotations

from typing import Optional

from flux_k8s.formats.timestamps import parse_timestamp
from flux_k8s.objects.cleanup import DISABLE_DATE, DISABLE_REASON
from flux_k8s.ports import STORAGE, KubeError, Request
from flux_k8s.rules.drainreason import IN_USE, drain_reason
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.flux.broker import Respond
from rabbitsim.kube.direct import Fault
from support.outages import OUTAGES, inject, job_in, slow
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


def test_an_abort_that_kubernetes_fails_drains_all_nodes_at_once_and_once() -> None:
    system = slow(plugin_conf={"epilog-timeout": EPILOG_TIMEOUT})
    jobid = job_in(system, "PostRun")
    inject(system, OUTAGES["503"], HOUR)
    assert system.loop.run(lambda: bool(exceptions(system, jobid)), HOUR)
    system.loop.run(timeout=1.0)
    assert len(drained(system)) == 2
    system.loop.run(timeout=HOUR / 2)
    assert len(lines(system, "drained until it does")) == 1


def test_nodes_that_flux_names_too_late_are_not_drained() -> None:
    """Another module was loaded, which does not know the nodes. Before job-list names
    them, Kubernetes says that none of them has the storage mounted."""
    system = slow(plugin_conf={"epilog-timeout": EPILOG_TIMEOUT})
    job_in(system, "DataOut")
    system.kill_module()
    system.load_module()
    waiting: list[Respond] = []
    system.instance.broker.register(
        "job-list", lambda method, payload, userid, respond: waiting.append(respond)
    )
    inject(system, OUTAGES["503"], EPILOG_TIMEOUT + 30.0)
    assert system.loop.run(lambda: bool(lines(system, "epilog-timeout in")), HOUR)
    nodes = {"nodelist": "compute-[01-02]", "t_run": 1.0}
    for respond in waiting:
        respond(0, "", {"job": nodes})
    system.loop.run(timeout=10.0)
    assert waiting and not lines(system, "drained until it does")


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
