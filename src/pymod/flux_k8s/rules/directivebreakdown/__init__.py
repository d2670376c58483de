# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The work of a workload manager with DirectiveBreakdowns.

- :mod:`.breakdown` reads DirectiveBreakdowns;
- :mod:`.resources` adds their storage to the resources of a job that is not scheduled
  yet;
- :mod:`.allocation` has the nodes and the storage of a job that is scheduled;
- :mod:`.servers` chooses the Rabbit of each allocation;
- :mod:`.compute` finds the nodes that a job may have, and the daemons that it needs.

Decisions rest on a breakdown's generic fields, never on the file system type.
"""
