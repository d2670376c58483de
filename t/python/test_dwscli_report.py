# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws report: a web page about the storage of the machine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import partial
from html.parser import HTMLParser
from typing import Any, Optional

from dwscli.chart import COLORS
from dwscli.webpage import DRAWN, LISTED
from support.dwscli import (
    FIRST,
    FRESH,
    GIB,
    NOT_LOADED,
    NOW,
    OLD,
    STATES,
    FixedInstance,
    detail,
    dws,
    ended_job,
    is_golden,
    kvs_of,
    row,
)
from support.dwscli import rabbit as a_rabbit

TIB = 2**40
SINCE = f"--since={NOW - 1200}"
"""The fixed answers are old."""

TAGS = set(
    "html head meta title style body h1 h2 p main section dl dt dd div ul li span b"
    " svg rect text figure table thead tbody tr th td".split()
)
ATTRIBUTES = set(
    "lang charset http-equiv content name class title aria-hidden role scope"
    " x y width height viewbox fill text-anchor".split()
)
EVIL = "</title></style><script>console.error('evil')</script><img src=x onerror=x>\"'&"


rabbit = partial(a_rabbit, capacity=30 * TIB, free=18 * TIB, withheld=3 * TIB, njobs=2)


def fatal(note: str) -> str:
    """An eventlog with an exception."""
    context = {"type": "dws", "severity": 0, "note": note}
    return json.dumps({"timestamp": 1, "name": "exception", "context": context})


def machine(name: str = "tuo", note: str = "no room", **options: Any) -> FixedInstance:
    """A machine with Rabbits, two active jobs and three that ended, two of which have
    failed for the same reason."""
    disabled = {"by": "root", "at": NOW - 10, "reason": f"{name} is slow"}
    rabbits = [
        rabbit(f"{name}201"),
        rabbit(f"{name}202", broken=f"{name}1003", withheld=0),
        rabbit(f"{name}203", state="Disabled", disabled=disabled, free=30 * TIB),
    ]
    moved = {"name": "m", "phase": "DataIn", "bytes": 6 * GIB}
    active = {
        FIRST: detail(FIRST, states=STATES, movements=[moved], waits=name),
        FIRST + 1: detail(FIRST + 1, failed=note, status="Error"),
    }
    totals = {"jobs": 2, "states": {"PreRun": 2}, "capacity": 320 * GIB}
    rows = [row(id) for id in active]
    ids = [FIRST + 20 + i for i in range(3)]
    kvs: dict[tuple[int, str], str] = {}
    for id, eventlog in zip(ids, ("", fatal(f"{note} on 1"), fatal(f"{note} on 2"))):
        kvs |= kvs_of(id, eventlog=eventlog)
    return FixedInstance(
        {
            "dws.rabbit-list": {**FRESH, "rabbits": rabbits},
            "dws.job-list": {**FRESH, "jobs": rows, "next": None, "totals": totals},
            "dws.job-show": lambda request: active[request["id"]],
        },
        jobs=[ended_job(id, t_inactive=NOW - 60) for id in ids],
        kvs=kvs,
        **options,
    )


STATUS = ["ready", "degraded", "down"]
"""The classes of Rabbits, and those of the machine's in their order."""


