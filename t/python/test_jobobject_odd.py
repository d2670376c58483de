# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Records of jobs and job objects with something odd in them: they are told, or
submitted, or there is one clear error."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any, Iterator

from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.errors import DWSError
from flux_k8s.ports import Json
from sssjob import read, write
from sssjob.from_flux.convert import JobRecord, job_object
from support.jobrecords import eventlog, spec
from support.service import XFS

JOBSPEC = spec(
    "-N2",
    "-n4",
    dw=[XFS],
    environment={"A": "b"},
    constraints={"and": [{"hostlist": ["a[1-4]"]}, {"not": [{"properties": ["^x"]}]}]},
    dependencies=[{"scheme": "afterok", "value": "f1"}],
    shell={
        "options": {
            "rlimit": {"core": 5},
            "output": {"mode": "append", "stdout": {"type": "file", "path": "out"}},
            "per-resource": {"type": "node", "count": 3},
            "taskmap": {"scheme": "cyclic", "value": ""},
        }
    },
)
HISTORY = (
    ("jobspec-update", {"attributes.system.duration": 5, "resources": []}),
    ("priority", {"priority": 16}),
    ("memo", {"rabbits": "r[1-2]"}),
    ("alloc", {}),
    ("start", {}),
    ("exception", {"type": "cancel", "severity": 0, "note": ""}),
    ("finish", {"status": 9}),
    ("clean", {}),
)
MOVEMENT = {
    "metadata": {"labels": {"dm.cray.hpe.com/initiator": "copy_in"}},
    "status": {"commandStatus": {"data": "1.5 GiB"}},
}
EXECUTION = {
    "R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}],
    "nodelist": ["a[1-2]"],
}
RECORD: Json = {
    "eventlog": [json.loads(line) for line in eventlog(*HISTORY).splitlines()],
    "jobspec": JOBSPEC,
    "R": {"version": 1, "execution": EXECUTION},
    "rabbit_workflow": {"spec": {"dwDirectives": [XFS]}},
    "rabbit_datamovements": [MOVEMENT],
    "rabbit_setup_timing": 1.5,
}

HUGE = 10**400
"""An integer that is beyond all floats."""

ODD = st.one_of(
    st.sampled_from([None, True, -1, 0, 2**32, 2**63, 2**64, HUGE, -HUGE, 1e308]),
    st.sampled_from(["", "\ud800", "\0", "a[1-", "2+", "2-8:2:*", "9" * 400, "#DW"]),
    st.sampled_from(["9" * 400 + " GiB", "f" + "z" * 20, "0-99999999", "node", "core"]),
    st.sampled_from([{}, [], [[]], [None], {"min": 1, "max": 2**62}, {"total": 2**62}]),
    st.floats(),
    st.text(max_size=4),
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All places in JSON: what holds each, and its key there."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


@st.composite
def odd_records(draw: st.DrawFn) -> Json:
    """A record with something odd at one place, or at several."""
    record = copy.deepcopy(RECORD)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(places(record))))
        holder[key] = copy.deepcopy(draw(ODD))
    return record


def with_time(time: Any) -> Json:
    """The record of a job that began then."""
    record = copy.deepcopy(RECORD)
    record["eventlog"][0]["timestamp"] = time
    return record


MUCH = {"status": {"commandStatus": {"data": "9" * 400 + " GiB"}}}


@example(with_time(HUGE))
@example({**RECORD, "rabbit_setup_timing": HUGE})
@example({**RECORD, "rabbit_datamovements": [{**MOVEMENT, **MUCH}]})
@example({**RECORD, "jobspec": spec(duration=HUGE)})
@given(odd_records())
def test_an_odd_record_is_an_object_or_a_clear_error(record: Json) -> None:
    kvs = {key: json.dumps(value) for key, value in record.items()}
    events = record["eventlog"]
    if isinstance(events, list):
        kvs["eventlog"] = "".join(f"{json.dumps(event)}\n" for event in events)
    # Whatever else is raised fails the test.
    with contextlib.suppress(DWSError):
        told = job_object(JobRecord(1, kvs))
        assert read(write(told)) == told
