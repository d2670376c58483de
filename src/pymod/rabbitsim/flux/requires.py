# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``--requires``: job constraints in RFC 35 syntax, to RFC 31 objects.

``a and b`` binds more tightly than ``a or b``; terms side by side are and-ed,
and bind like ``or``, from the left. That is how Flux reads them.
"""

from __future__ import annotations

import re
from typing import Any

from flux_k8s.ports import Json

_TOKEN = re.compile(
    r"""\s*(?:(?P<op>&&?|\|\|?|\(|\)) | (?P<word>(?:'[^']*'|"[^"]*"|[^\s&|()'"])+))""",
    re.VERBOSE,
)
_AND = ("and", "&", "&&")
_OR = ("or", "|", "||")
_OPERATORS = {
    "host": "hostlist",
    "hosts": "hostlist",
    "rank": "ranks",
    "hostlist": "hostlist",
    "ranks": "ranks",
    "properties": "properties",
}


class ConstraintError(ValueError):
    """``--requires`` that cannot be read."""


def parse(text: str) -> Json:
    """The RFC 31 object for a constraint in RFC 35 syntax.

    Raises:
        ConstraintError: it is not one.
    """
    parser = _Parser(text)
    result = parser.expression()
    if parser.peek() is not None:
        raise ConstraintError(f"unexpected '{parser.peek()}' in '{text}'")
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ConstraintError(f"unclosed quote in '{text}'")
            self._tokens.append(match.group("op") or match.group("word"))
            position = match.end()
        self._next = 0

    def peek(self) -> Any:
        """The next token, None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self) -> str:
        token = self.peek()
        if token is None:
            raise ConstraintError(f"'{self._text}' ends too early")
        self._next += 1
        return str(token)

    def expression(self) -> Json:
        left = self._conjunction()
        while self.peek() is not None and self.peek() != ")":
            if self.peek() in _OR:
                self._take()
                left = _combine("or", left, self._conjunction())
            else:
                left = _combine("and", left, self._conjunction())
        return left

    def _conjunction(self) -> Json:
        left = self._unary()
        while self.peek() in _AND:
            self._take()
            left = _combine("and", left, self._unary())
        return left

    def _unary(self) -> Json:
        token = self._take()
        if token == "not":
            return {"not": [self._unary()]}
        if token == "(":
            inner = self.expression()
            if self.peek() != ")":
                raise ConstraintError(f"unclosed parenthesis in '{self._text}'")
            self._take()
            return inner
        if token in (*_AND, *_OR, ")"):
            raise ConstraintError(f"unexpected '{token}' in '{self._text}'")
        if token.startswith("-"):
            return {"not": [_term(token[1:], self._text)]}
        return _term(token, self._text)


def _term(token: str, text: str) -> Json:
    name, colon, value = token.partition(":")
    if not colon:
        name, value = "properties", token
    value = re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", value)
    if name not in _OPERATORS:
        raise ConstraintError(f"unknown constraint operator '{name}' in '{text}'")
    if not value:
        raise ConstraintError(f"'{token}' in '{text}' has no value")
    if _OPERATORS[name] == "properties":
        return {"properties": value.split(",")}
    return {_OPERATORS[name]: [value]}


def _combine(operator: str, left: Json, right: Json) -> Json:
    """``left operator right`` without needless nesting; properties that are
    and-ed side by side become one list."""
    terms: list[Json] = []
    for side in (left, right):
        terms.extend(side[operator] if operator in side else [side])
    merged: list[Json] = []
    for term in terms:
        if (
            operator == "and"
            and merged
            and "properties" in term
            and "properties" in merged[-1]
        ):
            merged[-1] = {"properties": merged[-1]["properties"] + term["properties"]}
        else:
            merged.append(term)
    return merged[0] if len(merged) == 1 else {operator: merged}
