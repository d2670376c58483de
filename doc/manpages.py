# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The man pages of flux-dws: what ``conf.py`` and the list of Flux's commands need."""

from __future__ import annotations

AUTHOR = "The flux-dws developers"

MAN_PAGES = [
    ("flux-dws", 1, "show and manage storage on Rabbits"),
    ("flux-rabbitmapping", 1, "write which nodes each Rabbit is connected to"),
    ("flux-dws2jgf", 1, "add Rabbits to the resource graph of Fluxion"),
    ("flux-getrabbit", 1, "list the Rabbits of nodes and jobs"),
    ("flux-jobtap-dws", 1, "jobtap plugin for jobs with #DW directives"),
    ("flux-shell-dws", 1, "shell plugin for jobs with #DW directives"),
    ("flux-config-rabbit", 5, "configure storage on Rabbits"),
]
"""The name, the section and the purpose of each."""
