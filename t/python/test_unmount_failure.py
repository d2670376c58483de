# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What jobs and administrators are told of nodes that do not unmount. What becomes of
their storage is in :mod:`stories.unmount`."""

from __future__ import annotations

import json

from dwscli.page import mounts_line
from flux_k8s.formats.jobid import f58
from flux_k8s.ports import CLIENTMOUNT, Request
from flux_k8s.rules.drainreason import UNKNOWN, drain_reason
from rabbitsim.dws.options import Fault
from support.rabbits import drained, shown
from support.service import (
    HOUR,
    USE,
    desired,
    exceptions,
    jobspec,
    lines,
    names,
    run_until_inactive,
    settle,
)
from support.service import KEEP as PERSISTENT
from support.unmounting import (
    BAD,
    COPY,
    REASON,
    STUCK,
    fencing,
    job_show,
    kept,
    record,
    settle_unharmed,
    submit,
    switch_off,
    system_of,
    wait,
)


def test_a_node_is_drained_with_the_reason_and_the_job_told_what_it_waits_for() -> None:
    system = system_of()
    jobid = kept(system)
    assert drained(system) == {BAD: f"{f58(jobid)}: {REASON}"}
    (told,) = exceptions(system, jobid)
    assert (told["type"], told["severity"]) == ("dws-node-failure", 1)
    assert told["note"].startswith(f"{BAD}: PostRun took more than postrun_timeout=60s")
    assert "the storage is kept until it is unmounted there" in told["note"]
    switch_off(system)
    wait(system, 60.0)
    lost = f"{BAD} has not unmounted: what it had not written is not copied"
    assert record(system, jobid)["errstr"] == lost
    assert lines(system, f"{f58(jobid)}: its data is not out: {lost}")


def test_the_program_of_the_site_is_asked_for_the_node_and_what_it_says_is_logged() -> (
    None
):
    system, fenced, asked = fencing()
    kept(system)
    wait(system, 120.0)
    assert asked and {tuple(each) for each in asked} == {("-q", BAD)}
    fenced.append(BAD)
    wait(system, 61.0)
    assert lines(system, f"{BAD} cannot write any more, by rabbit.fence_command")
    fenced.clear()
    system.instance.undrain(BAD)
    wait(system, 60.0)
    assert lines(system, f"{BAD} is not fenced any more")


def test_nodes_that_come_and_go_do_not_have_all_mounts_listed_each_time() -> None:
    """As long as a node is drained of which Kubernetes did not say what it mounts."""
    lists: list[Request] = []

    def see(request: Request) -> None:
        if request.kind == CLIENTMOUNT and request.verb == "list":
            lists.append(request)

    system = system_of(faults=see)
    jobid = kept(system)
    system.instance.drain(BAD, drain_reason(jobid, UNKNOWN), overwrite=True)
    wait(system, 10.0)
    lists.clear()
    for up in (False, True) * 5:
        system.instance.set_up("compute-04", up)
        wait(system, 2.0)
    assert len(lists) <= 1 and BAD in drained(system)


def test_a_program_of_the_site_that_cannot_be_run_is_named_in_the_log() -> None:
    system, _, _ = fencing()
    system.instance.programs.clear()
    kept(system)
    (line,) = lines(system, "rabbit.fence_command: ")
    assert "No such file or directory; no node is taken for fenced" in line


def test_who_waits_for_shared_storage_is_told_which_node_has_it() -> None:
    system = system_of(Fault("PostRun", "mount", node=BAD, match="*"))
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    jobid = kept(system, (USE,))
    other = submit(system, (USE, COPY), 3)
    wait(system, 60.0)
    assert "alloc" not in names(system, other)
    waits = system.instance.job(other).annotations["user"]["rabbit_waits_for"]
    assert f"{BAD} has not unmounted the persistent storage keep of job" in waits
    switch_off(system)
    settle_unharmed(system)
    lost = f"{BAD} may not have written everything to keep"
    assert record(system, jobid)["errstr"] == lost


def test_a_job_shows_only_the_nodes_that_its_storage_is_still_kept_for() -> None:
    late = Fault("PostRun", "mount", node="compute-04", duration=600.0)
    system = system_of(STUCK, late, Fault("PostRun", "mount", node="compute-03"))
    jobid = submit(system)
    run_until_inactive(system, jobid)
    waits = job_show(system, jobid)["waits"]
    assert waits.startswith("compute-[02-04] to unmount, or to be off")
    wait(system, 600.0)
    switch_off(system)
    wait(system, 120.0)
    assert job_show(system, jobid)["waits"].startswith("compute-03 to unmount")
    switch_off(system, "compute-03")
    settle_unharmed(system)


def test_a_job_that_was_let_go_shows_what_its_storage_is_kept_for() -> None:
    system = system_of(
        plugin_conf={"epilog-timeout": 30.0}, config={"postrun_timeout": 0}
    )
    jobid = submit(system)
    run_until_inactive(system, jobid)
    wait(system, 60.0)
    assert job_show(system, jobid)["waits"].startswith(f"{BAD} to unmount")
    assert lines(system, f"{BAD}: its epilog was given up, and Rabbit storage could")
    wait(system, HOUR)
    assert desired(system, jobid) == "PostRun" and shown(system) == {}


def test_a_job_shows_what_its_storage_is_kept_for() -> None:
    system = system_of()
    jobid = kept(system)
    wait(system, 10.0)
    shows = job_show(system, jobid)
    assert shows["waits"].startswith(f"{BAD} to unmount, or to be off")
    assert shows["limits"] == []
    assert mounts_line(shows["mounts"]) == f"3/4 unmounted, waiting for: {BAD}"
    found = json.loads(system.instance.job(jobid).kvs["rabbit_kept_for"])
    assert found["nodes"] == BAD and "to unmount" in found["until"]
    switch_off(system)
    settle_unharmed(system)
