# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The level-triggered loops of the module: the controller that runs reconcilers, their
pauses, and coroutines over the requests of the ports.

Retries and debounces of reconcilers are here alone. Elsewhere,
:mod:`flux_k8s.jobs.inuse` asks again for the nodes of an aborted job while a step of
the job may still wait for Kubernetes, :mod:`flux_k8s.jobs.turns` has jobs that wait for
storage tried again, and :mod:`flux_k8s.machine.fences` looks again which nodes are
fenced. The adapters retry at their own edge with the same :class:`~.backoff.Backoff`: a
watch that is lost (:mod:`flux_k8s.kube.watch`), a look-up of a user and a stream of
answers (:mod:`flux_k8s.broker.adapter`), the start of the service
(:mod:`flux_k8s.broker.supervisor`). A deadline is a timer beside the request that it
ends (:mod:`flux_k8s.jobs.inuse`, :mod:`flux_k8s.jobs.staging`,
:mod:`flux_k8s.machine.nodes`).

:mod:`.kubecalls` has the requests to Kubernetes that can be awaited. Read
:mod:`.controller` first, then :mod:`.coroutines`. Nothing here knows the configuration.
"""
