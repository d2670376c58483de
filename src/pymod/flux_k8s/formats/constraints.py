# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 31: constraints on the nodes that a job may have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_
from typing import Any, Callable, Collection, Iterable, Mapping, Optional, Union

from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist, idset
from flux_k8s.formats.rset import ILLEGAL_IN_PROPERTY, is_property

PROPERTIES = "properties"
HOSTLIST = "hostlist"
RANKS = "ranks"
AND = "and"
OR = "or"
NOT = "not"
OPERATORS = (PROPERTIES, HOSTLIST, RANKS, AND, OR, NOT)

MAX_CONSTRAINT_DEPTH = 64
"""The most levels of a constraint. More are taken for a mistake."""

MAX_MEMBERS = 2**20
"""More hosts and ranks than this in one constraint, repetitions included, are taken
for a mistake."""

MAX_CHARACTERS = 16 * MAX_MEMBERS
"""So are more characters than this in its values."""

JOB_MEMBERS, JOB_VALUES = 2**14, 2**10
"""The most hosts and ranks that the constraint of a job may name, and the most values
that its operators may have. A guest wrote it."""

JOB_CHARACTERS = 16 * JOB_MEMBERS
"""The most characters of all names, hostlists and idsets of such a constraint. To read
so many takes 20 ms."""

MEMBERS, VALUES, CHARACTERS = "hosts and ranks", "values", "characters"
_BOUNDS = {MEMBERS: MAX_MEMBERS, VALUES: MAX_MEMBERS, CHARACTERS: MAX_CHARACTERS}
_JOB_BOUNDS = {MEMBERS: JOB_MEMBERS, VALUES: JOB_VALUES, CHARACTERS: JOB_CHARACTERS}


Members = frozenset[Union[str, int]]
"""The hosts of ``hostlist``, or the ranks of ``ranks``."""


