# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is said and answered about data that could not be copied out, and is kept for
``flux dws rescue``. What becomes of it is in the stories (:mod:`stories.rescues`)."""

from __future__ import annotations

import errno
import json
from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.timestamps import format_seconds, parse_timestamp
from flux_k8s.jobs import queries
from flux_k8s.objects.workflowmarks import FAILED_UNTIL, NODES_RELEASED, RESCUED
from flux_k8s.ports import NNFDATAMOVEMENT, Json, KubeError
from flux_k8s.text import NOTE
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube import direct
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.outages import Broken
from support.queries import GUEST, OTHER, query, refusal
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    XFS,
    annotations,
    desired,
    exceptions,
    jobspec,
    lines,
    names,
    run_until_inactive,
    settle,
    started,
)

LOST = "not copied: $DW_JOB_p1/x to /lustre/x"
LIMIT = "its storage is not kept: rabbit.keep_failed_limit is reached"


def system_of(
    node: str = "", faults: Any = None, message: str = "no space", **config: Any
) -> VirtualSystem:
    """Two Rabbits, from which (or from ``node``) no data is copied in the first two
    hours."""
    broken = Fault("DataOut", "copy", "*", 2 * HOUR, node, message)
    return started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(
            latency=table({"DataOut": 30.0, "Teardown": 0.5}), faults=(broken,)
        ),
        config=Config.parse({"keep_failed": "1d", "keep_failed_limit": 100, **config}),
        faults=faults,
    )


def is_kept(system: VirtualSystem, jobid: int) -> bool:
    """Whether the job has ended and its storage is kept for a rescue."""
    marks = annotations(system, jobid)
    return (
        system.instance.job(jobid).state is JobState.INACTIVE
        and desired(system, jobid) == "DataOut"
        and FAILED_UNTIL in marks
        and NODES_RELEASED in marks
    )


def kept(system: VirtualSystem, **more: Any) -> int:
    """Run a job to the point at which its storage is kept."""
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], 4, **more), userid=GUEST)
    run_until_inactive(system, jobid)
    assert system.loop.run(lambda: is_kept(system, jobid), timeout=HOUR)
    return jobid


def record(system: VirtualSystem, jobid: int, key: str = "rabbit_data_out") -> Json:
    found: Json = json.loads(system.instance.job(jobid).kvs[key])
    return found


def test_a_note_a_record_the_log_and_show_say_what_is_kept_and_is_rescued() -> None:
    system = system_of(node="rabbit-02", stall_timeout=600)
    jobid = kept(system)
    until = parse_timestamp(annotations(system, jobid)[FAILED_UNTIL])
    assert until is not None
    name, end = f58(jobid), format_seconds(until)

    (told,) = exceptions(system, jobid)
    assert (told["type"], told["severity"]) == ("dws", 0)
    assert told["note"].startswith("DWS failed in DataOut: ")
    hint = f"its storage is kept until {end}: flux dws rescue {name}"
    assert all(text in told["note"] for text in ("no space", LOST, hint))
    found = record(system, jobid, "rabbit_data_failed")
    assert found["until"] == pytest.approx(until, abs=1e-3)
    assert "no space" in found["errstr"] and found["reason"] == "dws-failed"
    assert "rabbit_data_out" not in system.instance.job(jobid).kvs
    assert lines(system, f"{name}: its data is not out: DWS failed in DataOut")
    found = query(system, "job-show", {"id": jobid})
    assert (found["state"], found["status"]) == ("DataOut", "Error")
    assert "no space" in found["failed"] and LOST in found["failed"]
    assert found["kept_until"] == until
    assert found["limits"] == [{"name": "keep_failed", "at": until}]
    text = f"flux dws rescue {name}: its data is not out, and is kept until {end}"
    assert found["waits"] == text

    system.loop.run(timeout=3 * HOUR)
    assert query(system, "rescue", {"id": jobid}, GUEST)["copies"] == 2
    assert lines(system, f"{name}: user {GUEST} has its data copied again: 2 copies")
    assert RESCUED in annotations(system, jobid)
    assert FAILED_UNTIL not in annotations(system, jobid)
    found = query(system, "job-show", {"id": jobid})
    assert (found["failed"], found["kept_until"], found["waits"]) == ("", None, "")
    (limit,) = found["limits"]
    assert limit["name"] == "stall_timeout"
    assert limit["at"] == pytest.approx(system.loop.now() + 600.0, abs=5.0)
    settle(system, DAY)
    assert record(system, jobid)["success"] is True
    assert lines(system, f"{name}: its data is out")


def test_data_that_a_rescue_has_copied_is_not_called_lost_when_the_rest_is() -> None:
    copies = [
        f"#DW copy_out source=$DW_JOB_p1/{n} destination=/lustre/{n}" for n in "xy"
    ]
    faults = (
        Fault("DataOut", "copy", message="no x", directive=1),
        Fault("DataOut", "copy", message="no y", directive=2, duration=HOUR),
    )
    system = started(
        options=Options(faults=faults), config=Config.parse({"keep_failed": "1d"})
    )
    jobid = system.instance.submit(jobspec([XFS, *copies], 4), userid=GUEST)
    for times in range(2):
        run_until_inactive(system, jobid)
        assert system.loop.run(lambda: is_kept(system, jobid), timeout=HOUR)
        system.loop.run(timeout=2 * HOUR)
        query(system, "rescue", {"id": jobid, "give_up": times == 1}, GUEST)
    settle(system, DAY)
    lost = record(system, jobid)["errstr"]
    assert lost.endswith("; not copied: $DW_JOB_p1/x to /lustre/x")


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_a_job_whose_storage_is_not_kept_is_told_of_the_limit(release: str) -> None:
    system = system_of(message="no space" + " left" * NOTE, keep_failed_limit=15)
    kept(system)
    spec = jobspec([XFS, COPY_OUT], 4, dw_release=release)
    jobid = system.instance.submit(spec, userid=GUEST)
    run_until_inactive(system, jobid)
    system.loop.run(timeout=HOUR)
    told = [each["note"] for each in exceptions(system, jobid)]
    told = told or [record(system, jobid)["errstr"]]
    assert len(told) == 1
    assert all(text in told[0] for text in ("no space", LIMIT, LOST))


def test_only_the_user_of_a_job_and_the_instance_owner_may_rescue_its_data() -> None:
    system = system_of()
    jobid = kept(system)
    for more in ({}, {"give_up": True}):
        found = refusal(system, "rescue", {"id": jobid, **more}, OTHER)
        assert found == (errno.EPERM, f"job {f58(jobid)} is not yours")
    assert is_kept(system, jobid)
    query(system, "rescue", {"id": jobid})


def test_a_rescue_that_makes_no_sense_is_refused_with_the_reason() -> None:
    system = system_of()
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], 4))
    assert system.loop.run(lambda: "start" in names(system, jobid), timeout=HOUR)
    name = f"job {f58(jobid)}"
    none = f"{name}: no data of it has failed and is kept"
    assert refusal(system, "rescue", {"id": jobid}) == (errno.EINVAL, none)
    assert refusal(system, "rescue", {"id": jobid, "give_up": True})[1] == none
    assert refusal(system, "rescue", {"id": 1})[0] == errno.ENOENT
    for bad in ({}, {"id": "x"}, {"id": jobid, "give_up": 1}):
        assert refusal(system, "rescue", bad)[0] == errno.EPROTO
    run_until_inactive(system, jobid)
    query(system, "rescue", {"id": jobid})
    again = refusal(system, "rescue", {"id": jobid})
    assert again == (errno.EALREADY, f"{name}: its data is being copied again already")
    query(system, "rescue", {"id": jobid, "give_up": True})
    settle(system, DAY)
    assert refusal(system, "rescue", {"id": jobid})[0] == errno.ENOENT


@pytest.mark.parametrize("verb", ["list", "patch_status"])
def test_a_permission_that_is_missing_is_named_and_nothing_changes(verb: str) -> None:
    denied: list[str] = []

    def faults(request: direct.Request) -> Optional[direct.Fault]:
        if request.kind == NNFDATAMOVEMENT and request.verb in denied:
            text = "nnfdatamovements is forbidden"
            return direct.Fault(error=KubeError(403, "Forbidden", text))
        return None

    system = system_of(faults=faults)
    jobid = kept(system)
    denied.append(verb)
    what = "nnfdatamovements/status" if verb == "patch_status" else "nnfdatamovements"
    errnum, text = refusal(system, "rescue", {"id": jobid})
    assert errnum == errno.EACCES
    assert f"does not allow the dws module to {verb[:5].rstrip('_')} {what}" in text
    assert "rbac.yaml" in text
    assert is_kept(system, jobid)


def test_a_rescue_that_breaks_is_an_error_of_the_query_and_not_of_the_service() -> None:
    """Whatever it is that breaks it."""

    def fault(request: direct.Request) -> Optional[direct.Fault]:
        if request.verb != "list" or request.kind != NNFDATAMOVEMENT:
            return None
        items = [Broken(metadata={"name": "m"}, status=0)]
        answer = {"kind": "NnfDataMovementList", "metadata": {}, "items": items}
        return direct.Fault(answer=answer)

    system = system_of()
    jobid = kept(system)
    assert system.service_kube is not None
    system.service_kube.faults = fault
    service = system.service
    for _ in range(2 * queries.FAILURES_LOGGED):
        errnum, text = refusal(system, "rescue", {"id": jobid})
        assert (errnum, text) == (errno.EINVAL, "internal error, the log has more")
    assert 0 < len(lines(system, "a query failed")) <= queries.FAILURES_LOGGED
    assert system.service is service and is_kept(system, jobid)
    system.service_kube.faults = None
    assert query(system, "rescue", {"id": jobid})["copies"]
