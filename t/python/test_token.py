# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The workflow token: only the tasks of the job have it."""

from __future__ import annotations

import base64
import json
from typing import Callable

import pytest

from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.tokens import TOKEN_KEY
from flux_k8s.ports import SECRET, WORKFLOW
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
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


ENDS: dict[str, Callable[[VirtualSystem, int], None]] = {
    "cancel": lambda system, jobid: system.instance.cancel(jobid),
    "delete": lambda system, jobid: delete(system, jobid),
    "module away": lambda system, jobid: away(system, jobid),
    "controllers down": lambda system, jobid: system.controllers.pause(),
    "both": lambda system, jobid: both(system, jobid),
}


def delete(system: VirtualSystem, jobid: int) -> None:
    name = workflow_name(jobid)
    system.store.merge_patch(
        WORKFLOW, "default", name, {"metadata": {"finalizers": None}}
    )
    system.store.delete(WORKFLOW, "default", name)


def away(system: VirtualSystem, jobid: int) -> None:
    """The module is away until long after the epilog was given up."""
    system.kill_module()
    system.loop.call_later(200.0, system.load_module)


def both(system: VirtualSystem, jobid: int) -> None:
    system.kill_module()
    delete(system, jobid)
    system.loop.call_later(200.0, system.load_module)


@pytest.mark.parametrize("how", ENDS)
def test_however_the_job_ends_the_token_goes(how: str) -> None:
    system = system_with_tokens(plugin_conf={"epilog-timeout": 60.0})
    long = {"exec": {"test": {"run_duration": "20s"}}}
    jobid = system.instance.submit(jobspec(OFFLOAD, **long))
    assert system.loop.run(running(system, jobid), HOUR)
    token = token_of(system)
    ENDS[how](system, jobid)
    assert system.loop.run(
        lambda: system.instance.job(jobid).state is JobState.INACTIVE, HOUR
    )
    system.loop.run(timeout=300.0)
    assert_secret(system, jobid, token)


def test_a_prolog_that_is_released_twice_has_one_token() -> None:
    """The module dies between the commit and what it tells the plugin."""
    system = system_with_tokens()
    jobid = system.instance.submit(jobspec(OFFLOAD))
    assert system.loop.run(lambda: TOKEN_KEY in system.instance.job(jobid).kvs, HOUR)
    system.kill_module()
    system.load_module()
    assert system.loop.run(running(system, jobid), HOUR)
    token = token_of(system)
    settle(system)
    assert_secret(system, jobid, token)


def test_the_token_is_gone_when_the_job_ends_however_fast_its_teardown_is() -> None:
    """A write to the KVS takes longer than this Teardown."""
    latency = table({"PreRun": 1.0, "PostRun": 1.0})
    options = Options(latency=latency)
    system = started(config=CONFIG, options=options, kube_latency=0.05)
    jobid = system.instance.submit(jobspec(OFFLOAD))
    assert system.loop.run(running(system, jobid), HOUR)
    system.loop.run(timeout=0.1)
    assert TOKEN_KEY in system.instance.job(jobid).kvs
    assert system.loop.run(lambda: "epilog-finish" in names(system, jobid), HOUR)
    assert TOKEN_KEY not in system.instance.job(jobid).kvs
    settle(system)
