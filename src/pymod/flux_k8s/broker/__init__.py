# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Flux adapter: the only folder that imports ``flux``.

``dws.py``, the broker module, runs a :mod:`.supervisor`; read that first. The
supervisor starts the service (:mod:`.process`) as a child process, and relays requests
to it, those of guests within bounds (:mod:`.querybounds`). The service sees Flux
through :mod:`.adapter`, its :class:`flux_k8s.ports.Flux`.

The folder may import all others. The supervisor and its imports need no Kubernetes.
"""
