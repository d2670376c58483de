# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 29: ordered lists of host names as strings, like ``rabbit[1-4,9]``.

Order and repetition carry meaning in a hostlist, so hosts are tuples here.

RFC 29 applies the leading zeros of an idlist's first element to the whole list.
Flux, which writes the hostlists that this module reads, pads each range by itself:
it prints ``h005,h4`` as ``h[005,4]``. This module does as Flux does.
"""

from __future__ import annotations

import functools
import re
from typing import Iterable, Iterator

from flux_k8s.json_reader import Reader
from flux_k8s.text import quoted

MAX_HOSTS = 2**17
"""More hosts than this in one hostlist are taken for a mistake."""

MAX_NAME = 256
"""Characters of a host name: Flux's own limit is that of the C library."""

_SEPARATORS = ", \t"
_EXPRESSION = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\]([^\[\]]*))?\Z")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z", re.ASCII)
_NAME = re.compile(rf"[!-~]{{1,{MAX_NAME}}}\Z")
_DIGIT = "0123456789"
_DIGITS = re.compile(r"([0-9]+)", re.ASCII)
_MAX_DIGITS = 18


def decode(text: str, most: int = MAX_HOSTS) -> tuple[str, ...]:
    """The hosts of a hostlist string, in its order, repetitions included.

    An expression may have one bracketed list of ids; empty expressions are
    skipped; blanks separate as commas do.

    Raises:
        ValueError: ``text`` is no hostlist, or has more than ``most`` hosts.
    """
    hosts: list[str] = []
    for expression in _split(text):
        match = _EXPRESSION.match(expression)
        if match is None:
            raise ValueError(
                f"hostlist {quoted(text)}: misplaced bracket in {quoted(expression)}"
            )
        prefix, idlist, suffix = match.groups()
        if idlist is None:
            hosts.append(_checked(expression, text))
        else:
            _checked(prefix + suffix + "0", text)
            room = most - len(hosts)
            hosts.extend(_expand(prefix, idlist, suffix, text, room, most))
        if len(hosts) > most:
            raise _too_many(text, most)
    return tuple(hosts)


def read(reader: Reader, path: str) -> tuple[str, ...]:
    """The hosts of a field that has a hostlist.

    Raises:
        BadObject: it is none.
    """
    try:
        return decode(reader.text(path))
    except ValueError as error:
        raise reader.bad(path, f"an RFC 29 hostlist ({error})") from None


def decode_all(texts: Iterable[str]) -> tuple[str, ...]:
    """The hosts of several hostlists, one after the other.

    Raises:
        ValueError: a text is no hostlist, or all texts together have more than
            ``MAX_HOSTS`` hosts.
    """
    hosts: list[str] = []
    for text in texts:
        hosts.extend(decode(text))
        if len(hosts) > MAX_HOSTS:
            raise _too_many(text, MAX_HOSTS)
    return tuple(hosts)


def is_name(host: str) -> bool:
    """Whether a text can be a host name in a hostlist."""
    return bool(_NAME.match(host)) and not set("[],").intersection(host)


def encode(hosts: Iterable[str]) -> str:
    """The hostlist string of ``hosts``, in their order, repetitions included.
    Neighbours that differ only in the number at their end share brackets.

    Raises:
        ValueError: for a name that a hostlist cannot hold (empty, or with a
            bracket, comma or blank in it).
    """
    return ",".join(_fold(hosts))


def encode_sorted(hosts: Iterable[str]) -> str:
    """The hostlist string of ``hosts``, in natural order.

    Raises:
        ValueError: as :func:`encode`.
    """
    return encode(sorted(hosts, key=natural_key))


@functools.lru_cache(maxsize=16384)
def natural_key(host: str) -> tuple[tuple[int, str, str], ...]:
    """A sort key by which ``h2`` comes before ``h10``. Keys are kept: the names of a
    machine are sorted again and again, which takes less time than to make the keys."""
    key: list[tuple[int, str, str]] = []
    for part in filter(None, _DIGITS.split(host)):
        number = part.lstrip("0") if part[0] in _DIGIT else None
        # Of two numbers the one with more digits is the larger.
        key.append((-1, part, "") if number is None else (len(number), number, part))
    return tuple(key)


def _split(text: str) -> Iterator[str]:
    """The expressions of ``text``; separators in brackets do not separate."""
    start = 0
    depth = 0
    for index, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char in _SEPARATORS and depth == 0:
            if index > start:
                yield text[start:index]
            start = index + 1
    if len(text) > start:
        yield text[start:]


def _checked(name: str, text: str) -> str:
    """``name``, if it may be the name of a host in the hostlist ``text``."""
    if not _NAME.match(name):
        raise ValueError(
            f"hostlist {quoted(text)}: host names have printable ASCII characters"
            f" only, at most {MAX_NAME}"
        )
    return name


def _expand(
    prefix: str, idlist: str, suffix: str, text: str, room: int, most: int
) -> Iterator[str]:
    """The hosts of one expression with brackets, at most ``room`` of them."""
    for element in idlist.split(","):
        match = _RANGE.match(element)
        if match is None or max(map(len, match.groups(""))) > _MAX_DIGITS:
            raise ValueError(
                f"hostlist {quoted(text)}: {quoted(element)} is neither a number nor a"
                " range like 1-4"
            )
        first, width = int(match[1]), len(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise ValueError(
                f"hostlist {quoted(text)}: the range {element} runs backwards"
            )
        room -= last - first + 1
        if room < 0:
            raise _too_many(text, most)
        for number in range(first, last + 1):
            yield f"{prefix}{number:0{width}d}{suffix}"


def _too_many(text: str, most: int) -> ValueError:
    return ValueError(f"hostlist {quoted(text)}: more than {most} hosts")


def _fold(hosts: Iterable[str]) -> Iterator[str]:
    """The expressions of ``hosts``: runs of the same prefix, each as ranges."""
    prefix = ""
    run: list[tuple[str, str]] = []
    for host in hosts:
        if not is_name(host):
            raise ValueError(f"{quoted(host)} cannot be a host name in a hostlist")
        stem = host.rstrip(_DIGIT)
        digits = host[len(stem) :]
        if not digits or len(digits) > _MAX_DIGITS:
            if run:
                yield _bracketed(prefix, run)
                run = []
            yield host
            continue
        if run and stem != prefix:
            yield _bracketed(prefix, run)
            run = []
        prefix = stem
        if run and _follows(run[-1], digits):
            run[-1] = (run[-1][0], digits)
        else:
            run.append((digits, digits))
    if run:
        yield _bracketed(prefix, run)


def _follows(span: tuple[str, str], digits: str) -> bool:
    """Whether ``digits`` can extend the range from ``span[0]`` to ``span[1]``: they
    are the next number, with the padding of that range."""
    first, last = span
    following = int(last) + 1
    return digits == f"{following:0{len(first)}d}"


def _bracketed(prefix: str, run: list[tuple[str, str]]) -> str:
    spans = [first if first == last else f"{first}-{last}" for first, last in run]
    if len(spans) == 1 and run[0][0] == run[0][1]:
        return prefix + spans[0]
    return f"{prefix}[{','.join(spans)}]"
