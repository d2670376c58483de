# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``plan``: what flux-dws would make of directives, or of recorded breakdowns.

The breakdowns of directives are those of the stand-in's storage profiles. From
there on, the code that ships decides.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Sequence

import yaml

from flux_k8s.errors import DWSError, show
from flux_k8s.formats import hostlist, idset, rset
from flux_k8s.formats.constraints import conjunction, exclude_properties, only_hosts
from flux_k8s.formats.directives import GIB, parse_attribute
from flux_k8s.json_reader import Reader
from flux_k8s.machine.wanted import BAD_RABBIT
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import (
    Allocation,
    colocation_annotations,
    job_allocation,
)
from flux_k8s.rules.directivebreakdown.breakdown import Breakdown, Reference, parse
from flux_k8s.rules.directivebreakdown.compute import (
    check_locations,
    existing_servers,
    near_hosts,
    required_daemons,
)
from flux_k8s.rules.directivebreakdown.resources import apply_breakdowns, gib_per_node
from flux_k8s.rules.directivebreakdown.servers import build_servers
from rabbitsim.cli.errors import UsageError
from rabbitsim.cli.planview import print_plan
from rabbitsim.dws.breakdown import (
    Profiles,
    UserError,
    persistentdw_status,
    storage_status,
)
from rabbitsim.dws.directive import Directive, InvalidDirective, Rules
from rabbitsim.dws.directive import parse as parse_directive
from rabbitsim.dws.objects import reference

KINDS = ("DirectiveBreakdown", "Servers")


@dataclass(frozen=True)
class Plan:
    """Everything that is decided for one job.

    Attributes:
        hosts: the nodes that the job is taken to have.
        objects: the DirectiveBreakdowns as DWS made them.
        breakdowns: the same, as they were read.
        resources: the jobspec's ``resources``, with storage.
        servers: the patch for the Servers of each breakdown with storage.
        constraint: what is and-ed with the user's constraint (RFC 31).
        requires: the daemons that the job needs.
        notes: what else there is to say.
    """

    hosts: tuple[str, ...]
    allocation: Allocation
    objects: tuple[Json, ...]
    breakdowns: tuple[Breakdown, ...]
    resources: list[Json]
    servers: list[Json]
    constraint: Json
    requires: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> Json:
        return {
            "nodes": hostlist.encode(self.hosts),
            "breakdowns": list(self.objects),
            "resources": self.resources,
            "servers": self.servers,
            "constraint": self.constraint,
            "requires": list(self.requires),
            "notes": list(self.notes),
        }


@dataclass
class PlanInput:
    """The objects in Kubernetes according to the command line, and notes
    about them."""

    breakdowns: list[Json] = field(default_factory=list)
    servers: dict[Reference, Json] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, obj: Any, path: str) -> None:
        """Take in one object of a file."""
        reader = Reader(path, obj)
        if reader.value.get("kind") == "List":
            for item in reader.list("items"):
                self.add(item, path)
            return
        kind = reader.string("kind", KINDS)
        if kind == "DirectiveBreakdown":
            self.breakdowns.append(reader.value)
            return
        found = Reference(
            reader.optional_string("metadata.namespace") or "default",
            reader.string("metadata.name"),
        )
        if kind == "Servers":
            self.servers[found] = reader.value


def plan_command(args: argparse.Namespace) -> int:
    """Print a plan; an exit status.

    Raises:
        UsageError: what is asked for is malformed, or cannot be satisfied.
    """
    try:
        mapping = rabbitmapping.parse(_read_json(args.mapping), name=args.mapping)
        plan_input = PlanInput()
        for path in args.breakdown:
            for obj in _read_objects(path):
                plan_input.add(obj, path)
        directives = parse_attribute(args.directives) if args.directives else ()
        if not directives and not plan_input.breakdowns:
            raise UsageError("give a #DW directive, or --breakdown FILE")
        texts = [directive.text for directive in directives]
        _break_down(_parse(texts, plan_input), plan_input)
        plan = make_plan(mapping, _nodes(args.nodes), plan_input)
    except DWSError as error:
        raise UsageError(str(error)) from None
    if args.json:
        print(json.dumps(plan.to_json(), indent=2))
    else:
        print_plan(plan)
    return 0


