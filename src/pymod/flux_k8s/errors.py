# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The errors that domain modules raise.

Each message stands alone, as the note of an exception or a line of a log: it names the
thing, the value, and the values that would be right.
"""

from __future__ import annotations

import json
from typing import Any, Optional

from flux_k8s.reasons import Note, Reason
from flux_k8s.text import NOTE, SHOWN, printable, printable_lines


def show(value: Any, limit: int = 80) -> str:
    """``value`` as JSON for a message, cut to ``limit`` characters."""
    try:
        text = _beginning(value, limit)
    except TypeError:
        text = repr(value)
    except ValueError:
        text = "a number of too many digits to be shown"
    except RecursionError:
        text = "nested too deeply to be shown"
    return printable(text, limit)


def _beginning(value: Any, limit: int) -> str:
    """The JSON of a value, or more than ``limit`` characters from its beginning."""
    if isinstance(value, str):
        return json.dumps(value[: limit + 1])
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part
        if len(text) > limit:
            break
    return text


class DWSError(Exception):
    """The base of all errors of this package that are meant for people.

    Its message is always printable, and may have several lines.

    Attributes:
        reason: for what is raised or logged of it.
    """

    reason = Reason.BAD_REQUEST

    def __init__(self, message: str, reason: Optional[Reason] = None) -> None:
        super().__init__(printable_lines(message))
        if reason is not None:
            self.reason = reason

    @property
    def note(self) -> Note:
        """The message with its reason."""
        return Note(str(self), self.reason)


class DirectiveError(DWSError):
    """A ``#DW`` directive, or the job attribute that holds it, is wrong.

    :func:`flux_k8s.rules.underline.message` shows the word that is wrong.

    Attributes:
        line: the directive as the user wrote it, or the whole attribute if the error is
            about that. The message has its beginning.
        start, end: the part of ``line`` that is wrong.
        problem: the problem with it, and the texts that would be right.
        meant: the text that the user may have meant instead of that part; None without
            a guess.
    """

    def __init__(
        self,
        line: str,
        start: int,
        end: int,
        problem: str,
        meant: Optional[str] = None,
    ) -> None:
        self.line = line
        self.start = start
        self.end = end
        self.problem = problem
        self.meant = meant
        super().__init__(f"{printable(_folded(line), SHOWN)}: {self.sentence}")

    @property
    def sentence(self) -> str:
        """The problem, printable, and the text that was meant."""
        problem = printable(self.problem, NOTE)
        if self.meant is None:
            return problem
        return f"{problem}: did you mean {printable(self.meant, SHOWN)}?"


def _folded(line: str) -> str:
    return " ".join(line.split())


class ConfigError(DWSError):
    """A key of the ``[rabbit]`` table, or a module argument, is wrong.

    Attributes:
        key: the key, dotted, as in ``rabbit.tc_timeout``, or the argument.
        problem: the problem with it, and the values that would be right.
    """

    reason = Reason.CONFIG_WRONG

    def __init__(self, key: str, problem: str) -> None:
        # A key of the table may have any characters, line feeds included.
        super().__init__(f"{printable(key, SHOWN)}: {printable(problem, NOTE)}")
        self.key = key
        self.problem = problem


class BadObject(DWSError):
    """A JSON object from outside does not have the form that its kind prescribes.

    Attributes:
        name: the object, as in ``DirectiveBreakdown default/fluxjob-1-0``.
        path: the field, as in ``status.storage.allocationSets[0].label``.
        value: the value of the field.
        expected: a description of valid values.
    """

    reason = Reason.BAD_OBJECT

    def __init__(self, name: str, path: str, value: Any, expected: str) -> None:
        place = f"{printable(name, SHOWN)}: {printable(path, SHOWN)}"
        expected = printable(expected, NOTE)
        super().__init__(f"{place} is {show(value)}, expected {expected}")
        self.name = name
        self.path = path
        self.value = value
        self.expected = expected


class NotReady(BadObject):
    """An object of DWS is not ready yet. Its other fields do not count until it is.

    Attributes:
        retry_after: seconds until it may be; None if that is not known.
    """

    reason = Reason.NOT_READY
    retry_after: Optional[float] = None


class AllocationError(DWSError):
    """A request for storage cannot be satisfied with the nodes and the storage of the
    job."""

    reason = Reason.UNSATISFIABLE


class StorageDenied(DWSError):
    """A job cannot have its storage, and will not get it: the job fails."""


class StorageUnavailable(DWSError):
    """A job's storage is unavailable for now: other jobs use it, or a Rabbit is broken.
    The request is to be tried again. The message names the reason."""


class NoEffect(DWSError):
    """A step of a job was carried out, and is still the next one."""

    reason = Reason.KUBERNETES_ERROR

    def __init__(self, step: object) -> None:
        super().__init__(f"{step} had no effect")


class QueryError(DWSError):
    """A query that is refused.

    Attributes:
        errnum: the errno of the answer.
    """

    def __init__(self, errnum: int, text: str) -> None:
        super().__init__(text)
        self.errnum = errnum
