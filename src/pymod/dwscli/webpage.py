# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The web page of ``flux dws report``.

It is one file without scripts, links or anything else that a browser would load. Its
Content-Security-Policy allows its own style sheet and nothing else, so that a text that
came in as markup by an error could not do anything either.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from html import escape
from typing import Iterable, Iterator, Mapping, Sequence, Union

from dwscli.chart import AXIS, COLORS, GRID, RATE, Axis, draw_bars, draw_rates
from dwscli.jobfields import FIELDS, elapsed
from dwscli.page import old_sentence
from dwscli.picture import Picture, inline_svg
from dwscli.rabbits import color as rabbit_color
from dwscli.rabbits import reason
from dwscli.reading import id_of, number, part, text
from dwscli.spans import JobSpans, averages, data_moved, rates
from dwscli.terminal import RED, YELLOW
from dwscli.units import duration, f58, size, timestamp
from flux_k8s.ports import Json
from flux_k8s.text import SHOWN, printable

# HTML elements


class Markup(str):
    """A text that is HTML."""


EMPTY = frozenset({"meta"})
"""Elements without an end tag."""

Part = Union[str, Markup]


def element(tag: str, *parts: Part, **attributes: str) -> Markup:
    """An HTML element. Texts in it are printable, cut to ``SHOWN`` characters, and
    escaped, and so are the values of attributes.

    Args:
        attributes: the name of each without a ``_`` at its end, with ``-`` for others.
    """
    words = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        words.append(f'{name}="{_escaped(value)}"')
    head = f"<{' '.join(words)}>"
    if tag in EMPTY:
        return Markup(head)
    return Markup(f"{head}{join(parts)}</{tag}>")


def join(parts: Iterable[Part], between: str = "") -> Markup:
    """Texts and elements, one behind the other."""
    return Markup(
        between.join(
            part if isinstance(part, Markup) else _escaped(part) for part in parts
        )
    )


def _escaped(text: str) -> str:
    return escape(printable(text, SHOWN))


# The page

TITLE = "Storage on Rabbits"
WIDTHS = {"wide": (1100, 288), "narrow": (400, 72)}
"""Pixels of a picture, and the parts of the time whose average rates it has, for large
and for small screens."""

NOTHING_ELSE = "base-uri 'none'; form-action 'none'"
"""The directives that default-src of a Content-Security-Policy does not cover."""

CLASSES = {GRID: "grid", AXIS: "axis"}
"""The classes of what has other colours on a dark page."""

DRAWN = 300
"""The most jobs of the timeline."""

LISTED = 50
"""The most rows of a table."""

HEALTH = {RED: ("down", "✕"), YELLOW: ("degraded", "▲"), "": ("ready", "●")}
"""The class of a Rabbit, and its sign for those who do not see colours."""

SHARES = ("used", "withheld", "free")
"""The classes of the parts of a Rabbit's storage. What is withheld from Fluxion is used
by storage that Fluxion does not know."""

JOB_COLUMNS = ("id", "username", "state", "elapsed", "nnodes", "rabbits", "waits")
TIMES = ("elapsed",)

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --ink: #1d2126; --soft: #59626c;
  --line: #d5dae0; --card: #f5f7f9; --used: #0072b2; --withheld: #e69f00;
  --down: #b3261e; --degraded: #8a5a00; --ready: #00734f; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #14171a;
  --ink: #e8eaed; --soft: #a7b0ba; --line: #3a424b; --card: #1f2429; --used: #56b4e9;
  --withheld: #e69f00; --down: #ff8a80; --degraded: #ffc04d; --ready: #4cc38a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--back);
  color: var(--ink); font: 16px/1.45 system-ui, sans-serif;
  overflow-wrap: break-word; -webkit-print-color-adjust: exact;
  print-color-adjust: exact; }
