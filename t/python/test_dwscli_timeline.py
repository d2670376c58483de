# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws timeline: a picture of the states of jobs over time."""

from __future__ import annotations

import errno
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.chart import COLORS, draw
from dwscli.picture import SIGNATURE, Area, Picture, Rectangle, Text, png, svg
from dwscli.spans import JobSpans, Span, Transfer, averages, of_job, rates
from support.dwscli import (
    FIRST,
    FRESH,
    GIB,
    NOT_LOADED,
    NOW,
    STATES,
    FixedInstance,
    detail,
    dws,
    ended_job,
    is_golden,
    kvs_of,
    refused,
    row,
)

SVG = "{http://www.w3.org/2000/svg}"
MOVED = {"name": "m", "phase": "DataIn", "bytes": 6 * GIB}


def instance() -> FixedInstance:
    """One active job, and one that ended."""
    active = detail(FIRST, states=STATES, movements=[MOVED])
    rows = {**FRESH, "jobs": [row(FIRST)], "next": None}

    def show(request: dict[str, Any]) -> dict[str, Any]:
        if request["id"] != FIRST:
            raise refused(errno.ENOENT)
        return active

    return FixedInstance(
        {"dws.job-list": rows, "dws.job-show": show},
        jobs=[ended_job(t_inactive=NOW * 2)],
        kvs=kvs_of(),
    )


def titles(text: str) -> list[str]:
    """What a reader sees who points at the bars of jobs."""
    root = ElementTree.fromstring(text)
    found = [title.text or "" for title in root.iter(f"{SVG}title")]
    return [title for title in found if not title.endswith("/s")]


def test_active_jobs_and_jobs_that_ended_are_in_one_picture() -> None:
    done = dws(instance(), "timeline")
    assert (done.status, done.err) == (0, "")
    assert is_golden("timeline.svg", done.out)
    assert titles(done.out) == [
        "ƒ3gDmDv6tjHd Setup: 1.500s",
        "ƒ3gDmDv6tjHH Setup: 40s",
        "ƒ3gDmDv6tjHH DataIn: 1m",
        "ƒ3gDmDv6tjHH PreRun: 10s",
        "ƒ3gDmDv6tjHH run: 4.833m",
        "ƒ3gDmDv6tjHH PostRun: 5.000s",
        "ƒ3gDmDv6tjHH DataOut: 1.583m",
    ]


def test_a_job_that_ends_meanwhile_is_drawn_once() -> None:
    found = instance()
    found.jobs.append(ended_job(FIRST, t_inactive=NOW * 2))
    found.texts |= kvs_of(FIRST)
    assert dws(found, "timeline").out == dws(instance(), "timeline").out


def test_a_picture_may_be_of_some_jobs_and_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.svg"
    done = dws(instance(), "timeline", "-o", str(path), "ƒ3gDmDv6tjHd")
    assert done == (0, "", "")
    assert titles(path.read_text()) == ["ƒ3gDmDv6tjHd Setup: 1.500s"]


