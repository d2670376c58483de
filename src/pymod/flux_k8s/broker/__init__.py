# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Flux adapter: the only folder that imports ``flux``.

``dws.py``, the broker module, runs a :mod:`.supervisor`; read that first. The
supervisor starts the service (:mod:`.process`) as a child process, and relays requests
to it. The service sees Flux through :mod:`.adapter`, its
:class:`flux_k8s.ports.Flux`. It may import all other folders; the supervisor and its
imports need no Kubernetes.
"""
