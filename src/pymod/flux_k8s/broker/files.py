# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The files that the ``[rabbit]`` table names, and the program."""

from __future__ import annotations

import json
import os
import stat

from flux_k8s.config.table import Config
from flux_k8s.errors import ConfigError
from flux_k8s.objects import mapping
from flux_k8s.objects.mapping import RabbitMapping


def load_mapping(config: Config) -> RabbitMapping:
    """Read the file that ``rabbit.mapping`` names.

    Raises:
        ConfigError: the key is not set, or the file cannot be read.
        BadObject: the file is no rabbitmapping.
    """
    path = config.mapping
    if path is None:
        raise ConfigError("rabbit.mapping", "is not set: expected the path of a file")
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read()
        if not content.strip():
            raise ConfigError(
                "rabbit.mapping",
                f"{path}: is empty, expected what flux rabbitmapping writes",
            )
        return mapping.parse(json.loads(content), name=path)
    except OSError as error:
        raise ConfigError("rabbit.mapping", f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError("rabbit.mapping", f"{path}: is not JSON: {error}") from None


def check_files(config: Config) -> None:
    """Check the files with which the next service would start. Of the kubeconfig only
    the existence is checked: the service reads it.

    Raises:
        DWSError: a file is missing or invalid.
    """
    load_mapping(config)
    path = config.kubeconfig
    if path is not None:
        try:
            with open(os.path.expanduser(path), "rb"):
                pass
        except OSError as error:
            text = f"{path}: {error.strerror}"
            raise ConfigError("rabbit.kubeconfig", text) from None


def check_program(config: Config) -> None:
    """Check ``rabbit.fence_command``, which is run only when a node has failed.

    Raises:
        ConfigError: it cannot be run.
    """
    if not config.fence_command:
        return
    key, path = "rabbit.fence_command[0]", config.fence_command[0]
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise ConfigError(key, f"{path}: {error.strerror}") from None
    if not (regular and os.access(path, os.X_OK)):
        raise ConfigError(key, f"{path}: is no program that may be executed")
