# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that end when their nodes have unmounted."""

from __future__ import annotations

import errno
import json
from collections import Counter
from typing import Any, Callable, Optional, Sequence

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws import storageusage
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.workflowmarks import INSTANCE, NODES_RELEASED, RELEASE
from flux_k8s.ports import SERVERS, WORKFLOW, Json, KubeError
from flux_k8s.rabbits.fluxion import RABBIT_MODULE as SCHED_RABBIT
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.flux.fluxion import MODULE as FLUXION
from rabbitsim.kube import direct
from rabbitsim.system import VirtualSystem
from support.effort import SOAKING
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    LIFE,
    XFS,
    annotations,
    desired,
    exceptions,
    in_state,
    lines,
    long,
    names,
    run_until_inactive,
    running,
    settle,
    started,
)

COPY = 600.0
"""Seconds that DataOut takes."""

ALL = "#DW jobdw type=xfs capacity=90GiB name=p1"
"""Nearly all of a Rabbit of 100 GiB."""

UNMOUNTED = {"dw_release": "unmounted"}


def slow(
    faults: Sequence[Fault] = (),
    service_faults: Optional[direct.Faults] = None,
    **options: Any,
) -> VirtualSystem:
    """A system whose data moves slowly, with one node below each Rabbit."""
    latency = table({"DataOut": COPY, "Teardown": 30.0})
    topology = Topology.regular(2, 2, capacity=100 * GIB)
    return started(
        topology=topology,
        options=Options(latency=latency, faults=faults),
        faults=service_faults,
        **options,
    )


def submit(system: VirtualSystem, dw: Any = (XFS, COPY_OUT), **system_: Any) -> int:
    spec = long(list(dw) if not isinstance(dw, str) else dw, 1, 10, **system_)
    return system.instance.submit(spec)


def record(system: VirtualSystem, jobid: int) -> Json:
    """The record of what became of the data."""
    found: Json = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    return found


def reports(system: VirtualSystem) -> list[Json]:
    """The events about data that were published."""
    return [
        data for topic, data in system.instance.published if topic == "dws.data-out"
    ]


def test_a_job_ends_when_its_nodes_have_unmounted_while_its_data_goes_out() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid, timeout=60.0)
    end = LIFE.index("epilog-finish")
    assert names(system, jobid) == [*LIFE[:end], "dws_released", *LIFE[end:]]
    assert desired(system, jobid) == "DataOut"
    assert annotations(system, jobid)[RELEASE] == "unmounted"
    assert NODES_RELEASED in annotations(system, jobid)
    kvs = system.instance.job(jobid).kvs
    assert "rabbit_nodes_released" in kvs and "rabbit_data_out" not in kvs
    begun = system.loop.now()
    settle(system)
    assert COPY <= system.loop.now() - begun < COPY + 120
    assert not exceptions(system, jobid)
    assert record(system, jobid) == {"success": True}
    assert reports(system) == [{"id": jobid, "success": True}]
    assert lines(system, f"{f58(jobid)}: its data is out")


def test_by_default_a_job_ends_after_its_storage() -> None:
    system = slow()
    jobid = submit(system)
    run_until_inactive(system, jobid)
    kvs = system.instance.job(jobid).kvs
    last = json.loads(kvs["rabbit_workflow"])["metadata"]["annotations"]
    assert not {RELEASE, NODES_RELEASED} & last.keys()
    assert "rabbit_nodes_released" not in kvs
    assert system.loop.now() - begun_of(system, jobid, "epilog-start") > COPY
    assert not reports(system)


def begun_of(system: VirtualSystem, jobid: int, name: str) -> float:
    events = system.instance.eventlog(jobid)
    return next(event.timestamp for event in events if event.name == name)


def test_a_site_releases_the_nodes_of_all_jobs_that_do_not_say() -> None:
    system = slow(config=Config.parse({"release": "unmounted"}))
    jobid, other = submit(system), submit(system, dw_release="teardown")
    run_until_inactive(system, jobid, timeout=60.0)
    assert system.instance.job(other).state is not JobState.INACTIVE
    settle(system)


