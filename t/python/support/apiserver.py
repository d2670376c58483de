# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A real kube-apiserver with the CRDs of DWS and NNF, where there is one."""

from __future__ import annotations

import yaml

from flux_k8s.kube.client import KubeClient
from flux_k8s.ports import COMPUTES, WORKFLOW, Kind, KubeError
from rabbitsim.kube.assets import missing
from support.client import Recorder, Service
from support.tree import CRDS

WHY_NOT = missing() or (None if CRDS.is_dir() else "the CRDs are not here")
"""The reason why there is no real API server; None if there is one."""
CRD = Kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"
)


def install_crds(kubeconfig: str) -> None:
    """Create the CRDs, and wait until their kinds are served."""
    with Service() as service:
        client = service.client(kubeconfig)
        for file in CRDS.glob("*_*.yaml"):
            answer = service.ask(
                client, "create", CRD, "", body=yaml.safe_load(file.read_text())
            )
            assert not isinstance(answer, KubeError), (file, answer)
        for kind in (WORKFLOW, COMPUTES):
            wait_for(service, client, kind)


def wait_for(service: Service, client: KubeClient, kind: Kind) -> None:
    handler = Recorder()
    watch = client.watch(kind, None, handler)
    service.run(lambda: "synced" in handler.calls, patience=60)
    watch.stop()