@dataclass(frozen=True)
class Constraint:
    """A valid constraint. Make one with :func:`parse`, or with a function below.

    Attributes:
        operator: one of ``OPERATORS``; empty for the empty constraint ``{}``,
            which matches everything.
        values: names of properties (a property that the node must not have begins with
            ``^``), hostlists or idsets, as they were written. Those of ``and``, ``or``
            and ``not`` are constraints.
    """

    operator: str = ""
    values: tuple[Union[str, Constraint], ...] = ()
    _members: Members = field(default=frozenset(), repr=False, compare=False)
    _bound: Optional[int] = None

    def match(self, host: str, rank: int, properties: Collection[str] = ()) -> bool:
        """Whether the node ``host``, of broker ``rank``, satisfies the constraint.

        Without values, ``properties``, ``and`` and ``or`` match everything,
        ``hostlist``, ``ranks`` and ``not`` nothing.
        """
        found = self.select(
            1,
            lambda name: int(name in properties),
            lambda members: int(host in members or rank in members),
        )
        return found == 1

    def select(
        self, all: int, having: Callable[[str], int], those: Callable[[Members], int]
    ) -> int:
        """Those of some nodes that :meth:`match`, as the bits of an integer: a guest's
        constraint has a thousand operators, and Python has the union and the
        intersection of ten thousand nodes in less than a microsecond that way.

        Args:
            all: the nodes.
            having: those that have a property.
            those: those of some hosts or ranks.
        """
        if self._bound is not None:
            return self._bound & all
        if self.operator == PROPERTIES:
            found = all
            for name in self.names:
                absent = name.startswith("^")
                with_it = having(name[absent:])
                found &= ~with_it if absent else with_it
            return found
        if self.operator in (HOSTLIST, RANKS):
            return those(self._members) & all
        chosen = [child.select(all, having, those) for child in self.children]
        if self.operator == OR and chosen:
            return reduce(or_, chosen)
        both = reduce(and_, chosen, all)
        return all & ~both if self.operator == NOT else both

    def bind(self, those: Callable[[Members], int]) -> Constraint:
        """The same constraint, which keeps the nodes that :meth:`select` would ask
        ``those`` for in place of hosts and ranks."""
        if self.operator in (HOSTLIST, RANKS):
            return Constraint(self.operator, _bound=those(self._members))
        if self.children:
            children = tuple(child.bind(those) for child in self.children)
            return replace(self, values=children)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The values of ``properties``, ``hostlist`` and ``ranks``."""
        return tuple(value for value in self.values if isinstance(value, str))

    @property
    def children(self) -> tuple[Constraint, ...]:
        """The values of ``and``, ``or`` and ``not``."""
        return tuple(value for value in self.values if isinstance(value, Constraint))

    def to_json(self) -> dict[str, Any]:
        """The constraint as RFC 31 JSON."""
        if not self.operator:
            return {}
        return {
            self.operator: [
                value.to_json() if isinstance(value, Constraint) else value
                for value in self.values
            ]
        }


ALWAYS = Constraint()
"""Matches everything: ``{}``."""

NEVER = Constraint(NOT)
"""Matches nothing: ``{"not": []}``."""


def parse(obj: Any, name: str = "constraints") -> Constraint:
    """Read a constraint. Errors call the object ``name``.

    Raises:
        BadObject: an operator is unknown, or there are several in one object;
            ``not`` has more than one value; a value is no property name,
            hostlist, idset or constraint; there is more than the bounds allow.
    """
    return _parse(obj, name, "", 0, _Size(name, _BOUNDS))


def parse_of_job(obj: Any) -> Constraint:
    """Read ``attributes.system.constraints`` of a job; None stands for no constraint.

    Raises:
        BadObject: as :func:`parse`; it is larger than ``JOB_MEMBERS``, ``JOB_VALUES``
            and ``JOB_CHARACTERS`` allow.
    """
    size = _Size("constraints", _JOB_BOUNDS)
    return _parse({} if obj is None else obj, "constraints", "", 0, size)


def exclude_properties(names: Iterable[str]) -> dict[str, Any]:
    """The constraint for nodes that have none of these properties."""
    return normalise({PROPERTIES: [f"^{name}" for name in names]})


def exclude_hosts(names: Iterable[str]) -> dict[str, Any]:
    """The constraint for nodes of other names than these."""
    return normalise({NOT: [{HOSTLIST: [hostlist.encode(names)]}]})


def only_hosts(names: Iterable[str]) -> dict[str, Any]:
    """The constraint for nodes of these names."""
    return normalise({HOSTLIST: [hostlist.encode(names)]})


def conjunction(*constraints: Optional[Any]) -> dict[str, Any]:
    """The constraint for nodes that all ``constraints`` match, normalised.

    None stands for no constraint.

    Raises:
        BadObject: as :func:`parse`.
    """
    parsed = [parse(item) for item in constraints if item is not None]
    return _normal_and(Constraint(AND, tuple(parsed))).to_json()


def normalise(constraint: Any) -> dict[str, Any]:
    """A constraint that matches the same nodes, in its shortest form: constants
    are folded, ``and`` in ``and`` and ``or`` in ``or`` are flattened, repetitions
    are dropped, hostlists and idsets are encoded anew, and all properties that a
    node must have stand in one list.

    Raises:
        BadObject: as :func:`parse`.
    """
    return _normal(parse(constraint)).to_json()


def _normal(constraint: Constraint) -> Constraint:
    operator = constraint.operator
    members = constraint._members
    if operator == PROPERTIES:
        names = tuple(sorted(set(constraint.names)))
        return Constraint(PROPERTIES, names) if names else ALWAYS
    if operator in (HOSTLIST, RANKS):
        if not members:
            return NEVER
        if operator == HOSTLIST:
            found = sorted(map(str, members), key=hostlist.natural_key)
            text = hostlist.encode(found)
        else:
            text = idset.encode(int(member) for member in members)
        return Constraint(operator, (text,), members)
    if operator == NOT:
        return _normal_not(constraint)
    if operator == OR:
        return _normal_or(constraint)
    return _normal_and(constraint)


def _normal_not(constraint: Constraint) -> Constraint:
    if not constraint.values:
        return NEVER
    child = _normal_and(constraint)
    if child == ALWAYS:
        return NEVER
    if child == NEVER:
        return ALWAYS
    if child.operator == NOT:
        return child.children[0]
    if child.operator == PROPERTIES and len(child.names) == 1:
        name = child.names[0]
        return Constraint(
            PROPERTIES, (name[1:] if name.startswith("^") else f"^{name}",)
        )
    return Constraint(NOT, (child,))


def _normal_or(constraint: Constraint) -> Constraint:
    children = _flattened(OR, constraint)
    if not constraint.values or ALWAYS in children:
        return ALWAYS
    children = [child for child in children if child != NEVER]
    if not children:
        return NEVER
    return children[0] if len(children) == 1 else Constraint(OR, tuple(children))


def _normal_and(constraint: Constraint) -> Constraint:
    children = _flattened(AND, constraint)
    if NEVER in children:
        return NEVER
    names = {
        name
        for child in children
        if child.operator == PROPERTIES
        for name in child.names
    }
    rest = [child for child in children if child.operator not in (PROPERTIES, "")]
    if names:
        rest.append(Constraint(PROPERTIES, tuple(sorted(names))))
    if not rest:
        return ALWAYS
    return rest[0] if len(rest) == 1 else Constraint(AND, tuple(rest))


def _flattened(operator: str, constraint: Constraint) -> list[Constraint]:
    """The normalised values of a constraint, each once. The values of a value with
    the same ``operator`` take its place."""
    found: dict[Constraint, None] = {}
    for child in constraint.children:
        child = _normal(child)
        for item in child.children if child.operator == operator else (child,):
            found[item] = None
    return list(found)


class _Size:
    """Counts the values that a constraint has, their characters, and the hosts and
    ranks that it names, repetitions included."""

    def __init__(self, name: str, most: Mapping[str, int]) -> None:
        self._name = name
        self.most = most
        self._found = dict.fromkeys(most, 0)

    def add(self, what: str, number: int) -> None:
        """Count more of them.

        Raises:
            BadObject: there are more than may be.
        """
        self._found[what] += number
        most = self.most[what]
        if self._found[what] > most:
            found = f"more than {most} {what}"
            raise BadObject(self._name, "the whole", found, f"at most {most}")


def _parse(obj: Any, name: str, path: str, depth: int, size: _Size) -> Constraint:
    here = path or "the whole"
    if not isinstance(obj, dict):
        raise BadObject(name, here, obj, "an RFC 31 constraint object")
    if not obj:
        return ALWAYS
    if len(obj) > 1:
        raise BadObject(name, here, obj, "one operator")
    if depth > MAX_CONSTRAINT_DEPTH:
        levels = f"at most {MAX_CONSTRAINT_DEPTH} levels"
        raise BadObject(
            name, "the whole", f"more than {MAX_CONSTRAINT_DEPTH} levels", levels
        )
    operator, values = next(iter(obj.items()))
    if operator not in OPERATORS:
        expected = f"one of {', '.join(OPERATORS)}"
        raise BadObject(name, f"the operator of {here}", operator, expected)
    here = f"{path}.{operator}" if path else operator
    if not isinstance(values, list):
        raise BadObject(name, here, values, "an array")
    size.add(VALUES, len(values))
    if operator in (AND, OR, NOT):
        if operator == NOT and len(values) > 1:
            raise BadObject(name, here, values, "an array of one constraint")
        children = tuple(
            _parse(value, name, f"{here}[{index}]", depth + 1, size)
            for index, value in enumerate(values)
        )
        return Constraint(operator, children)
    members: set[Union[str, int]] = set()
    for index, value in enumerate(values):
        size.add(CHARACTERS, len(value) if isinstance(value, str) else 0)
        found = _members(operator, value, name, f"{here}[{index}]", size.most[MEMBERS])
        size.add(MEMBERS, len(found))
        members.update(found)
    return Constraint(operator, tuple(values), frozenset(members))


def _members(
    operator: str, value: Any, name: str, path: str, most: int
) -> Collection[Union[str, int]]:
    """The hosts or ranks that ``value`` stands for, at most ``most``; none for a
    property."""
    illegal = " ".join(ILLEGAL_IN_PROPERTY)
    kind = {
        PROPERTIES: f"the name of a property, without any of {illegal}",
        HOSTLIST: "an RFC 29 hostlist",
        RANKS: "an RFC 22 idset",
    }[operator]
    if not isinstance(value, str):
        raise BadObject(name, path, value, kind)
    if operator == PROPERTIES:
        bare = value[1:] if value.startswith("^") else value
        if not is_property(bare):
            raise BadObject(name, path, value, kind)
        return ()
    try:
        if operator == RANKS:
            return idset.decode(value, min(most, idset.MAX_SIZE))
        return hostlist.decode(value, min(most, hostlist.MAX_HOSTS))
    except ValueError as error:
        raise BadObject(name, path, value, f"{kind} ({error})") from None
