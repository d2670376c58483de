# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The payloads of the ``dws.*`` RPCs (seed 001, "RPC Interface")."""

from __future__ import annotations

from typing import Any

from flux_k8s import rset
from flux_k8s.config import Config
from flux_k8s.directives import parse_attribute
from flux_k8s.fields import Reader, check_levels
from flux_k8s.jobid import f58
from flux_k8s.rset import ResourceSet
from flux_k8s.workflowinfo import StorageRequest


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
    check_levels(reader.name, "resources", resources)
    request = StorageRequest(
        userid=reader.integer("userid", minimum=0),
        directives=parse_attribute(
            list(reader.strings("dw_directives")), config.presets
        ),
        resources=resources,
    )
    return jobid, request, reader.integer("failure_tolerance", minimum=0)


def read_setup(payload: Any) -> tuple[int, ResourceSet]:
    """``dws.setup``: the job and its R."""
    reader = Reader("dws.setup", payload)
    jobid = reader.integer("jobid", minimum=0)
    return jobid, rset.parse(reader.object("R").value, name=f"R of job {f58(jobid)}")


def read_post_run(payload: Any) -> tuple[int, bool]:
    """``dws.post_run``: the job and whether it ran."""
    reader = Reader("dws.post_run", payload)
    return reader.integer("jobid", minimum=0), reader.boolean("run_started")


def whose(payload: Any) -> str:
    """The job that a request is about, to begin a line of the log with."""
    jobid = payload.get("jobid") if isinstance(payload, dict) else None
    if isinstance(jobid, int) and 0 <= jobid < 2**64:
        return f"{f58(jobid)}: "
    return ""
