# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Run the stand-in controllers against an API server until a signal comes."""

from __future__ import annotations

import json
import random
import signal
import sys
import syslog
from pathlib import Path
from typing import Callable, Optional

from flux_k8s.errors import ConfigError
from flux_k8s.kube.client import KubeClient
from flux_k8s.ports import KubeError
from flux_k8s.text import printable
from rabbitsim.dws.controllers import Controllers
from rabbitsim.dws.files import Files
from rabbitsim.dws.install import install
from rabbitsim.dws.options import Options
from rabbitsim.dws.topology import Topology
from rabbitsim.loop import RealLoop

WORKERS = 8
LOG_LEVEL = syslog.LOG_NOTICE


def serve(
    kubeconfig: Optional[str],
    topology: Topology,
    *,
    options: Optional[Options] = None,
    scratch: Optional[Path] = None,
    seed: Optional[int] = None,
    stopper: Optional[Callable[[RealLoop], Callable[[], bool]]] = None,
) -> int:
    """Install the objects of a system, and drive Workflows; an exit status.

    Args:
        kubeconfig: its path, or None for the client's default.
        scratch: where storage is; None for storage on paper only.
        seed: of latencies and tokens.
        stopper: makes the function that tells when it is time to stop. It wakes the
            loop then, which looks after each event only. By default, it is time when
            SIGINT or SIGTERM has come.
    """
    options = options or Options()
    loop = RealLoop()
    stop = (stopper or _signalled)(loop)
    try:
        client = KubeClient(
            kubeconfig,
            workers=WORKERS,
            loop=loop,
            rng=random.Random(seed),
            log=lambda level, line, reason: _say(line) if level <= LOG_LEVEL else None,
        )
    except ConfigError as error:
        _say(f"--kubeconfig: {error.problem}")
        return 1
    try:
        files = Files(scratch) if scratch is not None else None
        return _run(loop, client, topology, options, files, seed, stop)
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
        return 1
    finally:
        client.close()


def _run(
    loop: RealLoop,
    client: KubeClient,
    topology: Topology,
    options: Options,
    files: Optional[Files],
    seed: Optional[int],
    stop: Callable[[], bool],
) -> int:
    installed: list[Optional[KubeError]] = []
    install(client, topology, options.rules, installed.append)
    loop.run(lambda: bool(installed) or stop())
    error = installed[0] if installed else None
    if error is not None:
        _say(str(error))
        return 1
    controllers = Controllers(
        client,
        loop,
        topology=topology,
        options=options,
        rng=random.Random(seed),
        files=files,
        log=_say,
    )
    controllers.start()
    nodes, rabbits = len(topology.rabbit_of), len(topology.rabbits)
    print(f"driving Workflows for {nodes} nodes on {rabbits} Rabbits", flush=True)
    loop.run(stop)
    controllers.stop()
    return 0


def read_topology(mapping: Optional[str], nodes: int, rabbits: int) -> Topology:
    """The topology of a rabbitmapping file, or a regular one without a file.

    Raises:
        ValueError: they describe none.
        OSError: the file cannot be read.
    """
    if mapping is None:
        return Topology.regular(nodes, rabbits)
    try:
        return Topology.from_mapping(json.loads(Path(mapping).read_text("utf-8")))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise ValueError(f"{mapping}: expected a rabbitmapping, in JSON") from None


def _say(line: str) -> None:
    print(f"rabbitsim dws: {printable(line)}", file=sys.stderr, flush=True)


def _signalled(loop: RealLoop) -> Callable[[], bool]:
    """A function that returns whether SIGINT or SIGTERM came since now."""
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        came.append(number)
        loop.call_soon_threadsafe(lambda: None)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return lambda: bool(came)
