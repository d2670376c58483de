# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stand-ins for Flux, Kubernetes and DWS, for machines that lack them.

- :mod:`.flux`: a Flux instance, with the job manager plugin that ships;
- :mod:`.kube`: the API of Kubernetes;
- :mod:`.dws`: the controllers of DWS and NNF;
- :mod:`.torture`: random jobs under random trouble;
- :mod:`.cli`: the commands;
- :mod:`.commands`: those of ``flux dws``, in virtual time.

They may import all of :mod:`flux_k8s` and :mod:`dwscli`, but not ``flux``, and nothing
imports them.
Start with :mod:`.system`, which puts them together.
"""
