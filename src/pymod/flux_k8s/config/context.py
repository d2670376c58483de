# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The world of the service, and its settings: whatever most parts of it need."""

from __future__ import annotations

from dataclasses import dataclass

from flux_k8s.config.settings import Settings
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.ports import Clock, Flux, Log


@dataclass(frozen=True)
class Context:
    """What goes to the constructors of the parts of the service.

    Attributes:
        flux: the Flux instance.
        kube: the Kubernetes cluster.
        settings: of the service; they change at a reload.
    """

    flux: Flux
    kube: KubeCalls
    settings: Settings

    @property
    def log(self) -> Log:
        """Logs a line."""
        return self.flux.log

    @property
    def clock(self) -> Clock:
        """Time, and timers."""
        return self.flux
