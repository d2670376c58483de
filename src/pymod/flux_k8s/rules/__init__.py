# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rules: which directives a cluster takes, what breakdowns ask for and where that may
be, which nodes a job can do without, and the graph of a mapping.

The folder is pure: data in, data out. It imports :mod:`flux_k8s.objects`,
:mod:`flux_k8s.formats` and the modules beside the folders. Read
:mod:`.directivebreakdown` first.
"""
