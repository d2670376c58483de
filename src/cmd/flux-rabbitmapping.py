#!/bin/false
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux rabbitmapping: write the rabbitmapping of a live cluster."""

from __future__ import annotations

import argparse
import json
import sys

from flux_k8s.command import CommandError, parser, prefer_own_packages, run
from flux_k8s.errors import ConfigError
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import SERVERS, STORAGE, SYSTEMCONFIGURATION, Request

NAME = "rabbitmapping"
DESCRIPTION = """
Write to standard output, as JSON, which compute nodes each Rabbit is connected
to, and how large it is: the file that rabbit.mapping names in Flux's
configuration. It is read from DWS's SystemConfiguration and Storages. A Rabbit's
capacity is what is free on it and what its Servers hold, so it does not matter
whether jobs have storage now; storage that is being made or deleted at this
moment may be left out. What an NnfSystemStorage holds is not for jobs: it is left out
of the capacity and told beside it.
"""


def arguments() -> argparse.Namespace:
    """What the command line says."""
    args = parser(NAME, DESCRIPTION)
    args.add_argument(
        "-k",
        "--kubeconfig",
        metavar="PATH",
        help="credentials for Kubernetes (default: KUBECONFIG, ~/.kube/config)",
    )
    args.add_argument(
        "-i",
        "--indent",
        type=int,
        metavar="N",
        help="spaces to indent by (default: all in one line)",
    )
    args.add_argument(
        "--system-storage",
        action="store_true",
        help="leave what NnfSystemStorages hold in the capacity",
    )
    args.add_argument(
        "--nosort",
        action="store_true",
        help="leave Rabbits and nodes in the order of the SystemConfiguration",
    )
    return args.parse_args()


def read(args: argparse.Namespace) -> RabbitMapping:
    """Ask the cluster."""
    prefer_own_packages()
    from flux_k8s.kube.client import blocking
    from flux_k8s.objects import topology

    try:
        with blocking(args.kubeconfig) as ask:
            configuration = ask(
                Request("get", SYSTEMCONFIGURATION, "default", "default")
            )
            before = ask(Request("list", SERVERS, None))["items"]
            storages = ask(Request("list", STORAGE, "default"))["items"]
            after = ask(Request("list", SERVERS, None))["items"]
            return topology.parse(
                configuration,
                storages,
                before,
                later=after,
                system_storage=args.system_storage,
                sort=not args.nosort,
            )
    except ConfigError as error:
        raise CommandError(f"--kubeconfig: {error.problem}") from None


def main() -> None:
    """Write the mapping."""
    args = arguments()
    if args.indent is not None and args.indent < 0:
        raise CommandError(f"--indent: {args.indent} is negative, expected 0 or more")
    print(json.dumps(read(args).to_json(), indent=args.indent))


if __name__ == "__main__":
    sys.exit(run(NAME, main))
