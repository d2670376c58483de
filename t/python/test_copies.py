# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A copy_out that fails costs no other copy its data. NNF begins all of them at once,
and reports on none after one that has failed."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowmarks import COPIES, copies_note, read_copies
from flux_k8s.jobs.copies import LIST_VALID
from flux_k8s.jobs.persistence import PERSISTENCE
from flux_k8s.ports import NNFDATAMOVEMENT, WORKFLOW, Json, Kind, KubeError
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.dws.files import NoFiles
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.queries import query
from support.service import (
    DAY,
    HOUR,
    XFS,
    annotations,
    exceptions,
    in_state,
    jobspec,
    lines,
    more,
    settle,
    started,
)

COPIES_OUT = [
    f"#DW copy_out source=$DW_JOB_p1/{file} destination=/lustre/{file}"
    for file in "xyz"
]
GOES_ON = 600.0
"""Seconds that copies take which do not fail at once."""

FOREVER = 0.0


def failing(*files: str) -> list[DwsFault]:
    """The copies of these files fail at once."""
    return [
        DwsFault("DataOut", "copy", message=f"no space for {file}", directive=of(file))
        for file in files
    ]


def going(*files: str, seconds: float = GOES_ON) -> list[DwsFault]:
    """The copies of these files go on for some time, and show no progress."""
    return [
        DwsFault("DataOut", "stall", duration=seconds, directive=of(file))
        for file in files
    ]


def of(file: str) -> int:
    return 1 + "xyz".index(file)


def system_of(
    *faults: DwsFault, config: Optional[Json] = None, **options: Any
) -> VirtualSystem:
    return started(
        options=Options(faults=faults, report_interval=60.0),
        files=NoFiles(size=2**30),
        config=Config.parse(config or {}),
        **options,
    )


def job(system: VirtualSystem, **more: Any) -> int:
    """A job with three copies whose Workflow is in DataOut, and in Error."""
    jobid = system.instance.submit(jobspec([XFS, *COPIES_OUT], 1, **more))
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=1.0)
    return jobid


def seconds_in_dataout(system: VirtualSystem) -> float:
    begin = system.loop.now()
    assert system.loop.run(lambda: not in_state(system, "DataOut")(), DAY)
    return system.loop.now() - begin


def lost(*files: str) -> str:
    shown = ", ".join(f"$DW_JOB_p1/{file[0]} to /lustre/{file}" for file in files)
    return f"not copied: {shown}"


def told(system: VirtualSystem, jobid: int) -> str:
    """The note of the job's only exception, which is about data that is lost."""
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert (exception["type"], exception["severity"]) == ("dws", 0)
    note: str = exception["note"]
    assert note.endswith(more(jobid))
    record = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    loss = note[note.index("not copied") : -len(more(jobid))]
    assert not record["success"] and loss in record["errstr"]
    return note[: -len(more(jobid))]


def refuse(system: VirtualSystem, status: int) -> None:
    """Have Kubernetes refuse the list of data movements from now on."""

    def fault(request: Request) -> Optional[Fault]:
        if request.kind == NNFDATAMOVEMENT and request.verb == "list":
            return Fault(error=KubeError(status, "Refused", "no list"))
        return None

    assert system.service_kube is not None
    system.service_kube.faults = fault


# Copies that go on


@pytest.mark.parametrize(
    ("fails", "goes_on"),
    [("x", "yz"), ("x", "z"), ("x", "y"), ("xz", "y"), ("xy", "z")],
)
def test_a_job_waits_for_the_other_copies_and_only_those_that_failed_are_lost(
    fails: str, goes_on: str
) -> None:
    system = system_of(*failing(*fails), *going(*goes_on))
    jobid = job(system)
    (workflow,) = system.workflows()
    assert workflow["status"]["status"] == "Error"
    assert seconds_in_dataout(system) == pytest.approx(GOES_ON, abs=5.0)
    note = told(system, jobid)
    assert note.startswith("DWS failed in DataOut: ")
    assert note.endswith("; " + lost(*fails))


