# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a cancel does to the storage of a job, and what the commands say of it before.
Whole systems under virtual time."""

from __future__ import annotations

from flux_k8s.formats.jobid import f58
from flux_k8s.ports import PERSISTENTSTORAGE
from rabbitsim.commands import VirtualInstance
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.dwscli import Done, dws
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    exceptions,
    long,
    more,
    running,
    settle,
    started,
)


def said(system: VirtualSystem, jobid: int) -> tuple[str, str, Done]:
    """What list, show and free say that a cancel would do."""
    instance = VirtualInstance(system)
    listed = dws(instance, "list", "-n", "-o", "{cancel}").out
    shown = dws(instance, "show", f58(jobid)).out
    (line,) = [line for line in shown.splitlines() if line.startswith("Cancel:")]
    return (
        listed.strip(),
        line[len("Cancel:") :].strip(),
        dws(instance, "free", f58(jobid)),
    )


def slow() -> VirtualSystem:
    latency = {state: 30.0 for state in ("Setup", "PostRun", "DataOut", "Teardown")}
    return started(options=Options(latency=table(latency)))


def reach(system: VirtualSystem, state: str) -> None:
    assert system.loop.run(
        lambda: [w["spec"]["desiredState"] for w in system.workflows()] == [state],
        HOUR,
    )
    system.loop.run(timeout=1.0)


def always_said(system: VirtualSystem, jobid: int) -> tuple[str, str, Done]:
    """What is said, also by a new module to which a new plugin tells of the job."""
    before = said(system, jobid)[:2]
    system.instance.unload_plugin()
    system.kill_module()
    system.load_module()
    system.load_plugin()
    system.loop.run(timeout=2.0)
    after = said(system, jobid)
    assert after[:2] == before
    return after


def test_list_show_and_free_say_at_each_moment_what_a_cancel_would_do() -> None:
    system = slow()
    spec = long([XFS, COPY_OUT])
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)

    reach(system, "Setup")
    listed, shown, freed = always_said(system, jobid)
    assert listed == "freed"
    assert shown == "the storage is freed, and no copy is lost"
    assert "- the job is cancelled before it has run\n" in freed.out

    running(system, jobid)
    listed, shown, freed = always_said(system, jobid)
    assert listed == "copied"
    assert shown == "the data is copied out when the tasks have ended"
    assert "- the job is cancelled, and its tasks are killed\n" in freed.out

    system.instance.cancel(jobid)
    system.loop.run(timeout=0.1)
    listed, shown, freed = always_said(system, jobid)
    assert system.instance.job(jobid).state is JobState.CLEANUP
    assert listed == "copied"
    assert shown == "the data is copied out when the tasks have ended"
    assert freed.status == 1 and freed.err.endswith(
        ": its tasks are still ending: a cancel changes nothing, its data is copied out"
        " after that\n"
    )

    for state in ("PostRun", "DataOut"):
        reach(system, state)
        listed, shown, freed = always_said(system, jobid)
        assert listed == "lost"
        assert shown.startswith("the storage is freed at once, and what is not copied")
        assert "Teardown at once and is deleted" in freed.out
        assert "- $DW_JOB_p1/x, which is not copied to /lustre/x" in freed.out

    reach(system, "Teardown")
    listed, shown, freed = always_said(system, jobid)
    assert (listed, shown) == ("nothing", "it changes nothing")
    assert "dws-epilog-timeout" in freed.out
    settle(system)
    (told,) = exceptions(system, jobid)
    assert told["type"] == "cancel"


def test_a_job_without_copies_loses_none_by_a_cancel() -> None:
    system = slow()
    spec = long([XFS])
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)
    free = "the storage is freed, and no copy is lost"

    running(system, jobid)
    listed, shown, freed = always_said(system, jobid)
    assert (listed, shown) == ("freed", free)
    assert "- the storage is unmounted and deleted as after any job\n" in freed.out

    system.instance.cancel(jobid)
    system.loop.run(timeout=0.1)
    listed, shown, freed = always_said(system, jobid)
    assert system.instance.job(jobid).state is JobState.CLEANUP
    assert (listed, shown) == ("freed", free)
    assert freed.status == 1 and freed.err.endswith(
        ": its tasks are still ending: a cancel changes nothing, its storage is freed"
        " after that\n"
    )

    reach(system, "PostRun")
    listed, shown, freed = always_said(system, jobid)
    assert (listed, shown) == ("freed", free)
    assert "Teardown at once and is deleted" in freed.out


def test_a_job_that_was_given_up_can_lose_nothing_more() -> None:
    system = slow()
    jobid = system.instance.submit(long([XFS, COPY_OUT], seconds=1))
    reach(system, "PostRun")
    assert said(system, jobid)[0] == "lost"
    system.instance.cancel(jobid)
    assert system.loop.run(lambda: "nothing" in said(system, jobid)[0], 60.0)
    settle(system)


def test_the_notes_of_a_cancelled_job_name_what_is_lost_and_what_lasts() -> None:
    keep = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    system = started(options=Options(latency=table({"PreRun": 60.0, "DataOut": 60.0})))
    first = system.instance.submit(long([keep]))
    reach(system, "PreRun")
    system.instance.cancel(first)
    settle(system)
    second = system.instance.submit(long([XFS, COPY_OUT], seconds=1))
    reach(system, "DataOut")
    system.instance.cancel(second)
    settle(system)
    notes = [exceptions(system, jobid)[-1]["note"] for jobid in (first, second)]
    assert notes[0] == (
        "the job did not run, but its persistent storage keep exists:"
        " #DW destroy_persistent removes it"
    )
    assert notes[1].startswith("given up in ")
    assert notes[1].endswith(f"; not copied: $DW_JOB_p1/x to /lustre/x{more(second)}")
    (kept,) = system.store.list(PERSISTENTSTORAGE, None)["items"]
    assert kept["metadata"]["name"] == "keep"
