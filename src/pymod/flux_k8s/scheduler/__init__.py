# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The resources of an instance with Rabbits, and which of them each job has: what
``sched-rabbit`` decides by.

The folder is pure: it imports :mod:`flux_k8s.rules` and below, and does no input or
output. :mod:`flux_k8s.broker.rabbitscheduler` puts it under the scheduler class of
flux-core. Read :mod:`.pool` first.
"""
