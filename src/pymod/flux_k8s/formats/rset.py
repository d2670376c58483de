# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 20: R, the resources of a job, version 1."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import (
    Any,
    Callable,
    Collection,
    Mapping,
    Optional,
    TypeVar,
    Union,
)

from flux_k8s.errors import BadObject, DWSError
from flux_k8s.formats import hostlist, idset, jgf
from flux_k8s.json_reader import Reader

ILLEGAL_IN_PROPERTY = "!&'\"^`|()"
"""The characters that a property's name may not have, besides those that UTF-8 cannot
hold."""

DEFAULT_WRITER = "fluxion"
"""The writer of ``scheduling`` if R does not name it."""

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """An execution target: a broker rank and the resources that it controls.

    Attributes:
        children: by resource type (``core``, ``gpu``), the idset string of
            logical ids.
    """

    rank: int
    host: str
    children: Mapping[str, str]


@dataclass(frozen=True)
class ResourceSet:
    """A valid R.

    Attributes:
        targets: the execution targets, by ascending rank.
        nslots: the number of slots; None when R is no allocation.
        properties: the ranks, ascending, that each property applies to. A name
            may carry a suffix for the scheduler, as in ``amd-mi50@gpu``.
        starttime: when the resources become valid, UNIX time in seconds; None
            when unset.
        expiration: when the resources cease to be valid; None when unset.
        scheduling: the scheduler's own data, as it came; None without any.
    """

    targets: tuple[Target, ...]
    nslots: Optional[int] = None
    properties: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    starttime: Optional[float] = None
    expiration: Optional[float] = None
    scheduling: Optional[Mapping[str, Any]] = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The broker ranks, ascending."""
        return tuple(target.rank for target in self.targets)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank, in the order of ``ranks``. A host with several
        brokers is listed several times."""
        return tuple(target.host for target in self.targets)

    def graph(self, name: str = "R") -> jgf.Graph:
        """The Rabbits of the graph in ``scheduling``. Errors call R ``name``.

        Raises:
            BadObject: the graph is malformed.
        """
        return jgf.parse(self.scheduling or {}, name)

    @property
    def writer(self) -> str:
        """The URI of the scheduler that wrote ``scheduling``."""
        return str((self.scheduling or {}).get("writer", DEFAULT_WRITER))

    def to_json(self) -> dict[str, Any]:
        """R as JSON, in its shortest form."""
        execution: dict[str, Any] = {
            "R_lite": _r_lite(self.targets),
            "nodelist": [hostlist.encode(self.hosts)],
        }
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        if self.properties:
            execution["properties"] = {
                name: idset.encode(ranks) for name, ranks in self.properties.items()
            }
        if self.starttime is not None:
            execution["starttime"] = self.starttime
        if self.expiration is not None:
            execution["expiration"] = self.expiration
        result: dict[str, Any] = {"version": 1, "execution": execution}
        if self.scheduling is not None:
            result["scheduling"] = self.scheduling
        return result


class UnreadableR(DWSError):
    """The process that reads R for the service has failed, or has found R malformed."""


