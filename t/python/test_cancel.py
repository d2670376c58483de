# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a cancel does to the storage of a job, and what the commands say of it before.
Whole systems under virtual time."""

from __future__ import annotations

import pytest

from flux_k8s.ports import PERSISTENTSTORAGE, Json
from flux_k8s.rfc.jobid import f58
from rabbitsim.commands import VirtualInstance
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.dwscli import Done, dws
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    desired,
    exceptions,
    long,
    more,
    run_until,
    running,
    settle,
    started,
)

LOST = "not copied: $DW_JOB_p1/x to /lustre/x"


def ends_slowly(system: VirtualSystem, seconds: int = 600) -> int:
    """A job that runs, whose tasks take their time to end, with data to copy out."""
    spec = long([XFS, COPY_OUT], seconds=seconds)
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)
    running(system, jobid)
    return jobid


def load_again(system: VirtualSystem, what: str) -> None:
    """Have the plugin, the module or both loaded again."""
    if what in ("plugin", "both"):
        system.instance.unload_plugin()
    if what in ("module", "both"):
        system.kill_module()
        system.load_module()
    if what in ("plugin", "both"):
        system.load_plugin()


LOADED_AGAIN = pytest.mark.parametrize(
    "loaded_again", ["nothing", "plugin", "module", "both"]
)


def types(system: VirtualSystem, jobid: int) -> list[str]:
    return [exception["type"] for exception in exceptions(system, jobid)]


@LOADED_AGAIN
def test_a_second_cancel_while_tasks_are_ending_leaves_the_data_to_be_copied(
    loaded_again: str,
) -> None:
    system = started()
    jobid = ends_slowly(system)
    system.instance.cancel(jobid)
    system.loop.run(timeout=1.0)
    system.instance.cancel(jobid)
    load_again(system, loaded_again)
    settle(system)
    assert types(system, jobid) == ["cancel", "cancel"]


@LOADED_AGAIN
def test_a_cancel_after_the_time_limit_leaves_the_data_to_be_copied(
    loaded_again: str,
) -> None:
    system = started()
    spec = long([XFS, COPY_OUT], duration=60)
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)
    run_until(system, jobid, "exception")
    system.loop.run(timeout=1.0)
    system.instance.cancel(jobid)
    load_again(system, loaded_again)
    settle(system)
    assert types(system, jobid) == ["timeout", "cancel"]


@LOADED_AGAIN
def test_a_cancel_after_the_tasks_have_ended_gives_the_data_up(
    loaded_again: str,
) -> None:
    system = started(options=Options(faults=[DwsFault("PostRun", "never")]))
    jobid = ends_slowly(system)
    system.instance.cancel(jobid)
    system.instance.cancel(jobid)
    run_until(system, jobid, "finish")
    system.instance.cancel(jobid)
    load_again(system, loaded_again)
    settle(system)
    assert types(system, jobid) == ["cancel", "cancel", "cancel", "dws"]
    note = exceptions(system, jobid)[-1]["note"]
    assert note.startswith("given up in ") and note.endswith(f"; {LOST}{more(jobid)}")


# What the commands say


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


@pytest.mark.parametrize("restart", [False, True])
def test_list_show_and_free_say_at_each_moment_what_a_cancel_would_do(
    restart: bool,
) -> None:
    system = slow()
    spec = long([XFS, COPY_OUT])
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)

    def now_said() -> tuple[str, str, Done]:
        if restart:
            load_again(system, "both")
            system.loop.run(timeout=2.0)
        return said(system, jobid)

    reach(system, "Setup")
    listed, shown, freed = now_said()
    assert listed == "freed"
    assert shown == "the storage is freed, and no copy is lost"
    assert "- the job is cancelled before it has run\n" in freed.out

    running(system, jobid)
    listed, shown, freed = now_said()
    assert listed == "copied"
    assert shown == "the data is copied out when the tasks have ended"
    assert "- the job is cancelled, and its tasks are killed\n" in freed.out

    system.instance.cancel(jobid)
    system.loop.run(timeout=0.1)
    listed, shown, freed = now_said()
    assert system.instance.job(jobid).state is JobState.CLEANUP
    assert listed == "copied"
    assert shown == "the data is copied out when the tasks have ended"
    assert freed.status == 1 and freed.err.endswith(
        ": its tasks are still ending: a cancel changes nothing, its data is copied out"
        " after that\n"
    )

    for state in ("PostRun", "DataOut"):
        reach(system, state)
        listed, shown, freed = now_said()
        assert listed == "lost"
        assert shown.startswith("the storage is freed at once, and what is not copied")
        assert "Teardown at once and is deleted" in freed.out
        assert "- $DW_JOB_p1/x, which is not copied to /lustre/x" in freed.out

    reach(system, "Teardown")
    listed, shown, freed = now_said()
    assert (listed, shown) == ("nothing", "it changes nothing")
    assert "dws-epilog-timeout" in freed.out
    settle(system)
    assert types(system, jobid) == ["cancel"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_without_copies_loses_none_by_a_cancel(restart: bool) -> None:
    system = slow()
    spec = long([XFS])
    spec["attributes"]["system"]["exec"]["test"]["deaf"] = True
    jobid = system.instance.submit(spec)
    free = "the storage is freed, and no copy is lost"

    def now_said() -> tuple[str, str, Done]:
        if restart:
            load_again(system, "both")
            system.loop.run(timeout=2.0)
        return said(system, jobid)

    running(system, jobid)
    listed, shown, freed = now_said()
    assert (listed, shown) == ("freed", free)
    assert "- the storage is unmounted and deleted as after any job\n" in freed.out

    system.instance.cancel(jobid)
    system.loop.run(timeout=0.1)
    listed, shown, freed = now_said()
    assert system.instance.job(jobid).state is JobState.CLEANUP
    assert (listed, shown) == ("freed", free)
    assert freed.status == 1 and freed.err.endswith(
        ": its tasks are still ending: a cancel changes nothing, its storage is freed"
        " after that\n"
    )

    reach(system, "PostRun")
    listed, shown, freed = now_said()
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


def persistent(system: VirtualSystem) -> list[Json]:
    return list(system.store.list(PERSISTENTSTORAGE, None)["items"])


def in_state(system: VirtualSystem, jobid: int, state: str) -> None:
    """Run until a job's Workflow is asked for a state."""

    def there() -> bool:
        return bool(system.workflows()) and desired(system, jobid) == state

    assert system.loop.run(there, HOUR)


def making_to_last(*faults: DwsFault) -> tuple[VirtualSystem, int]:
    """A system, and a job that makes persistent storage and has nodes."""
    system = started(options=Options(latency=table({"PreRun": HOUR}), faults=faults))
    keep = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    return system, system.instance.submit(long([keep]))


def test_a_cancelled_job_names_the_persistent_storage_that_it_has_made() -> None:
    system, jobid = making_to_last()
    in_state(system, jobid, "PreRun")
    system.instance.cancel(jobid)
    settle(system)
    notes = [each["note"] for each in exceptions(system, jobid)]
    assert notes[1:] == [
        "the job did not run, but its persistent storage keep exists:"
        " #DW destroy_persistent removes it"
    ]
    kept = [each["metadata"]["name"] for each in persistent(system)]
    assert kept == ["keep"]


def test_a_cancelled_job_that_has_made_no_persistent_storage_yet_names_none() -> None:
    system, jobid = making_to_last(DwsFault("Setup", "never"))
    in_state(system, jobid, "Setup")
    system.instance.cancel(jobid)
    settle(system)
    assert types(system, jobid) == ["cancel"]
