# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The jobs that go through all crash points (:mod:`rabbitsim.torture.crashpoints`).

Together they make the service take every step that it knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from flux_k8s.config.table import KEEP, Config, Daemon
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.plan import FENCE

DIRECTIVES = [
    "#DW jobdw type=xfs capacity=10GiB name=p1",
    "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/",
    "#DW copy_out source=$DW_JOB_p1/ destination=/lustre/out",
]


NODE = "compute-02"
"""The node of the job to which something happens."""


@dataclass(frozen=True)
class Scenario:
    """A job whose life is gone through.

    Attributes:
        cancelled_in: the Workflow state in which it is cancelled, or "".
        cancelled_after: seconds after that state was requested.
        outage_in: the one in which Kubernetes is out of reach for a moment, or "".
        stripped_in: the one in which another program removes the annotations, or "".
        postdated_in: the one in which the times on its Workflow come to be in the
            future, as after a clock was set back, or "".
        unlinked_in: the one in which ``NODE`` loses its Rabbit for 30 s, or "".
        fenced_in: the one in which an administrator fences ``NODE``, or "".
        away_in: the one in which the module is unloaded for five minutes, or "".
        freed: if it is cancelled before its node has failed to unmount, nothing but an
            administrator lets it go.
        errors: how its fatal exceptions begin.
        spared: such a one that it may be spared: right after the start of a service no
            time limit is over.
        release, stage: its ``dw_release`` and ``dw_stage``.
        rescue: its data is copied again as often as that has failed.
        nodes: how many it has; it may lose ``tolerance`` of them.
    """

    name: str
    directives: tuple[str, ...] = tuple(DIRECTIVES)
    faults: tuple[DwsFault, ...] = ()
    config: Config = field(default_factory=Config)
    epilog_timeout: Optional[float] = None
    cancelled_in: str = ""
    cancelled_after: float = 0.0
    outage_in: str = ""
    stripped_in: str = ""
    postdated_in: str = ""
    unlinked_in: str = ""
    fenced_in: str = ""
    away_in: str = ""
    freed: bool = False
    errors: tuple[str, ...] = ()
    spared: str = ""
    nodes: int = 2
    tolerance: int = 0
    release: str = "teardown"
    stage: str = "prolog"
    rescue: bool = False


