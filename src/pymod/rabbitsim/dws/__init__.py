# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stand-ins for the DWS and NNF controllers, through any Kubernetes API.

:class:`Controllers` does the work, :func:`install` makes the objects of a system,
:func:`admission` does the work of the webhooks. :mod:`.workflow` has the states of
Workflows, :mod:`.proposal`, :mod:`.storage`, :mod:`.movement` and :mod:`.mounts` have
the work in them.

It imports :mod:`rabbitsim.kube`, and of :mod:`flux_k8s` the adapter for Kubernetes and
the formats of Flux. Read :mod:`.controllers` first.
"""

from __future__ import annotations

from rabbitsim.dws.admission import admission
from rabbitsim.dws.breakdown import Profiles
from rabbitsim.dws.controllers import Controllers
from rabbitsim.dws.directive import Rules
from rabbitsim.dws.files import Files, NoFiles
from rabbitsim.dws.install import install
from rabbitsim.dws.options import Fault, Options, constant, recorded, table
from rabbitsim.dws.topology import Rabbit, Topology

__all__ = [
    "Controllers",
    "Fault",
    "Files",
    "NoFiles",
    "Options",
    "Profiles",
    "Rabbit",
    "Rules",
    "Topology",
    "admission",
    "constant",
    "install",
    "recorded",
    "table",
]
