# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects that are made to hurt who reads them.

Each is read in a process of its own, which may use no more than a bounded amount
of memory, and must say what is wrong in one line.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator

import pytest

from support.effort import SOAKING, night
from support.forks import Run, forks

MiB = 2**20
# Of addresses, of which the interpreter itself takes a part. The largest document
# that is allowed has 16 MiB.
LIMIT = 512 * MiB
# A document of 200,000 elements, the most that are allowed, takes seconds.
MANY = 90_000 if SOAKING else 2_000
FEW = 5_000 if SOAKING else 500

IMPORTS = """
import resource, sys
from sssjob import ObjectError, check, effective, read
from sssjob.to_jobspec.convert import jobspecs_in
"""

# The document is made before the limit holds.
DOCUMENT = """
document = eval(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
"""

CHECK = (
    DOCUMENT
    + """
try:
    root = read(document, lambda line: None)
except ObjectError as error:
    print(str(error).splitlines()[0][-300:], end="")
else:
    check(root)
    check(effective(root))
    print("valid", end="")
"""
)

START = "<Job awarenessPolicy='Ignore'><Id>1</Id>"

HOSTILE = {
    # Entities, of all kinds
    "entity bomb": (
        "'<!DOCTYPE Job [<!ENTITY a0 \"ha\">' + ''.join(f'<!ENTITY a{n + 1} "
        "\"&a{n};&a{n};&a{n};&a{n};\">' for n in range(40)) + ']><Job>&a40;</Job>'",
        "has a DOCTYPE",
    ),
    "quadratic entity": (
        "'<!DOCTYPE Job [<!ENTITY a \"' + 'x' * 10**5 + '\">]><Job>' + '&a;' * 10**5",
        "has a DOCTYPE",
    ),
    "external entity": (
        "'<!DOCTYPE Job [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><Job>&a;</Job>'",
        "has a DOCTYPE",
    ),
    "parameter entity": (
        "'<!DOCTYPE Job [<!ENTITY % a SYSTEM \"http://localhost/a.dtd\"> %a;]><Job/>'",
        "has a DOCTYPE",
    ),
    "external DTD": ("'<!DOCTYPE Job SYSTEM \"file:///dev/zero\"><Job/>'", "a DOCTYPE"),
    "attributes by default": (
        "'<!DOCTYPE Job [<!ATTLIST Job awarenessPolicy CDATA \"Ignore\">]><Job/>'",
        "has a DOCTYPE",
    ),
    "endless DOCTYPE": ("'<!DOCTYPE ' + 'x' * 15 * 2**20", "more than 1 MiB"),
    # Depth
    "a million deep": ("'<Job>' * 10**6", "more than 64 elements within each other"),
    "a million deep, unknown": (
        f'"{START}" + "<x>" * 10**6',
        "more than 64 elements within each other",
    ),
    "deep, as bytes": ("b'<Job>' * 10**6", "more than 64 elements"),
    # Width
    "a million siblings": (f'"{START}" + "<x/>" * 10**6', "more than 200000 elements"),
    "a million jobs": (
        "'<JobGroup><Id>g</Id>' + '<Job>1</Job>' * 10**6 + '</JobGroup>'",
        "more than 200000 elements in all",
    ),
    "many siblings": (
        f'"{START}" + "<x/>" * {199_998 if SOAKING else 2 * MANY} + "</Job>"',
        "valid",
    ),
    "many jobs": (
        "'<JobGroup><Id>g</Id><JobDefaults><User>u</User></JobDefaults>'"
        f" + '<Job><Id>1</Id></Job>' * {MANY} + '</JobGroup>'",
        "valid",
    ),
    "long expression": (
        "'<JobGroup><Id>g</Id><JobDefaults><Requested>'"
        f" + '<Memory>1</Memory><User conj=\"Or\">u</User>' * {MANY}"
        " + '</Requested></JobDefaults><Job><Id>1</Id></Job></JobGroup>'",
        "valid",
    ),
    "a million attributes": (
        '"<Job " + " ".join(f"a{n}=\'\'" for n in range(10**6)) + "/>"',
        "a tag of more than 1 MiB",
    ),
    "a million attributes, spread": (
        f"\"{START}\" + \"<x a='' b='' c='' d='' e='' f='' g='' h=''/>\" * 125_000",
        "more than 200000 attributes in all",
    ),
    "many attributes": (
        f'"<Job " + " ".join(f"a{{n}}=\'\'" for n in range({MANY})) + "/>"',
        "may have no attribute a0, which is not understood",
    ),
    # Size
    "huge attribute": (
        f'"{START}<Resource name=\'" + "x" * 10 * 2**20 + "\'>1</Resource></Job>"',
        "more than 1 MiB",
    ),
    "huge name": (f'"{START}<" + "x" * 10 * 2**20 + "/></Job>"', "more than 1 MiB"),
    "large name": ('"<Job><" + "x" * 10**6 + "/></Job>"', "is not understood"),
    "huge comment": (f'"{START}<!--" + "x" * 10 * 2**20 + "--></Job>"', "than 1 MiB"),
    "huge text": (f'"{START}<Name>" + "x" * 15 * 2**20 + "</Name></Job>"', "valid"),
    "huge number": (f'"{START}<Memory>" + "1" * 15 * 2**20 + "</Memory></Job>"', "is"),
    "lines": (f'"{START}<Name>" + chr(10) * 15 * 2**20 + "</Name></Job>"', "valid"),
    "references": (
        f'"{START}<Name>" + "&#65;" * 3 * 2**20 + "</Name></Job>"',
        "valid",
    ),
    "more than a document may have": ("' ' * (16 * 2**20 + 1)", "more than 16 MiB"),
    "more than it may have in UTF-8": ("chr(0xe4) * 9 * 2**20", "more than 16 MiB"),
    "a gigabyte": ("bytes(2**30)", "more than 16 MiB"),
    # Namespaces, of which a name may be repeated
    "long namespace": (
        '"<Job xmlns:n=\'" + "u" * 10**6 + "\' awarenessPolicy=\'Ignore\'>"'
        ' + "<Id>1</Id>" + "".join(f"<n:a{n}/>"'
        f' for n in range({2 * MANY})) + "</Job>"',
        "valid",
    ),
    "many namespaces": (
        f'"{START}" + "".join(f"<n{{n}}:x xmlns:n{{n}}=\'{{n}}\'/>"'
        f' for n in range({2 * MANY})) + "</Job>"',
        "valid",
    ),
    # Bytes that are no text
    "NUL": (r"b'<Job>\0</Job>'", "not well formed"),
    "nothing but NUL": ("bytes(2**24)", "not well formed"),
    "UTF-7": ("b'+ADw-Job+AD4APA-/Job+AD4-'", "not well formed"),
    "UTF-7, declared": ('b\'<?xml version="1.0" encoding="utf-7"?><Job/>\'', "UTF-7"),
    "UTF-32": ("'<Job><Id>1</Id></Job>'.encode('utf-32')", "not well formed"),
    "UTF-16, cut": ("'<Job><Id>1</Id></Job>'.encode('utf-16')[:-1]", "not well formed"),
    "BOM": (r"b'\xef\xbb\xbf'", "no element found"),
    "other BOM": (r"b'\xff\xfe'", "no element found"),
}


