# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ways to ask for storage, what DWS makes of them, and what others do meanwhile."""

from __future__ import annotations

from flux_k8s.config.table import Config
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import (
    ask_deletion,
    configure,
    delete,
    reload_manager,
    submit,
    unload,
    unload_plugin,
)
from rabbitsim.torture.story import (
    LIFE,
    XFS,
    Job,
    Story,
    When,
)

GUEST = 4711
LOST = ("workflow-deleted! gone clean", "gone workflow-deleted! clean")
"""The end of a job whose Workflow is deleted, or is wiped out."""

DAEMON = Job((f"{XFS} requires=copy-offload",))
DAEMONS = {
    "copy-offload": {"environment": {"A": "1"}, "unit": "nnf-dm@offload.service"}
}
LESS = Config.parse({"daemons": {"scratch-cache": {}}})

STORIES = (
    *(
        Story(
            f"a job asks for storage by {what}",
            LIFE,
            job=Job(attributes={"dw": dw}),
            config=Config.parse({"presets": {"small": XFS}}),
        )
        for what, dw in {
            "a line": XFS,
            "a preset": "small",
            "two lines": f"{XFS}\n#DW jobdw type=raw capacity=1GiB name=p2",
            "a list": [XFS, "#DW jobdw type=gfs2 capacity=1GiB name=p2"],
            "a line for Lustre": "#DW jobdw type=lustre capacity=20GiB name=p1",
            "create_persistent": (
                "#DW create_persistent type=xfs capacity=1GiB name=keep"
            ),
        }.items()
    ),
    *(
        Story(
            f"a job asks for storage by {what}",
            course,
            job=Job(attributes={"dw": dw}),
        )
        for what, dw, course in (
            (
                "what is no directive",
                "jobdw type=xfs capacity=10GiB name=p1",
                "bad-request! clean",
            ),
            ("an unknown command", "#DW jobwd type=xfs", "dws-refused! clean"),
            ("too few arguments", "#DW jobdw type=xfs name=p1", "dws-refused! clean"),
            ("an argument twice", f"{XFS} name=p2", "bad-request! clean"),
            ("an unknown preset", "nosuch", "bad-request! clean"),
            (
                "an unknown type",
                "#DW jobdw type=foo capacity=1GiB name=p1",
                "dws-refused! clean",
            ),
            (
                "an unknown profile",
                f"{XFS} profile=nosuch",
                "Proposal dws-refused! Teardown..gone",
            ),
            (
                "the name of unknown storage",
                "#DW persistentdw name=nosuch",
                "Proposal dws-refused! Teardown..gone",
            ),
        )
    ),
    *(
        Story(
            f"DWS fails in {state}",
            course,
            troubles=(DwsFault(state, "error", message="it broke"),),
        )
        for state, course in (
            ("DataIn", "Proposal..DataIn dws-failed! Teardown..gone"),
            (
                "PreRun",
                "Proposal..PreRun dws-failed! Teardown..gone",
            ),
            ("PostRun", "Proposal..PostRun dws-failed! Teardown..gone"),
        )
    ),
    *(
        Story(
            f"a guest asks for create_persistent, which {who} may",
            course,
            job=Job(
                ("#DW create_persistent type=xfs capacity=1GiB name=keep",), user=GUEST
            ),
            config=Config(restrict_persistent_creation=restricted),
        )
        for who, restricted, course in (
            ("the owner", True, "bad-request! clean"),
            ("all", False, LIFE),
        )
    ),
    Story(
        "a job without directives is left alone",
        "alloc start finish clean",
        job=Job(()),
    ),
    Story(
        "messages within Flux, and to Kubernetes, take a while",
        LIFE,
        machine={"message_latency": 0.01, "kube_latency": 0.003},
    ),
    Story(
        "a job is submitted while no module is there",
        LIFE,
        troubles=(When("", unload(3600.0)),),
    ),
    Story(
        "the plugin is away when a job is to get on",
        LIFE,
        latency={"PreRun": 5.0},
        troubles=(When("PreRun", unload_plugin(20.0)),),
        log="plugin-missing",
    ),
    Story(
        "the plugin is away when the module is loaded",
        LIFE,
        job=Job((XFS,), seconds=60.0),
        troubles=(When("start", unload_plugin(30.0)), When("start", unload(1.0))),
        log="plugin-missing",
    ),
    Story(
        "the job manager is loaded anew in the prolog",
        LIFE,
        latency={"PreRun": 5.0},
        troubles=(When("PreRun", reload_manager, 1.0),),
        spans=(("PreRun", "start", 11.0),),
    ),
    *(
        Story(
            f"storage of {kind} is made, used and destroyed",
            "Proposal..gone 2:Proposal..gone 3:Proposal..gone",
            job=Job((f"#DW create_persistent type={kind} capacity=50GiB name=keep",)),
            troubles=(
                When("gone", submit(Job(("#DW persistentdw name=keep",), nodes=nodes))),
                When("2:gone", submit(Job(("#DW destroy_persistent name=keep",)))),
            ),
            may=("dws-refused",),
        )
        for kind, nodes in (("xfs", 2), ("gfs2", 2), ("lustre", 4))
    ),
    *(
        Story(
            f"somebody {what} in {state}",
            f"{before} {state} {end}".lstrip(),
            troubles=(DwsFault(state, "slow", duration=5.0), When(state, deed)),
        )
        for before, state, ends in (
            ("", "Proposal", ("gone Proposal..gone",) * 2),
            ("Proposal alloc", "Setup", LOST),
            ("Proposal..Setup", "DataIn", LOST),
            ("Proposal..DataIn", "PreRun", LOST),
            ("Proposal..finish", "PostRun", LOST),
            ("Proposal..PostRun", "DataOut", LOST),
        )
        for what, deed, end in zip(
            ("deletes the Workflow", "wipes the Workflow out"),
            (ask_deletion, delete),
            ends,
        )
    ),
    # Daemons
    Story(
        "a job requires a daemon",
        LIFE,
        left=("KVS rabbit_units",),
        job=DAEMON,
        config=Config.parse({"daemons": DAEMONS}),
    ),
    *(
        Story(
            f"a daemon that a job requires is there no more in {state}",
            f"Proposal {course}bad-request! Teardown..gone",
            "not-run",
            DAEMON,
            (When(state, configure(LESS), 1.0),),
            config=Config.parse({"daemons": DAEMONS}),
            latency=dict.fromkeys(("Proposal", "Setup", "PreRun"), 5.0),
        )
        for state, course in (
            ("Proposal", ""),
            ("Setup", "alloc..PreRun "),
            ("PreRun", "alloc..PreRun "),
        )
    ),
    Story(
        "a job requires a daemon that is not known",
        "Proposal bad-request! Teardown..gone",
        "not-run",
        DAEMON,
    ),
)
