# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The page of ``flux dws show``: an answer of ``dws.job-show`` as lines of text.

No line is wider than the screen, and no text of a user or of Kubernetes is more than
its printable characters.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Hashable, Iterable, Iterator, Mapping, TypeVar

from dwscli.ended import ENDED
from dwscli.reading import Fields, id_of, number, objects, part, text, texts
from dwscli.terminal import RED, YELLOW, Screen
from dwscli.units import duration, f58, size, timestamp, user_of
from dwscli.width import bar, cut, gauge, padded, wrapped
from flux_k8s.formats import hostlist
from flux_k8s.objects.workflowstate import ERROR, TRANSIENT
from flux_k8s.text import NOTE, columns, printable

Value = TypeVar("Value", bound=Hashable)

LABEL = 12
"""Columns of the labels at the beginning of lines."""

AWAITED = {
    ("Proposal", True): "nodes",
    ("PreRun", False): "mounts",
    ("PreRun", True): "end of the job",
    ("PostRun", False): "unmounts",
}
"""What storage waits for in a state, and once it is ready."""

CANCELS = {
    "freed": "the storage is freed, and no copy is lost",
    "copied": "the data is copied out when the tasks have ended",
    "lost": "the storage is freed at once, and what is not copied out is lost",
    "nothing": "it changes nothing",
}
"""What a cancel would do now (``flux_k8s.jobs.jobrows``)."""

EXCEPTIONS = 16
"""The most exceptions of a page: the user of a job can raise any number of them."""

INDENT = "  "
COLORS = {ERROR: RED, TRANSIENT: YELLOW}


def page(answer: Fields, screen: Screen) -> list[str]:
    """The lines about a job."""
    now = number(answer, "now") or 0.0
    answer = _said_once(answer)
    sections = (
        _summary(answer, now, screen),
        _listing("Directives:", map(_shown, texts(answer, "directives")), screen),
        _listing("Allocations:", allocations(answer), screen),
        _states(answer, now, screen),
        _movements(answer, screen),
        _listing("Exceptions:", _exceptions(answer), screen),
    )
    lines: list[str] = []
    for section in sections:
        found = list(section)
        if found and lines:
            lines.append("")
        lines += found
    return lines


def _said_once(answer: Fields) -> Fields:
    """An answer without the exception that the line about the failure has already."""
    failed = text(answer, "failed")
    kept = [
        each
        for each in texts(answer, "exceptions")
        if not failed or not each.endswith(f": {failed}")
    ]
    return {**answer, "exceptions": kept}


def _shown(value: str) -> str:
    return printable(value, NOTE)


# The summary: what is known in one line each


def _summary(answer: Fields, now: float, screen: Screen) -> Iterator[str]:
    color = RED if text(answer, "failed") else COLORS.get(text(answer, "status"), "")
    colors = {"State": color, "Failed": color}
    return fact_lines(_facts(answer, now), screen, colors)