def test_storage_is_not_given_to_another_job_before_it_is_gone() -> None:
    system = slow()
    first = submit(system, (ALL, COPY_OUT), **UNMOUNTED)
    second = submit(system, (ALL, COPY_OUT), **UNMOUNTED)
    run_until_inactive(system, first)
    run_until_inactive(system, second)
    third = submit(system, ALL)
    plain = system.instance.submit(long("", 2, 10))
    run_until_inactive(system, plain, timeout=60.0)
    assert desired(system, first) == desired(system, second) == "DataOut"
    assert "alloc" not in names(system, third)
    assert always(system, lambda: fits(system), COPY + 60)
    assert "start" in names(system, third)
    settle(system)
    assert not exceptions(system, third)


@pytest.mark.parametrize("chunks", [1, 7, 33, 100] if SOAKING else [1, 33])
def test_ten_jobs_on_one_rabbit_fit_whatever_the_size_of_its_ssd(chunks: int) -> None:
    system = slow(chunks=chunks)
    sizes = range(5, 35, 3)
    directives = [XFS.replace("10GiB", f"{size}GiB") for size in sizes]
    jobids = [submit(system, (dw, COPY_OUT), **UNMOUNTED) for dw in directives]
    assert always(system, lambda: fits(system), COPY)
    settle(system, DAY)
    system.loop.run(lambda: False, timeout=120.0)
    assert ssds_down(system) == 0
    assert all(record(system, jobid) == {"success": True} for jobid in jobids)


def fits(system: VirtualSystem) -> bool:
    """Whether no Rabbit has more storage of jobs than it can have."""
    taken: Counter[str] = Counter()
    for servers in system.store.list(SERVERS, None)["items"]:
        taken.update(storageusage.parse(servers).unavailable)
    sizes = {name: rabbit.capacity for name, rabbit in system.topology.rabbits.items()}
    return all(size <= sizes[rabbit] for rabbit, size in taken.items())


def test_other_storage_of_the_rabbit_is_given_out_meanwhile() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    others = [submit(system, XFS), submit(system, XFS)]
    running(system, *others)
    assert desired(system, jobid) == "DataOut"
    settle(system)


