# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Parses untrusted XML into a tree of elements and texts.

Nothing is known here of jobs. What a document can do to its reader is bounded:

- it is refused as soon as it has a DOCTYPE, so there are no entities but those
  of XML itself, no attributes by default, and nothing external;
- its size, its depth, and its numbers of elements and of attributes are bounded,
  and so is the size of a tag, of which a parser holds all attributes at once;
- it is in UTF-8, UTF-16, ISO-8859-1 or US-ASCII;
- it goes to the parser in pieces, so that it is refused before all of it is held.

Namespaces are told apart here and not by the parser, which would repeat the name
of a namespace, however long, in that of each element.

lxml would not do: it cannot bound a tag below libxml2's 10 MB, and needs 158 MiB
until it refuses one of that size. The bounds of depth and numbers, the encodings
and the refusal of a DOCTYPE with its path would stay here; some 60 lines about
namespaces would go, and half as many come. For 60,000 jobs it needs 0.6 s instead of
0.9 s, but 178 MiB instead of 99 MiB, and each user of a job object 7 MiB more.
"""

from __future__ import annotations

from typing import Optional, Union
from xml.parsers import expat

from flux_k8s.errors import show
from sssjob.schema.model import ObjectError

MAX_SIZE = 16 * 2**20
"""Bytes of a document."""
MAX_TAG = 2**20
"""Bytes, or some more, of one tag, comment or processing instruction."""
MAX_DEPTH = 64
"""Elements within each other."""
MAX_ELEMENTS = 200_000
MAX_ATTRIBUTES = 200_000

ENCODINGS = ("UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "ISO-8859-1", "US-ASCII")

_PIECE = 2**18
# No name that has a meaning is longer; the others only go into messages.
_LONGEST_NAME = 80
_XMLNS = "xmlns"
_NAMESPACE_OF_XML = "http://www.w3.org/XML/1998/namespace"


class Node:
    """An element as it stands in a document.

    Attributes:
        name: without its prefix if it is ``ours``, else as it is written. Cut
            if it is too long to have a meaning.
        ours: it is in the namespace of the root element, or in none.
        attributes: their names and values. The names of those that are not ours
            have a prefix. Declarations of namespaces are left out.
        line: where it begins, counted from 1.
        pieces: its text.
        contents: the elements in it.
    """

    __slots__ = ("name", "ours", "attributes", "line", "pieces", "contents")

    def __init__(
        self,
        name: str,
        ours: bool,
        attributes: tuple[tuple[str, str], ...],
        line: int,
    ) -> None:
        self.name = name
        self.ours = ours
        self.attributes = attributes
        self.line = line
        self.pieces: list[str] = []
        self.contents: list[Node] = []

    @property
    def text(self) -> str:
        """Its text, without that of the elements in it."""
        return "".join(self.pieces)


def parse(document: Union[str, bytes]) -> Node:
    """The root element of a document.

    Args:
        document: as text, then whatever it says of its encoding does not count,
            or as bytes.

    Raises:
        ObjectError: it is not well-formed, has a DOCTYPE, is in an encoding that
            is not known, or beyond a bound.
    """
    if len(document) > MAX_SIZE:
        raise _too_large("document", MAX_SIZE, "/", 1)
    if isinstance(document, bytes):
        return _Builder(None).run(document)
    try:
        encoded = document.encode()
    except UnicodeEncodeError as error:
        line = document.count("\n", 0, error.start) + 1
        raise ObjectError("/", "has half of a surrogate pair", line) from None
    if len(encoded) > MAX_SIZE:
        raise _too_large("document", MAX_SIZE, "/", 1)
    return _Builder("UTF-8").run(encoded)


class _Scope:
    """The namespaces that an element declares, and those around it."""

    __slots__ = ("own", "outer")

    def __init__(self, own: dict[str, str], outer: Optional[_Scope]) -> None:
        self.own = own
        self.outer = outer

    def find(self, prefix: str) -> Optional[str]:
        scope: Optional[_Scope] = self
        while scope is not None:
            if prefix in scope.own:
                return scope.own[prefix]
            scope = scope.outer
        return None


class _Builder:
    """Makes nodes of what the parser tells.

    Args:
        encoding: of the document; None for the one that it declares.
    """

    def __init__(self, encoding: Optional[str]) -> None:
        self._encoding = encoding
        self._parser = parser = expat.ParserCreate(encoding)
        parser.ordered_attributes = True
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        self._root: Optional[Node] = None
        # Those that are open, with the namespaces that they know.
        self._open: list[Node] = []
        self._scopes = [_Scope({"": "", "xml": _NAMESPACE_OF_XML}, None)]
        self._namespace = ""
        self._elements = 0
        self._attributes = 0

    def run(self, document: bytes) -> Node:
        parser = self._parser
        try:
            for start in range(0, len(document), _PIECE):
                piece = document[start : start + _PIECE]
                parser.Parse(piece, False)
                if start + len(piece) - parser.CurrentByteIndex > MAX_TAG:
                    raise _too_large("tag", MAX_TAG, self._path(), self._line())
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            problem = f"not well formed: {expat.ErrorString(error.code)}"
            raise ObjectError(self._path(), problem, error.lineno) from None
        # The parser says so itself where there is no root.
        assert self._root is not None
        return self._root

    def _line(self) -> int:
        return self._parser.CurrentLineNumber

    def _path(self) -> str:
        """That of the element that is open, as far as is known by now."""
        path = ""
        for outer, node in zip([None, *self._open], self._open):
            alike = [] if outer is None else outer.contents
            count = sum(other.name == node.name for other in alike)
            path += f"/{node.name}" + (f"[{count}]" if count > 1 else "")
        return path or "/"

    def _error(self, problem: str) -> ObjectError:
        return ObjectError(self._path(), problem, self._line())

    def _declaration(
        self, _version: str, encoding: Optional[str], _standalone: int
    ) -> None:
        if self._encoding is None and encoding is not None:
            if encoding.upper() not in ENCODINGS:
                raise self._error(
                    f"encoding is {show(encoding)}, expected one of "
                    + ", ".join(ENCODINGS)
                )

    def _doctype(self, *_: object) -> None:
        raise self._error("has a DOCTYPE, which a job object may not have")

    def _start(self, name: str, pairs: list[str]) -> None:
        self._count(len(pairs) // 2)
        declared: dict[str, str] = {}
        attributes: list[tuple[str, str]] = []
        for key, value in zip(pairs[::2], pairs[1::2]):
            prefix, colon, local = key.partition(":")
            if key == _XMLNS:
                declared[""] = value
            elif colon and prefix == _XMLNS:
                declared[local] = self._declared(key, value)
            else:
                attributes.append((key, value))
        outer = self._scopes[-1]
        self._scopes.append(_Scope(declared, outer) if declared else outer)
        if self._root is None:
            self._namespace = self._resolve(name)
        ours = self._resolve(name) in ("", self._namespace)
        shown = cut(_local(name) if ours else name)
        node = Node(shown, ours, self._named(attributes), self._line())
        if self._root is None:
            self._root = node
        else:
            self._open[-1].contents.append(node)
        self._open.append(node)

    def _end(self, _name: str) -> None:
        self._open.pop()
        self._scopes.pop()

    def _text(self, text: str) -> None:
        self._open[-1].pieces.append(text)

    def _count(self, attributes: int) -> None:
        """Whether one more element, with so many attributes, is within bounds."""
        self._elements += 1
        self._attributes += attributes
        if len(self._open) >= MAX_DEPTH:
            raise self._error(f"has more than {MAX_DEPTH} elements within each other")
        if self._elements > MAX_ELEMENTS:
            raise self._error(f"more than {MAX_ELEMENTS} elements in all")
        if self._attributes > MAX_ATTRIBUTES:
            raise self._error(f"more than {MAX_ATTRIBUTES} attributes in all")

    def _declared(self, key: str, value: str) -> str:
        if not value:
            raise self._error(f"{cut(key)} is empty, expected the name of a namespace")
        return value

    def _resolve(self, name: str) -> str:
        """The namespace of an element, or of an attribute with a prefix."""
        prefix, colon, _ = name.partition(":")
        namespace = self._scopes[-1].find(prefix if colon else "")
        if namespace is None or (colon and not prefix):
            raise self._error(
                f"{cut(name)} has a prefix that is not declared, expected an xmlns"
            )
        return namespace

    def _named(self, attributes: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """The attributes without the prefixes of those that are ours."""
        named: dict[str, str] = {}
        for key, value in attributes:
            ours = ":" in key and self._resolve(key) == self._namespace
            name = _local(key) if ours else key
            if name in named:
                raise self._error(f"has two attributes {cut(name)}, expected one")
            named[name] = value
        return tuple(named.items())


def _too_large(what: str, limit: int, path: str, line: int) -> ObjectError:
    return ObjectError(path, f"a {what} of more than {limit // 2**20} MiB", line)


def _local(name: str) -> str:
    return name.partition(":")[2] or name


def cut(name: str) -> str:
    """A name for messages."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
