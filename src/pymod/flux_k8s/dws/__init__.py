# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Formats and rules of Data Workflow Services: directives, requests for storage,
breakdowns, Servers, Storages, Workflows, and the mapping of nodes to Rabbits.

The folder is pure: data in, data out. It imports :mod:`flux_k8s.rfc` and the modules
beside the folders. Read :mod:`.directives` and :mod:`.workflowview` first.
"""