def depends_on(jobid: int) -> Json:
    """The attribute of a job that waits for the data of another."""
    return {"dependencies": [{"scheme": "dws-out", "value": f58(jobid)}]}


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_a_job_that_depends_on_the_data_of_another_waits_until_it_is_out(
    release: str,
) -> None:
    system = slow()
    jobid = submit(system, dw_release=release)
    waits = submit(system, "", **depends_on(jobid))
    run_until_inactive(system, jobid)
    late = submit(system, "", **depends_on(jobid))
    if release == "unmounted":
        assert system.loop.run(lambda: False, timeout=COPY / 2) is False
        assert system.instance.job(waits).state is JobState.DEPEND
        assert system.instance.job(late).state is JobState.DEPEND
    running(system, waits, late)
    assert record(system, jobid) == {"success": True}
    settle(system)


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_a_job_finds_the_record_of_another_one_however_slow_the_kvs_is(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rabbitsim.flux.broker.COMMIT_DELAY", 60.0)
    system = slow()
    jobid = submit(system, dw_release=release)
    waits = submit(system, "", **depends_on(jobid))
    run_until_inactive(system, jobid)
    late = submit(system, "", **depends_on(jobid))
    running(system, waits, late)
    settle(system)


@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_a_job_that_depends_on_data_that_is_lost_fails(release: str) -> None:
    system = slow(config=Config.parse({"teardown_after": 100}))
    jobid = submit(system, dw_release=release)
    waits = submit(system, "", **depends_on(jobid))
    run_until_inactive(system, waits)
    late = submit(system, "", **depends_on(jobid))
    settle(system)
    for each in (waits, late):
        (exception,) = exceptions(system, each)
        assert exception["type"] == "dependency"
        assert "not copied: $DW_JOB_p1/x to /lustre/x" in exception["note"]


def test_a_job_that_depends_on_one_that_did_not_run_fails() -> None:
    system = slow()
    jobid = submit(system)
    waits = submit(system, "", **depends_on(jobid))
    assert system.loop.run(in_state(system, "Setup"), timeout=HOUR)
    system.instance.cancel(jobid)
    settle(system)
    (exception,) = exceptions(system, waits)
    assert "the job did not run" in exception["note"]


@pytest.mark.parametrize("end", ["kill_module", "unload_module"])
def test_a_module_that_is_loaded_again_goes_on_with_the_data(end: str) -> None:
    system = slow()
    jobid = submit(system, (ALL, COPY_OUT), **UNMOUNTED)
    run_until_inactive(system, jobid)
    getattr(system, end)()
    system.loop.run(lambda: False, timeout=COPY / 2)
    system.load_module()
    next_job = submit(system, (ALL, COPY_OUT), **UNMOUNTED)
    system.loop.run(lambda: False, timeout=30.0)
    assert desired(system, jobid) == "DataOut"
    settle(system)
    assert record(system, jobid) == {"success": True}
    assert not exceptions(system, next_job)
    assert not lines(system, "tearing down a Workflow whose job has ended")


def test_a_plugin_that_is_loaded_again_has_no_data_given_up() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    system.reload_manager()
    settle(system)
    assert record(system, jobid) == {"success": True}


def test_a_fluxion_that_is_loaded_again_does_not_give_the_storage_twice() -> None:
    system = slow()
    jobids = [submit(system, (ALL, COPY_OUT), **UNMOUNTED) for _ in range(2)]
    for jobid in jobids:
        run_until_inactive(system, jobid)
    system.instance.reload_fluxion()
    next_job = submit(system, ALL)
    assert always(system, lambda: fits(system), COPY + 60)
    assert "start" in names(system, next_job)
    settle(system)
    assert not exceptions(system, next_job)


def ssds_down(system: VirtualSystem) -> int:
    """How many ``ssd`` of all Rabbits Fluxion gives to no job."""
    pool = system.instance.scheduler.pool
    return sum(len(pool.ssds_down(chassis.index)) for chassis in pool.chassis)


def always(system: VirtualSystem, holds: Callable[[], bool], seconds: float) -> bool:
    """Whether something holds after each step of the next seconds."""
    end = system.loop.now() + seconds
    return not system.loop.run(lambda: not holds(), timeout=end - system.loop.now())


@pytest.mark.parametrize("plugin", [True, False])
def test_a_module_that_is_loaded_again_never_gives_the_storage_to_others(
    plugin: bool,
) -> None:
    late: list[str] = []

    def slow_workflows(request: direct.Request) -> Optional[direct.Fault]:
        listed = request.verb == "watch" and request.kind.plural in late
        return direct.Fault(delay=20.0) if listed else None

    system = slow(service_faults=slow_workflows)
    for jobid in [submit(system, (ALL, COPY_OUT), **UNMOUNTED) for _ in range(2)]:
        run_until_inactive(system, jobid)
    before = ssds_down(system)
    system.kill_module()
    if not plugin:
        system.instance.unload_plugin()
    late.append(WORKFLOW.plural)
    system.load_module()
    assert before >= 180 and always(system, lambda: ssds_down(system) >= 180, 60.0)
    if not plugin:
        system.load_plugin()
    settle(system)
    system.loop.run(lambda: False, timeout=120.0)
    assert ssds_down(system) == 0


def test_a_job_keeps_its_nodes_where_its_storage_is_not_visible() -> None:
    def forbid(request: direct.Request) -> Optional[direct.Fault]:
        watch = request.verb == "watch" and request.kind == SERVERS
        error = KubeError(403, "Forbidden", "no such role")
        return direct.Fault(error=error) if watch else None

    system = slow(service_faults=forbid)
    jobid = submit(system, **UNMOUNTED)
    assert system.loop.run(in_state(system, "DataOut"), timeout=HOUR)
    assert always(system, lambda: system.instance.job(jobid).active, COPY - 60)
    assert NODES_RELEASED not in annotations(system, jobid)
    settle(system)


@pytest.mark.parametrize("scheduler", [True, False])
def test_a_job_keeps_its_nodes_until_fluxion_has_answered(scheduler: bool) -> None:
    system = slow(scheduler=scheduler)
    jobid = submit(system, **UNMOUNTED)
    restore = fail(system, FLUXION if scheduler else SCHED_RABBIT, errno.EIO)
    assert system.loop.run(in_state(system, "DataOut"), timeout=HOUR)
    assert always(system, lambda: system.instance.job(jobid).active, 60.0)
    restore()
    run_until_inactive(system, jobid, timeout=100.0)
    settle(system)


def fail(system: VirtualSystem, service: str, errnum: int) -> Callable[[], None]:
    """Have all requests to a service of Flux fail. Returns the function that ends
    that."""
    services = system.instance.broker._services
    before = services[service]
    services[service] = lambda method, payload, user, respond: respond(
        errnum, "a fault", None
    )

    def restore() -> None:
        services[service] = before

    return restore


def test_the_loss_of_data_after_the_end_of_a_job_is_reported() -> None:
    faults: list[Fault] = []
    system = slow(faults=faults)
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    faults.append(Fault.parse("DataOut:copy"))
    settle(system)
    assert not exceptions(system, jobid)
    lost = record(system, jobid)
    assert lost["success"] is False and "/lustre/x" in lost["errstr"]
    assert reports(system) == [{"id": jobid, "success": False}]
    assert lines(system, f"{f58(jobid)}: its data is not out: DWS failed in DataOut")


def test_a_limit_after_the_end_of_a_job_gives_up_its_data_aloud() -> None:
    config = Config.parse({"teardown_after": 100})
    system = slow(config=config)
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    settle(system)
    assert not exceptions(system, jobid)
    assert "teardown_after=100s" in record(system, jobid)["errstr"]
    assert "not copied: $DW_JOB_p1/x to /lustre/x" in record(system, jobid)["errstr"]


def test_a_module_that_is_loaded_again_keeps_the_reason_for_a_loss() -> None:
    system = slow(config=Config.parse({"teardown_after": 100}))
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    assert system.loop.run(in_state(system, "Teardown"), timeout=HOUR)
    lost = record(system, jobid)
    system.kill_module()
    system.load_module()
    settle(system)
    assert len(reports(system)) == 2  # the report was made again
    assert record(system, jobid) == lost
    assert "teardown_after=100s" in lost["errstr"]


def test_a_workflow_that_is_deleted_after_the_end_of_its_job_is_reported() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    system.store.delete(WORKFLOW, "default", workflow_name(jobid))
    settle(system)
    assert record(system, jobid)["success"] is False
    assert "was deleted under the job" in record(system, jobid)["errstr"]


def delete_unseen(system: VirtualSystem, jobid: int) -> None:
    """Delete a job's Workflow while no module is loaded, finalizers and all."""
    name = workflow_name(jobid)
    gone: Json = {"metadata": {"finalizers": None}}
    system.store.merge_patch(WORKFLOW, "default", name, gone)
    system.store.delete(WORKFLOW, "default", name)
    assert not system.workflows()


@pytest.mark.parametrize("when", ["before", "while away", "after"])
def test_who_waits_for_data_whose_workflow_was_deleted_unseen_fails(when: str) -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    waits = []
    if when == "before":
        waits.append(submit(system, "", **depends_on(jobid)))
    run_until_inactive(system, jobid)
    system.kill_module()
    if when == "while away":
        waits.append(submit(system, "", **depends_on(jobid)))
    delete_unseen(system, jobid)
    system.load_module()
    system.loop.run(timeout=30.0)
    if when == "after":
        waits.append(submit(system, "", **depends_on(jobid)))
    settle(system)
    lost = f"Workflow {workflow_name(jobid)} was deleted under the job"
    assert lost in record(system, jobid)["errstr"]
    assert reports(system) == [{"id": jobid, "success": False}]
    (exception,) = exceptions(system, *waits)
    assert exception["type"] == "dependency" and lost in exception["note"]
    assert not list(system.service._jobs)


def ended_before_its_data_was_out(system: VirtualSystem) -> tuple[int, int]:
    """A job that has ended, and one that waits for its data. No module is loaded."""
    jobid = submit(system, **UNMOUNTED)
    waits = submit(system, "", **depends_on(jobid))
    run_until_inactive(system, jobid)
    system.kill_module()
    return jobid, waits


def test_who_waits_for_data_whose_workflow_vanishes_fails() -> None:
    system = slow()
    jobid, waits = ended_before_its_data_was_out(system)
    name = workflow_name(jobid)
    held: Json = {"metadata": {"finalizers": ["dws"]}}
    system.store.merge_patch(WORKFLOW, "default", name, held)
    system.store.delete(WORKFLOW, "default", name)
    system.load_module()
    run_until_inactive(system, waits)
    (exception,) = exceptions(system, waits)
    assert "not copied: $DW_JOB_p1/x to /lustre/x" in exception["note"]
    assert [workflow["metadata"]["name"] for workflow in system.workflows()] == [name]
    released: Json = {"metadata": {"finalizers": None}}
    system.store.merge_patch(WORKFLOW, "default", name, released)
    settle(system)
    assert not list(system.service._jobs)


def test_who_waits_for_data_whose_workflow_is_deleted_unclaimed_fails() -> None:
    """job-info was away: the service does not know yet that the job has ended."""
    system = slow()
    jobid, waits = ended_before_its_data_was_out(system)
    restore = fail(system, "job-info", errno.ENOSYS)
    system.load_module()
    system.loop.run(timeout=40.0)
    restore()
    system.loop.run(timeout=5.0)  # the plugin asks for a report
    assert jobid in system.service._jobs.unclaimed
    delete_unseen(system, jobid)
    run_until_inactive(system, waits)
    assert "was deleted under the job" in exceptions(system, waits)[0]["note"]
    settle(system)


def test_the_loss_of_data_whose_workflow_is_deleted_unclaimed_is_reported() -> None:
    """Also if nobody waits for it."""
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    system.kill_module()
    delay(system, "job-info", 10.0)
    system.load_module()
    system.loop.run(timeout=5.0)
    assert jobid in system.service._jobs.unclaimed
    delete_unseen(system, jobid)
    system.loop.run(lambda: bool(reports(system)), timeout=HOUR)
    assert "was deleted under the job" in record(system, jobid)["errstr"]
    assert reports(system) == [{"id": jobid, "success": False}]
    settle(system)


def delay(system: VirtualSystem, service: str, seconds: float) -> None:
    """Have all requests to a service of Flux take a while."""
    services = system.instance.broker._services
    before = services[service]
    services[service] = lambda *request: system.loop.call_later(
        seconds, lambda: before(*request)
    )


def test_a_report_waits_for_job_info_and_the_log_says_so_once() -> None:
    system = slow()
    jobid, waits = ended_before_its_data_was_out(system)
    delete_unseen(system, jobid)
    restore = fail(system, "job-info", errno.ENOSYS)
    system.load_module()
    system.loop.run(timeout=30.0)
    system.service.request("report_data", {"jobid": jobid}, lambda *answer: None)
    assert always(system, lambda: system.instance.job(waits).active, HOUR)
    said = f"cannot tell what became of the data of {f58(jobid)}"
    assert len(lines(system, said)) == 1
    restore()
    run_until_inactive(system, waits, timeout=100.0)
    assert record(system, jobid)["success"] is False
    settle(system)


@pytest.mark.parametrize("deleted", [False, True])
def test_who_waits_for_a_job_whose_module_died_at_its_release_is_told(
    deleted: bool,
) -> None:
    system = slow(plugin_conf={"epilog-timeout": 60.0})
    jobid = submit(system, **UNMOUNTED)
    waits = submit(system, "", **depends_on(jobid))
    running(system, jobid)
    restore = fail(system, "job-manager.dws", errno.EIO)
    noted = "rabbit_nodes_released"
    kvs = system.instance.job(jobid).kvs
    assert system.loop.run(lambda: noted in kvs, timeout=HOUR)
    system.kill_module()
    restore()
    run_until_inactive(system, jobid)
    if deleted:
        delete_unseen(system, jobid)
    system.load_module()
    run_until_inactive(system, waits)
    assert bool(exceptions(system, waits)) is deleted
    assert record(system, jobid)["success"] is not deleted
    settle(system)


def test_a_report_is_not_asked_for_twice_of_data_that_is_out() -> None:
    """The request may come when the job is forgotten already."""
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    settle(system)
    system.service.request("report_data", {"jobid": jobid}, lambda *answer: None)
    settle(system)
    assert record(system, jobid) == {"success": True}
    assert reports(system) == [{"id": jobid, "success": True}]


def reported_in_part(system: VirtualSystem, jobid: int) -> None:
    """Until it is recorded that the data of a job is out, of which the plugin was not
    told."""
    run_until_inactive(system, jobid)
    restore = fail(system, "job-manager.dws", errno.EAGAIN)
    kvs = system.instance.job(jobid).kvs
    assert system.loop.run(lambda: "rabbit_data_out" in kvs, timeout=HOUR)
    system.kill_module()
    restore()


TAKEN_OVER = {"metadata": {"labels": {INSTANCE: "another"}}}
TORN_DOWN = {"spec": {"desiredState": "Teardown"}}


@pytest.mark.parametrize("patch", [None, TORN_DOWN])
@pytest.mark.parametrize("waits", [False, True])
def test_what_is_recorded_of_data_that_is_out_stays_when_its_workflow_goes(
    patch: Optional[Json], waits: bool
) -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    after = submit(system, "", **depends_on(jobid)) if waits else None
    reported_in_part(system, jobid)
    interfere(system, jobid, patch)
    system.load_module()
    settle(system)
    assert record(system, jobid) == {"success": True}
    assert reports(system) == [{"id": jobid, "success": True}]
    assert after is None or not exceptions(system, after)


def interfere(system: VirtualSystem, jobid: int, patch: Optional[Json]) -> None:
    """Patch or delete a job's Workflow, as an administrator may."""
    name = workflow_name(jobid)
    if patch is None:
        system.store.delete(WORKFLOW, "default", name)
    else:
        system.store.merge_patch(WORKFLOW, "default", name, patch)


def test_data_that_is_out_is_not_lost_with_the_label_of_its_workflow() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    restore = fail(system, "job-manager.dws", errno.EAGAIN)
    kvs = system.instance.job(jobid).kvs
    assert system.loop.run(lambda: "rabbit_data_out" in kvs, timeout=HOUR)
    interfere(system, jobid, TAKEN_OVER)
    system.loop.run(timeout=1.0)
    restore()
    system.loop.run(lambda: bool(reports(system)), timeout=HOUR)
    assert record(system, jobid) == {"success": True}
    assert reports(system) == [{"id": jobid, "success": True}]


@pytest.mark.parametrize("patch", [None, TORN_DOWN])
@pytest.mark.parametrize("release", ["teardown", "unmounted"])
def test_data_that_was_copied_while_no_module_was_there_is_out(
    patch: Optional[Json], release: str
) -> None:
    system = slow()
    jobid = submit(system, dw_release=release)
    assert system.loop.run(in_state(system, "DataOut"), timeout=HOUR)
    system.loop.run(timeout=10.0)
    system.kill_module()
    system.loop.run(timeout=COPY)
    interfere(system, jobid, patch)
    system.load_module()
    settle(system)
    assert record(system, jobid) == {"success": True}
    assert not exceptions(system, jobid)


@pytest.mark.parametrize("deleted", [True, False])
def test_who_waits_for_data_whose_workflow_ends_without_a_report_fails(
    deleted: bool,
) -> None:
    """It is being deleted, and not by this service, or does not say that its job has
    ended."""
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    waits = submit(system, "", **depends_on(jobid))
    run_until_inactive(system, jobid)
    system.kill_module()
    if deleted:
        theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
        interfere(system, jobid, theirs)
        interfere(system, jobid, None)
    else:
        interfere(system, jobid, {"metadata": {"annotations": {NODES_RELEASED: None}}})
    system.load_module()
    system.loop.run(timeout=30.0)
    if deleted:
        interfere(system, jobid, {"metadata": {"finalizers": None}})
    run_until_inactive(system, waits)
    (exception,) = exceptions(system, waits)
    note = "was deleted under the job" if deleted else "not copied"
    assert note in exception["note"]
    assert record(system, jobid)["success"] is False
    settle(system)


@pytest.mark.parametrize("purged", [False, True])
def test_a_report_that_the_plugin_missed_is_made_again(purged: bool) -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    waits = submit(system, "", **depends_on(jobid))
    run_until_inactive(system, jobid)
    restore = fail(system, "job-manager.dws", errno.ENOSYS)
    assert system.loop.run(lambda: bool(reports(system)), timeout=HOUR)
    system.loop.run(timeout=HOUR)
    restore()
    assert system.instance.job(waits).state is not JobState.INACTIVE
    if purged:
        system.instance.manager.jobs.pop(jobid)
    system.service.request("report_data", {"jobid": jobid}, lambda *answer: None)
    run_until_inactive(system, waits)
    assert bool(exceptions(system, waits)) is purged
    assert reports(system) == [{"id": jobid, "success": True}]


def test_a_workflow_that_others_take_over_is_reported_and_keeps_its_storage() -> None:
    system = slow()
    jobids = [submit(system, (ALL, COPY_OUT), **UNMOUNTED) for _ in range(2)]
    for jobid in jobids:
        run_until_inactive(system, jobid)
    label = {"metadata": {"labels": {INSTANCE: "another"}}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobids[0]), label)
    system.loop.run(lambda: bool(reports(system)), timeout=HOUR)
    lost = record(system, jobids[0])
    assert 'belongs to the Flux instance "another"' in lost["errstr"]
    assert reports(system) == [{"id": jobids[0], "success": False}]
    next_job = submit(system, ALL)
    assert always(system, lambda: "alloc" not in names(system, next_job), COPY - 60)
    free = system.service._machine.free_storage
    for name in free.usage_of(jobids[0]):
        gone: Json = {"metadata": {"finalizers": None}}
        system.store.merge_patch(SERVERS, "default", name, gone)
        system.store.delete(SERVERS, "default", name)
    system.loop.run(lambda: not free.usage_of(jobids[0]), timeout=HOUR)
    assert jobids[0] not in free.jobs | free._released | free._forgotten


