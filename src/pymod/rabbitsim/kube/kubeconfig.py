# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Kubeconfigs for API servers that are started here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Union

import yaml

_NAME = "rabbitsim"


def write(
    path: Union[str, os.PathLike[str]],
    cluster: Mapping[str, str],
    user: Mapping[str, str],
) -> None:
    """Write a kubeconfig of one context, readable by its owner only.

    Args:
        cluster: the entry of the cluster: ``server`` and what it takes to
            trust it.
        user: the entry of the user: credentials.

    Raises:
        OSError: the file cannot be written.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": dict(cluster)}],
        "users": [{"name": _NAME, "user": dict(user)}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(document, file, sort_keys=False)
