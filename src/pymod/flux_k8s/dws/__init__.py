# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Formats and rules of Data Workflow Services: directives, what a job asks for,
breakdowns, Servers, Storages, the Workflow as Kubernetes shows it, and the mapping of
nodes to Rabbits.

All is pure: data in, data out. It imports :mod:`flux_k8s.rfc` and what stands beside
the folders. Read :mod:`.directives` and :mod:`.workflowview` first.
"""
