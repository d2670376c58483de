# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects that are made to hurt who reads them.

Each is read in a process of its own, which may use no more than a bounded amount
of memory, and must say what is wrong in one line.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MiB = 2**20
# Of addresses, of which the interpreter itself takes a part. The largest document
# that is allowed has 16 MiB.
LIMIT = 512 * MiB

PROGRAM = """
import resource, sys
from flux_k8s.jobobject import ObjectError, check, effective, read, write
limit = int(sys.argv[2])
document = eval(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    root = read(document, lambda line: None)
except ObjectError as error:
    print(str(error)[-300:], end="")
else:
    check(root)
    check(effective(root))
    print("valid", end="")
"""

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
    "many siblings": (f'"{START}" + "<x/>" * 199_998 + "</Job>"', "valid"),
    "many jobs": (
        "'<JobGroup><Id>g</Id><JobDefaults><User>u</User></JobDefaults>'"
        " + '<Job><Id>1</Id></Job>' * 90_000 + '</JobGroup>'",
        "valid",
    ),
    "long expression": (
        "'<JobGroup><Id>g</Id><JobDefaults><Requested>'"
        " + '<Memory>1</Memory><User conj=\"Or\">u</User>' * 90_000"
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
        '"<Job " + " ".join(f"a{n}=\'\'" for n in range(10**5)) + "/>"',
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
        ' + "<Id>1</Id>" + "".join(f"<n:a{n}/>" for n in range(190_000)) + "</Job>"',
        "valid",
    ),
    "many namespaces": (
        f'"{START}" + "".join(f"<n{{n}}:x xmlns:n{{n}}=\'{{n}}\'/>"'
        ' for n in range(190_000)) + "</Job>"',
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


@pytest.mark.parametrize(("document", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_document_is_refused_within_bounds(
    document: str, expected: str
) -> None:
    # The document itself is made before the limit holds.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, document, str(LIMIT)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert expected.lower() in done.stdout.lower()
    assert "\n" not in done.stdout
