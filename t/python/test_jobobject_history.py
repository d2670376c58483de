# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of eventlogs and resource sets: what became of a job, and what is
refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_k8s.errors import DWSError
from flux_k8s.ports import Json
from sssjob.from_flux.convert import ExportOptions, JobRecord, job_object
from support.jobrecords import JOBID, SUBMIT, T, eventlog, job_of, says, shown, spec


def test_a_job_that_was_only_submitted_is_idle() -> None:
    job = job_of(spec())
    assert job.text("Id") == "fuZZybuNNy"
    assert job.text("State") == "Idle"
    assert says(job, "SubmitTime") == [int(T)]
    assert job.find("Delivered") is None


def test_the_message_of_a_job_is_its_first_fatal_exception_or_else_the_last() -> None:
    def raised(type: str, severity: int, note: str) -> tuple[str, Json]:
        return "exception", {"type": type, "severity": severity, "note": note}

    warning, other = raised("w", 3, "slow"), raised("v", 7, "")
    fatal, later = raised("oom", 0, "on h1\x07"), raised("cancel", 0, "")
    assert job_of(spec(), warning, other).text("StatusMessage") == "v"
    assert job_of(spec(), warning, other).text("State") == "Idle"
    job = job_of(spec(), warning, fatal, later)
    assert job.text("StatusMessage") == "oom: on h1\\x07"
    assert job.text("State") == "Running"
    assert job_of(spec(), fatal, "clean").text("State") == "Completed"


def test_a_memo_of_a_user_names_no_rabbit() -> None:
    for memo in ("h1", "h[1", 7, {"a": 1}):
        job = job_of(spec(), ("memo", {"rabbits": memo}))
        assert not list(job.all("Extension"))


def test_a_separator_that_json_allows_in_a_string_ends_no_line() -> None:
    raw = eventlog(("memo", {"x": "@"})).replace("@", "\u2028")
    record = JobRecord(JOBID, {"eventlog": raw, "jobspec": json.dumps(spec())})
    assert job_object(record).text("State") == "Idle"


def test_times_out_of_range_are_left_out_with_a_warning() -> None:
    warnings: list[str] = []
    record = {
        "eventlog": json.dumps(
            {"timestamp": 2.0**33, "name": "submit", "context": SUBMIT}
        ),
        "jobspec": json.dumps(spec()),
    }
    job = job_object(JobRecord(JOBID, record), ExportOptions(warn=warnings.append))
    assert job.find("SubmitTime") is None
    assert len(warnings) == 1 and "SubmitTime is left out" in warnings[0]


R: Json = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1,4", "children": {"core": "0-3", "gpu": "0"}}],
        "nodelist": ["h[1-2],x"],
        "starttime": 0,
        "expiration": 0,
    },
}


def test_the_resources_that_a_job_got_are_delivered() -> None:
    delivered = job_of(spec(), "alloc", R=R).find("Delivered")
    assert says(delivered, "NodeCount") == [3]
    assert shown(delivered, "Node") == ["h1,h2,x aggregation=List"]
    assert says(delivered, "Processors") == [12]
    assert says(delivered, "Resource", name="GPU") == [3.0]
    assert not says(delivered, "Resource", name="Storage")


@pytest.mark.parametrize(
    ("data", "amount"),
    [
        ("1.500 KiB", [1536.0]),
        ("12 B", [12.0]),
        ("2.000 TB (2199023255552 bytes)", [2.0 * 2**40]),
        ("", []),
        ("lots", []),
        (None, []),
    ],
)
def test_bytes_are_delivered_as_far_as_data_movements_have_them(
    data: Any, amount: list[float]
) -> None:
    movement = {
        "metadata": {"labels": {"dm.cray.hpe.com/initiator": "copy_out"}},
        "status": {"commandStatus": {"data": data}},
    }
    job = job_of(spec(), rabbit_datamovements=[movement, {}, movement])
    if amount:
        (told,) = says(job.find("Delivered"), "Resource", type="copy_out")
        assert told == 2 * amount[0]
    else:
        assert job.find("Delivered") is None


# Records that are refused


@pytest.mark.parametrize(
    ("kvs", "problem"),
    [
        ({"eventlog": ""}, "the eventlog of job fuZZybuNNy is empty"),
        (
            {"eventlog": eventlog("validate").split("\n", 1)[1]},
            'line 1 of the eventlog of job fuZZybuNNy: name is "validate", expected'
            " submit",
        ),
        (
            {"eventlog": eventlog("validate")[:-20]},
            "line 2 of the eventlog of job fuZZybuNNy is not JSON",
        ),
        (
            {"eventlog": "[]\n"},
            "line 1 of the eventlog of job fuZZybuNNy: the whole is",
        ),
        (
            {"eventlog": eventlog(("finish", {"status": "0"}))},
            'line 2 of the eventlog of job fuZZybuNNy: context.status is "0"',
        ),
        ({"jobspec": "{"}, "jobspec of job fuZZybuNNy is not JSON"),
        ({"jobspec": "[]"}, "jobspec of job fuZZybuNNy: the whole is []"),
        ({"jobspec": "{}"}, "jobspec of job fuZZybuNNy: resources is"),
        ({"R": json.dumps({**R, "version": 2})}, "R of job fuZZybuNNy: version is 2"),
        ({"R": "nonsense"}, "R of job fuZZybuNNy is not JSON"),
        ({"rabbit_setup_timing": '"long"'}, "rabbit_setup_timing of job fuZZybuNNy is"),
        ({"rabbit_datamovements": "{}"}, "rabbit_datamovements of job fuZZybuNNy"),
        (
            {"eventlog": eventlog(("jobspec-update", {"tasks.0": 1}))},
            'a jobspec-update of job fuZZybuNNy: a key is "tasks.0"',
        ),
    ],
)
def test_a_record_that_flux_does_not_write_is_one_clear_error(
    kvs: dict[str, str], problem: str
) -> None:
    record = {"eventlog": eventlog(), "jobspec": json.dumps(spec()), **kvs}
    with pytest.raises(DWSError) as error:
        job_object(JobRecord(JOBID, record))
    assert str(error.value).startswith(problem)
    assert "\n" not in str(error.value)


def test_a_jobspec_that_is_nested_too_deeply_is_refused() -> None:
    refused = []
    for depth in (100, *range(300, 1200, 50), 100_000):
        user = '{"a": ' * depth + "1" + "}" * depth
        jobspec = json.dumps({**spec(), "attributes": "@"}).replace('"@"', user)
        record = JobRecord(JOBID, {"eventlog": eventlog(), "jobspec": jobspec})
        try:
            assert says(job_object(record), "Extension")
        except DWSError as error:
            refused.append((depth, str(error).partition(" is ")[0]))
    assert refused and refused[0][0] > 100
    assert {text for _, text in refused} == {"jobspec of job fuZZybuNNy"}


@pytest.mark.parametrize("key", ["eventlog", "jobspec"])
def test_a_job_without_an_eventlog_or_jobspec_is_refused(key: str) -> None:
    record = {"eventlog": eventlog(), "jobspec": json.dumps(spec())}
    del record[key]
    with pytest.raises(DWSError, match=f"job fuZZybuNNy has no {key}"):
        job_object(JobRecord(JOBID, record))
