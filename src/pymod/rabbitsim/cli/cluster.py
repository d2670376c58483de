# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``rabbitsim cluster``: the API server, with DWS and NNF on its thread, until a signal
comes. They need no HTTP for each other, as ``rabbitsim kube`` and ``rabbitsim dws``
do."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Optional

from flux_k8s.ports import KubeError
from flux_k8s.text import printable
from rabbitsim.dws import Files, NoFiles, Options, Topology
from rabbitsim.kube.cli import signals
from rabbitsim.system import LocalKube


def serve(
    kubeconfig: str,
    topology: Topology,
    *,
    options: Options,
    scratch: Optional[Path],
    seed: int,
) -> int:
    """Serve a cluster on 127.0.0.1; returns an exit status.

    Args:
        kubeconfig: where to write one. Who can read it may use the server.
        scratch: where storage is; None for storage on paper only.
    """
    wait = signals()
    try:
        kube = LocalKube(
            topology,
            options=options,
            files=NoFiles() if scratch is None else Files(scratch),
            seed=seed,
            kubeconfig=Path(kubeconfig),
            log=_say,
            tokens={secrets.token_urlsafe(): "admin"},
        )
    except OSError as error:
        _say(f"{error.filename or 'loopback'}: {error.strerror}")
        return 1
    try:
        kube.installed.result()
        nodes, rabbits = len(topology.rabbit_of), len(topology.rabbits)
        print(
            f"{kube.name}, driving Workflows for {nodes} nodes on {rabbits} Rabbits",
            flush=True,
        )
        wait()
    except KubeError:
        return 1  # which was said
    finally:
        kube.stop()
    return 0


def _say(line: str) -> None:
    print(f"rabbitsim cluster: {printable(line)}", file=sys.stderr, flush=True)
