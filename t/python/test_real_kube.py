# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whole jobs on a real kube-apiserver, with DWS's real CRDs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from flux_k8s.kube.client import KubeClient
from flux_k8s.ports import COMPUTES, SERVERS, WORKFLOW, Kind
from rabbitsim.dws import Topology
from rabbitsim.flux.events import JobState
from rabbitsim.kube.assets import ApiServer
from rabbitsim.system import LocalFlux
from support.apiserver import WHY_NOT, install_crds

PATIENCE = 60.0
DIRECTIVES = [
    "#DW jobdw type=xfs capacity=10GiB name=p1",
    "#DW jobdw type=lustre capacity=20GiB name=p2",
]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    folder = tmp_path_factory.mktemp("real")
    path = folder / "kubeconfig"
    server = ApiServer(folder)
    server.start()
    try:
        server.write_kubeconfig(path)
        install_crds(str(path))
        command = [sys.executable, "-m", "rabbitsim", "dws", "--kubeconfig", str(path)]
        dws = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert dws.stdout is not None
        assert "driving Workflows" in dws.stdout.readline()
        yield path
        dws.terminate()
        dws.wait()
    finally:
        server.stop()


@pytest.fixture
def flux(kubeconfig: Path, tmp_path: Path) -> Iterator[LocalFlux]:
    flux = LocalFlux(
        Topology.regular(4, 2),
        kubeconfig,
        tmp_path,
        output=lambda rank, stream, data: None,
        seed=1,
        log=lambda level, line: print(line),
    )
    assert flux.wait_until_ready(PATIENCE)
    yield flux
    flux.stop()


def jobspec(directives: str | list[str], nodes: int = 2) -> dict[str, object]:
    slot = {
        "type": "slot",
        "count": 1,
        "label": "task",
        "with": [{"type": "core", "count": 1}],
    }
    task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
    return {
        "version": 1,
        "resources": [{"type": "node", "count": nodes, "with": [slot]}],
        "tasks": [task],
        "attributes": {"system": {"duration": 0, "dw": directives}},
    }


def left(flux: LocalFlux, kubeconfig: Path, kind: Kind) -> list[object]:
    """What there is of a kind in the cluster."""
    client = KubeClient(str(kubeconfig), loop=flux.loop)
    answers: list[object] = []
    client.list(kind, "default", answers.append, key="list")
    assert flux.loop.run(lambda: bool(answers), PATIENCE)
    client.close()
    assert isinstance(answers[0], dict)
    return list(answers[0]["items"])


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_a_job_lives_its_whole_life(
    flux: LocalFlux, kubeconfig: Path, directive: str
) -> None:
    jobid = flux.instance.submit(jobspec(directive))
    job = flux.instance.job(jobid)
    assert flux.loop.run(lambda: job.state is JobState.INACTIVE, PATIENCE), job.events
    names = [event.name for event in job.events]
    assert "exception" not in names and "start" in names, job.events
    gone = flux.loop.run(lambda: not left(flux, kubeconfig, WORKFLOW), PATIENCE)
    assert gone
    assert not left(flux, kubeconfig, SERVERS)
    assert not left(flux, kubeconfig, COMPUTES)
