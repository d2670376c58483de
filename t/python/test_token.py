# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The workflow token: only the tasks of the job have it."""

from __future__ import annotations

import base64
import json
from typing import Callable

from flux_k8s.config.table import Config
from flux_k8s.jobs.workflowrequests import TOKEN_KEY
from flux_k8s.ports import SECRET
from rabbitsim.dws.options import Options, table
from rabbitsim.system import VirtualSystem
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    in_state,
    jobspec,
    names,
    settle,
    started,
)

OFFLOAD = [f"{XFS} requires=copy-offload", COPY_OUT]
CONFIG = Config.parse({"daemons": {"copy-offload": {}}})
LATENCY = table({"PreRun": 1.0, "PostRun": 1.0, "Teardown": 1.0})


def system_with_tokens(**options: object) -> VirtualSystem:
    return started(config=CONFIG, options=Options(latency=LATENCY), **options)


def token_of(system: VirtualSystem) -> str:
    """The token of the only Workflow that has one."""
    (workflow,) = system.workflows()
    reference = workflow["status"]["workflowToken"]
    secret = system.store.find(
        SECRET, reference["secretNamespace"], reference["secretName"]
    )
    assert secret is not None
    return base64.b64decode(secret["data"]["token"]).decode()


def running(system: VirtualSystem, jobid: int) -> Callable[[], bool]:
    return lambda: "start" in names(system, jobid)


def assert_secret(system: VirtualSystem, jobid: int, token: str) -> None:
    """Nothing that stays, and nothing that is shown, has the token."""
    job = system.instance.job(jobid)
    assert TOKEN_KEY not in job.kvs
    shown = [json.dumps(event.as_json()) for event in job.events]
    shown += [line for _, _, line in system.log]
    shown += job.kvs.values()
    assert not any(token in text for text in shown)


def test_only_the_shells_of_a_job_have_its_workflow_token() -> None:
    system = system_with_tokens()
    jobid = system.instance.submit(jobspec(OFFLOAD, nodes=3), userid=4711)
    assert system.loop.run(running(system, jobid), HOUR)
    token = token_of(system)
    assert system.instance.job(jobid).kvs[TOKEN_KEY] == token
    environments = system.executor.environments[jobid]
    assert [variables["DW_WORKFLOW_TOKEN"] for variables in environments] == [token] * 3
    assert system.loop.run(in_state(system, "Teardown"), HOUR)
    system.loop.run(timeout=0.1)
    assert_secret(system, jobid, token)
    settle(system)
    assert_secret(system, jobid, token)


def test_a_job_without_a_token_leaves_no_trace_of_one() -> None:
    system = system_with_tokens()
    jobid = system.instance.submit(jobspec([XFS]))
    settle(system)
    (variables, *_) = system.executor.environments[jobid]
    assert "DW_WORKFLOW_TOKEN" not in variables
    assert TOKEN_KEY not in system.instance.job(jobid).kvs
