# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``rabbitsim run|demo --kube``: on a real API server, and on a cluster."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any, Iterator

import pytest

from flux_k8s.ports import WORKFLOW
from rabbitsim.cli import main
from rabbitsim.clusters import ClusterError, ClusterKube, topology_of
from rabbitsim.dws import Files, Options, Topology, constant
from rabbitsim.dws.topology import storage
from rabbitsim.kube import assets
from rabbitsim.system import LocalKube
from support.client import workflow
from support.tree import TOP

Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

SCRIPT = str(TOP / "t" / "data" / "copy-in-out.sh")

WHY_NOT = assets.missing()
needs_assets = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def write_job(folder: pathlib.Path, *lines: str) -> str:
    dw = '#FLUX: -S dw="#DW jobdw type=xfs capacity=1GiB name=abc"'
    path = folder / "job.sh"
    path.write_text("\n".join(["#!/bin/sh", "#FLUX: -N1", dw, *lines, ""]))
    return str(path)


def refused(capfd: Captured, *args: str) -> str:
    """The one line that a command line gets that cannot be carried out."""
    assert main(["run", "--flux=sim", *args, SCRIPT]) == 2
    out, err = capfd.readouterr()
    assert err.startswith("rabbitsim: ") and err.count("\n") == 1, err
    assert "job  " not in out
    return err


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    """Nothing is set, but for tests that need the real programs."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if needs_assets.mark not in request.node.own_markers:
        monkeypatch.delenv(assets.VARIABLE, raising=False)


# The choice of a Kubernetes, and its refusals


def test_a_real_kubernetes_that_is_not_there_is_asked_for(capfd: Captured) -> None:
    error = refused(capfd, "--kube=real")
    assert "KUBECONFIG" in error and assets.VARIABLE in error


# A cluster as it is


@pytest.fixture
def cluster(tmp_path: pathlib.Path, monkeypatch: Patch) -> Iterator[LocalKube]:
    """A cluster with DWS and NNF, which KUBECONFIG leads to."""
    kube = LocalKube(
        Topology.regular(3, 1, node_prefix="elm", rabbit_prefix="oak"),
        options=Options(latency=constant(0.001)),
        files=Files(tmp_path / "elsewhere"),
        seed=1,
        kubeconfig=tmp_path / "kubeconfig",
        log=print,
    )
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    yield kube
    kube.stop()


def test_a_job_runs_on_the_cluster_of_kubeconfig(
    cluster: LocalKube, tmp_path: pathlib.Path, capfd: Captured
) -> None:
    job = write_job(tmp_path, 'echo "got $DW_JOB_abc"')
    assert main(["run", "--flux=sim", "--kube=real", job]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "  Kubernetes  the cluster of KUBECONFIG\n" in out
    assert "  storage     its own DWS and NNF, 1 Rabbits with 3 nodes\n" in out
    assert f"got {tmp_path / 'elsewhere'}/" in out
    assert "workflow  Teardown completed" in out and "workflow  deleted" in out
    assert not workflows(cluster)


def test_a_cluster_is_not_shared_with_another_flux(
    cluster: LocalKube, capfd: Captured
) -> None:
    make_workflow(cluster, "fluxjob-7", wlm="slurm")
    make_workflow(cluster, "by-hand", wlm="flux")
    ClusterKube().stop()
    make_workflow(cluster, "fluxjob-8", wlm="flux")
    make_workflow(cluster, "fluxjob-9", wlm="flux")
    assert "default/fluxjob-8 and 1 more of another Flux" in refused(
        capfd, "--kube=real"
    )
    assert all(w["spec"]["desiredState"] == "Proposal" for w in workflows(cluster))


def make_workflow(cluster: LocalKube, name: str, wlm: str) -> None:
    spec = {
        "desiredState": "Proposal",
        "dwDirectives": ["#DW jobdw type=xfs capacity=1GiB name=abc"],
        "forceReady": False,
        "groupID": 1,
        "jobID": name,
        "userID": 1,
        "wlmID": wlm,
    }
    body = {**workflow(name), "spec": spec}
    body["metadata"] = {"name": name, "namespace": "default"}
    store = cluster.server.store
    cluster.server.call(lambda: store.create(WORKFLOW, "default", body))


def workflows(cluster: LocalKube) -> list[Any]:
    store = cluster.server.store
    items: list[Any] = cluster.server.call(lambda: store.list(WORKFLOW, None))["items"]
    return items


def test_the_topology_comes_from_the_storages() -> None:
    # Each of the 16 devices has the same size.
    topology = Topology.regular(5, 2, capacity=16 << 40)
    storages = [storage(rabbit) for rabbit in topology.rabbits.values()]
    storages[0]["status"]["capacity"] = 1  # the rest is allocated
    found = topology_of(storages)
    assert found.rabbit_of == topology.rabbit_of
    plain = [
        dataclasses.replace(rabbit, labels={}) for rabbit in topology.rabbits.values()
    ]
    assert list(found.rabbits.values()) == plain

    del storages[1]["status"]["devices"]
    assert topology_of(storages).rabbits["rabbit-02"].capacity == 16 << 40
    storages[1]["status"]["access"]["computes"][0]["name"] = "compute-01"
    with pytest.raises(ClusterError, match="compute-01 is below rabbit-01 and"):
        topology_of(storages)
    storages[1]["status"]["access"]["computes"] = "all"
    with pytest.raises(ClusterError, match="Storage default/rabbit-02: status.access"):
        topology_of(storages)


# A real API server


def running_below(folder: pathlib.Path) -> list[str]:
    """The commands of the processes whose working directory is a folder, or in it."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            cwd = pathlib.Path(os.readlink(entry / "cwd"))
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if folder in (cwd, *cwd.parents) and command:
            found.append(command.decode().partition("\0")[0])
    return found


@needs_assets
def test_a_job_runs_on_a_real_api_server(
    tmp_path: pathlib.Path, capfd: Captured
) -> None:
    assert main(["run", "--flux=sim", f"--scratch={tmp_path}", SCRIPT]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "  Kubernetes  kube-apiserver 1." in out
    assert " from KUBEBUILDER_ASSETS\n" in out
    for state in "Proposal Setup DataIn PreRun PostRun DataOut Teardown".split():
        assert f"workflow  {state} completed\n" in out
    assert "words: 26\n" in out and "  /lustre/output/words.txt\n" in out
    assert "controllers:" not in out
    assert not running_below(tmp_path)
    (folder,) = tmp_path.glob("kubernetes-*")
    assert folder.stat().st_mode & 0o077 == 0
