# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects of XML: what is written is read, and what is wrong has a place."""

from __future__ import annotations

from typing import Union

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.text import printable
from sssjob import Element, ObjectError, check, element, read, write
from sssjob.schema.model import ObjectErrors
from sssjob.xml.markup import ENCODINGS
from support.jobobjects import EXAMPLES, objects
from support.tables import rows

SIMPLE = "<Job><Id>1</Id><Name>n</Name></Job>"
TEXTS = [path.read_bytes() for path in EXAMPLES]


def refused(document: Union[str, bytes], message: str) -> None:
    with pytest.raises(ObjectError) as caught:
        read(document)
    assert str(caught.value) == message


def valid_or_refused(document: Union[str, bytes]) -> None:
    """Whatever it is, it is a valid object or an error that has its place."""
    try:
        root = read(document, lambda line: None)
    except ObjectError as caught:
        for error in caught.errors if isinstance(caught, ObjectErrors) else [caught]:
            place = f"line {error.line}: {error.path}"
            assert str(error) == printable(f"{place}: {error.problem}")
            assert error.line is not None and error.line > 0
            assert error.path.startswith("/") and error.problem
    else:
        check(root)
        assert read(write(root)) == root


@given(objects())
def test_written_objects_are_read_unchanged(root: Element) -> None:
    text = write(root)
    assert read(text) == root == read(text.encode())
    assert write(read(text)) == text


# Errors have a line and a path


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            "<Job>\n<Id>1</Id>\n<Memory>much</Memory>\n</Job>",
            'line 3: /Job/Memory: is "much", expected a number',
        ),
        (
            "<JobGroup><Id>g</Id>\n<Job><Id>1</Id></Job>\n<Job><Id>2</Id>\n<Requested>"
            "<Memory>1</Memory>\n<Memory op='GE'>x</Memory></Requested></Job>"
            "</JobGroup>",
            'line 5: /JobGroup/Job[2]/Requested/Memory[2]: is "x", expected a number',
        ),
        ("\n<Job><Name/></Job>", "line 2: /Job: has no Id, which it must have"),
        (
            "<Job><Id>1</Id>\n<Node count=' '>n</Node></Job>",
            'line 2: /Job/Node: count is " ", expected an integer of 64 bits',
        ),
        (
            "<Job>\n<Id>1</Id>\n<Name>n</Nam></Job>",
            "line 3: /Job/Name: not well formed: mismatched tag",
        ),
        (
            "<JobGroup><Id>g</Id><Job/>\n<Job><Id>&x;</Id></Job></JobGroup>",
            "line 2: /JobGroup/Job[2]/Id: not well formed: undefined entity",
        ),
        ("", "line 1: /: not well formed: no element found"),
        ("\n\n", "line 3: /: not well formed: no element found"),
        (f"{SIMPLE}\n{SIMPLE}", "line 2: /: not well formed: junk after document "),
        ("<Job>\n\0", "line 2: /Job: not well formed: not well-formed (invalid token)"),
        ("<Job>\n\ud800", "line 2: /: has half of a surrogate pair"),
    ],
)
def test_errors_name_the_line_and_the_path(document: str, message: str) -> None:
    with pytest.raises(ObjectError) as caught:
        read(document)
    assert str(caught.value).startswith(message)
    valid_or_refused(document)


# White space


def test_white_space_counts_in_strings_only() -> None:
    text = (
        "\n<Job>\n\t<Id> 1 </Id> <Name/>\r\n<Shell>  </Shell>"
        "<Memory>\n 2.5 </Memory><Interactive> TRUE </Interactive>"
        "<TaskGroup>\n tg 1 </TaskGroup><TaskGroup> <Id>x</Id>\n</TaskGroup>\n</Job>\n"
    )
    assert read(text) == element(
        "Job",
        None,
        element("Id", " 1 "),
        element("Name", ""),
        element("Shell", "  "),
        element("Memory", 2.5),
        element("Interactive", True),
        element("TaskGroup", "tg 1"),
        element("TaskGroup", None, element("Id", "x")),
    )


# Encodings


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bytes_may_be_in_any_encoding_that_is_known(encoding: str) -> None:
    name = "name" if encoding == "US-ASCII" else "n\u00e4me"
    root = element("Job", None, element("Id", "1"), element("Name", name))
    text = write(root).replace("UTF-8", encoding)
    assert read(text.encode(encoding)) == root
    # A text was decoded before, whatever it says.
    assert read(text) == root


def test_bytes_may_begin_with_a_byte_order_mark() -> None:
    root = read(SIMPLE)
    for encoding in ("utf-8-sig", "utf-16"):
        assert read(SIMPLE.encode(encoding)) == root
    assert read(f"\ufeff{SIMPLE}") == root