SCENARIOS = (
    Scenario("the standard job"),
    Scenario(
        "a job that ends before its data is out",
        faults=(DwsFault("DataOut", "slow", duration=20.0),),
        release="unmounted",
    ),
    Scenario("a job whose data is copied in before it has nodes", stage="ahead"),
    Scenario(
        "a job whose data is lost after its end",
        faults=(DwsFault("DataOut", "never"),),
        config=Config(teardown_after=60.0),
        release="unmounted",
    ),
    Scenario(
        "a job whose data movements are recorded",
        directives=(f"{DIRECTIVES[0]} requires=copy-offload", *DIRECTIVES[1:]),
        config=Config(save_datamovements=5, daemons={"copy-offload": Daemon()}),
    ),
    Scenario(
        "a job that DWS refuses",
        directives=("#DW jobdw type=xfs capacity=1GiB name=p1 nosuch=1",),
        errors=("#DW jobdw",),
    ),
    Scenario(
        "a job that is cancelled in its prolog",
        cancelled_in="Setup",
        errors=("cancel",),
    ),
    Scenario(
        "a job that DWS fails in Setup",
        faults=(DwsFault("Setup", "error", message="it broke"),),
        errors=("DWS failed in Setup",),
    ),
    Scenario(
        "a job whose Setup takes too long",
        faults=(DwsFault("Setup", "never"),),
        config=Config(setup_timeout=60.0),
        errors=("Setup took more than setup_timeout=60s",),
    ),
    Scenario(
        "a job whose Setup has trouble that passes",
        faults=(DwsFault("Setup", "transient", duration=5.0),),
    ),
    Scenario(
        "a job whose Teardown takes long",
        faults=(DwsFault("Teardown", "never", duration=90.0),),
    ),
    Scenario(
        "a job that DWS fails in DataOut",
        faults=(DwsFault("DataOut", "error", message="it broke"),),
        errors=("DWS failed in DataOut",),
    ),
    Scenario(
        "a job whose data is rescued",
        faults=(DwsFault("DataOut", "copy", duration=60.0, message="no space"),),
        config=Config(keep_failed=600.0),
        errors=("DWS failed in DataOut",),
        rescue=True,
    ),
    Scenario(
        "a job one of whose copies fails while another goes on",
        directives=(
            *DIRECTIVES,
            "#DW copy_out source=$DW_JOB_p1/ destination=/lustre/more",
        ),
        faults=(
            DwsFault("DataOut", "copy", message="no space", directive=2),
            DwsFault("DataOut", "stall", duration=30.0, directive=3),
        ),
        errors=("DWS failed in DataOut",),
    ),
    Scenario(
        "a job whose data is kept and lost after its end",
        faults=(
            DwsFault("DataOut", "slow", duration=20.0),
            DwsFault("DataOut", "copy", message="no space"),
        ),
        config=Config(keep_failed=60.0),
        release="unmounted",
    ),
    Scenario(
        "a job whose data does not move any more",
        faults=(DwsFault("DataOut", "stall"),),
        config=Config(stall_timeout=60.0),
        errors=("no data moved in DataOut for stall_timeout=60s",),
    ),
    Scenario(
        "a job whose data is copied in an outage",
        faults=(DwsFault("DataOut", "slow", duration=5.0),),
        outage_in="DataOut",
    ),
    Scenario("a job whose Workflow loses its annotations", stripped_in="DataOut"),
    Scenario(
        "a job in whose prolog a clock is set back",
        faults=(DwsFault("PreRun", "slow", duration=5.0),),
        postdated_in="PreRun",
    ),
    Scenario(
        "a job that is cancelled in its epilog",
        faults=(DwsFault("DataOut", "slow", duration=5.0),),
        cancelled_in="DataOut",
        errors=("cancel", "given up in DataOut"),
    ),
    Scenario(
        "a job one of whose nodes does not unmount in time",
        faults=(DwsFault("PostRun", "mount", node=NODE),),
        config=Config(postrun_timeout=30.0),
        errors=("PostRun took more than postrun_timeout=30s",),
        spared="PostRun took more than",
        freed=True,
    ),
    Scenario(
        "a job whose storage is kept for a node that unmounts late",
        faults=(DwsFault("PostRun", "mount", node=NODE, duration=90.0),),
        config=Config(postrun_timeout=30.0, unmount_failure=KEEP),
    ),
    Scenario(
        "a job that is cancelled, and whose storage is kept",
        faults=(DwsFault("PostRun", "mount", node=NODE, duration=90.0),),
        config=Config(postrun_timeout=30.0, unmount_failure=KEEP),
        cancelled_in="PostRun",
        errors=("cancel", "given up in PostRun", "PostRun took more than"),
    ),
    Scenario(
        "a job that is cancelled while it mounts, and unmounts late",
        faults=(
            DwsFault("PreRun", "slow", duration=5.0),
            DwsFault("PostRun", "mount", node=NODE, duration=90.0),
        ),
        config=Config(postrun_timeout=30.0, unmount_failure=KEEP),
        cancelled_in="PreRun",
        cancelled_after=1.0,
        errors=("cancel",),
    ),
    Scenario(
        "a job whose storage is kept for a node until that is fenced",
        faults=(DwsFault("PostRun", "mount", node=NODE),),
        config=Config(
            postrun_timeout=30.0, unmount_failure=KEEP, fence_command=(FENCE,)
        ),
        fenced_in="PostRun",
        errors=("PostRun took more than postrun_timeout=30s",),
    ),
    Scenario(
        "a job one of whose nodes loses its Rabbit for a while",
        faults=(DwsFault("DataOut", "slow", duration=60.0),),
        unlinked_in="DataOut",
    ),
    Scenario(
        "a job that ends while the module is away",
        directives=(DIRECTIVES[0],),
        epilog_timeout=60.0,
        away_in="PostRun",
        errors=("dws-epilog",),
    ),
    Scenario(
        "a job one of whose nodes cannot unmount",
        faults=(
            DwsFault("PostRun", "error", message="it broke"),
            DwsFault("PostRun", "mount", node=NODE),
        ),
        freed=True,
        errors=("DWS failed in PostRun",),
    ),
    Scenario(
        "a job whose epilog is given up",
        faults=(DwsFault("PostRun", "never", duration=600.0),),
        epilog_timeout=60.0,
        errors=("dws-epilog", "epilog-timeout"),
    ),
    Scenario(
        "a job one of whose four nodes cannot mount, which it tolerates",
        faults=(DwsFault("PreRun", "mount", node="compute-04"),),
        nodes=4,
        tolerance=1,
    ),
    Scenario(
        "a job one of whose two Rabbits cannot make storage, which it tolerates",
        faults=(DwsFault("Setup", "error", node="rabbit-02"),),
        nodes=4,
        tolerance=2,
    ),
)
