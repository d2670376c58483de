# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Kubernetes adapter: the only part of the package that imports ``kubernetes``
and ``urllib3``.

:mod:`.client` is the :class:`flux_k8s.ports.Kube` that the service gets; read it
first. :mod:`.api`, :mod:`.session` and :mod:`.workers` carry out its requests,
:mod:`.watch` and :mod:`.cache` its watches. Everybody else knows the ports only.
:mod:`.cache` is pure: the simulator's virtual time runs the same.
"""
