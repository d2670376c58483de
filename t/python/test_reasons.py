# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons of what is raised, logged and recorded."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.directives import GIB
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason, log_line, read_reason
from flux_k8s.rfc.jobid import f58
from flux_k8s.text import LINE
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.system import VirtualSystem
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    LUSTRE,
    USE,
    XFS,
    exceptions,
    jobspec,
    lines,
    names,
    settle,
    started,
)
from support.tree import TOP

SOURCE = TOP / "src/pymod/flux_k8s/reasons.py"
DOCUMENT = TOP / "doc/messages.md"


def meanings() -> dict[str, str]:
    """What each reason means, by its docstring."""
    (body,) = (
        node.body
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == Reason.__name__
    )
    found = {}
    for node, following in zip(body, body[1:]):
        if isinstance(node, ast.Assign) and isinstance(following, ast.Expr):
            text = " ".join(ast.literal_eval(following.value).split())
            found[ast.literal_eval(node.value)] = text.replace("``", "`")
    return found


def test_the_document_has_each_reason_with_its_meaning() -> None:
    _, _, table = DOCUMENT.read_text().partition("\n## Reasons\n")
    table, _, _ = table.partition("\n## ")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", table, re.M)
    assert dict(rows) == meanings()
    assert [name for name, _ in rows] == [reason.value for reason in Reason]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_a_reason_is_of_lower_case_words_with_hyphens(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value)
    assert reason.name == reason.value.replace("-", "_").upper()


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.value)
def test_each_reason_is_used(reason: Reason) -> None:
    used = re.compile(rf"\bReason\.{reason.name}\b")
    package = TOP / "src/pymod/flux_k8s"
    sources = [path for path in package.rglob("*.py") if path != SOURCE]
    assert any(used.search(path.read_text()) for path in sources)


def test_a_line_of_the_log_ends_with_its_reason_however_long_it_is() -> None:
    said = log_line("a\nb", Reason.DATA_OUT)
    assert said == r"a\nb [data-out]"
    long = log_line("ä" * LINE, Reason.DATA_OUT)
    assert long.endswith("ä... [data-out]")
    assert LINE - 2 <= len(long.encode()) <= LINE


@pytest.mark.parametrize("value", [None, "of-a-later-version", 3, ["data-out"]])
def test_a_reason_that_cannot_be_read_is_unknown(value: object) -> None:
    assert read_reason("data-out") is Reason.DATA_OUT
    assert read_reason(value) is Reason.CAUSE_UNKNOWN


# In the whole system, under virtual time


def reasons(system: VirtualSystem, jobid: int) -> list[Reason | None]:
    """Those of the exceptions of a job. Their events do not show them."""
    events = [e for e in system.instance.eventlog(jobid) if e.name == "exception"]
    assert not any("reason" in json.dumps(event.as_json()) for event in events)
    return [event.reason for event in events]


def record(system: VirtualSystem, jobid: int, key: str = "rabbit_data_out") -> Json:
    found: Json = json.loads(system.instance.job(jobid).kvs[key])
    return found


def system_of(*faults: Fault, **config: Any) -> VirtualSystem:
    topology = Topology.regular(4, 2, capacity=200 * GIB)
    latency = table({"DataOut": 30.0, "Teardown": 0.5})
    options = Options(latency=latency, faults=faults)
    return started(topology=topology, options=options, config=Config.parse(config))


def test_the_plugin_raises_with_the_reason_that_the_service_gives() -> None:
    system = system_of(Fault("Proposal", "error"), policy={"maximums": {"xfs": 1}})
    failed = system.instance.submit(jobspec(LUSTRE))
    refused = system.instance.submit(jobspec(XFS))
    settle(system)
    assert reasons(system, failed) == [Reason.DWS_FAILED]
    assert reasons(system, refused) == [Reason.BAD_REQUEST]


def test_an_exception_and_the_record_of_the_data_have_the_cause() -> None:
    system = system_of(Fault("DataOut", "stall"), teardown_after="60s")
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert reasons(system, jobid) == [Reason.TEARDOWN_AFTER]
    found = record(system, jobid)
    assert "not copied: " in found["errstr"] and found["reason"] == "teardown-after"


def test_an_error_of_the_user_is_none_of_dws() -> None:
    system = system_of()
    jobid = system.instance.submit(jobspec(USE))
    settle(system)
    assert reasons(system, jobid) == [Reason.DWS_REFUSED]
    assert "User error" in exceptions(system, jobid)[0]["note"]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_module_that_is_loaded_later_keeps_what_is_recorded_or_says_that_it_cannot(
    recorded: bool,
) -> None:
    system = system_of(Fault("DataOut", "stall"), teardown_after="60s")
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    kvs = system.instance.job(jobid).kvs

    def there() -> bool:
        told = bool(exceptions(system, jobid))
        return "rabbit_data_out" in kvs if recorded else told

    assert system.loop.run(there, HOUR)
    assert ("rabbit_data_out" in kvs) is recorded
    assert names(system, jobid)[-1] != "epilog-finish"
    system.kill_module()
    system.load_module()
    settle(system)
    found = record(system, jobid)
    assert "not copied: " in found["errstr"]
    assert found["reason"] == ("teardown-after" if recorded else "cause-unknown")


@pytest.mark.parametrize("reload", [False, True])
def test_the_log_and_the_records_of_a_job_that_has_ended_have_the_cause(
    reload: bool,
) -> None:
    """A module that is loaded meanwhile knows it."""
    system = system_of(
        Fault("DataOut", "copy"), keep_failed="1h", keep_failed_limit=100
    )
    early = jobspec([XFS, COPY_OUT], dw_release="unmounted")
    kept, released = map(system.instance.submit, (jobspec([XFS, COPY_OUT]), early))
    assert system.loop.run(lambda: system.instance.idle(), HOUR / 2)
    assert reasons(system, kept) == [Reason.DWS_FAILED]
    assert reasons(system, released) == []
    for jobid in kept, released:
        assert record(system, jobid, "rabbit_data_failed")["reason"] == "dws-failed"
    if reload:
        system.unload_module()
        system.load_module()
    settle(system, DAY)
    for jobid in kept, released:
        assert record(system, jobid)["reason"] == "dws-failed"
        (*_, told) = lines(system, f"{f58(jobid)}: its data is not out: ")
        assert told.endswith(" [dws-failed]")


def test_a_warning_has_its_own_reason_and_the_log_the_same() -> None:
    fault = Fault("PostRun", "mount", node="compute-01", duration=HOUR)
    system = system_of(fault, postrun_timeout="60s")
    jobid = system.instance.submit(jobspec())
    settle(system, DAY)
    (why,) = reasons(system, jobid)
    assert why is Reason.UNMOUNT_FAILED
    (told,) = lines(system, "; drained until that is mended")
    assert told.endswith(" [unmount-failed]")
    assert "reason" not in record(system, jobid)