@dataclass(frozen=True)
class Summary:
    """The part of a job's R that the service keeps.

    Attributes:
        hosts: the host of each rank, as in :class:`ResourceSet`.
        rabbits: the Rabbits of the graph, or the error if the graph is malformed.
    """

    hosts: tuple[str, ...]
    rabbits: Union[jgf.Graph, UnreadableR]

    def graph(self, name: str = "R") -> jgf.Graph:
        """The Rabbits of the graph. Raises UnreadableR."""
        if isinstance(self.rabbits, UnreadableR):
            raise self.rabbits
        return self.rabbits

    def without(self, hosts: Collection[str]) -> Summary:
        """The summary without some hosts."""
        rabbits = self.rabbits
        if isinstance(rabbits, jgf.Graph):
            left = {h: r for h, r in rabbits.rabbit_of.items() if h not in hosts}
            rabbits = replace(rabbits, rabbit_of=left)
        return Summary(tuple(h for h in self.hosts if h not in hosts), rabbits)

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON, for :meth:`from_json`."""
        result: dict[str, Any] = {"hosts": self.hosts}
        if isinstance(self.rabbits, UnreadableR):
            result["bad_graph"] = str(self.rabbits)
        else:
            result["rabbit_of"] = self.rabbits.rabbit_of
            result["ssd"] = self.rabbits.ssd
            result["complete"] = self.rabbits.complete
        return result

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Summary:
        """The summary that :meth:`to_json` gave."""
        hosts = tuple(value["hosts"])
        if "bad_graph" in value:
            return cls(hosts, UnreadableR(value["bad_graph"]))
        graph = jgf.Graph(value["rabbit_of"], value["ssd"], value["complete"])
        return cls(hosts, graph)


Allocated = Union[ResourceSet, Summary]
"""The nodes of an allocation, and its storage."""


def summarize(rset: ResourceSet, name: str = "R") -> Summary:
    """The summary of R. Errors call R ``name``."""
    try:
        return Summary(rset.hosts, rset.graph(name))
    except BadObject as error:
        return Summary(rset.hosts, UnreadableR(str(error)))


def is_property(name: str) -> bool:
    """Whether a property may have this name. JSON can name a surrogate, which UTF-8
    cannot hold."""
    return bool(name) and not any(
        char in ILLEGAL_IN_PROPERTY or "\ud800" <= char <= "\udfff" for char in name
    )


def parse(R: Any, name: str = "R") -> ResourceSet:
    """Read R. Errors call R ``name``, as in ``R of job ƒAbC``.

    Raises:
        BadObject: a field is missing, of the wrong type or out of range; a
            rank is listed twice; ``nodelist`` and ``R_lite`` differ in number;
            a property has an illegal name or ranks that R lacks; R expires
            before it starts.
    """
    reader = Reader(name, R)
    reader.integer("version", minimum=1, maximum=1)
    execution = reader.object("execution")
    children = _children_by_rank(execution)
    hosts = _nodelist(execution)
    if len(hosts) != len(children):
        raise execution.bad(
            "nodelist",
            f"one host for each of the {len(children)} ranks, not {len(hosts)} hosts",
        )
    targets = tuple(
        Target(rank, host, children[rank])
        for rank, host in zip(sorted(children), hosts)
    )
    starttime = _time(execution, "starttime")
    expiration = _time(execution, "expiration")
    if starttime is not None and expiration is not None and expiration <= starttime:
        raise execution.bad("expiration", f"a time after starttime ({starttime:.15g})")
    scheduling = reader.optional_object("scheduling")
    if scheduling is not None:
        scheduling.optional_string("writer")
    return ResourceSet(
        targets=targets,
        nslots=execution.optional_integer("nslots", minimum=1),
        properties=_properties(execution, children),
        starttime=starttime,
        expiration=expiration,
        scheduling=None if scheduling is None else scheduling.value,
    )


def _children_by_rank(execution: Reader) -> dict[int, dict[str, str]]:
    entries = execution.objects("R_lite")
    if not entries:
        raise execution.bad("R_lite", "at least one entry")
    children: dict[int, dict[str, str]] = {}
    for entry in entries:
        ranks = idset.read(entry, "rank")
        if not ranks:
            raise entry.bad("rank", "at least one rank")
        resources = {}
        for type, ids in entry.object("children").value.items():
            _decode(ids, execution.name, f"{entry.path}.children.{type}", idset.spans)
            resources[type] = ids
        if "core" not in resources:
            raise entry.bad("children.core", "an RFC 22 idset")
        for rank in ranks:
            if rank in children:
                raise entry.bad("rank", f"no rank of another entry; {rank} is in two")
            children[rank] = resources
        if len(children) > idset.MAX_SIZE:
            raise execution.bad("R_lite", f"at most {idset.MAX_SIZE} ranks")
    return children


def _nodelist(execution: Reader) -> tuple[str, ...]:
    try:
        return hostlist.decode_all(execution.strings("nodelist"))
    except ValueError as error:
        raise execution.bad("nodelist", f"RFC 29 hostlists ({error})") from None


def _properties(
    execution: Reader, children: Mapping[int, Any]
) -> dict[str, tuple[int, ...]]:
    properties = execution.optional_object("properties")
    result: dict[str, tuple[int, ...]] = {}
    for name, value in () if properties is None else properties.value.items():
        place = f"{execution.path}.properties.{name}"
        if not is_property(name):
            expected = f"a name without any of {' '.join(ILLEGAL_IN_PROPERTY)}"
            raise BadObject(
                execution.name, f"{execution.path}.properties", name, expected
            )
        ranks = _decode(value, execution.name, place, idset.decode)
        if any(rank not in children for rank in ranks):
            raise BadObject(execution.name, place, value, "ranks of R_lite only")
        result[name] = ranks
    return result


def _decode(
    value: Any,
    name: str,
    path: str,
    read: Callable[[str], tuple[T, ...]],
) -> tuple[T, ...]:
    """The ids or spans that ``read`` finds in ``value``, which should be an idset
    string. Errors name ``path`` of the object ``name``."""
    try:
        if isinstance(value, str):
            return read(value)
    except ValueError as error:
        raise BadObject(name, path, value, f"an RFC 22 idset ({error})") from None
    raise BadObject(name, path, value, "an RFC 22 idset")


def _time(execution: Reader, path: str) -> Optional[float]:
    """A time; None where R has 0, which stands for unset."""
    return execution.optional_number(path, minimum=0.0) or None


def _r_lite(targets: tuple[Target, ...]) -> list[dict[str, Any]]:
    """R_lite: targets with the same children share an entry."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for target in targets:
        groups.setdefault(tuple(sorted(target.children.items())), []).append(
            target.rank
        )
    return [
        {"rank": idset.encode(ranks), "children": dict(children)}
        for children, ranks in groups.items()
    ]
