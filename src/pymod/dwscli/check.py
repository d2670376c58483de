# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws check``: what would become of a job's directives.

Wrong directives are refused in the words of a submission, by the same rules
(:mod:`flux_k8s.config.submission`). Nothing is submitted, and nothing is created in
Kubernetes: what the storage profile adds is not known.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from dwscli import table
from dwscli.ended import NODES_SHARE
from dwscli.fit import (
    UNKNOWN_JOB,
    Fit,
    Rabbit,
    empty_rabbits,
    fit,
    nodes_below,
    serving_rabbits,
    why_out,
)
from dwscli.instance import Instance, Nodes, all_rabbits
from dwscli.page import by_value, fact_lines, hosts_text
from dwscli.reading import number, objects, text
from dwscli.terminal import RED, add_color, screen, warn, write
from dwscli.units import duration, f58, size, timestamp
from flux_k8s.command import CommandError
from flux_k8s.config.submission import Site, check_submission
from flux_k8s.config.table import Config
from flux_k8s.errors import DirectiveError
from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import (
    GIB,
    PREFIX,
    Directive,
    parse_attribute,
)
from flux_k8s.limits import NODES
from flux_k8s.objects.workflowdirectives import CREATING
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.resources import (
    requested_chassis,
    requested_nodes,
)
from flux_k8s.rules.room import least_allocation, why_never
from flux_k8s.rules.underline import message
from flux_k8s.rules.unread import unread_line
from flux_k8s.text import printable, printable_lines, quoted

DESCRIPTION = """
Show what would become of a job's #DW directives. If the job would be refused, the word
that is wrong is underlined, and the exit status is 1, as it is for a job that would
never fit. Otherwise show the storage that the job's nodes get, the Rabbits that have
room for it and free nodes now, and when others will have, by the time limits of the
jobs that run. Neither jobs that wait nor what the storage profile adds are counted.
"""
NOTES = """
SCRIPT is a batch script, - for standard input: it is checked with its #flux: lines, as
flux batch would submit it.
"""
WITHOUT_STORAGE = "asks for no storage: it has no '#flux: --dw=...' line"
SHOWN_JOBS = 3
"""The most jobs that a line names."""


