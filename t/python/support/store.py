# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The simulated API server's store, and objects to put into it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from flux_k8s.ports import (
    Json,
)
from rabbitsim.kube.kinds import load_kinds
from rabbitsim.kube.store import ApiError, Store

KINDS = load_kinds()


def new_store(history: int = 4096) -> Store:
    return Store(lambda: 1_800_000_000.0, random.Random(7), KINDS, history)


def workflow(name: str = "w", **metadata: Any) -> Json:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": ["#DW jobdw type=xfs capacity=10GiB name=p"],
            "groupID": 100,
            "jobID": "fABC",
            "userID": 1000,
            "wlmID": "flux",
        },
    }


def owned(name: str, *owners: Json) -> Json:
    return {
        "metadata": {
            "name": name,
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                }
                for owner in owners
            ],
        }
    }


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value
