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

from flux_k8s.rules.directivebreakdown.allocation import (
    Allocation,
    beyond_shares,
    colocation_annotations,
    job_allocation,
)
from flux_k8s.rules.directivebreakdown.breakdown import (
    Access,
    AllocationSet,
    Breakdown,
    Location,
    Reference,
    is_networked,
    parse,
)
from flux_k8s.rules.directivebreakdown.compute import (
    check_enough,
    check_locations,
    check_storage_of_nodes,
    existing_servers,
    labelled_hosts,
    near_hosts,
    required_daemons,
    wished_hosts,
)
from flux_k8s.rules.directivebreakdown.resources import (
    NO_NODES,
    apply_breakdowns,
    asks_for_rabbits,
    below_chassis,
    requested_chassis,
    requested_nodes,
    requested_per_node,
    share_of_node,
    ssd_per_node,
)
from flux_k8s.rules.directivebreakdown.servers import build_servers

__all__ = [
    "NO_NODES",
    "Access",
    "Allocation",
    "AllocationSet",
    "Breakdown",
    "Location",
    "Reference",
    "apply_breakdowns",
    "asks_for_rabbits",
    "beyond_shares",
    "build_servers",
    "check_enough",
    "check_locations",
    "check_storage_of_nodes",
    "colocation_annotations",
    "existing_servers",
    "is_networked",
    "job_allocation",
    "labelled_hosts",
    "near_hosts",
    "parse",
    "below_chassis",
    "requested_chassis",
    "requested_nodes",
    "requested_per_node",
    "required_daemons",
    "share_of_node",
    "ssd_per_node",
    "wished_hosts",
]
