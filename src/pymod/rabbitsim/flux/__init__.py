# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A stand-in Flux instance for machines that have none.

:class:`~rabbitsim.flux.instance.Instance` is the whole: job states and
eventlogs as in RFC 21 (:mod:`manager`), a scheduler for nodes and Rabbit
storage (:mod:`scheduler`), execution of jobs (:mod:`execution`,
:mod:`process`), messages (:mod:`broker`), and the host of the shipped job
manager plugin (:mod:`jobtap`). :mod:`script` reads ``#FLUX:`` lines.

It imports neither :mod:`rabbitsim.kube` nor :mod:`rabbitsim.dws`. Read :mod:`instance`
first.
"""