def test_copies_that_were_over_before_the_failure_are_not_lost() -> None:
    system = system_of(*going("x", seconds=60.0), *failing("y"))
    assert told(system, job(system)).endswith(lost("y"))


def test_copies_that_are_over_when_one_has_failed_take_no_time() -> None:
    system = system_of(*failing("x"))
    begin = system.loop.now()
    assert told(system, job(system)).endswith(lost("x"))
    assert system.loop.now() - begin < 60.0


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
@pytest.mark.parametrize("config", [{}, {"keep_failed": "1d"}])
def test_data_that_is_copied_is_not_lost_when_dws_fails_otherwise(
    config: Json, release: str
) -> None:
    fault = DwsFault("DataOut", "error", message="no such device")
    system = system_of(fault, config=config)
    dw = [XFS, COPIES_OUT[0]]
    jobid = system.instance.submit(jobspec(dw, 1, dw_release=release))
    settle(system)
    notes = [exception["note"] for exception in exceptions(system, jobid)]
    assert release == "unmounted" or "no such device" in notes[0]
    assert "not copied" not in "".join(notes)
    record = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    assert record == {"success": True}


def test_the_user_sees_what_the_job_waits_for() -> None:
    system = system_of(*failing("x"), *going("y"))
    jobid = job(system)
    system.loop.run(timeout=10.0)
    found = query(system, "job-show", {"id": jobid})
    assert found["waits"] == "copies that go on: another one of the job has failed"
    assert (found["state"], found["status"]) == ("DataOut", "Error")
    settle(system)


def test_nodes_are_given_back_while_copies_go_on() -> None:
    system = system_of(*failing("x"), *going("y"))
    jobid = job(system, dw_release="unmounted")
    system.loop.run(timeout=10.0)
    assert system.instance.job(jobid).state is JobState.INACTIVE
    assert system.workflows()
    settle(system)
    record = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    assert record["errstr"].endswith(lost("x"))
    assert "DWS failed in DataOut" in record["errstr"]


# Limits, and others who end the wait


@pytest.mark.parametrize("key", ["teardown_after", "stall_timeout"])
def test_limits_are_those_of_copies_of_which_none_has_failed(key: str) -> None:
    faults = *failing("x"), *going("y", seconds=FOREVER)
    system = system_of(*faults, config={key: 300})
    jobid = job(system)
    assert seconds_in_dataout(system) == pytest.approx(300.0, abs=70.0)
    assert told(system, jobid).endswith(lost("x (failed)", "y"))


@pytest.mark.parametrize("key", ["teardown_after", "stall_timeout"])
def test_a_copy_that_is_over_is_not_lost_with_one_that_takes_too_long(key: str) -> None:
    system = system_of(*going("x", seconds=FOREVER), config={key: 300})
    assert told(system, job(system)).endswith(lost("x"))


def test_a_cancel_ends_the_wait_at_once() -> None:
    system = system_of(*failing("x"), *going("y"))
    jobid = job(system)
    system.loop.run(timeout=10.0)
    system.instance.cancel(jobid)
    settle(system, 60.0)
    _, note = (each["note"] for each in exceptions(system, jobid))
    assert lost("x (failed)", "y", "z") in note


# Faults


def test_the_end_of_copies_is_seen_where_no_watch_shows_it() -> None:
    system = system_of(*failing("x"), *going("yz"))
    jobid = job(system)

    def fault(request: Request) -> Optional[Fault]:
        watched = request.kind == NNFDATAMOVEMENT and request.verb == "watch"
        return Fault(error=KubeError(403, "Forbidden", "no")) if watched else None

    assert system.service_kube is not None
    system.service_kube.faults = fault
    assert seconds_in_dataout(system) < GOES_ON + LIST_VALID + 5.0
    assert told(system, jobid).endswith(lost("x"))


