# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Serve an empty cluster until a signal comes."""

from __future__ import annotations

import random
import secrets
import signal
import sys
import threading
import time
from typing import Callable, Optional, Sequence

from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Admission, Store


def serve(
    port: int,
    kubeconfig: Optional[str],
    until: Optional[Callable[[], object]] = None,
    admission: Sequence[Admission] = (),
) -> int:
    """Serve a cluster on 127.0.0.1; returns an exit status.

    Args:
        port: 0 for any that is free.
        kubeconfig: where to write one, or None.
        until: returns when it is time to stop; by default, when SIGINT or
            SIGTERM has come.
        admission: hooks that may refuse changes, as webhooks do.
    """
    wait = until or signals()
    # Each user who can read the kubeconfig may use the server; without it all may.
    tokens = {secrets.token_urlsafe(): "admin"} if kubeconfig is not None else None
    store = Store(time.time, random.Random())
    store.admission.extend(admission)
    server = KubeServer(store, port=port, tokens=tokens)
    try:
        url = server.start()
    except OSError as error:
        print(f"rabbitsim kube: port {port}: {error.strerror}", file=sys.stderr)
        return 1
    try:
        if kubeconfig is not None:
            server.write_kubeconfig(kubeconfig)
        print(f"Kubernetes API at {url}", flush=True)
        wait()
    except OSError as error:
        print(f"rabbitsim kube: {kubeconfig}: {error.strerror}", file=sys.stderr)
        return 1
    finally:
        server.stop()
    return 0


def signals() -> Callable[[], object]:
    """A function that waits for SIGINT or SIGTERM. From now on both are noted."""
    came = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: came.set())
    return came.wait