class Page(HTMLParser):
    """A page as a browser reads it.

    Attributes:
        found: its elements, each with its attributes.
        texts: the texts of elements, by the names of the elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Optional[str]]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def attributes(self, tag: str, name: str) -> list[str]:
        """The values of an attribute of elements."""
        return [attrs[name] or "" for one, attrs in self.found if name in attrs]


def page_of(instance: FixedInstance) -> tuple[Page, str]:
    done = dws(instance, "report", SINCE)
    assert (done.status, done.err) == (0, "")
    return Page(done.out), done.out


def is_harmless(page: Page, text: str) -> bool:
    """A page has no element or attribute that loads or runs anything, and a policy that
    allows its own style alone."""
    for tag, attributes in page.found:
        assert tag in TAGS and set(attributes) <= ATTRIBUTES, (tag, attributes)
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (style,) = page.texts["style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "url(" not in style and "@import" not in style
    return not re.search(r"https?://", text)


def test_the_page_has_rabbits_jobs_rates_and_failures() -> None:
    page, text = page_of(machine(note="no room in 'x1'"))
    assert is_harmless(page, text)
    words = re.sub("(?s)<(style|svg).*?</\\1>|<[^>]*>", "\n", text)
    shown = [line.strip() for line in words.splitlines() if line.strip()]
    assert is_golden("report.txt", "\n".join([*shown, ""]))
    classes = [one for one in page.attributes("li", "class") if one in STATUS]
    assert classes == STATUS
    # Each state of a job is in both pictures, in its own color.
    for state in STATES:
        found = [
            one for one in page.texts["title"] if f"tjHH {state['state']}: " in one
        ]
        assert len(found) == 2
    assert set(page.attributes("rect", "fill")) == set(COLORS.values())


def test_a_hostile_text_is_shown_and_does_nothing() -> None:
    page, text = page_of(machine(name=EVIL, note=EVIL + "\x1b[31m\u202e"))
    assert is_harmless(page, text)
    assert EVIL + "201" in page.texts["b"]
    assert any("\\x1b[31m\\u202e" in cell for cell in page.texts["td"])
    assert "\x1b" not in text and "\u202e" not in text


def test_a_machine_of_which_little_is_known_has_a_page() -> None:
    nothing = {**OLD, "rabbits": [{"name": "tuo1"}, {}], "jobs": [], "next": None}
    instance = FixedInstance({"dws.rabbit-list": nothing, "dws.job-list": nothing})
    page, text = page_of(instance)
    assert is_harmless(page, text)
    assert "There was no job." in page.texts["p"]
    line = "Kubernetes was last heard of 3.5m ago, what follows may be old:"
    assert any(one.startswith(line) for one in page.texts["p"])
    assert dws(FixedInstance(), "report") == (1, "", NOT_LOADED)


def test_no_bar_is_wider_than_what_it_is_a_part_of() -> None:
    rabbits = {**FRESH, "rabbits": [rabbit(free=-TIB, withheld=0)]}
    jobs = {**FRESH, "jobs": [], "next": None}
    page, _ = page_of(FixedInstance({"dws.rabbit-list": rabbits, "dws.job-list": jobs}))
    widths = [found["width"] for tag, found in page.found if tag == "rect"]
    assert "100.0%" in widths
    assert all(float(str(width).rstrip("%")) <= 100 for width in widths)


def test_a_guest_has_the_own_jobs_on_the_page() -> None:
    instance = machine(userid=1, is_owner=False)
    page, _ = page_of(instance)
    line = "The jobs of other users are shown to the instance owner only."
    assert line in page.texts["p"]
    asked = [request for topic, request in instance.requests if topic == "dws.job-list"]
    assert [request["userid"] for request in asked] == [1]


def test_a_page_of_many_jobs_is_bounded() -> None:
    rows = [row(FIRST + i, since=NOW - i) for i in range(2000)]
    rabbits = [rabbit(f"tuo{i}") for i in range(700)]
    instance = FixedInstance(
        {
            "dws.rabbit-list": {**FRESH, "rabbits": rabbits},
            "dws.job-list": {**FRESH, "jobs": rows, "next": None},
        }
    )
    done = dws(instance, "report")
    page = Page(done.out)
    assert len(done.out) < 2_000_000
    assert f"The last {DRAWN} of 2000 jobs." in page.texts["p"]
    assert len([tag for tag, _ in page.found if tag == "tr"]) == LISTED + 1
    assert len(page.texts["b"]) == 700


def test_that_more_reasons_for_failures_are_known_is_told() -> None:
    """The user of a job can raise exceptions with any note."""
    ids = range(FIRST, FIRST + LISTED + 1)
    kvs = {key: text for id in ids for key, text in kvs_of(id).items()}
    for id in ids:
        kvs[id, "eventlog"] = fatal("x" * (id - FIRST + 1))
    answers = {"dws.rabbit-list": {**FRESH, "rabbits": []}, "dws.job-list": FRESH}
    page, _ = page_of(FixedInstance(answers, jobs=map(ended_job, ids), kvs=kvs))
    assert f"The {LISTED} most frequent of {LISTED + 1} reasons." in page.texts["p"]