@dataclass(frozen=True)
class Wanted:
    """The requests of an acceptable job.

    Attributes:
        nodes: the number of nodes.
        share: the bytes for each node, where a scheduler gives them.
        own: those of them that each node has for itself.
        size: the bytes on all nodes together.
        chassis: the number of Rabbits among which the nodes are divided evenly, or 0.
    """

    directives: Sequence[Directive]
    nodes: int
    share: int
    own: int
    size: int
    chassis: int = 0

    @property
    def ssd(self) -> int:
        """GiB for each node."""
        return -(-self.share // GIB)


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws check`` takes."""
    args.description = DESCRIPTION
    args.epilog = NOTES
    add = args.add_argument
    add(
        "words",
        metavar="DIRECTIVE|SCRIPT",
        nargs="*",
        help="#DW directives, each in quotes, or a batch script",
    )
    add(
        "--preset",
        metavar="NAME",
        action="append",
        default=[],
        help="Add the directives of a preset of the site",
    )
    add(
        "-N",
        "--nodes",
        type=node_count,
        metavar="N",
        help="The nodes of the job (1, or what the script says)",
    )
    add("--json", action="store_true", help="Output in JSON")
    add_color(args)
    args.set_defaults(function=check)


def node_count(word: str) -> int:
    """The number of nodes that a word stands for.

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    if word.isascii() and word.isdecimal() and len(word) < 11:
        if 0 < int(word) <= NODES:
            return int(word)
    problem = f"{quoted(word)} is not a number from 1 to {NODES}"
    raise argparse.ArgumentTypeError(problem)


def check(args: argparse.Namespace, instance: Instance) -> int:
    """Check directives for an instance; the exit status."""
    site = instance.site()
    if site is None:
        raise CommandError("jobs get no storage here: Flux has no [rabbit] table")
    try:
        system, resources = request(args, instance)
        check_submission(system, resources, site, instance.userid)
        found = wanted(system["dw"], resources, site)
    except DirectiveError as error:
        columns = None if args.json else screen().width
        return refuse(args, message(error, columns), error)
    except ValueError as error:
        return refuse(args, printable_lines(str(error)), None)
    return accept(args, instance, found)


def request(args: argparse.Namespace, instance: Instance) -> tuple[Json, list[Any]]:
    """``attributes.system`` and ``resources`` of the job that the words stand for.

    Raises:
        CommandError: they stand for no job with storage.
        ValueError: ``flux batch`` refuses the script.
    """
    written = [word for word in args.words if word.lstrip().startswith("#")]
    scripts = [word for word in args.words if word not in written]
    if not scripts:
        if not written and not args.preset:
            raise CommandError(f"expected a {PREFIX} directive, a script or --preset")
        node = {"type": "node", "count": args.nodes or 1}
        return {"dw": [*args.preset, *written]}, [node]
    if written or args.preset or len(scripts) > 1:
        raise CommandError(f"{scripts[0]}: a script is checked alone")
    return script_request(scripts[0], args.nodes, instance)


def script_request(
    script: str, nodes: Optional[int], instance: Instance
) -> tuple[Json, list[Any]]:
    """The same of the job that ``flux batch`` makes of a script.

    Raises:
        CommandError: it has no storage, or is no file.
        ValueError: ``flux batch`` refuses the script.
    """
    try:
        jobspec = instance.batch_jobspec(script, nodes)
    except FileNotFoundError:
        if not script.strip():
            raise CommandError("'' is neither a #DW directive nor a script") from None
        raise CommandError(
            f"{script}: no such script; a preset is checked with --preset={script}"
        ) from None
    except OSError as error:
        raise CommandError(f"{script}: {error.strerror}") from None
    system = jobspec["attributes"]["system"]
    dw = system.get("dw")
    unread = unread_line(system["files"]["script"]["data"], dw)
    if dw is None:
        raise CommandError(f"{script}: {unread or WITHOUT_STORAGE}")
    if unread is not None:
        warn(f"{script}: {unread}")
    return system, jobspec["resources"]


def wanted(dw: Any, resources: list[Any], site: Site) -> Wanted:
    """The requests of a job that is acceptable."""
    directives = parse_attribute(dw, Config.parse(site.table).presets)
    nodes = max(requested_nodes(resources), 1)
    own = share = together = 0
    for directive in directives:
        if directive.command not in CREATING:
            continue
        if directive.arguments.get("type") in NODES_SHARE:
            together += directive.capacity
            share += -(-directive.capacity // nodes)
        else:
            own += directive.capacity
    chassis = requested_chassis(resources) or 0
    size = own * nodes + together
    return Wanted(directives, nodes, own + share, own, size, chassis)


def refuse(
    args: argparse.Namespace, words: str, error: Optional[DirectiveError]
) -> int:
    """Show why a job would be refused; the exit status."""
    if args.json:
        keys = ("line", "start", "end", "problem", "meant")
        place = {} if error is None else {key: getattr(error, key) for key in keys}
        write([json.dumps({"accepted": False, "refusal": words, **place})])
        return 1
    first, *rest = f"refused: {words}".split("\n")
    write([screen(args.color).paint(first, RED), *rest])
    return 1


def accept(args: argparse.Namespace, instance: Instance, found: Wanted) -> int:
    """Show what a job would get; the exit status."""
    answer = all_rabbits(instance)
    table.warn_of_age(answer)
    rows = objects(answer, "rabbits")
    nodes = instance.nodes()
    rabbits = serving_rabbits(rows, instance.running_jobs(), nodes)
    never, waits = why_not(found, answer, nodes), ""
    if never and text(answer, "disagreement"):
        never, waits = "", text(answer, "disagreement")
    elif found.share and not never:
        waits = text(answer, "why_none")
    hosts = [host for rabbit in rabbits for host in rabbit.hosts]
    constraint = hostlist.encode(sorted(hosts, key=hostlist.natural_key))
    free = sum(rabbit.hosts_at(-math.inf) for rabbit in rabbits)
    place = None
    if found.share:
        place = fit(rabbits, found.nodes, found.share, found.chassis)
        if waits:
            place = replace(place, fits=False, now={}, later={}, at=None)
    if args.json:
        below = nodes_below(rows, nodes)
        described = to_json(found, constraint, free, place, below)
        known = {"accepted": not never, "never": never or None}
        write([json.dumps({**described, **known})])
        return int(bool(never))
    now = number(answer, "now") or 0.0
    out = list(out_lines(rows))
    fits: Iterable[tuple[str, str]] = ()
    if waits:
        fits = [("Fits now", f"no: {printable(waits)}")]
    elif place is not None and not never:
        fits = fit_facts(place, answer, now, bool(out))
    facts = [
        ("Never", never),
        ("Accepted", "" if never else _count(len(found.directives), "directive")),
        ("Nodes", nodes_line(found.nodes, constraint, free)),
        ("Storage", storage_line(found, sorted({rabbit.size for rabbit in rabbits}))),
        *fits,
        *(("Avoids", line) for line in (*out, *down_lines(rabbits))),
    ]
    write(fact_lines(facts, screen(args.color), {"Never": RED}))
    return int(bool(never))


def why_not(found: Wanted, answer: Json, nodes: Nodes) -> str:
    """Why a job would never fit, whichever jobs end; empty if it may."""
    rows = objects(answer, "rabbits")
    gives_ssd = answer.get("gives_ssd") is not False
    share = found.share if gives_ssd else found.own
    if share:
        rabbits = empty_rabbits(rows, nodes, gives_ssd)
        least = least_allocation(share)
        problem = why_never(found.nodes, least, rabbits, found.chassis)
        if problem:
            return problem
    known = nodes.all - {text(row, "name") for row in rows}
    if found.nodes > len(known):
        return f"the job asks for {found.nodes} nodes, and Flux has {len(known)}"
    return ""


def to_json(
    found: Wanted, constraint: str, free: int, place: Optional[Fit], below: int
) -> Json:
    """The storage that a job would get, in JSON."""
    return {
        "directives": [directive.text for directive in found.directives],
        "nodes": found.nodes,
        "ssd": found.ssd,
        "size": found.size,
        "constraint": {"hostlist": [constraint]},
        "free_nodes": free,
        "fits_now": None if place is None else dict(place.now),
        "fits_by": None if place is None else place.at,
        "most_nodes": below if place is None else min(place.most, below),
    }


def nodes_line(nodes: int, constraint: str, free: int) -> str:
    """The nodes that a job may get, and how many of them are free."""
    if not constraint:
        return f"{nodes} of none: no Rabbit serves jobs"
    return f"{nodes} of {constraint}, {free} of which are free now"


def storage_line(found: Wanted, sizes: Sequence[int]) -> str:
    """The storage that the job's nodes get.

    Args:
        sizes: the GiB of an ``ssd``, ascending, of Rabbits that differ; empty if no
            Rabbit serves jobs.
    """
    kinds = [
        directive.arguments.get("type", "storage")
        for directive in found.directives
        if directive.command in CREATING
    ]
    used = [
        f"persistent {directive.arguments.get('name', 'storage')}"
        for directive in found.directives
        if directive.command == "persistentdw"
    ]
    words = []
    if found.ssd:
        each = f"{found.ssd} GiB for each node"
        if sizes:
            whole = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
            each += f", in whole ssd of {whole} GiB"
        words.append(f"{size(found.size)} {', '.join(dict.fromkeys(kinds))}, {each}")
    return "; ".join([*words, *used]) or (
        "as much as the storage profile says" if kinds else "none"
    )


def fit_facts(
    place: Fit, answer: Json, now: float, others: bool
) -> Iterator[tuple[str, str]]:
    """Which Rabbits have room now, and when others will have.

    Args:
        others: whether there are Rabbits that serve no jobs.
    """
    yield "Fits now", now_line(place)
    if place.fits:
        return
    if place.at is not None:
        left = duration(max(0.0, place.at - now))
        when = f"{timestamp(place.at)} (in {left})"
        yield "Fits by", f"{when}: {_rooms(place.later)}"
        yield "Waits for", f"the time limit of {_jobs(place.waits_for)}"
    elif not place.possible:
        rows = objects(answer, "rabbits")
        withheld = not others and any(number(row, "ssds_withheld") for row in rows)
        causes = {
            "others are back": others,
            "all nodes are connected": any(text(row, "broken") for row in rows),
            "nodes are Enabled in SystemStatus": any(
                text(row, "disabled_nodes") for row in rows
            ),
            "storage that no job has is gone": withheld,
        }
        found = [cause for cause, is_one in causes.items() if is_one]
        when = " or ".join(found) or "all nodes are connected"
        count = _count(place.most, "node")
        yield (
            "Fits by",
            f"not before {when}, the Rabbits that serve jobs have room for {count}",
        )
    else:
        yield "Fits by", "not known"
        if place.endless:
            jobs = _jobs(place.endless)
            yield "Waits for", f"{jobs}: without a time limit that runs"


def now_line(place: Fit) -> str:
    """Whether a job's storage fits now, and where."""
    if place.fits:
        return f"yes: {_rooms(place.now)}"
    return f"no: {_rooms(place.now)}" if place.now else "no"


def _rooms(room: Mapping[str, int]) -> str:
    """For how many nodes Rabbits have room, those with the same number together."""
    groups = sorted(by_value(room), key=lambda group: -group[0])
    return ", ".join(f"{_count(count, 'node')} on {on}" for count, on in groups)


def _jobs(ids: Sequence[int]) -> str:
    names = [f58(id) for id in ids if id != UNKNOWN_JOB]
    more = len(ids) - min(len(names), SHOWN_JOBS)
    shown = names[:SHOWN_JOBS]
    if more:
        shown.append(f"{more} more" if shown else _count(more, "job"))
    return ", ".join(shown)


def down_lines(rabbits: Sequence[Rabbit]) -> Iterator[str]:
    """The nodes that no job gets, below Rabbits that serve jobs."""
    down = [host for rabbit in rabbits for host in rabbit.down]
    if down:
        down.sort(key=hostlist.natural_key)
        yield f"{hosts_text(down)}: down, drained or unknown to Flux"


def _count(count: int, word: str) -> str:
    return f"{count} {word}" + ("s" if count != 1 else "")


def out_lines(rows: Sequence[Json]) -> Iterator[str]:
    """The Rabbits that serve no jobs, those with the same reason together."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        reason = why_out(row)
        if reason is not None:
            groups.setdefault(reason, []).append(text(row, "name"))
    for reason, names in groups.items():
        ordered = sorted(names, key=hostlist.natural_key)
        yield f"{hosts_text(ordered)}: {reason}"
