# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The construction of the service."""

from __future__ import annotations

import gc
from typing import Any, Callable

from flux_k8s.config.context import Context
from flux_k8s.config.settings import Settings
from flux_k8s.jobs.service import Service
from flux_k8s.kube.countedkube import CountedKube
from flux_k8s.ports import Flux, Json, Kube

GC_THRESHOLDS = (2_500, 1, 40_000)
"""The service's data has nearly no cycles, and a full collection over ten thousand
Workflows would hold up the reactor for too long. So would one of the second generation
over what many of the first have left: it comes with every second one."""


def collect_rarely() -> None:
    """Set the thresholds of Python's garbage collector for a process with a service."""
    gc.set_threshold(*GC_THRESHOLDS)


def make_service(
    flux: Flux,
    kube: Kube,
    settings: Settings,
    count_events: Callable[[], int] = int,
    **options: Any,
) -> Service:
    """The service for a Flux instance and a cluster.

    Args:
        count_events: returns the number of answers and events of Kubernetes that wait
            for the reactor.
        options: further arguments of :class:`~flux_k8s.jobs.service.Service`.
    """
    counted = CountedKube(kube)

    def kube_metrics() -> Json:
        return {**counted.to_json(), "events": count_events()}

    context = Context(flux, counted, settings)
    service = Service(context, kube_metrics=kube_metrics, **options)
    counted.recovered = service.recovered
    return service
