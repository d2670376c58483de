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

from support.effort import SOAKING
from support.forks import Run, forks
from support.tables import rows

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

# What is evaluated, and what is said of it.

HOSTILE = r"""
entity bomb -> '<!DOCTYPE Job [<!ENTITY a0 "ha">' + ''.join(f'<!ENTITY a{n + 1}
  "&a{n};&a{n};&a{n};&a{n};">' for n in range(40)) + ']><Job>&a40;</Job>' -> has a
  DOCTYPE
attributes by default -> '<!DOCTYPE Job [<!ATTLIST Job awarenessPolicy CDATA
  "Ignore">]><Job/>' -> has a DOCTYPE
a million deep -> '<Job>' * 10**6 -> more than 64 elements within each other
a million deep, unknown -> "@START" + "<x>" * 10**6 -> more than 64 elements within
  each other
a million siblings -> "@START" + "<x/>" * 10**6 -> more than 200000 elements
many siblings -> "@START" + "<x/>" * (2 * MANY) + "</Job>" -> valid
long expression -> '<JobGroup><Id>g</Id><JobDefaults><Requested>' +
  '<Memory>1</Memory><User conj="Or">u</User>' * MANY +
  '</Requested></JobDefaults><Job><Id>1</Id></Job></JobGroup>' -> valid
many attributes -> "<Job " + " ".join(f"a{n}=''" for n in range(MANY)) + "/>" -> may
  have no attribute a0, which is not understood
huge attribute -> "@START<Resource name='" + "x" * 10 * 2**20 + "'>1</Resource></Job>"
  -> more than 1 MiB
huge name -> "@START<" + "x" * 10 * 2**20 + "/></Job>" -> more than 1 MiB
huge text -> "@START<Name>" + "x" * 15 * 2**20 + "</Name></Job>" -> valid
huge number -> "@START<Memory>" + "1" * 15 * 2**20 + "</Memory></Job>" -> is
more than it may have in UTF-8 -> chr(0xe4) * 9 * 2**20 -> more than 16 MiB
a gigabyte -> bytes(2**30) -> more than 16 MiB
long namespace -> "<Job xmlns:n='" + "u" * 10**6 + "' awarenessPolicy='Ignore'>" +
  "<Id>1</Id>" + "".join(f"<n:a{n}/>" for n in range((2 * MANY))) + "</Job>" -> valid
UTF-7, declared -> b'<?xml version="1.0" encoding="utf-7"?><Job/>' -> UTF-7
"""


@pytest.fixture(scope="module")
def fork() -> Iterator[Run]:
    with forks([sys.executable], IMPORTS) as run:
        yield run


def cases(table: str) -> list[Any]:
    for name, value in (("@START", START), ("MANY", str(MANY)), ("FEW", str(FEW))):
        table = table.replace(name, value)
    return [pytest.param(*row, id=name) for name, *row in rows(table, 3)]


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

HOSTILE_JOBS = r"""
an endless range of nodes -> '<Job><Id>1</Id><Executable>a</Executable>' + "<Node
  aggregation='Range'>n[1-999999999]</Node>" + '</Job>' -> /Job/Node: more than 262144
  names of nodes and features in all
a name of digits -> '<Job><Id>1</Id><Executable>a</Executable>' + '<Node>' + '1' *
  10**6 + '</Node>' + '</Job>' -> a name of more than 255 characters
a number of a million digits -> '<Job><Id>1</Id><Executable>a</Executable>' +
  '<Extension name="attributes.x" type="Flux">' + '1' * 10**6 + '</Extension>' +
  '</Job>' -> expected JSON
many defaults for many jobs -> '<JobGroup><Id>g</Id>' + '<JobDefaults><Environment>' +
  '<Variable name="A"/>' * 9_999 + '</Environment></JobDefaults>' +
  ''.join(f'<Job><Id>{n}</Id><Executable>a</Executable></Job>' for n in range(FEW)) +
  '</JobGroup>' -> /JobGroup: has defaults that add more than 1000000 elements in all
defaults that each of many jobs overrides -> '<JobGroup><Id>g</Id>' +
  '<JobDefaults><Requested>' + '<Queue>q</Queue>' * (10 * FEW) +
  '</Requested></JobDefaults>' +
  ''.join(f'<Job><Id>{n}</Id><Executable>a</Executable><Queue>r</Queue></Job>' for n
  in range(FEW)) + '</JobGroup>' -> FEW jobs
a name that all jobs have and wait for -> '<JobGroup><Id>g</Id>' +
  ''.join(f'<Job><Id>{n}</Id><Executable>a</Executable><Name>x</Name><Dependency
  designator="JobName">x</Dependency></Job>' for n in range(FEW)) + '</JobGroup>' ->
  more than 200000 dependencies of all jobs
brackets in brackets -> '<Job><Id>1</Id><Executable>a</Executable>' + '<Requested>' +
  '<Feature group="60">a</Feature>' * (10 * FEW) + '</Requested>' + '</Job>' -> group
  opens 120 brackets within each other, expected at most 64
a circle of many jobs -> '<JobGroup><Id>g</Id>' +
  ''.join(f'<Job><Id>{n}</Id><Executable>a</Executable><Dependency>{(n + 1) %
  FEW}</Dependency></Job>' for n in range(FEW)) + '</JobGroup>' -> "8" for "..." for
  "0"
"""


@pytest.mark.parametrize(("document", "expected"), cases(HOSTILE_JOBS))
def test_objects_over_a_bound_are_refused_with_the_bound(
    fork: Run, document: str, expected: str
) -> None:
    status, said = fork(SUBMIT, document, str(2 * LIMIT))
    assert status == 0, said
    assert expected in said
    assert len(said) < 1000
