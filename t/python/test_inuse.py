# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes of a job whose epilog is given up while Kubernetes does not answer (seed
001, "Epilog timeout and abort")."""

from __future__ import annotations

import errno
from typing import Any, Optional

import pytest

from flux_k8s.dws.drainreason import IN_USE, UNKNOWN, drain_reason
from flux_k8s.ports import STORAGE, WORKFLOW, KubeError
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.flux import services
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.outages import OUTAGES, inject, job_in, slow
from support.rabbits import drained
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    exceptions,
    jobspec,
    lines,
    long,
    running,
    started,
)

EPILOG_TIMEOUT = 60.0


def aborted(reload: bool) -> tuple[VirtualSystem, int]:
    """A system without Kubernetes in which a job's epilog was given up.

    Args:
        reload: the module was loaded again, and does not know the job's nodes.
    """
    system = slow(plugin_conf={"epilog-timeout": EPILOG_TIMEOUT})
    jobid = job_in(system, "PostRun")
    if reload:
        system.kill_module()
        system.load_module()
    inject(system, OUTAGES["hang"], HOUR)
    assert system.loop.run(system.instance.idle, HOUR)
    system.loop.run(timeout=10.0)
    return system, jobid


@pytest.mark.parametrize("reload", [False, True])
def test_an_abort_without_an_answer_of_kubernetes_drains_all_nodes_of_the_job(
    reload: bool,
) -> None:
    system, jobid = aborted(reload)
    reason = drain_reason(jobid, UNKNOWN)
    assert drained(system) == dict.fromkeys(["compute-01", "compute-02"], reason)


def test_an_abort_that_kubernetes_fails_drains_all_nodes_at_once_and_once() -> None:
    system = slow(plugin_conf={"epilog-timeout": EPILOG_TIMEOUT})
    jobid = job_in(system, "PostRun")
    inject(system, OUTAGES["503"], HOUR)
    assert system.loop.run(lambda: bool(exceptions(system, jobid)), HOUR)
    system.loop.run(timeout=1.0)
    assert len(drained(system)) == 2
    system.loop.run(timeout=HOUR / 2)
    assert len(lines(system, "drained until it does")) == 1


@pytest.mark.parametrize("errnum", [errno.ENOSYS, errno.EHOSTUNREACH])
def test_an_abort_drains_all_nodes_although_job_list_is_loaded_again_at_the_time(
    errnum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    answers = services._Jobs.list_id

    def fail(self: services._Jobs, *args: Any) -> Any:
        asked.append(args)
        if len(asked) < 3:
            raise OSError(errnum, "job-list is away")
        return answers(self, *args)

    monkeypatch.setattr(services._Jobs, "list_id", fail)
    system, jobid = aborted(reload=True)
    reason = drain_reason(jobid, UNKNOWN)
    assert drained(system) == dict.fromkeys(["compute-01", "compute-02"], reason)
    assert len(lines(system, "cannot tell which nodes to drain")) == 1
    assert len(asked) == 3


def test_an_abort_drains_no_node_once_the_storage_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By then the nodes run other jobs."""
    away = [True]
    answers = services._Jobs.list_id

    def answer(self: services._Jobs, *args: Any) -> Any:
        if away:
            raise OSError(errno.ENOSYS, "job-list is away")
        return answers(self, *args)

    monkeypatch.setattr(services._Jobs, "list_id", answer)
    system, jobid = aborted(reload=True)
    name = workflow_name(jobid)
    free = {"metadata": {"finalizers": []}}
    system.store.merge_patch(WORKFLOW, "default", name, free)
    system.store.delete(WORKFLOW, "default", name)
    system.loop.run(timeout=2 * HOUR)
    away.clear()
    system.loop.run(timeout=10.0)
    assert lines(system, "drained until") == []
    assert drained(system) == {}


def test_an_abort_says_that_it_cannot_drain_a_job_that_job_list_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.ENOENT, "job is unknown")

    monkeypatch.setattr(services._Jobs, "list_id", fail)
    system, _ = aborted(reload=True)
    assert drained(system) == {}
    (line,) = lines(system, "cannot tell which nodes to drain")
    assert line.endswith("job is unknown [drain-failed]")


def test_an_abort_of_a_job_that_never_had_nodes_has_none_to_drain() -> None:
    system = slow(plugin_conf={"epilog-timeout": EPILOG_TIMEOUT})
    jobid = job_in(system, "Proposal")
    inject(system, OUTAGES["hang"], HOUR)
    system.instance.cancel(jobid)
    assert system.loop.run(system.instance.idle, HOUR)
    system.loop.run(timeout=10.0)
    assert lines(system, "cannot tell") == lines(system, "drained until") == []
    assert drained(system) == {}


@pytest.mark.parametrize("loaded_again", ["", "reload_manager", "kill_module"])
def test_an_abort_before_the_tasks_have_ended_names_the_data_that_is_lost(
    loaded_again: str,
) -> None:
    system = started()
    spec = long([XFS, COPY_OUT])
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)
    running(system, jobid)
    system.instance.cancel(jobid)
    if loaded_again:
        getattr(system, loaded_again)()
    if loaded_again == "kill_module":
        system.load_module()
    system.loop.run(timeout=1.0)
    owner = system.instance.broker.owner
    raising = system.instance.manager.raise_exception
    raising(jobid, "dws-epilog-timeout", 0, "enough", owner)
    assert system.loop.run(system.instance.idle, HOUR)
    assert (
        "not copied: $DW_JOB_p1/x to /lustre/x" in exceptions(system, jobid)[-1]["note"]
    )


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