def test_the_loss_is_named_in_the_report_of_data_that_another_gave_up() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    teardown = {"spec": {"desiredState": "Teardown"}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), teardown)
    settle(system)
    assert "was moved to Teardown under the job" in record(system, jobid)["errstr"]
    assert "not copied: $DW_JOB_p1/x to /lustre/x" in record(system, jobid)["errstr"]


def test_a_purged_job_gets_no_directory_again_while_its_data_goes_out() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    purged = system.instance.manager.jobs.pop(jobid)
    settle(system)
    assert not lines(system, "kvs: no job directory")
    assert "rabbit_data_out" not in purged.kvs
    assert reports(system) == [{"id": jobid, "success": True}]


@pytest.mark.parametrize("service", ["event", "job-info"])
def test_a_report_that_fails_is_made_later_and_logged_once(service: str) -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    restore = fail(system, service, errno.ENOSYS)
    system.loop.run(lambda: False, timeout=COPY + 300)
    assert desired(system, jobid) == "DataOut"
    assert not lines(system, ": its data is out")
    restore()
    settle(system)
    assert reports(system) == [{"id": jobid, "success": True}]
    assert len(lines(system, ": its data is out")) == 1


def test_data_that_is_out_is_not_lost_with_its_workflow() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    restore = fail(system, "event", errno.EAGAIN)
    system.loop.run(lambda: False, timeout=COPY + 60)
    name, away = workflow_name(jobid), {"metadata": {"finalizers": None}}
    system.store.merge_patch(WORKFLOW, "default", name, away)
    system.store.delete(WORKFLOW, "default", name)
    restore()
    settle(system)
    system.loop.run(lambda: bool(reports(system)), timeout=HOUR)
    assert record(system, jobid) == {"success": True}


