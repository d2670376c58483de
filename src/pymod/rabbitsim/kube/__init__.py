# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A Kubernetes API server for custom resources, in memory.

:mod:`.store` keeps the objects and applies the rules of the API, :mod:`.server` serves
a store over HTTP, :mod:`.direct` is a :class:`flux_k8s.ports.Kube` on a store without
any I/O, for runs in virtual time. Its watches run the cache that ships,
:mod:`flux_k8s.kube.cache`. Read :mod:`.store` first.
"""
