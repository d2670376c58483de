# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Kubernetes adapter: the only folder that imports ``kubernetes`` and ``urllib3``.

:mod:`.client` has the :class:`flux_k8s.ports.Kube` of the service; read it first. Its
requests go through :mod:`.workers`, :mod:`.api`, :mod:`.session` and
:mod:`.transport`, its watches through :mod:`.watch`, :mod:`.cache` and
:mod:`.eventqueue`. Only :mod:`.credentials` needs the ``kubernetes`` package.
:mod:`.countedkube` counts the requests of any :class:`~flux_k8s.ports.Kube`. It and
:mod:`.cache` are pure: the simulator runs them in virtual time.

It imports :mod:`flux_k8s.control` and the modules beside the folders. The folders below
know only the ports.
"""
