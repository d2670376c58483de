# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Data that is lost, and Workflows. That of a job that waits for nodes is made again,
which the job does not notice; a job that has nodes fails."""

from __future__ import annotations

from flux_k8s.config.table import Config
from flux_k8s.ports import WORKFLOW
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import (
    ask_deletion,
    cancel,
    configure,
    delete,
    down,
    force,
    patch_workflows,
    submit,
    tear_down,
    unload,
    up,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import lose_watches, outage, silence_watches
from rabbitsim.torture.story import (
    COPY_OUT,
    NODE,
    XFS,
    Deed,
    Job,
    Story,
    When,
)

UP = "up:compute-04 alloc..DataIn enable:compute-04 PreRun..gone"
COPIES = tuple(f"#DW copy_out source=$DW_JOB_p1/ destination=/lustre/{x}" for x in "xy")
WAITS = (When("", down("compute-04")), When("", up("compute-04"), 400.0))
"""One of the nodes that a job needs is there only later."""


def delete_unseen(system: StorySystem) -> None:
    """The Workflows are deleted in a moment without a watch."""
    silence_watches(WORKFLOW)(system)
    delete(system)
    lose_watches(system)


def delete_all(system: StorySystem) -> None:
    """All Workflows are gone, as when the cluster is installed anew."""
    system.meddled = True
    patch_workflows(system, {"metadata": {"finalizers": None}})
    for workflow in system.workflows():
        system.store.delete(WORKFLOW, "default", workflow["metadata"]["name"])


LOSSES: dict[str, tuple[Deed, str]] = {
    "somebody deletes it": (ask_deletion, "gone"),
    "somebody tears it down": (tear_down, "Teardown gone"),
    "it is gone": (delete, "gone"),
    "it is gone, and nobody saw it": (delete_unseen, "gone"),
}


def scratch(size: str) -> Config:
    return Config(presets={"scratch": [XFS.replace("10GiB", size)]})


DATA = (
    *(
        Story(
            f"somebody has DWS count DataOut as done{how}",
            "Proposal..DataOut force Teardown cause-unknown! clean gone",
            "cause-unknown",
            troubles=(
                DwsFault("DataOut", "never"),
                When("DataOut", force, 5.0),
                *away,
            ),
        )
        for how, away in (
            ("", ()),
            (", without a module", (When("DataOut", unload(6.0), 4.0),)),
        )
    ),
    Story(
        "a Workflow is being deleted whose data was copied without a module",
        "Proposal..DataOut gone clean",
        "out",
        latency={"DataOut": 600.0},
        troubles=(
            When("DataOut", unload(610.0), 10.0),
            When("DataOut", ask_deletion, 615.0),
        ),
        may=("workflow-deleted",),  # a module that dies just then knows no more
    ),
    Story(
        "a node that does not unmount may not have written all to persistent storage",
        "Proposal..gone 2:Proposal..PostRun drain:compute-02 2:unmount-failed "
        "2:postrun-timeout! 2:Teardown disable:compute-02 2:clean 2:gone",
        job=Job(("#DW create_persistent type=xfs capacity=1GiB name=keep",)),
        troubles=(
            DwsFault("PostRun", "mount", node=NODE),
            When("gone", submit(Job(("#DW persistentdw name=keep",)))),
        ),
        config=Config(postrun_timeout=60.0),
        may=("dws-refused", "unmount-failed"),
        harm=True,
        freed=True,
    ),
    *(
        Story(
            f"a cancel in {state} gives up the data",
            f"Proposal..finish {course} cancel! given-up! Teardown..gone",
            "given-up",
            troubles=(DwsFault(state, "never"), When(state, cancel, 5.0)),
        )
        for state, course in (("PostRun", "PostRun"), ("DataOut", "PostRun DataOut"))
    ),
    Story(
        "a cancel costs nothing when the data is out",
        "Proposal..Teardown cancel! clean gone",
        "out",
        troubles=(
            DwsFault("Teardown", "never", duration=50.0),
            When("Teardown", cancel, 5.0),
        ),
    ),
    Story(
        "a limit that costs nothing is no failure",
        "Proposal..PostRun Teardown..gone",
        "out",
        job=Job((XFS,)),
        troubles=(DwsFault("PostRun", "never"),),
        config=Config(postrun_timeout=60.0),
    ),
    *(
        Story(
            f"a node that does not unmount in time is drained and disabled ({key})",
            "Proposal..PostRun drain:compute-02 unmount-failed Teardown "
            "disable:compute-02 clean gone",
            data="out",
            job=Job((XFS,)),
            troubles=(DwsFault("PostRun", "mount", node=NODE),),
            config=Config.parse({key: 60}),
            spans=(("PostRun", "unmount-failed", 60.0),),
            harm=True,
            freed=True,
        )
        for key in ("postrun_timeout", "teardown_after")
    ),
)

STORIES = (
    *DATA,
    *(
        Story(
            f"a job that waits for nodes does not notice that {what}{how}",
            f"down:compute-04 Proposal disable:compute-04 {gone} Proposal {UP}",
            "out",
            job=Job(nodes=4),
            troubles=(*WAITS, *more, When("Proposal", lose, 30.0)),
        )
        for what, (lose, gone) in LOSSES.items()
        for how, more in (
            ("", ()),
            (", without a module", (When("Proposal", unload(30.0), 20.0),)),
        )
    ),
    *(
        Story(
            f"a job that is planned does not notice that {what}",
            f"Proposal {gone} Proposal..gone",
            "out",
            troubles=(
                DwsFault("Proposal", "slow", duration=20.0),
                When("Proposal", lose, 10.0),
            ),
        )
        for what, (lose, gone) in LOSSES.items()
    ),
    Story(
        "a Workflow is made again three times, and no more",
        "down:compute-04 Proposal disable:compute-04 gone Proposal gone "
        "Proposal gone Proposal gone workflow-deleted! clean up:compute-04 "
        "enable:compute-04",
        job=Job(nodes=4),
        troubles=(
            *WAITS,
            *(When("Proposal", delete, after) for after in (5.0, 10.0, 40.0, 200.0)),
        ),
        spared="workflow-deleted",
        log="workflow-remade workflow-remade workflow-remade",
    ),
    Story(
        "a job that gets nodes while its Workflow is made again runs",
        "down:compute-04 Proposal disable:compute-04 gone Proposal gone Proposal "
        "gone up:compute-04 alloc enable:compute-04 Proposal Setup..gone",
        job=Job(nodes=4),
        troubles=(
            When("", down("compute-04")),
            *(When("Proposal", delete, after) for after in (5.0, 10.0, 40.0)),
            When("Proposal", up("compute-04"), 41.0),
        ),
        spans=(("Proposal", "Setup", 100.0),),
        log="workflow-remade workflow-remade workflow-remade",
        may=("workflow-deleted",),  # the next module does not know what was at stake
    ),
    *(
        Story(
            f"the storage of a preset is {now} GiB when a Workflow is made again",
            f"down:compute-04 Proposal disable:compute-04 gone Proposal {then}",
            job=Job(nodes=4, attributes={"dw": "scratch"}),
            troubles=(
                *WAITS,
                When("Proposal", unload(30.0), 20.0),
                When("Proposal", configure(scratch(f"{now}GiB")), 25.0),
                When("Proposal", delete, 30.0),
            ),
            config=scratch("10GiB"),
        )
        for now, then in (
            (
                20,
                "workflow-deleted! Teardown..gone up:compute-04 enable:compute-04",
            ),
            (9, UP),
        )
    ),
    Story(
        "a job near persistent storage gets the same nodes",
        "Proposal..gone down:compute-02 2:Proposal disable:compute-02 2:gone "
        "2:Proposal up:compute-02 2:alloc..DataIn enable:compute-02 2:PreRun..gone",
        job=Job(
            ("#DW create_persistent type=xfs capacity=1GiB name=keep",), seconds=1.0
        ),
        troubles=(
            When("gone", down()),
            When("gone", submit(Job(("#DW persistentdw name=keep",)))),
            When("2:Proposal", delete_all, 30.0),
            When("2:Proposal", up(), 100.0),
        ),
        may=("dws-refused",),
    ),
    Story(
        "what is copied when the Workflow is gone is not said to be lost",
        "Proposal..DataOut gone workflow-deleted! clean",
        "workflow-deleted",
        job=Job((XFS, *COPIES)),
        troubles=(
            DwsFault("DataOut", "stall", directive=2),
            When("DataOut", delete, 30.0),
        ),
    ),
    Story(
        "who gives data up in an outage learns that the Workflow was deleted in it",
        "Proposal..PostRun cancel! gone workflow-deleted! clean",
        "workflow-deleted",
        job=Job((XFS, COPY_OUT)),
        troubles=(
            When("PostRun", outage(60.0)),
            When("PostRun", cancel, 10.0),
            When("PostRun", delete, 20.0),
        ),
        latency={"PostRun": 100.0},
    ),
    Story(
        "a job that has nodes fails when its Workflow is lost",
        "Proposal..Setup gone workflow-deleted! clean",
        troubles=(
            DwsFault("Setup", "slow", duration=20.0),
            When("Setup", delete, 5.0),
        ),
    ),
)
