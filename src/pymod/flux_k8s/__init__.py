# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The logic of the Flux-DWS integration.

The folders are layers. Each may import those below it:

- :mod:`.broker`, the Flux adapter;
- :mod:`.kube`, the Kubernetes adapter;
- :mod:`.jobs` and :mod:`.rabbits`, side by side: one job, and the machine;
- :mod:`.control`: queues, pauses, the driver of coroutines;
- :mod:`.config`: the configuration of a site;
- :mod:`.dws`: formats and rules of DWS;
- :mod:`.rfc`: formats of Flux.

All folders may import :mod:`.ports` (the interfaces to Flux and Kubernetes),
:mod:`.errors`, :mod:`.json_reader`, :mod:`.limits` and :mod:`.text`. Start with
:mod:`.jobs.workflow`. The modules :mod:`.cleanup`, :mod:`.directivebreakdown`,
:mod:`.storage`, :mod:`.systemstatus` and :mod:`.watch` are the names by which others
import modules in the folders. The commands share :mod:`.command`; the plugins of Flux's
commands and of its job validator share :mod:`.ingest`.
"""