def make_plan(
    mapping: RabbitMapping, hosts: tuple[str, ...], plan_input: PlanInput
) -> Plan:
    """The plan for a job that gets the nodes ``hosts``.

    Raises:
        DWSError: it cannot be satisfied, or an object is malformed.
        UsageError: Servers that it depends on are not given.
    """
    breakdowns = tuple(parse(obj) for obj in plan_input.breakdowns)
    for needed in existing_servers(breakdowns):
        if needed not in plan_input.servers:
            raise UsageError(
                f"which nodes are near Servers {needed} depends on where that is: "
                "give the object with --breakdown FILE, too"
            )
    resources = apply_breakdowns(breakdowns, _request(len(hosts)))
    near = near_hosts(breakdowns, plan_input.servers, mapping, len(hosts))
    allocation = _allocation(mapping, hosts, breakdowns)
    with_storage = [b for b in breakdowns if b.servers is not None]
    specs = build_servers(with_storage, allocation) if with_storage else []
    servers = [_patch(*pair) for pair in zip(with_storage, specs)]
    made = {b.servers: patch for b, patch in zip(with_storage, servers) if b.servers}
    unmet = check_locations(breakdowns, {**plan_input.servers, **made}, hosts, mapping)
    required = [name for breakdown in breakdowns for name in breakdown.requires]
    return Plan(
        hosts=hosts,
        allocation=allocation,
        objects=tuple(plan_input.breakdowns),
        breakdowns=breakdowns,
        resources=resources,
        servers=servers,
        constraint=conjunction(
            exclude_properties([BAD_RABBIT]), None if near is None else only_hosts(near)
        ),
        requires=required_daemons(breakdowns, required),
        notes=(*plan_input.notes, *unmet, *_too_much(allocation, mapping)),
    )


def _nodes(text: str) -> tuple[str, ...]:
    try:
        hosts = tuple(dict.fromkeys(hostlist.decode(text)))
    except ValueError as error:
        raise UsageError(f"--nodes {text}: not an RFC 29 hostlist: {error}") from None
    if not hosts:
        raise UsageError("--nodes: expected at least one node")
    return hosts


def _request(nodes: int) -> list[Json]:
    """The resources of ``flux submit -N NODES``."""
    slot = {
        "type": "slot",
        "count": 1,
        "label": "task",
        "with": [{"type": "core", "count": 1}],
    }
    return [{"type": "node", "count": nodes, "exclusive": True, "with": [slot]}]


def _allocation(
    mapping: RabbitMapping, hosts: Sequence[str], breakdowns: Sequence[Breakdown]
) -> Allocation:
    """What the job holds: the storage that its request asks for, all of it
    where its nodes are. All Rabbits are taken to be fit and empty, and to carry
    all labels that are asked for."""
    labels = {
        key: value
        for breakdown in breakdowns
        for entry in breakdown.allocation_sets
        for key, _, value in (label.partition("=") for label in entry.labels)
    }
    ranks = range(len(hosts))
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": idset.encode(ranks), "children": {"core": "0"}}],
            "nodelist": [hostlist.encode(hosts)],
        },
    }
    allocation = job_allocation(rset.parse(R), mapping)
    storages = dict.fromkeys(mapping.rabbits, labels)
    ssd = gib_per_node(breakdowns, len(hosts))
    held = {rabbit: ssd * n for rabbit, n in allocation.nodes_per_rabbit.items()}
    return replace(allocation, gib_per_rabbit=held, storages=storages)