def test_a_job_that_did_not_run_ends_after_its_teardown() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    assert system.loop.run(in_state(system, "Setup"), timeout=HOUR)
    system.instance.cancel(jobid)
    run_until_inactive(system, jobid)
    assert is_torn_down(system, jobid)
    settle(system)
    assert not reports(system)


def is_torn_down(system: VirtualSystem, jobid: int) -> bool:
    """Whether a job's storage is gone."""
    name = workflow_name(jobid)
    workflow = system.store.find(WORKFLOW, "default", name)
    status = {} if workflow is None else workflow["status"]
    return workflow is None or (status["state"], status["ready"]) == ("Teardown", True)


def test_a_cancelled_epilog_ends_after_its_teardown() -> None:
    latency = table({"PostRun": 100.0})
    system = started(nodes=2, options=Options(latency=latency))
    jobid = submit(system, **UNMOUNTED)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    system.instance.cancel(jobid)
    run_until_inactive(system, jobid)
    assert is_torn_down(system, jobid)
    settle(system)
    assert not reports(system)


@pytest.mark.parametrize("timeout", [5.0, 60.0])
def test_an_epilog_that_is_given_up_has_its_lost_data_reported(timeout: float) -> None:
    """Before the Workflow is marked, or after, while Fluxion does not answer."""
    latency = table({"PostRun": 20.0, "DataOut": COPY})
    system = started(
        options=Options(latency=latency), plugin_conf={"epilog-timeout": timeout}
    )
    jobid = submit(system, **UNMOUNTED)
    running(system, jobid)
    fail(system, FLUXION, errno.EIO)
    run_until_inactive(system, jobid)
    marked = timeout > 20
    assert (NODES_RELEASED in annotations(system, jobid)) is marked
    system.loop.run(lambda: False, timeout=60.0)
    assert bool(reports(system)) is marked
    noted = [str(exception["note"]) for exception in exceptions(system, jobid)]
    assert any("/lustre/x" in note for note in noted)
    assert record(system, jobid)["success"] is False


