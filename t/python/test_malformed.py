# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whatever is in an object of Kubernetes, it does not end the module: the next
one would see it again."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.jobs.datarecords import failed_first
from flux_k8s.ports import STORAGE, WORKFLOW, Json
from rabbitsim.dws.options import Options, table
from rabbitsim.system import VirtualSystem
from support.service import HOUR, XFS, jobspec, started

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=5,
)
STATES = ("Proposal", "Setup", "PreRun", "PostRun", "DataOut", "Teardown")
KEPT = ("name", "namespace", "uid", "resourceVersion")
"""What the client makes sure of in ``metadata``."""


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += paths(item, (*path, index))
    return found


def spoiled(obj: Json, path: tuple[Any, ...], value: Any) -> Json:
    """A copy with another value at ``path``; the client would take it for an
    object."""
    result: Json = copy.deepcopy(obj)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    if not isinstance(result.get("metadata"), dict):
        result["metadata"] = {}
    for key in KEPT:
        result["metadata"][key] = obj["metadata"][key]
    result["metadata"]["resourceVersion"] += "0"  # it is newer
    return result


def system_in(state: str) -> VirtualSystem:
    latency = table(dict.fromkeys(STATES, 1.0))
    system = started(options=Options(latency=latency))
    system.instance.submit(
        jobspec([XFS, "#DW copy_in source=/lustre/x destination=$DW_JOB_p1"])
    )

    def there() -> bool:
        return any(w["spec"]["desiredState"] == state for w in system.workflows())

    assert system.loop.run(there, HOUR)
    system.loop.run(timeout=0.5)
    return system


@given(st.data())
def test_a_workflow_may_be_anything(data: st.DataObject) -> None:
    system = system_in(data.draw(st.sampled_from(STATES)))
    (workflow,) = system.workflows()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(workflow)))
        workflow = spoiled(workflow, path, data.draw(JSON))
    assert system.service_kube is not None
    system.service_kube.show(WORKFLOW, "MODIFIED", workflow)
    system.loop.run(timeout=60.0)


@given(st.data())
def test_a_storage_may_be_anything(data: st.DataObject) -> None:
    system = system_in("Proposal")
    storage = system.store.list(STORAGE, None)["items"][0]
    path = data.draw(st.sampled_from(paths(storage)))
    assert system.service_kube is not None
    changed = spoiled(storage, path, data.draw(JSON))
    system.service_kube.show(STORAGE, "MODIFIED", changed)
    system.loop.run(timeout=60.0)


LISTED = st.fixed_dictionaries(
    {"metadata": st.dictionaries(st.text(), JSON)}, optional={"status": JSON}
)
"""An object of a list, with what the client makes sure of."""


@given(st.lists(LISTED), st.sampled_from([("status", "status"), ("status", "phase")]))
def test_recorded_objects_may_be_anything(items: Any, path: tuple[str, ...]) -> None:
    for found in failed_first(items, path, ("Failed",)):
        assert found in items