def _patch(breakdown: Breakdown, sets: list[Json]) -> Json:
    assert breakdown.servers is not None
    metadata: Json = {
        "namespace": breakdown.servers.namespace,
        "name": breakdown.servers.name,
    }
    annotations = colocation_annotations(breakdown)
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"allocationSets": sets}}


def _too_much(allocation: Allocation, mapping: RabbitMapping) -> Iterable[str]:
    """Sentences about Rabbits that are too small for what the job asks for."""
    short = Counter(
        {
            rabbit: ssd
            for rabbit, ssd in allocation.gib_per_rabbit.items()
            if ssd is not None and ssd * GIB > mapping.capacity(rabbit)
        }
    )
    if short:
        rabbit, ssd = short.most_common(1)[0]
        has = mapping.capacity(rabbit) // GIB
        yield (
            f"the scheduler would not find these nodes: {rabbit} has {has} ssd,"
            f" and the job asks for {ssd} there"
        )


def _break_down(directives: Sequence[Directive], plan_input: PlanInput) -> None:
    """Add the breakdowns of directives, as the stand-in makes them."""
    profiles = Profiles.default()
    for index, directive in enumerate(directives):
        status = _status(directive, f"plan-{index}", profiles, plan_input)
        if status is not None:
            plan_input.breakdowns.append(
                {
                    "kind": "DirectiveBreakdown",
                    "metadata": {"namespace": "default", "name": f"plan-{index}"},
                    "spec": {"directive": directive.text, "userID": 0},
                    "status": status,
                }
            )


def _parse(texts: Sequence[str], plan_input: PlanInput) -> list[Directive]:
    """The directives, as DWS would read them.

    NNF's rules ask for names of two characters or more. That is no reason not
    to plan, but worth a note.
    """
    directives = [parse_directive(text) for text in texts]
    refusal = _refusal(texts)
    if refusal is not None:
        longer = [
            text.replace(f"name={d.name}", f"name={d.name}-{index}")
            for index, (text, d) in enumerate(zip(texts, directives))
        ]
        if _refusal(longer) is not None:
            raise UsageError(f"DWS refuses: {refusal}")
        plan_input.notes.append(f"DWS will refuse this: {refusal}")
    return directives


def _refusal(texts: Sequence[str]) -> Optional[str]:
    try:
        Rules.default().validate(texts)
    except InvalidDirective as error:
        return str(error)
    return None


def _status(
    directive: Directive, name: str, profiles: Profiles, plan_input: PlanInput
) -> Optional[Json]:
    """A breakdown's status; None for a directive that has no breakdown."""
    if directive.command == "persistentdw":
        servers = plan_input.servers.get(Reference("default", directive.name))
        if servers is None:
            raise UsageError(
                f"{directive.text}: what it needs depends on where that storage is: "
                f"give the Servers default/{directive.name} with --breakdown FILE"
            )
        sets = Reader(f"Servers {directive.name}", servers).list("spec.allocationSets")
        existing = reference("Servers", directive.name, "default")
        return persistentdw_status(directive, existing, len(sets))
    if directive.command not in ("jobdw", "create_persistent"):
        return None
    lifetime = "job" if directive.command == "jobdw" else "persistent"
    named = name if lifetime == "job" else directive.name
    try:
        return storage_status(
            directive, profiles, reference("Servers", named, "default"), lifetime
        )
    except UserError as error:
        raise UsageError(f"{directive.text}: {error.message}") from None


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8") from None


def _read_json(path: str) -> Any:
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not JSON: {error}") from None


def _read_objects(path: str) -> list[Mapping[str, Any]]:
    """The objects of a file: YAML documents, or one JSON object or array."""
    text = _read(path)
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        try:
            documents = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise UsageError(f"{path}: is neither JSON nor YAML: {reason}") from None
    objects = [
        item
        for document in documents
        if document is not None
        for item in (document if isinstance(document, list) else [document])
    ]
    for item in objects:
        if not isinstance(item, dict):
            raise UsageError(f"{path}: has {show(item)}, expected an object")
    return objects