def test_data_that_is_out_stays_so_if_the_epilog_is_given_up_in_teardown() -> None:
    system = started(
        options=Options(latency=table({"Teardown": 100.0})),
        plugin_conf={"epilog-timeout": 20.0},
    )
    jobid = submit(system)
    running(system, jobid)
    run_until_inactive(system, jobid)
    assert not is_torn_down(system, jobid)
    assert record(system, jobid) == {"success": True}
    noted = [str(exception["note"]) for exception in exceptions(system, jobid)]
    assert noted and not any("not copied" in note for note in noted)


def test_an_epilog_ends_with_its_teardown_if_fluxion_never_answers() -> None:
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    running(system, jobid)
    system.instance.broker.register(FLUXION, lambda *request: None)
    run_until_inactive(system, jobid)
    assert is_torn_down(system, jobid) and record(system, jobid) == {"success": True}
    settle(system)


@pytest.mark.parametrize(
    ("dw", "word"),
    [
        (["#DW container name=c profile=p"], "container"),
        ("#DW jobdw type=xfs capacity=1GiB name=p1 requires=copy-offload", "requires"),
    ],
)
def test_what_runs_beside_the_tasks_forbids_it(dw: Any, word: str) -> None:
    system = started()
    jobid = submit(system, dw, **UNMOUNTED)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "dw_release=unmounted" in exception["note"] and word in exception["note"]


