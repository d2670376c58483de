# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Flux adapter: the only part of the package that imports ``flux``.

``dws.py``, the broker module, is a supervisor: it runs :mod:`.process` (the service,
with :mod:`.adapter` as its :class:`flux_k8s.ports.Flux`) as a child, and relays
requests to it. Read :mod:`.supervisor` first. It and what it imports do without
Kubernetes.
"""