def test_a_list_from_before_the_failure_says_nothing_about_the_copies() -> None:
    copy_in = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/"
    faults = (
        DwsFault("DataIn", "stall", duration=25.0, directive=1),
        DwsFault("DataOut", "copy", message="no space", directive=2),
        DwsFault("DataOut", "stall", duration=15.0, directive=3),
    )
    options = Options(faults=faults, report_interval=10.0)
    config = Config.parse({"stall_timeout": 20})
    files = NoFiles(size=2**30)
    system = started(options=options, files=files, config=config)

    def fault(request: Request) -> Optional[Fault]:
        watched = request.kind == NNFDATAMOVEMENT and request.verb == "watch"
        return Fault(error=KubeError(403, "Forbidden", "no")) if watched else None

    assert system.service_kube is not None
    system.service_kube.faults = fault
    jobid = system.instance.submit(jobspec([XFS, copy_in, *COPIES_OUT[:2]], 1))
    assert told(system, jobid).endswith("; " + lost("x"))


def test_a_copy_is_not_complete_since_teardown_has_deleted_what_failed() -> None:
    """Another program requests Teardown while the watch hangs, and DWS deletes the data
    movements one after the other."""
    fault = DwsFault("DataOut", "copy", message="no", directive=1, node="rabbit-01")
    system = system_of(fault, *going("y"))
    jobid = system.instance.submit(jobspec([XFS, *COPIES_OUT], 4))
    assert system.loop.run(in_state(system, "DataOut"), HOUR)
    system.loop.run(timeout=GOES_ON - 10.0)
    kube, store = system.service_kube, system.store
    assert kube is not None
    kube.silence_watches(WORKFLOW)
    system.loop.call_later(HOUR, kube.drop_watches)

    def fault_of(request: Request) -> Optional[Fault]:
        if request.kind == NNFDATAMOVEMENT and request.verb == "list":
            kube.faults = None
            teardown = {"spec": {"desiredState": "Teardown"}}
            store.merge_patch(WORKFLOW, "default", workflow_name(jobid), teardown)
            for key in movements_that_failed(system):
                store.delete(NNFDATAMOVEMENT, *key)
        return None

    kube.faults = fault_of
    settle(system, DAY)
    noted = [exception["note"] for exception in exceptions(system, jobid)]
    assert any("$DW_JOB_p1/x to /lustre/x" in note for note in noted)


def movements_that_failed(system: VirtualSystem) -> list[tuple[str, str]]:
    """Namespace and name of each data movement that has failed."""
    return [
        (movement["metadata"]["namespace"], movement["metadata"]["name"])
        for movement in system.store.list(NNFDATAMOVEMENT, None)["items"]
        if movement.get("status", {}).get("status") == "Failed"
    ]


