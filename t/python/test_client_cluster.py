# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The client against rabbitsim's API server, and a real one where there is one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from flux_k8s.ports import WORKFLOW, Json, Kind, KubeError
from rabbitsim.kube.assets import ApiServer
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store
from support.apiserver import WHY_NOT, install_crds
from support.client import Recorder, Service


@pytest.fixture(scope="module", params=["rabbitsim", "real"])
def kubeconfig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / "kubeconfig"
    if request.param == "rabbitsim":
        simulated = KubeServer(Store(time.time, random.Random(1)), tokens={"t": "flux"})
        simulated.start()
        simulated.write_kubeconfig(str(path))
        yield str(path)
        simulated.stop()
        return
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    real = ApiServer(folder)
    real.start()
    try:
        real.write_kubeconfig(path)
        install_crds(str(path))
        yield str(path)
    finally:
        real.stop()


def workflow(name: str) -> Json:
    return {
        "metadata": {"name": name, "finalizers": ["example.com/held"]},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": ["#DW jobdw type=xfs capacity=10GiB name=p"],
            "groupID": 100,
            "jobID": "fABC",
            "userID": 1000,
            "wlmID": "flux",
        },
    }


def test_a_watch_shows_the_whole_life_of_an_object(
    service: Service, kubeconfig: str
) -> None:
    client = service.client(kubeconfig)
    handler = Recorder()
    client.watch(WORKFLOW, None, handler)
    service.run(lambda: handler.calls == ["synced"])

    made = service.ask(client, "create", WORKFLOW, "default", body=workflow("w"))
    assert made["kind"] == "Workflow"
    again = service.refused(client, "create", WORKFLOW, "default", body=workflow("w"))
    assert (again.status, again.reason) == (409, "AlreadyExists")
    held = {"metadata": {"finalizers": None}, "spec": {"desiredState": "Setup"}}
    patched = service.ask(client, "patch", WORKFLOW, "default", "w", held)
    assert patched["spec"]["desiredState"] == "Setup"
    assert service.ask(client, "get", WORKFLOW, "default", "w") == patched
    listed = service.ask(client, "list", WORKFLOW, "default")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["w"]
    patched["metadata"].pop("managedFields", None)  # a watch leaves them out
    service.run(lambda: handler.view.get("w") == patched)

    assert not isinstance(
        service.ask(client, "delete", WORKFLOW, "default", "w"), KubeError
    )
    gone = service.refused(client, "delete", WORKFLOW, "default", "w")
    assert (gone.status, gone.reason) == (404, "NotFound")
    service.run(lambda: handler.calls[-1] == "DELETED w")


def test_a_kind_that_is_not_served_differs_from_a_missing_object(
    service: Service, kubeconfig: str
) -> None:
    client = service.client(kubeconfig)
    error = service.refused(client, "get", WORKFLOW, "default", "w")
    assert error.reason == "NotFound"
    error = service.refused(client, "get", Kind(WORKFLOW.group, "X", "xs"), "d", "w")
    assert error.reason == "KindNotFound"
    error = service.refused(client, "get", Kind("no.example", "X", "xs"), "d", "w")
    assert error.reason == "GroupNotFound"
