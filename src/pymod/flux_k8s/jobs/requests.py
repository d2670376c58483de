# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The payloads of the ``dws.*`` RPCs (seed 001, "RPC Interface")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.dws.directives import parse_attribute
from flux_k8s.dws.storagerequest import (
    RELEASES,
    STAGES,
    URGENCY_DEFAULT,
    StorageRequest,
)
from flux_k8s.errors import DWSError
from flux_k8s.jobs.setuppayload import Payload, load
from flux_k8s.jobs.work import Work
from flux_k8s.json_reader import Reader, check_extent
from flux_k8s.rfc.jobid import f58

RELEASING = frozenset({"post_run", "teardown", "abort", "report_data"})

LARGE = 128 * 1024
"""A ``dws.setup`` of more bytes is not parsed in the process of the service."""

_SETUP = re.compile(rb'\{"jobid":(\d{1,19}),"R":')
_SETUP_START = 64


@dataclass(frozen=True)
class Sender:
    """The sender of a request, as Flux has authenticated it.

    Attributes:
        owner: whether it has the role of the instance owner.
        route: the way back to it, by which its requests are known.
    """

    userid: int
    owner: bool
    route: tuple[bytes, ...] = ()


class QueryError(DWSError):
    """A query that is refused.

    Attributes:
        errnum: the errno of the answer.
    """

    def __init__(self, errnum: int, text: str) -> None:
        super().__init__(text)
        self.errnum = errnum


@dataclass(frozen=True)
class LargeSetup:
    """A ``dws.setup`` that is too large to be parsed here: its job, and its whole
    payload."""

    jobid: int
    text: Payload


def read_jobid(payload: Any, name: str) -> int:
    """The job that a request is about."""
    return Reader(name, payload).integer("jobid", minimum=0)


def read_create(payload: Any, config: Config) -> tuple[int, StorageRequest, int]:
    """``dws.create``: the job, its request, with presets replaced by their
    directives, and its failure tolerance.

    Raises:
        BadObject: the payload is malformed.
        DirectiveError: the job's directives are.
    """
    reader = Reader("dws.create", payload)
    jobid = reader.integer("jobid", minimum=0)
    resources = list(reader.list("resources"))
    check_extent(reader.name, "resources", resources)
    urgency = reader.optional_integer("urgency", minimum=0)  # an older plugin has none
    request = StorageRequest(
        userid=reader.integer("userid", minimum=0),
        directives=parse_attribute(
            list(reader.strings("dw_directives")), config.presets
        ),
        resources=resources,
        release=reader.optional_string("release", choices=RELEASES),
        stage=reader.optional_string("stage", choices=STAGES),
        constraints=reader.value.get("constraints"),
        urgency=URGENCY_DEFAULT if urgency is None else urgency,
        depends=reader.optional_boolean("depends") or False,
    )
    return jobid, request, reader.integer("failure_tolerance", minimum=0)


def parse(method: str, text: Payload, large: int = LARGE) -> Any:
    """The payload of ``dws.<method>``; a :class:`LargeSetup` for a ``dws.setup``
    of more than ``large`` bytes.

    Raises:
        NotJson: the payload is not JSON.
    """
    if method == "setup" and len(text) > large:
        found = _SETUP.match(bytes(text[:_SETUP_START]))
        if found is not None:
            return LargeSetup(int(found[1]), text)
    return load(method, text)


def read_post_run(payload: Any) -> tuple[int, bool]:
    """``dws.post_run``: the job and whether it ran."""
    reader = Reader("dws.post_run", payload)
    return reader.integer("jobid", minimum=0), reader.boolean("run_started")


def jobid_of(payload: Any) -> Optional[int]:
    """The job that a request is about, or seems to be."""
    if isinstance(payload, LargeSetup):
        return payload.jobid
    jobid = payload.get("jobid") if isinstance(payload, dict) else None
    return jobid if isinstance(jobid, int) and 0 <= jobid < 2**64 else None


def work_of(method: str, payload: Any) -> Optional[Work]:
    """The work that a request asks the service for; None without a job ID."""
    jobid = jobid_of(payload)
    return None if jobid is None else Work(jobid, method in RELEASING)


def log_prefix(payload: Any) -> str:
    """The beginning of a line of the log about a request: the job ID, if it has one."""
    jobid = jobid_of(payload)
    return "" if jobid is None else f"{f58(jobid)}: "
