# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stand-ins for the DWS and NNF controllers, through any Kubernetes API.

:class:`Controllers` does the work, :func:`install` makes the objects of a
system, :func:`admission` is what the webhooks do. ``workflow`` has the states,
``proposal``, ``storage``, ``movement`` and ``mounts`` the work in them.
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
