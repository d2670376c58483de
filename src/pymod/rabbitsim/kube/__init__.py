# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A Kubernetes API server for custom resources, in memory.

``store`` holds the objects and knows the rules, ``server`` speaks HTTP around
a store, ``direct`` gives :class:`flux_k8s.ports.Kube` on a store without any
I/O, for runs in virtual time.
"""