def test_a_wrong_value_is_refused_at_submission() -> None:
    system = started()
    with pytest.raises(Exception, match='expected "teardown" or "unmounted"'):
        submit(system, dw_release="soon")


UNREADABLE = ("", "[" * 100_000, "[]", "{}", '{"success": "yes"}')


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_record_that_cannot_be_read_counts_as_none(text: str) -> None:
    """Somebody has written to the job's KVS directory."""
    system = slow()
    jobid = submit(system, **UNMOUNTED)
    run_until_inactive(system, jobid)
    system.instance.job(jobid).kvs["rabbit_data_out"] = text
    settle(system)
    assert record(system, jobid) == {"success": True}
    assert reports(system) == [{"id": jobid, "success": True}]
    assert not lines(system, "internal error")


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_report_replaces_a_record_that_cannot_be_read(text: str) -> None:
    system = slow()
    jobid, waits = ended_before_its_data_was_out(system)
    delete_unseen(system, jobid)
    system.load_module()
    settle(system)
    assert system.service is not None and jobid not in system.service._jobs
    assert exceptions(system, waits)
    system.instance.job(jobid).kvs["rabbit_data_out"] = text
    system.service.request("report_data", {"jobid": jobid}, lambda *answer: None)
    settle(system)
    assert "was deleted under the job" in record(system, jobid)["errstr"]
    assert not lines(system, "internal error")


def test_no_loss_is_reported_of_a_job_that_has_not_ended() -> None:
    """The instance owner asks, and the service does not know the job yet."""
    system = slow()
    jobid = submit(system, "")
    running(system, jobid)
    assert system.service is not None
    system.service.request("report_data", {"jobid": jobid}, lambda *answer: None)
    settle(system)
    assert "rabbit_data_out" not in system.instance.job(jobid).kvs
    assert not reports(system)
