# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The submissions for job objects."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Optional

import pytest

from flux_k8s.ports import Json
from rabbitsim.flux.options import submit_jobspec
from sssjob import read
from sssjob.schema.model import ObjectErrors
from sssjob.to_jobspec.attributes import Submitter
from sssjob.to_jobspec.convert import Submission, jobspecs_in, to_jobspecs

APP = "<Executable>app</Executable>"


def job(contents: str, id: str = "1", **attributes: str) -> str:
    """A job that runs something."""
    said = "".join(f' {name}="{value}"' for name, value in attributes.items())
    program = "" if "<Executable" in contents else APP
    return f"<Job{said}><Id>{id}</Id>{program}{contents}</Job>"


def requested(contents: str) -> str:
    return f"<Requested>{contents}</Requested>"


def submitted(document: str, submitter: Optional[Submitter] = None) -> Submission:
    """The one job of an object of which nothing is left out."""
    warnings: list[str] = []
    (found,) = to_jobspecs(read(document), warnings.append, submitter)
    assert not warnings
    return found


def system(contents: str, submitter: Optional[Submitter] = None) -> Json:
    """``attributes.system`` of a job."""
    jobspec = submitted(job(contents), submitter).jobspec
    return dict(jobspec["attributes"]["system"])


def refused(document: str, submitter: Optional[Submitter] = None) -> list[str]:
    """The lines with which an object is refused, without the numbers of lines."""
    with pytest.raises(ObjectErrors) as caught:
        jobspecs_in(document, pytest.fail, submitter)
    return unnumbered(str(caught.value).splitlines())


def unnumbered(lines: list[str]) -> list[str]:
    """What is said of lines of a document, each of which is named."""
    matches = [re.fullmatch(r"line [1-9][0-9]*: (.*)", line) for line in lines]
    assert all(matches), lines
    return [match[1] for match in matches if match]


def left_out(contents: str) -> tuple[Json, list[str]]:
    """What is submitted when all that Flux cannot be told is left out, and what is
    told about that."""
    warnings: list[str] = []
    document = read(job(contents, awarenessPolicy="Warn"))
    (found,) = to_jobspecs(document, warnings.append)
    ignoring = read(job(contents, awarenessPolicy="Ignore"))
    assert to_jobspecs(ignoring, pytest.fail) == (found,)
    return found.jobspec, unnumbered(warnings)


def submit(options: str) -> Json:
    """The jobspec of ``flux submit OPTIONS app``, or of ``OPTIONS -- COMMAND``."""
    words = shlex.split(options)
    place = words.index("--") if "--" in words else len(words)
    jobspec = submit_jobspec(words[place + 1 :] or ["app"], words[:place])
    if "--cwd" not in options:
        del jobspec["attributes"]["system"]["cwd"]
    return jobspec


def extension(name: str, value: Any) -> str:
    """An Extension of Flux."""
    text = json.dumps(value).replace("&", "&amp;").replace("<", "&lt;")
    return f"<Extension type='Flux' name='{name}'>{text}</Extension>"


PLAIN = submitted(job("")).jobspec
"""The submission for a job with only a command."""
