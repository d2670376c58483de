#!/bin/false
# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws2jgf: give R a resource graph with Rabbits in it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any, Collection, Iterable

from flux_k8s.command import (
    STDIN,
    CommandError,
    load_json,
    load_mapping,
    parser,
    run,
    write_message,
)
from flux_k8s.formats import hostlist, idset, rset
from flux_k8s.json_reader import Reader
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.rules import jgfextend, jgfwriter

NAME = "dws2jgf"
DESCRIPTION = """
Read R (RFC 20) from standard input, and write it with a resource graph for
Fluxion in which the nodes of a Rabbit and its storage are below one chassis. A graph
that R has already is extended: its vertices, edges and properties stay. Name
the result with resource.path in Flux's configuration, or write the graph only
(--only-sched) and name it with resource.scheduling. Ranks in R must be those of the
brokers; Flux does not change ranks in a graph.
"""


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    args = parser(NAME, DESCRIPTION)
    args.add_argument("mapping", metavar="MAPPING", help="a rabbitmapping file")
    args.add_argument(
        "-c",
        "--chunks-per-nnf",
        type=int,
        metavar="N",
        default=jgfwriter.DEFAULT_CHUNKS,
        help="""cut each Rabbit's storage into N equal ssd vertices (default:
            %(default)s). A job gets an ssd vertex as a whole, so what it asks for on
            a node is rounded up to a multiple of the capacity divided by N, and not
            more than N nodes of a Rabbit can have storage at once.""",
    )
    args.add_argument(
        "--cluster-name",
        metavar="NAME",
        help=f"""what the root of the graph is called (default:
            {jgfwriter.DEFAULT_CLUSTER}, or as in R's own graph)""",
    )
    args.add_argument(
        "--from-config",
        metavar="FILE",
        help="""make R from resource.config in this TOML file of Flux's configuration,
            instead of standard input. Hosts that resource.exclude names are left out
            of the graph. With bootstrap.hosts in it, ranks are as there.""",
    )
    args.add_argument(
        "--only-sched",
        action="store_true",
        help="write only the value of R's key scheduling",
    )
    args.add_argument(
        "--no-validate",
        action="store_true",
        help="""accept a mapping with nodes that are not in R, and leave them out; do
            not warn of nodes in R that have no Rabbit""",
    )
    return args.parse_args()


def load_toml(path: str) -> Any:
    """The tables of a TOML file."""
    with open(path, "rb") as file:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            from flux.utils import tomli as tomllib
        try:
            return tomllib.load(file)
        except ValueError as error:
            raise CommandError(f"{path}: is not TOML: {error}") from None


def load_config(path: str) -> tuple[rset.ResourceSet, frozenset[str]]:
    """The resources in a file of Flux's configuration, which Flux reads, and the hosts
    that ``resource.exclude`` names."""
    reader = Reader(path, load_toml(path))
    done = subprocess.run(
        ["flux", "R", "parse-config", path], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise CommandError(f"{path}: {done.stderr.strip()}")
    R = _ranked(rset.parse(json.loads(done.stdout), path), reader)
    return R, frozenset(_excluded(R, reader))


def _ranked(R: rset.ResourceSet, reader: Reader) -> rset.ResourceSet:
    """R with the ranks that ``bootstrap.hosts`` gives to hosts, where there is one."""
    if not reader.has("bootstrap.hosts"):
        return R
    entries = reader.objects("bootstrap.hosts")
    brokers = [host for entry in entries for host in hostlist.read(entry, "host")]
    number_of = {host: n for n, host in enumerate(dict.fromkeys(brokers))}
    for host in R.hosts:
        if host not in number_of:
            expected = f"all hosts of resource.config; {host} is not there"
            raise reader.bad("bootstrap.hosts", expected)
    rank_of = {target.rank: number_of[target.host] for target in R.targets}
    targets = [replace(target, rank=rank_of[target.rank]) for target in R.targets]
    return replace(
        R,
        targets=tuple(sorted(targets, key=lambda target: target.rank)),
        properties={
            name: tuple(sorted(rank_of[rank] for rank in ranks))
            for name, ranks in R.properties.items()
        },
    )


def _excluded(R: rset.ResourceSet, reader: Reader) -> Collection[str]:
    """The hosts of ``resource.exclude``: ranks, or else names of hosts."""
    text = reader.optional_string("resource.exclude")
    if text is None:
        return ()
    host_of = dict(zip(R.ranks, R.hosts))
    try:
        names = tuple(host_of.get(n, f"rank {n}") for n in idset.decode(text))
    except ValueError:
        names = hostlist.read(reader, "resource.exclude")
    for host in names:
        if host not in host_of.values():
            expected = f"hosts or ranks of resource.config; not {host}"
            raise reader.bad("resource.exclude", expected)
    return names


def validate(R: rset.ResourceSet, mapping: RabbitMapping) -> None:
    """Refuse nodes of the mapping that R lacks; warn of those without a Rabbit."""
    found = jgfwriter.compare(R, mapping)
    if found.missing:
        raise CommandError(
            f"not in R, but in the mapping: {hostlist.encode(found.missing)}"
            " (--no-validate leaves them out)"
        )
    if found.apart:
        hosts = hostlist.encode(found.apart)
        write_message(
            NAME, "WARNING", f"without a Rabbit, outside of all chassis: {hosts}"
        )


def graph(
    args: argparse.Namespace,
    R: rset.ResourceSet,
    excluded: Collection[str],
    mapping: RabbitMapping,
) -> Iterable[str]:
    """The text of the scheduling key, in pieces."""
    chunks, cluster = args.chunks_per_nnf, args.cluster_name
    if jgfextend.has_graph(R):
        return (json.dumps(jgfextend.extend(R, mapping, chunks, cluster)),)
    return jgfwriter.scheduling(
        R,
        mapping,
        cluster=jgfwriter.DEFAULT_CLUSTER if cluster is None else cluster,
        chunks=chunks,
        excluded=excluded,
    )


def main() -> None:
    """Write R, or its scheduling key."""
    args = arguments()
    mapping = load_mapping(args.mapping)
    R, excluded = (
        (rset.parse(load_json(STDIN), "R on standard input"), ())
        if args.from_config is None
        else load_config(args.from_config)
    )
    if not args.no_validate:
        validate(R, mapping)
    text = graph(args, R, excluded, mapping)
    crowded = jgfwriter.crowded(mapping, args.chunks_per_nnf)
    if crowded:
        write_message(
            NAME,
            "WARNING",
            f"more nodes than chunks, so not all can have storage at once:"
            f" {hostlist.encode(crowded)}",
        )
    if not args.only_sched:
        text = jgfwriter.document(R, text)
    for piece in text:
        sys.stdout.write(piece)
    sys.stdout.write("\n")


if __name__ == "__main__":
    sys.exit(run(NAME, main))
