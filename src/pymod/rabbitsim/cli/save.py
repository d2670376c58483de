# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``--save DIR``: what Flux has of a job, as files that are called as in its KVS.

``flux dws job-object --from=DIR/ID`` makes a job object of them, on any machine.
"""

from __future__ import annotations

import contextlib
import pathlib
from typing import Iterator, Mapping, Optional

from rabbitsim.cli.errors import UsageError
from rabbitsim.cli.outcome import Outcome
from rabbitsim.flux.events import encode_eventlog
from rabbitsim.flux.job import Job
from sssjob.from_flux.convert import EVENTLOG, KEYS

MOVEMENTS = 100
"""The largest number of NnfDataMovements that are saved for a job."""


def kvs_of(job: Job) -> Mapping[str, str]:
    """The values of :data:`KEYS` in the KVS directory of a job of the stand-in."""
    kvs = {**job.kvs, EVENTLOG: encode_eventlog(job.events)}
    return {key: kvs[key] for key in KEYS if key in kvs}


def read_kvs(folder: pathlib.Path) -> Mapping[str, str]:
    """The values of :data:`KEYS` in files of these names."""
    paths = {key: folder / key for key in KEYS}
    return {
        key: path.read_text(encoding="utf-8")
        for key, path in paths.items()
        if path.is_file()
    }


def prepare(folder: Optional[pathlib.Path]) -> None:
    """Make the folder. Done before the job runs: a bad path is told before, not
    after."""
    if folder is not None:
        with _told(folder):
            folder.mkdir(parents=True, exist_ok=True)


def save(folder: Optional[pathlib.Path], outcome: Outcome) -> None:
    """Save a job that was submitted in a directory of its own; or do not, without
    a folder."""
    if folder is None or outcome.id is None:
        return
    with _told(folder):
        target = folder / outcome.id
        target.mkdir(exist_ok=True)
        for key in KEYS:
            path = target / key
            if key in outcome.kvs:
                path.write_text(outcome.kvs[key], encoding="utf-8")
            else:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _told(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"--save {folder}: {error.strerror}") from None
