# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws rescue, and what the other commands say of data that is kept."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from support.dwscli import (
    FIRST,
    NOW,
    WORKFLOW,
    FixedInstance,
    detail,
    dws,
    ended_job,
    kvs_of,
    refused,
    shows,
)
from support.tables import rows

F58 = "ƒ3gDmDv6tjHH"
FAILED = "DWS failed in DataOut: no space; not copied: x"
NOTE = f"{FAILED}; its storage is kept until X: flux dws rescue {F58} copies again"
KEPT: dict[str, Any] = {
    "state": "DataOut",
    "status": "Error",
    "failed": FAILED,
    "kept_until": NOW + 7200,
    "waits": f"flux dws rescue {F58}: its data is not out, and is kept until X",
    "limits": [{"name": "keep_failed", "at": NOW + 7200}],
}
EXCEPTION = {
    "timestamp": NOW,
    "name": "exception",
    "context": {"type": "dws", "severity": 0, "note": NOTE},
}


ANSWERS: Any = {
    "none": {"copies": 0},
    "one": {"copies": 1},
    "four": {"copies": 4},
    "unknown": refused(errno.ENOENT),
    # The module writes job IDs in ASCII.
    "unfit": refused(
        errno.EINVAL, f"job f{F58[1:]}: no data of it has failed and is kept"
    ),
}
SAID = """
four -> 0 -> 4 copies are started again
one -> 0 -> 1 copy is started again
none -> 0 -> no copy has failed: those that have not ended get
one --give-up -> 0 -> its data is given up
unknown -> 1 -> says what became of its data
unfit -> 1 -> ERROR: job ƒ3gDmDv6tjHH: no data of it has failed and is kept
"""


@pytest.mark.parametrize(("words", "status", "said"), rows(SAID, 3))
def test_rescue_sends_its_request_and_says_what_comes_of_it(
    words: str, status: str, said: str
) -> None:
    answer, *options = words.split()
    found = FixedInstance({"dws.rescue": ANSWERS[answer]}, jobs=[ended_job(FIRST)])
    done = dws(found, "rescue", *options, F58)
    give_up = {"give_up": True} if options else {}
    assert found.requests == [("dws.rescue", {"id": FIRST, **give_up})]
    assert shows(done, int(status), said)
    if status == "0":
        assert done.err == "" and done.out.startswith(f"Job {F58}: {said}")
        assert f"flux dws wait {F58}" in done.out


def test_a_rescue_of_no_job_is_one_error() -> None:
    found = FixedInstance({"dws.rescue": refused(errno.ENOENT)})
    assert shows(dws(found, "rescue", F58), 1, f"ERROR: job {F58} not found")
    assert dws(found, "rescue", "nonsense!").status == 1


def test_a_rescue_that_takes_a_moment_says_what_it_waits_for() -> None:
    found = FixedInstance({"dws.rescue": {"copies": 1}})
    found.ticks = 3
    waits = "waiting for the dws module, which asks Kubernetes"
    assert dws(found, "rescue", F58).err == f"flux-dws: WARNING: {waits}\n"


def test_show_says_what_has_failed_until_when_it_is_kept_and_what_to_do() -> None:
    done = dws(FixedInstance({"dws.job-show": detail(FIRST, **KEPT)}), "show", F58)
    assert f"Failed:     {FAILED}\n" in done.out
    assert f"Waits for:  flux dws rescue {F58}: its data is not out" in done.out
    assert "Limit:      keep_failed in 2" in done.out


def test_free_of_kept_storage_says_how_it_is_given_back() -> None:
    answer = detail(FIRST, **KEPT)
    for jobs in ([ended_job(FIRST)], []):
        done = dws(FixedInstance({"dws.job-show": answer}, jobs=jobs), "free", F58)
        assert (done.status, done.out) == (1, "")
        assert done.err.endswith(f"flux dws rescue --give-up {F58} gives it back\n")


RESCUED_AT = {"flux-framework.readthedocs.io/rescued": "2025-11-24T15:58:00Z"}


def ended(outcome: dict[str, Any]) -> FixedInstance:
    """A job that is kept, is rescued, and ends."""
    answers = [
        detail(FIRST, serial=1, **KEPT),
        detail(FIRST, serial=2, state="DataOut", kept_until=None, waits=""),
        refused(errno.ENOENT, "no active job with #DW directives"),
    ]
    metadata: Any = {**WORKFLOW["metadata"], "annotations": RESCUED_AT}
    kvs = kvs_of(
        FIRST,
        eventlog=json.dumps(EXCEPTION),
        rabbit_workflow=json.dumps({**WORKFLOW, "metadata": metadata}),
        rabbit_data_out=json.dumps(outcome),
    )
    told = {"exception_type": "dws", "exception_severity": 0, "exception_note": NOTE}
    job = ended_job(FIRST, result=2, waitstatus=0, **told)
    return FixedInstance({"dws.job-show": answers}, jobs=[job], kvs=kvs)


def test_wait_goes_on_while_data_may_be_rescued_and_succeeds_when_it_is() -> None:
    done = dws(ended({"success": True}), "wait", F58)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1].endswith("storage is gone, data was copied out")
    listed = dws(ended({"success": True}), "list", "-a", "--filter=ended")
    assert "no space" not in listed.out


def test_wait_fails_when_the_data_is_lost_for_good() -> None:
    lost = {"success": False, "errstr": FAILED}
    done = dws(ended(lost), "wait", F58)
    assert (done.status, done.err) == (1, f"flux-dws: ERROR: job {F58}: {FAILED}\n")
    words = ("list", "-a", "--filter=ended", "-n", "-o", "{waits}")
    assert dws(ended(lost), *words).out == f"{FAILED}\n"