def pixels(data: bytes) -> list[bytes]:
    """The rows of pixels of a PNG without filters."""
    assert data.startswith(SIGNATURE)
    place, chunks = len(SIGNATURE), {}
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        name, content = data[place + 4 : place + 8], data[place + 8 :][:length]
        (checksum,) = struct.unpack(">I", data[place + 8 + length :][:4])
        assert checksum == zlib.crc32(name + content)
        chunks[name] = content
        place += 12 + length
    assert [*chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = zlib.decompress(chunks[b"IDAT"])
    size = 3 * width + 1
    assert len(lines) == size * height and set(lines[::size]) == {0}
    return [lines[i * size + 1 : (i + 1) * size] for i in range(height)]


def test_a_picture_may_be_png(tmp_path: Path) -> None:
    path = tmp_path / "jobs.png"
    assert dws(instance(), "timeline", "-o", str(path)) == (0, "", "")
    rows = pixels(path.read_bytes())
    colors = {row[i : i + 3].hex() for row in rows for i in range(0, len(row), 3)}
    assert {color[1:] for color in COLORS.values()} <= colors


def test_letters_of_a_png_stand_where_they_are_to() -> None:
    picture = Picture(13, 9)
    picture.draw(Text(0, 8, "ƒI"))
    picture.draw(Rectangle(12, 0, 5, 9, "#ff0000"))
    red, white = b"\xff\0\0", b"\xff\xff\xff"
    shown = [
        "".join(
            {red: "r", white: "."}.get(row[i : i + 3], "#")
            for i in range(0, len(row), 3)
        )
        for row in pixels(png(picture))
    ]
    assert shown == [
        "............r",
        "..##...###..r",
        ".#..#...#...r",
        ".#......#...r",
        "###.....#...r",
        ".#......#...r",
        ".#......#...r",
        ".#.....###..r",
        "............r",
    ]


def test_an_area_is_its_rectangles_in_one_shape() -> None:
    area, parts = Picture(9, 9), Picture(9, 9)
    spans = [(1.0, 4.0), (1.0, 4.0), (3.0, 3.0), (2.0, 8.0)]
    area.draw(Area(1.0, 2.0, spans, "#ff0000"))
    parts.draw(Rectangle(1.0, 1.0, 4.0, 3.0, "#ff0000"))
    parts.draw(Rectangle(7.0, 2.0, 2.0, 6.0, "#ff0000"))
    assert png(area) == png(parts)
    outline = "M1.0 1.0V1.0H5.0V3.0H7.0V2.0H9.0V8.0H7.0V3.0H5.0V4.0H1.0Z"
    assert f'<path d="{outline}" fill="#ff0000"/>' in svg(area)


def test_many_jobs_are_drawn_as_the_list_has_them() -> None:
    rows = [row(FIRST + i, since=NOW - i) for i in range(300)]
    found = FixedInstance({"dws.job-list": {**FRESH, "jobs": rows, "next": None}})
    done = dws(found, "timeline")
    assert len(titles(done.out)) == 300
    error = "flux-dws: WARNING: of 300 active jobs, only the last state is drawn\n"
    assert done.err == error
    assert len(found.requests) == 1


def test_what_cannot_be_drawn_or_written_is_refused(tmp_path: Path) -> None:
    idle = FixedInstance({"dws.job-list": {**FRESH, "jobs": [], "next": None}})
    error = "flux-dws: ERROR: there is no job with storage to be drawn\n"
    assert dws(idle, "timeline") == (1, "", error)
    assert dws(FixedInstance(), "timeline") == (1, "", NOT_LOADED)
    error = "flux-dws: ERROR: job ƒ2 not found\n"
    assert dws(idle, "timeline", "f2").err == error
    done = dws(instance(), "timeline", "-o", str(tmp_path))
    assert done.err == f"flux-dws: ERROR: {tmp_path}: Is a directory\n"
    # Jobs that ended are drawn without the module.
    found = FixedInstance(jobs=[ended_job(t_inactive=NOW * 2)], kvs=kvs_of())
    done = dws(found, "timeline")
    assert (done.status, done.err) == (1, NOT_LOADED)
    assert titles(done.out) == ["ƒ3gDmDv6tjHd Setup: 1.500s"]


def test_the_rate_of_data_movement_is_that_of_all_jobs_together() -> None:
    found = rates([Transfer(0, 10, 100), Transfer(5, 10, 100), Transfer(20, 30, 50)])
    assert found == [(0, 10), (5, 30), (10, 0), (20, 5), (30, 0)]


def test_a_rate_that_cannot_be_leaves_the_others_as_they_are() -> None:
    others = [Transfer(NOW + 0.1, NOW + 9, 2**30), Transfer(NOW + 2, NOW + 4, 2**30)]
    absurd = Transfer(NOW, NOW + 1e-6, 2**63 - 1)
    assert rates([absurd, *others])[2:] == rates(others)


@given(
    st.lists(
        st.builds(
            lambda begin, seconds, bytes: Transfer(begin, begin + seconds, bytes),
            st.floats(NOW, NOW + 7200),
            st.floats(0.1, 600),
            st.floats(1, 1e15),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 300),
)
def test_no_average_of_a_rate_is_above_the_rate(
    found: list[Transfer], count: int
) -> None:
    steps = rates(found)
    begin, end = NOW, NOW + 8000
    means = averages(steps, begin, end, count)
    highest = max(rate for _, rate in steps)
    assert max(rate for _, rate in means) <= highest * (1 + 1e-6)
    area = sum(rate for _, rate in means) * (end - begin) / count
    assert area == pytest.approx(sum(one.bytes for one in found), rel=1e-6)


def test_a_job_that_runs_is_drawn_as_running_until_now() -> None:
    states = STATES[:3]
    ready = of_job(detail(FIRST, states=states, ready=True), NOW)
    assert ready is not None and ready.spans[-1] == Span("run", NOW - 390, NOW)
    mounting = of_job(detail(FIRST, states=states, ready=False), NOW)
    assert mounting is not None and mounting.spans[-1].name == "PreRun"


def test_a_text_in_a_picture_is_no_markup() -> None:
    span = Span("Setup", 0, 10)
    job = JobSpans("</text><script>\x1b&\n", (span,), ())
    text = svg(draw([job]))
    assert "<script>" not in text and "\x1b" not in text
    assert titles(text)[0].startswith("</text><script>\\x1b&\\n Setup")