h1 { margin: 0; font-size: 1.6rem; }
h2 { margin: 2rem 0 .5rem; font-size: 1.2rem; }
.note, .about { color: var(--soft); }
.old { color: var(--down); font-weight: 600; }
ul, dl { margin: 0; padding: 0; list-style: none; }
.facts { display: grid; gap: .75rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.facts div { padding: .6rem .8rem; border-radius: .5rem; background: var(--card); }
.facts dt { color: var(--soft); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.35rem; font-weight: 600; }
.map { display: grid; gap: .4rem;
  grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); }
.map li { padding: .35rem .5rem; border-radius: .4rem; background: var(--card);
  border-left: .3rem solid var(--ready); font-size: .85rem; break-inside: avoid; }
.map .down { border-color: var(--down); }
.map .degraded { border-color: var(--degraded); }
.map .down .sign { color: var(--down); }
.map .degraded .sign { color: var(--degraded); }
.map .ready .sign { color: var(--ready); }
.map b { margin-right: .4rem; overflow-wrap: anywhere; }
.map p { margin: 0; color: var(--soft); font-size: .8rem; }
.bar { display: block; width: 100%; height: .5rem; margin: .2rem 0; }
.free, .grid { fill: var(--line); }
.used, .rate { fill: var(--used); }
.withheld { fill: var(--withheld); }
.failed { fill: var(--down); }
.axis { fill: var(--ink); }
td:first-child { width: 8rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; }
.legend svg { width: .8rem; height: .8rem; margin-right: .3rem; }
figure { margin: .5rem 0; }
figure svg { width: 100%; height: auto; fill: var(--ink); font-size: 11px; }
.narrow { display: none; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td { min-width: 4.5rem; }
@media screen and (max-width: 48rem) { .wide { display: none; }
  .narrow { display: block; } }
@media print { @page { margin: 12mm; } body { max-width: none; padding: 0; }
  figure, tr { break-inside: avoid; } .scroll { overflow: visible; }
  td { overflow-wrap: anywhere; } }
"""

_NAMED = re.compile(r"'[^']*'|\"[^\"]*\"|[ƒf][1-9A-HJ-NP-Za-km-z]{6,}|\$\S+|[0-9]+")
"""The parts that differ in two failures of the same reason: names, IDs, numbers."""


@dataclass(frozen=True)
class Report:
    """The contents of the page.

    Attributes:
        now, since: the time that it is about (UNIX time).
        situation: an answer of the module, which says how old it is.
        is_owner: whether it has the jobs of everybody.
        totals: those of ``dws.job-list``.
        rabbits: rows of ``dws.rabbit-list``.
        active, ended: jobs, as answers of ``dws.job-show``.
        spans: the times of these jobs.
    """

    now: float
    since: float
    situation: Json
    is_owner: bool
    totals: Mapping[str, object]
    rabbits: Sequence[Json]
    active: Sequence[Json]
    ended: Sequence[Json]
    spans: Sequence[JobSpans]


def web_page(report: Report) -> str:
    """The page as HTML."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; {NOTHING_ELSE}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{TITLE}, {timestamp(report.now)}"),
        element("style", Markup(STYLE)),
    )
    body = element("body", *_header(report), element("main", *_sections(report)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(report: Report) -> Iterator[Markup]:
    period = duration(report.now - report.since)
    yield element("h1", TITLE)
    about = f"{timestamp(report.now, '%F %T')}, with the last {period}"
    yield element("p", about, class_="about")
    old = old_sentence(report.situation)
    if old:
        yield element("p", old, class_="old")
    if not report.is_owner:
        line = "The jobs of other users are shown to the instance owner only."
        yield element("p", line, class_="note")


def _sections(report: Report) -> Iterator[Markup]:
    yield _facts(report)
    yield _section("Rabbits", _rabbit_map(report.rabbits))
    yield _section("Jobs over time", *_timeline(report))
    yield _section("Data movement", *_data(report))
    yield _section("Failures", _failures(report))
    yield _section("Active jobs", _jobs(report))


def _section(title: str, *parts: Part) -> Markup:
    return element("section", element("h2", title), *parts)


def _facts(report: Report) -> Markup:
    """The numbers above all."""
    capacity = sum(number(one, "capacity") or 0 for one in report.rabbits)
    used = sum(_used(one) for one in report.rabbits)
    serving = sum(rabbit_color(one) != RED for one in report.rabbits)
    jobs = number(report.totals, "jobs") or 0
    states = part(report.totals, "states")
    now = [f"{count} in {name}" for name, count in states.items() if count]
    failed = sum(bool(text(job, "failed")) for job in (*report.active, *report.ended))
    facts = {
        "Storage in use": f"{size(used)} of {size(capacity)}",
        "Rabbits in service": f"{serving} of {len(report.rabbits)}",
        "Active jobs": f"{jobs:.0f}",
        "Jobs that have ended": str(len(report.ended)),
        "Data moved": size(sum(map(_moved, (*report.active, *report.ended)))),
        "Failures": str(failed),
    }
    items = [
        element("div", element("dt", key), element("dd", value))
        for key, value in facts.items()
    ]
    line = element("p", ", ".join(now), class_="note") if now else Markup("")
    return element("section", element("dl", *items, class_="facts"), line)


def _used(rabbit: Json) -> float:
    """The bytes that no job can have; 0 where that is not known."""
    capacity, free = number(rabbit, "capacity") or 0, number(rabbit, "free")
    return 0.0 if free is None else max(0.0, capacity - free)


def _moved(job: Json) -> float:
    """The bytes that were moved for a job, also where it is not known when."""
    found = [number(one, "bytes") or 0 for one in data_moved(job)]
    return sum(found) if found else number(job, "moved") or 0


# Rabbits


def _rabbit_map(rabbits: Sequence[Json]) -> Markup:
    if not rabbits:
        return element("p", "There are no Rabbits.", class_="note")
    legend = _legend(*(_swatch(name, class_=name) for name in SHARES))
    return join([legend, element("ul", *map(_rabbit, rabbits), class_="map")])


def _rabbit(rabbit: Json) -> Markup:
    name, state = text(rabbit, "name"), text(rabbit, "state")
    capacity, used = number(rabbit, "capacity") or 0, _used(rabbit)
    withheld = min(used, number(rabbit, "withheld") or 0)
    health, sign = HEALTH[rabbit_color(rabbit)]
    is_known = number(rabbit, "free") is not None
    share = f"{100 * used / capacity:.0f}%" if capacity and is_known else "?"
    why = ": ".join(filter(None, [state, reason(rabbit)]))
    hint = (
        f"{name}: {why}; {size(used) if is_known else '?'} of {size(capacity)} used,"
        f" {number(rabbit, 'njobs') or 0:.0f} jobs, nodes {text(rabbit, 'nodes')}"
    )
    parts = [
        element("span", f"{sign} ", class_="sign"),
        element("b", name),
        share,
        _bar(capacity, {SHARES[0]: used - withheld, SHARES[1]: withheld}),
    ]
    if health != "ready":
        parts.append(element("p", why))
    return element("li", *parts, class_=health, title=hint)


def _bar(whole: float, parts: Mapping[str, float]) -> Markup:
    """A bar of parts, each with its class, from the left."""
    shapes = [element("rect", class_=SHARES[2], width="100%", height="100%")]
    begin = 0.0
    for name, value in parts.items():
        share = min(100.0, 100 * value / whole) if whole else 0.0
        place = {"x": f"{begin:.1f}%", "width": f"{share:.1f}%"}
        shapes.append(element("rect", class_=name, height="100%", **place))
        begin += share
    return element("svg", *shapes, class_="bar", aria_hidden="true")


# Pictures


def _timeline(report: Report) -> Iterator[Markup]:
    spans = sorted(report.spans, key=lambda one: one.end)[-DRAWN:]
    spans.sort(key=lambda one: (one.begin, one.job))
    if not spans:
        yield element("p", "There was no job.", class_="note")
        return
    if len(spans) < len(report.spans):
        line = f"The last {len(spans)} of {len(report.spans)} jobs."
        yield element("p", line, class_="note")
    yield _legend(*(_swatch(name, fill=color) for name, color in COLORS.items()))
    for name, (width, _) in WIDTHS.items():
        yield _figure(name, draw_bars(spans, _axis(report, width)), CLASSES)


def _data(report: Report) -> Iterator[Markup]:
    transfers = [one for job in report.spans for one in job.transfers]
    steps, moved = rates(transfers), sum(one.bytes for one in transfers)
    if not steps:
        yield element("p", "No data movement is recorded.", class_="note")
        return
    classes = {**CLASSES, RATE: "rate"}
    for name, (width, count) in WIDTHS.items():
        axis = _axis(report, width)
        found = averages(steps, axis.begin, axis.begin + axis.length, count)
        yield _figure(name, draw_rates(found, moved, axis), classes)


def _axis(report: Report, width: int) -> Axis:
    """The time of the pictures: all jobs, but nothing from before."""
    begin = min((one.begin for one in report.spans), default=report.since)
    return Axis(max(report.since, begin), report.now, width)


def _legend(*swatches: Markup) -> Markup:
    return element("ul", *swatches, class_="legend")


def _swatch(name: str, **color: str) -> Markup:
    square = element("rect", width="100%", height="100%", **color)
    return element("li", element("svg", square, aria_hidden="true"), name)


def _figure(name: str, picture: Picture, classes: Mapping[str, str]) -> Markup:
    return element("figure", Markup(inline_svg(picture, classes)), class_=name)


# Tables


def _failures(report: Report) -> Markup:
    """Each reason for failures, the most frequent first."""
    found: dict[str, list[Json]] = {}
    for job in (*report.ended, *report.active):
        failed = text(job, "failed")
        if failed:
            found.setdefault(_NAMED.sub("…", failed), []).append(job)
    if not found:
        return element("p", "None.", class_="note")
    reasons = sorted(found.values(), key=lambda jobs: (-len(jobs), _last(jobs)))
    most = len(reasons[0])
    rows = []
    for jobs in reasons[:LISTED]:
        last = max(jobs, key=lambda job: number(job, "since") or 0)
        bar = _bar(most, {"failed": len(jobs)})
        when = timestamp(number(last, "since") or 0, "%F %R")
        rows.append((join([str(len(jobs)), bar]), _last(jobs), when, _id(last)))
    line = f"The {LISTED} most frequent of {len(reasons)} reasons."
    titles = ("Jobs", "Last reason", "Last time", "Last job")
    return join([*_note_of_more(reasons, line), _table(titles, rows)])


def _last(jobs: Sequence[Json]) -> str:
    """Why the last of some jobs has failed."""
    return text(max(jobs, key=lambda job: number(job, "since") or 0), "failed")


def _jobs(report: Report) -> Markup:
    """The active jobs, those that are in their states for longest first."""
    if not report.active:
        return element("p", "None.", class_="note")
    found = [{**row, "now": report.now} for row in report.active]
    found.sort(key=lambda job: -(elapsed(job) or 0.0))
    rows = [[_value(job, name) for name in JOB_COLUMNS] for job in found[:LISTED]]
    line = f"The {LISTED} of {len(found)} jobs that are in their states for longest."
    titles = [FIELDS[name].heading for name in JOB_COLUMNS]
    return join([*_note_of_more(found, line), _table(titles, rows)])


def _note_of_more(found: Sequence[object], line: str) -> list[Markup]:
    """A line above a table that does not list all."""
    return [element("p", line, class_="note")] if len(found) > LISTED else []


def _value(job: Json, name: str) -> str:
    value = FIELDS[name].value(job)
    if value is None:
        return ""
    return duration(value) if name in TIMES else str(value)


def _id(job: Json) -> str:
    return f58(id_of(job))


def _table(titles: Iterable[str], rows: Iterable[Iterable[Part]]) -> Markup:
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="scroll")
