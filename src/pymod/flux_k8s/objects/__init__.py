# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Objects of Kubernetes as typed structures, and the mapping of nodes to Rabbits.

Only fields that matter are declared, and those are strict: a value of another type
makes the object damaged, which costs that object alone. All others are ignored. Go
writes ``null`` for what is empty, so whatever may be empty is optional. A structure is
never written back: it lacks what is not declared.
"""
