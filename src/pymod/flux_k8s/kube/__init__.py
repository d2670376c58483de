# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Kubernetes adapter: the only folder that imports ``kubernetes`` and ``pycurl``.

:mod:`.client` has the :class:`flux_k8s.ports.Kube` of the service; read it first.
Requests wait there for their turn, and go through :mod:`.api` and :mod:`.session`.
Watches go through :mod:`.watch`, :mod:`.cache` and :mod:`.eventqueue`. The HTTP
exchanges of both are in the service's event loop, by :mod:`.transfers`, with handles of
:mod:`.transport`.
Only :mod:`.credentials` needs the ``kubernetes`` package. :mod:`.cache` and
:mod:`.status` are pure: the simulator runs the first in virtual time.

It imports :mod:`flux_k8s.control` and the modules beside the folders. The folders below
know only the ports.
"""
