# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The logic of the Flux-DWS integration.

The folders are layers. Each may import those below it:

- :mod:`.broker`, the Flux adapter;
- :mod:`.kube`, the Kubernetes adapter;
- :mod:`.jobs`: one job, one Workflow; beside it :mod:`.scheduler`: what jobs have, and
  get, for ``sched-rabbit``;
- :mod:`.machine`: Rabbits, nodes, Fluxion;
- :mod:`.config`: the configuration of a site;
- :mod:`.control`: queues, pauses, the driver of coroutines;
- :mod:`.rules`: what directives, breakdowns and a mapping mean (pure);
- :mod:`.objects`: one module for each kind of object in Kubernetes, and the mapping;
- :mod:`.formats`: host names, job IDs, times, R, constraints, ``#DW`` text.

All folders may import :mod:`.ports` (the interfaces to Flux and Kubernetes),
:mod:`.eventloop`, :mod:`.threads` and :mod:`.timers` (sockets, timers, what blocks, and
calls from other threads, for the adapters), :mod:`.errors`, :mod:`.json_reader`,
:mod:`.limits`, :mod:`.reasons`, :mod:`.slots`, :mod:`.text` and :mod:`.version`. Start
with :mod:`.jobs.workflow`.
The modules :mod:`.cleanup`, :mod:`.directivebreakdown`,
:mod:`.storage`, :mod:`.systemstatus` and :mod:`.watch` are the names by which others
import modules in the folders. The commands share :mod:`.command`; the plugins of Flux's
commands and of its job validator share :mod:`.ingest`.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Optional


class _Beside:
    """Finds ``msgspec`` beside this package, where there is none.

    Flux's Python finds this package by a link, but not what is installed beside it. Its
    commands are to find nothing else there (``src/link.sh``).
    """

    @staticmethod
    def find_spec(name: str, *_: Any) -> Optional[ModuleSpec]:
        if name != "msgspec":
            return None
        return PathFinder.find_spec(name, [str(Path(__file__).resolve().parents[1])])


sys.meta_path.append(_Beside)