# Namespaces


@pytest.mark.parametrize(
    "text",
    [
        "<Job xmlns='urn:sss'><Id>1</Id><Charge units='USD'>2</Charge></Job>",
        "<s:Job xmlns:s='urn:sss'><s:Id>1</s:Id><Charge s:units='USD'>2</Charge>"
        "</s:Job>",
        "<Job xmlns='urn:sss' xmlns:s='urn:sss'><s:Id>1</s:Id>"
        "<Charge xmlns='' units='USD'>2</Charge></Job>",
        "<s:Job xmlns:s='urn:sss'><t:Id xmlns:t='urn:sss'>1</t:Id>"
        "<s:Charge xmlns:t='urn:sss' t:units='USD'>2</s:Charge></s:Job>",
    ],
)
def test_elements_in_the_namespace_of_the_root_or_in_none_are_ours(text: str) -> None:
    plain = "<Job><Id>1</Id><Charge units='USD'>2</Charge></Job>"
    assert read(text) == read(plain)


NOT_OURS = r"""
<Name xmlns='urn:other'>n</Name> -> /Job/Name: is not understood, Job may not have it;
  awarenessPolicy is Reject here
<o:Name xmlns:o='urn:other'>n</o:Name> -> /Job/o:Name: is not understood, Job may not
  have it; awarenessPolicy is Reject here
<Charge xmlns:o='urn:other' o:units='USD'>1</Charge> -> /Job/Charge: may have no
  attribute o:units, which is not understood; awarenessPolicy is Reject here
<Name xml:lang='en'>n</Name> -> /Job/Name: may have no attribute xml:lang, which is not
  understood; awarenessPolicy is Reject here
<o:Name>n</o:Name> -> /Job: o:Name has a prefix that is not declared, expected an xmlns
<Name xmlns:o='urn:o'/><Charge o:units='USD'>1</Charge> -> /Job: o:units has a prefix
  that is not declared, expected an xmlns
<:Name>n</:Name> -> /Job: :Name has a prefix that is not declared, expected an xmlns
<o:Name xmlns:o=''>n</o:Name>
  -> /Job: xmlns:o is empty, expected the name of a namespace
<s:Charge xmlns:s='urn:sss' s:units='USD' units='EUR'>1</s:Charge>
  -> /Job: has two attributes units, expected one
"""


@pytest.mark.parametrize(("contents", "message"), rows(NOT_OURS))
def test_elements_of_other_namespaces_are_not_understood(
    contents: str, message: str
) -> None:
    document = f"<Job xmlns='urn:sss'><Id>1</Id>{contents}</Job>"
    refused(document, f"line 1: {message}")


# Whatever comes


@given(st.binary(max_size=200) | st.text(max_size=200))
@example(b"\xef\xbb\xbf")
@example(b"\xff\xfe<\0J\0")
@example("<Job awarenessPolicy='Ignore'><x:Id>")
def test_anything_is_an_object_or_an_error(document: Union[str, bytes]) -> None:
    valid_or_refused(document)


snippets = st.sampled_from(
    [
        *(b"<", b">", b"</", b"/>", b"&", b"&#0;", b"&#60;", b'"', b"\0", b"\xff"),
        *(b"<!DOCTYPE Job>", b"<![CDATA[", b"<?x?>", b"<!--", b" xmlns='x'", b"-->"),
        *(b"<Job>", b"</Job>", b"<Requested>", b"<x/>", b" x='1'", b"<Task>1</Task>"),
        *(b" awarenessPolicy='Ignore'", b" awarenessPolicy='Warn'", b"1e400", b""),
    ]
)


@given(st.sampled_from(TEXTS) | objects().map(lambda o: write(o).encode()), st.data())
def test_anything_that_was_an_object_is_one_or_an_error(
    text: bytes, data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        places = st.integers(0, len(text))
        start, end = sorted((data.draw(places), data.draw(places)))
        kept = data.draw(st.booleans())
        if kept:
            # Repeat a part, or put something in.
            part = data.draw(snippets) or text[start : start + 30]
            text = text[:start] + part + text[start:]
        else:
            text = text[:start] + data.draw(snippets) + text[min(end, start + 30) :]
    valid_or_refused(text)


def test_of_many_errors_the_first_ones_are_told_and_how_many_more_there_are() -> None:
    errors = [ObjectError(f"/Job[{n}]", "is wrong") for n in range(250)]
    told = str(ObjectErrors(errors)).splitlines()
    assert told == [*map(str, errors[:200]), "and 50 more errors"]
