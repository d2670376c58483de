# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that leave something behind: data movements, and containers with logs."""

from __future__ import annotations

import json
from typing import Any

from flux_k8s.formats.jobid import workflow_name
from flux_k8s.ports import DWS_GROUP, POD, Json
from rabbitsim.system import VirtualSystem
from support.service import (
    HOUR,
    XFS,
    in_state,
    jobspec,
)

COPY_IN = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/"
OFFLOAD = f"{XFS} requires=copy-offload"
NAMESPACE = f"{DWS_GROUP}/workflow.namespace"


def movements(system: VirtualSystem, jobid: int) -> list[Json]:
    """The record of a job's data movements."""
    found: list[Json] = json.loads(
        system.instance.job(jobid).kvs["rabbit_datamovements"]
    )
    return found


def labels(jobid: int) -> dict[str, str]:
    """By which the job's objects are found."""
    return {f"{DWS_GROUP}/workflow.name": workflow_name(jobid), NAMESPACE: "default"}


def pod(
    system: VirtualSystem, jobid: int, name: str, logs: dict[str, str], phase: str = ""
) -> None:
    """A pod of the job, and what its containers wrote."""
    body: Json = {
        "metadata": {"name": name, "labels": labels(jobid)},
        "spec": {"containers": [{"name": container} for container in logs]},
        "status": {"phase": phase or "Succeeded"},
    }
    system.store.create(POD, "default", body)
    ended = {"status": body["status"]}
    system.store.merge_patch(POD, "default", name, ended, subresource="status")
    for container, text in logs.items():
        system.store.pod_logs["default", name, container] = text


def offloading(system: VirtualSystem, dw: Any = OFFLOAD) -> int:
    """A job that is about to run its containers, for a minute."""
    test = {"run_duration": "60s"}
    jobid = system.instance.submit(jobspec(dw, exec={"test": test}))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    return jobid
