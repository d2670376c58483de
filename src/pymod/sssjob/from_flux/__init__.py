# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of the records that Flux keeps of jobs: jobspec, R and eventlog.

It imports :mod:`sssjob.schema` and the modules beside it. Read :mod:`.convert` first.
"""