def fact_lines(
    facts: Iterable[tuple[str, str]],
    screen: Screen,
    colors: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """A line, or several, for each label with a value. Those whose value is empty are
    left out.

    Args:
        colors: those of some labels' lines.
    """
    for label, value in facts:
        if not value:
            continue
        lines = wrapped(_shown(value), max(8, screen.width - LABEL))
        for index, line in enumerate(lines):
            head = padded(f"{label}:" if index == 0 else "", LABEL)
            line = cut(head + line, screen.width)
            yield screen.paint(line, colors.get(label, ""))


def _facts(answer: Fields, now: float) -> Iterator[tuple[str, str]]:
    user = user_of(number(answer, "userid")) or "nobody known"
    yield "Job", f"{f58(id_of(answer))} of {user}"
    yield "State", state_line(answer, now)
    yield "Flux" if lacks_jobs(answer) else "Kubernetes", old_line(answer)
    yield "Waits for", text(answer, "waits") or _ready_for(answer)
    yield "Cancel", CANCELS.get(text(answer, "cancel"), "")
    yield "Failed", text(answer, "failed")
    yield "Message", text(answer, "message")
    nnodes = number(answer, "nnodes")
    nodes = text(answer, "nodes")
    yield "Nodes", f"{nnodes:.0f}{f': {nodes}' if nodes else ''}" if nnodes else ""
    yield "Rabbits", text(answer, "rabbits")
    capacity = number(answer, "capacity")
    kinds = ", ".join(texts(answer, "types"))
    yield "Storage", f"{size(capacity) if capacity else ''} {kinds}".strip()
    yield "Mounts", mounts_line(part(answer, "mounts"))
    yield "Data", data_line(answer)
    for limit in objects(answer, "limits"):
        yield "Limit", limit_line(limit, now)


def _ready_for(answer: Fields) -> str:
    """What storage waits for that is ready; mounts have a line of their own."""
    if answer.get("ready") is not True:
        return ""
    return AWAITED.get((text(answer, "state"), True), "")


def lacks_jobs(answer: Fields) -> bool:
    """Whether Kubernetes answers, but Flux has not told the module all jobs yet."""
    return answer.get("incomplete") is True


def old_line(answer: Fields) -> str:
    """Why an answer may be old, and how old, or lack jobs; empty if it is complete."""
    reason = text(answer, "kubernetes")
    if reason in ("", "ok"):
        return ""
    if lacks_jobs(answer):
        return f"what follows may lack jobs: {reason}"
    was = heard_of(answer)
    follows = "is without it" if number(answer, "age") is None else "may be old"
    return f"{was}, what follows {follows}: {reason}"


def heard_of(answer: Fields) -> str:
    """How long ago Kubernetes was heard of."""
    age = number(answer, "age")
    if age is None:
        return "never reached since the dws service was started"
    return f"last heard of {duration(age)} ago"


def old_sentence(answer: Fields) -> str:
    """The same as a sentence."""
    line = old_line(answer)
    return f"Kubernetes was {line}" if line and not lacks_jobs(answer) else line


def state_line(answer: Fields, now: float) -> str:
    """The state of the storage, with its status, and since when."""
    state, status = text(answer, "state"), text(answer, "status")
    since, result = number(answer, "since"), text(answer, "result")
    if state == ENDED:
        when = f" at {timestamp(since)}" if since else ""
        return f"{state}{when}{f', {result}' if result else ''}"
    line = state
    if since is not None:
        line += f" for {duration(max(0.0, now - since))}"
    if answer.get("ready") is True:
        return f"{line}, complete"
    return f"{line}, {status}" if status else line


def mounts_line(mounts: Fields) -> str:
    """How many nodes have mounted the storage, or have unmounted it, and which of them
    are waited for."""
    wanted, mounted = number(mounts, "wanted"), number(mounts, "mounted")
    unmounted = number(mounts, "unmounted")
    if wanted is None or mounted is None:
        return ""
    waiting = text(mounts, "waiting")
    rest = f", waiting for: {waiting}" if waiting else ""
    if unmounted is not None:
        return f"{unmounted:.0f}/{wanted:.0f} unmounted{rest}"
    return f"{mounted:.0f}/{wanted:.0f} mounted{rest}"


def data_line(answer: Fields) -> str:
    """How much of the data was moved."""
    moved, total = number(answer, "moved"), number(answer, "total")
    percent = number(answer, "percent")
    words = []
    if moved is not None:
        words.append(size(moved))
    if total is not None:
        words.append(f"of {size(total)}")
    if percent is not None:
        words.append(f"({percent:.0f}%)" if words else f"{percent:.0f}%")
    return " ".join(words)


def limit_line(limit: Fields, now: float) -> str:
    """A time limit, when it is over, and since when no data has moved, if it is about
    that."""
    at = number(limit, "at")
    name = text(limit, "name")
    if at is None:
        return name
    left = at - now
    when = f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"
    line = f"{name} {when}, at {timestamp(at)}"
    since = number(limit, "unmoved_since")
    if since is None:
        return line
    return f"{line}; no data moved for {duration(max(0.0, now - since))}"


# Sections


def _listing(heading: str, items: Iterable[str], screen: Screen) -> Iterator[str]:
    """A heading, and each item on a line of its own, or on several."""
    for index, item in enumerate(items):
        if index == 0:
            yield heading
        lines = wrapped(item, screen.width - len(INDENT), INDENT * 2)
        yield from (INDENT + line for line in lines)


def allocations(answer: Fields) -> Iterator[str]:
    """The storage of each directive on each Rabbit."""
    for found in objects(answer, "allocations"):
        label, kind = text(found, "label"), text(found, "type")
        name = f"{label} ({kind})" if kind and kind != label else label
        each = number(found, "size")
        amount = "" if each is None else f" {size(each)} each:"
        yield _shown(f"{name}:{amount} {_counts(part(found, 'rabbits'))}".rstrip(" :"))


def _counts(rabbits: Mapping[str, object]) -> str:
    """The number of allocations on each Rabbit, Rabbits with the same together."""
    found = {name: number(rabbits, name) for name in rabbits}
    counts = {name: count for name, count in found.items() if count is not None}
    return ", ".join(f"{count:.0f} on {on}" for count, on in by_value(counts))


def by_value(values: Mapping[str, Value]) -> Iterator[tuple[Value, str]]:
    """Each value, and the hosts that have it: ``tuo201``, ``each of tuo[202-203]``."""
    groups: dict[Value, list[str]] = {}
    for name in sorted(values, key=hostlist.natural_key):
        groups.setdefault(values[name], []).append(name)
    for value, names in groups.items():
        yield value, f"{'each of ' if len(names) > 1 else ''}{hosts_text(names)}"


def hosts_text(names: list[str]) -> str:
    """Names as a hostlist; with commas where one cannot be in a hostlist."""
    try:
        return hostlist.encode(names)
    except ValueError:
        return ",".join(names)


def _states(answer: Fields, now: float, screen: Screen) -> Iterator[str]:
    """A bar for each state. The last one, if it lasts, has a mark before it."""
    rows = []
    states = objects(answer, "states")
    for state in states:
        begun, seconds = number(state, "begun"), number(state, "seconds")
        lasts = seconds is None and state is states[-1]
        if lasts and begun is not None:
            seconds = max(0.0, now - begun)
        rows.append((lasts, _shown(text(state, "state")), seconds))
    if not rows:
        return
    yield "States:"
    longest = max((seconds or 0.0 for _, _, seconds in rows), default=0.0)
    widest = min(20, max(columns(name) for _, name, _ in rows))
    for lasts, name, seconds in rows:
        known = "-" if seconds is None else duration(seconds)
        mark = "> " if lasts else INDENT
        line = f"{mark}{padded(cut(name, widest), widest)} {known:>8} "
        room = screen.width - columns(line)
        share = (seconds or 0.0) / longest if longest else 0.0
        yield cut((line + bar(share, max(0, room), screen.has_unicode)), screen.width)


def _movements(answer: Fields, screen: Screen) -> Iterator[str]:
    """Each movement of data: from where to where, and how far it is."""
    for index, found in enumerate(objects(answer, "movements")):
        if index == 0:
            yield "Data movement:"
        where = f"{text(found, 'source')} to {text(found, 'destination')}"
        title = _shown(f"{text(found, 'name')}: {where}")
        width = screen.width - len(INDENT)
        yield from (INDENT + line for line in wrapped(title, width, INDENT))
        yield from _progress(found, screen)
        if text(found, "message"):
            lines = wrapped(_shown(text(found, "message")), width - len(INDENT))
            yield from (INDENT * 2 + line for line in lines)


def _exceptions(answer: Fields) -> Iterator[str]:
    """The last exceptions of a job."""
    found = texts(answer, "exceptions")
    earlier = len(found) - EXCEPTIONS
    if earlier > 0:
        id = f58(id_of(answer))
        yield f"{earlier} earlier ones: flux job eventlog {id}"
    yield from map(_shown, found[-EXCEPTIONS:])


def _progress(movement: Fields, screen: Screen) -> Iterator[str]:
    """How far a movement of data is, with a bar where there is room for one."""
    percent = number(movement, "percent")
    before = [_shown(text(movement, "state"))]
    if percent is not None:
        before.append(f"{percent:.0f}%")
    after = movement_rate(movement)
    head = INDENT * 2 + " ".join(filter(None, before))
    tail = f" {after}" if after else ""
    room = min(40, screen.width - columns(head + tail) - 1)
    frame = "" if percent is None else gauge(percent / 100, room, screen.has_unicode)
    line = f"{head} {frame}{tail}" if frame else head + tail
    indent = INDENT * 2
    if line.strip():
        yield from wrapped_from(indent, line.strip(), screen.width)


def wrapped_from(indent: str, line: str, width: int) -> list[str]:
    """A line with an indent. It is wrapped only where it has to be: a bar has blanks of
    its own."""
    if columns(indent + line) <= width:
        return [indent + line]
    return [indent + part for part in wrapped(line, max(8, width - len(indent)))]


def movement_rate(movement: Fields) -> str:
    """The bytes of a movement, the rate, and the time that is left."""
    moved, rate = number(movement, "bytes"), number(movement, "rate")
    left = number(movement, "left")
    words = [
        "" if moved is None else size(moved),
        "" if rate is None else f"{size(rate)}/s",
        f"{duration(left)} left" if left else "",
    ]
    return ", ".join(filter(None, words))
