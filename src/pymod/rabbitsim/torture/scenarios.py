# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stories that ``rabbitsim torture --crash-points`` tries to death.

Together they make the service take every step that it knows.
"""

from __future__ import annotations

from flux_k8s.config.table import KEEP, Config, Daemon
from flux_k8s.objects.workflowstate import STATES
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import (
    cancel,
    fence,
    postdate,
    rescue_each,
    strip,
    unlink,
    unload,
)
from rabbitsim.torture.outages import lose_watches
from rabbitsim.torture.story import (
    COPY_IN,
    COPY_OUT,
    LIFE,
    NODE,
    XFS,
    Job,
    Story,
    When,
)
from rabbitsim.torture.troubles.dws import FENCE

MORE = "#DW copy_out source=$DW_JOB_p1/ destination=/lustre/more"

SCENARIOS = (
    Story(
        "the standard job",
        LIFE,
        left=(
            "memo rabbits=rabbit-01",
            "KVS rabbit_hostlist",
            "KVS rabbit_allocations",
            "KVS rabbit_workflow",
            "KVS rabbit_moved",
            *(f"KVS rabbit_{state.lower()}_timing" for state in STATES),
        ),
    ),
    Story(
        "a job that ends before its data is out",
        "Proposal..DataOut clean Teardown gone",
        job=Job(release="unmounted"),
        troubles=(DwsFault("DataOut", "slow", duration=20.0),),
    ),
    Story(
        "a job whose data is copied in before it has nodes",
        "Proposal Setup DataIn alloc PreRun..gone",
        job=Job(stage="ahead"),
    ),
    Story(
        "a job whose data is lost after its end",
        "Proposal..DataOut clean Teardown gone",
        data="teardown-after",
        job=Job(release="unmounted"),
        troubles=(DwsFault("DataOut", "never"),),
        config=Config(teardown_after=60.0),
    ),
    Story(
        "a job whose data movements are recorded",
        LIFE,
        job=Job((f"{XFS} requires=copy-offload", COPY_IN, COPY_OUT)),
        config=Config(save_datamovements=5, daemons={"copy-offload": Daemon()}),
        left=("KVS rabbit_datamovements",),
    ),
    Story(
        "a job that DWS refuses",
        "dws-refused! clean",
        job=Job(("#DW jobdw type=xfs capacity=1GiB name=p1 nosuch=1",)),
    ),
    Story(
        "a job that is cancelled in its prolog",
        "Proposal..Setup cancel! Teardown..gone",
        troubles=(When("Setup", cancel),),
    ),
    Story(
        "a job that DWS fails in Setup",
        "Proposal..Setup dws-failed! Teardown..gone",
        troubles=(DwsFault("Setup", "error", message="it broke"),),
    ),
    Story(
        "a job whose Setup takes too long",
        "Proposal..Setup setup-timeout! Teardown..gone",
        troubles=(DwsFault("Setup", "never"),),
        config=Config(setup_timeout=60.0),
    ),
    Story(
        "a job whose Setup has trouble that passes",
        LIFE,
        troubles=(DwsFault("Setup", "transient", duration=5.0),),
    ),
    Story(
        "a job whose Teardown takes long",
        "Proposal..Teardown teardown-late clean gone",
        troubles=(DwsFault("Teardown", "never", duration=90.0),),
    ),
    Story(
        "a job that DWS fails in DataOut",
        "Proposal..DataOut dws-failed! Teardown..gone",
        "out",  # all is copied, and DWS fails after that
        troubles=(DwsFault("DataOut", "error", message="it broke"),),
    ),
    Story(
        "a job whose data is rescued",
        "Proposal..DataOut kept dws-failed! clean Teardown gone",
        data="out",
        troubles=(
            DwsFault("DataOut", "copy", duration=60.0, message="no space"),
            When("", rescue_each(100.0), after=100.0),
        ),
        config=Config(keep_failed=600.0),
        left=("KVS rabbit_data_failed",),
    ),
    Story(
        "a job one of whose copies fails while another goes on",
        "Proposal..DataOut dws-failed! Teardown..gone",
        job=Job((XFS, COPY_IN, COPY_OUT, MORE)),
        troubles=(
            DwsFault("DataOut", "copy", message="no space", directive=2),
            DwsFault("DataOut", "stall", duration=30.0, directive=3),
        ),
    ),
    Story(
        "a job whose data is kept and lost after its end",
        "Proposal..DataOut clean kept Teardown gone",
        data="dws-failed",
        job=Job(release="unmounted"),
        troubles=(
            DwsFault("DataOut", "slow", duration=20.0),
            DwsFault("DataOut", "copy", message="no space"),
        ),
        config=Config(keep_failed=60.0),
    ),
    Story(
        "a job whose data does not move any more",
        "Proposal..DataOut stall-timeout! Teardown..gone",
        troubles=(DwsFault("DataOut", "stall"),),
        config=Config(stall_timeout=60.0),
    ),
    Story(
        "a job whose data is copied in an outage",
        LIFE,
        troubles=(
            DwsFault("DataOut", "slow", duration=5.0),
            When("DataOut", lose_watches),
        ),
    ),
    Story(
        "a job whose Workflow loses its annotations",
        LIFE,
        troubles=(When("DataOut", strip),),
    ),
    Story(
        "a job in whose prolog a clock is set back",
        LIFE,
        troubles=(
            DwsFault("PreRun", "slow", duration=5.0),
            When("PreRun", postdate),
        ),
    ),
    Story(
        "a job that is cancelled in its epilog",
        "Proposal..DataOut cancel! given-up! Teardown..gone",
        troubles=(
            DwsFault("DataOut", "slow", duration=5.0),
            When("DataOut", cancel),
        ),
    ),
    Story(
        "a job one of whose nodes does not unmount in time",
        "Proposal..PostRun drain:compute-02 unmount-failed postrun-timeout! Teardown "
        "disable:compute-02 clean gone",
        troubles=(DwsFault("PostRun", "mount", node=NODE),),
        config=Config(postrun_timeout=30.0),
        spared="postrun-timeout",
        harm=True,
        freed=True,
    ),
    Story(
        "a job that is cancelled, and whose storage is kept",
        "Proposal..PostRun cancel! drain:compute-02 unmount-failed given-up! clean "
        "Teardown gone",
        troubles=(
            DwsFault("PostRun", "mount", node=NODE, duration=90.0),
            When("PostRun", cancel),
        ),
        config=Config(postrun_timeout=30.0, unmount_failure=KEEP),
        may=("postrun-timeout",),
    ),
    Story(
        "a job that is cancelled while it mounts, and unmounts late",
        "Proposal..PreRun cancel! Teardown drain:compute-02 unmount-failed clean gone",
        troubles=(
            DwsFault("PreRun", "slow", duration=5.0),
            DwsFault("PostRun", "mount", node=NODE, duration=90.0),
            When("PreRun", cancel, after=1.0),
        ),
        config=Config(postrun_timeout=30.0, unmount_failure=KEEP),
    ),
    Story(
        "a job whose storage is kept for a node until that is fenced",
        "Proposal..PostRun drain:compute-02 unmount-failed postrun-timeout! Teardown "
        "disable:compute-02 clean gone",
        troubles=(
            DwsFault("PostRun", "mount", node=NODE),
            When("PostRun", fence(NODE)),
        ),
        config=Config(
            postrun_timeout=30.0, unmount_failure=KEEP, fence_command=(FENCE,)
        ),
    ),
    Story(
        "a job one of whose nodes loses its Rabbit for a while",
        "Proposal..DataOut drain:compute-02 undrain:compute-02 Teardown..gone",
        troubles=(
            DwsFault("DataOut", "slow", duration=60.0),
            When("DataOut", unlink(30.0)),
        ),
        log="node-back",
    ),
    Story(
        "a job that ends while the module is away",
        "Proposal..PostRun dws-epilog-timeout! dws clean disable:rabbit-01 Teardown "
        "enable:rabbit-01 gone",
        data="none",
        job=Job((XFS,)),
        troubles=(When("PostRun", unload(300.0)),),
        epilog_timeout=60.0,
    ),
    Story(
        "a job one of whose nodes cannot unmount",
        "Proposal..PostRun drain:compute-02 unmount-failed dws-failed! Teardown "
        "disable:compute-02 clean gone",
        troubles=(
            DwsFault("PostRun", "error", message="it broke"),
            DwsFault("PostRun", "mount", node=NODE),
        ),
        harm=True,
        freed=True,
    ),
    Story(
        "a job whose epilog is given up",
        "Proposal..PostRun dws-epilog-timeout! disable:rabbit-01 epilog-given-up! "
        "clean Teardown enable:rabbit-01 gone",
        troubles=(DwsFault("PostRun", "never", duration=600.0),),
        epilog_timeout=60.0,
    ),
    Story(
        "a job one of whose four nodes cannot mount, which it tolerates",
        "Proposal..PreRun drain:compute-04 nodes-excluded force start..DataOut "
        "disable:compute-04 Teardown..gone",
        job=Job(nodes=4, tolerance=1),
        troubles=(DwsFault("PreRun", "mount", node="compute-04"),),
    ),
    Story(
        "a job one of whose two Rabbits cannot make storage, which it tolerates",
        "Proposal..Setup drain:compute-03 drain:compute-04 nodes-excluded force "
        "DataIn..gone",
        job=Job(nodes=4, tolerance=2),
        troubles=(DwsFault("Setup", "error", node="rabbit-02"),),
    ),
)