@pytest.fixture(scope="module")
def fork() -> Iterator[Run]:
    with forks([sys.executable], IMPORTS) as run:
        yield run


NIGHTLY = {
    "a million jobs",
    "a million attributes",
    "many jobs",
    "a million attributes, spread",
    "lines",
    "references",
    "errors that show much",
    "ranges of nodes in many jobs",
}
"""Those that take longest; another one of the same kind does not."""


def cases(table: dict[str, tuple[str, str]]) -> list[Any]:
    return [
        pytest.param(*row, id=name, marks=[night] if name in NIGHTLY else [])
        for name, row in table.items()
    ]


@pytest.mark.parametrize(("document", "expected"), cases(HOSTILE))
def test_a_hostile_document_is_refused_within_bounds(
    fork: Run, document: str, expected: str
) -> None:
    status, said = fork(CHECK, document, str(LIMIT))
    assert status == 0, said
    assert expected.lower() in said.lower()
    assert "\n" not in said


SUBMIT = (
    DOCUMENT
    + """
try:
    found = jobspecs_in(document, lambda line: None)
except ObjectError as error:
    print(str(error).splitlines()[0], end="")
else:
    print(f"{len(found)} jobs", end="")
"""
)

PROGRAM_IN = "'<Job><Id>1</Id><Executable>a</Executable>' + {} + '</Job>'"
JOBS_IN = "'<JobGroup><Id>g</Id>' + {} + '</JobGroup>'"
ONE = "<Job><Id>{n}</Id><Executable>a</Executable>"

