# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The subcommands of ``flux dws``: arguments in, text out. The broker never loads it.

Each subcommand has a module with ``add_arguments``, which ``src/cmd/flux-dws.py``
imports only when the subcommand is called.

It imports :mod:`flux_k8s.config` and below, :mod:`flux_k8s.command`,
:mod:`flux_k8s.ingest`, and, for job objects, :mod:`sssjob`. Read :mod:`.show` first,
then :mod:`.instance`, the interface to Flux.
"""