@pytest.mark.parametrize("config", [{}, {"keep_failed": "1h"}])
def test_an_annotation_that_is_not_kept_does_not_hold_a_job(
    config: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook, or another program, removes it."""
    system = system_of(*failing("x"), config=config)
    patch = system.store.merge_patch

    def strip(kind: Kind, namespace: str, name: str, body: Any, **more: Any) -> Any:
        if COPIES in (body.get("metadata", {}).get("annotations") or {}):
            body = {"metadata": {"annotations": {COPIES: None}}}
        return patch(kind, namespace, name, body, **more)

    monkeypatch.setattr(system.store, "merge_patch", strip)
    jobid = system.instance.submit(jobspec([XFS, *COPIES_OUT], 1))
    settle(system, DAY)
    (exception,) = exceptions(system, jobid)
    assert lost("x (failed)", "y", "z") in exception["note"]


def test_where_the_list_is_forbidden_the_data_is_given_up_at_once() -> None:
    system = system_of(*failing("x"), *going("y"))
    jobid = system.instance.submit(jobspec([XFS, *COPIES_OUT], 1))
    assert system.loop.run(in_state(system, "PostRun"), HOUR)
    refuse(system, 403)
    begin = system.loop.now()
    assert told(system, jobid).endswith(lost("x (failed)", "y", "z"))
    assert system.loop.now() - begin < 60.0


def test_a_list_that_fails_for_long_does_not_hold_a_job_for_ever() -> None:
    system = system_of(*failing("x"), *going("y", seconds=FOREVER))
    jobid = system.instance.submit(jobspec([XFS, *COPIES_OUT], 1))
    assert system.loop.run(in_state(system, "PostRun"), HOUR)
    refuse(system, 500)
    begin = system.loop.now()
    assert told(system, jobid).endswith(lost("x (failed)", "y", "z"))
    assert PERSISTENCE < system.loop.now() - begin < PERSISTENCE + 240.0


@pytest.mark.parametrize("when", [0.5, 30.0, GOES_ON + 30.0])
def test_a_module_that_is_loaded_again_goes_on_waiting(when: float) -> None:
    system = system_of(*failing("x"), *going("y"))
    jobid = job(system)
    system.loop.run(timeout=when - 1.0)
    if system.workflows():
        system.kill_module()
        system.loop.run(timeout=60.0)
        system.load_module()
    assert told(system, jobid).endswith(lost("x"))


def test_what_was_found_out_is_on_the_workflow_before_it_is_needed() -> None:
    system = system_of(*failing("x"), *going("y"), config={"keep_failed": "1d"})
    jobid = job(system)
    assert system.loop.run(lambda: COPIES in annotations(system, jobid), HOUR)
    assert annotations(system, jobid)[COPIES] == "1=failed 2=copied 3=copied"
    system.loop.run(timeout=60.0)
    (exception,) = exceptions(system, jobid)
    assert lost("x") in exception["note"]
    system.kill_module()
    system.load_module()
    system.loop.run(timeout=60.0)
    query(system, "rescue", {"id": jobid, "give_up": True})
    settle(system, HOUR)
    record = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    assert record["errstr"].endswith(lost("x"))


def test_copies_are_looked_at_anew_after_a_rescue() -> None:
    faults = [
        DwsFault("DataOut", "copy", duration=HOUR, message="no", directive=of(file))
        for file in "xy"
    ]
    system = system_of(*faults, config={"keep_failed": "1d"})
    jobid = job(system)
    assert annotations(system, jobid)[COPIES] == "1=failed 2=failed 3=copied"
    assert query(system, "rescue", {"id": jobid})["copies"] == 2
    assert COPIES not in annotations(system, jobid)
    system.loop.run(timeout=60.0)
    assert annotations(system, jobid)[COPIES] == "1=failed 2=failed 3=copied"
    system.loop.run(timeout=2 * HOUR)
    query(system, "rescue", {"id": jobid})
    settle(system, HOUR)
    record = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    assert record == {"success": True}
    assert lines(system, "its data is out")


def test_a_long_message_of_dws_leaves_room_for_what_is_lost() -> None:
    message = "no space " * 1000
    system = system_of(DwsFault("DataOut", "copy", message=message, directive=of("x")))
    note = told(system, job(system))
    assert note.startswith("DWS failed in DataOut: ") and note.endswith(lost("x"))


# The annotation


@given(st.dictionaries(st.integers(0, 999), st.booleans()))
def test_the_annotation_says_what_became_of_each_copy(copied: dict[int, bool]) -> None:
    assert read_copies({COPIES: copies_note(copied)}) == copied


@given(st.text(max_size=40) | st.none() | st.integers())
def test_an_annotation_that_others_have_written_does_no_harm(value: Any) -> None:
    found = read_copies({COPIES: value})
    assert found is not None
    assert all(isinstance(done, bool) for done in found.values())
    assert read_copies({WORKFLOW.plural: value}) is None