HOSTILE_JOBS = {
    "an endless range of nodes": (
        PROGRAM_IN.format("\"<Node aggregation='Range'>n[1-999999999]</Node>\""),
        "/Job/Node: more than 262144 names of nodes and features in all",
    ),
    "ranges of nodes in many jobs": (
        JOBS_IN.format(
            f"''.join(f'{ONE}<Node aggregation=\"Range\">n[1-9999]</Node></Job>'"
            " for n in range(1_000))"
        ),
        "more than 262144 names of nodes and features in all",
    ),
    "a name of digits": (
        PROGRAM_IN.format("'<Node>' + '1' * 10**6 + '</Node>'"),
        "a name of more than 255 characters",
    ),
    "a long word": (
        PROGRAM_IN.format("'<Arguments>' + 'x' * 10**6 + '</Arguments>'"),
        "1 jobs",
    ),
    "a number of a million digits": (
        PROGRAM_IN.format(
            "'<Extension name=\"attributes.x\" type=\"Flux\">' + '1' * 10**6"
            " + '</Extension>'"
        ),
        "expected JSON",
    ),
    "errors that show much": (
        PROGRAM_IN.format(
            "'<Extension name=\"attributes.x\" type=\"Flux\">[' + '1,' * 10**6"
            " + '1]</Extension>'"
            ' + \'<Extension name="attributes.x" type="Flux">1</Extension>\''
            f" * {FEW}"
        ),
        "/Job/Extension[2]: is 1, but /Job/Extension[1] is [1, 1",
    ),
    "many defaults for many jobs": (
        JOBS_IN.format(
            "'<JobDefaults><Environment>' + '<Variable name=\"A\"/>' * 9_999"
            f" + '</Environment></JobDefaults>' + ''.join(f'{ONE}</Job>'"
            f" for n in range({FEW}))"
        ),
        "/JobGroup: has defaults that add more than 1000000 elements in all",
    ),
    "defaults that each of many jobs overrides": (
        JOBS_IN.format(
            f"'<JobDefaults><Requested>' + '<Queue>q</Queue>' * {10 * FEW}"
            f" + '</Requested></JobDefaults>' + ''.join(f'{ONE}<Queue>r</Queue></Job>'"
            f" for n in range({FEW}))"
        ),
        f"{FEW} jobs",
    ),
    "a name that all jobs have and wait for": (
        JOBS_IN.format(
            f"''.join(f'{ONE}<Name>x</Name><Dependency designator=\"JobName\">x"
            f"</Dependency></Job>' for n in range({FEW}))"
        ),
        "more than 200000 dependencies of all jobs",
    ),
    "brackets in brackets": (
        PROGRAM_IN.format(
            f"'<Requested>' + '<Feature group=\"60\">a</Feature>' * {10 * FEW}"
            " + '</Requested>'"
        ),
        "group opens 120 brackets within each other, expected at most 64",
    ),
    "a circle of many jobs": (
        JOBS_IN.format(
            f"''.join(f'{ONE}<Dependency>{{(n + 1) % {FEW}}}</Dependency></Job>'"
            f" for n in range({FEW}))"
        ),
        '"8" for "..." for "0"',
    ),
}


@pytest.mark.parametrize(("document", "expected"), cases(HOSTILE_JOBS))
def test_objects_over_a_bound_are_refused_with_the_bound(
    fork: Run, document: str, expected: str
) -> None:
    status, said = fork(SUBMIT, document, str(2 * LIMIT))
    assert status == 0, said
    assert expected in said
    assert len(said) < 1000
