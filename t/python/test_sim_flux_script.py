# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``#FLUX:`` lines, and the jobspec that they make."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from flux_k8s.ports import Json
from rabbitsim.flux import requires
from rabbitsim.flux.options import batch_jobspec
from rabbitsim.flux.script import ScriptError

needs_flux = pytest.mark.skipif(shutil.which("flux") is None, reason="no flux on PATH")


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/sh", *lines, "echo", ""])


def jobspec(*lines: str) -> Json:
    return batch_jobspec(script(*lines), "job.sh", cwd="/tmp", environment={})[0]


def refused(*lines: str) -> str:
    with pytest.raises(ScriptError) as caught:
        jobspec(*lines)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("job.sh: ")
    return message


GOOD = {
    "nodes and slots": ["#FLUX: -N2 -n4 -c3 -g1 -t5m"],
    "nodes only": ["# flux: --nodes=3"],
    "slots only": ["#flux:--nslots 4"],
    "uneven": ["#FLUX: -N3 -n4"],
    "exclusive": ["#FLUX: -N2 -n2 --exclusive"],
    "minutes": ["#FLUX: -N1 -t 90"],
    "hours": ["#FLUX: -N1 --time-limit=1.5h"],
    "no limit": ["#FLUX: -N1 -t0"],
    "names": ["#FLUX: -N1 -q batch -B bank --job-name='hello world'"],
    "output": ["#FLUX: -N1 --output=out.txt --error=err-{{id}} --label-io"],
    "storage": ['#FLUX: -N1 -S dw="#DW jobdw type=xfs capacity=1GiB name=a"'],
    "storage in lines": [
        "#FLUX: -N1",
        '#FLUX: --setattr=dw="""',
        "#FLUX: #DW jobdw type=xfs capacity=1GiB name=a",
        "#FLUX:   #DW copy_in source=/lustre/'x y' destination=$DW_JOB_a/",
        '#FLUX: """',
        "#FLUX: -n1",
    ],
    "quotes of the other kind": [
        "#FLUX: -N1",
        "#FLUX: -S a='''",
        "#FLUX: it's",
        '#FLUX: """',
        "#FLUX: '''",
    ],
    "triple quotes in a line": ['#FLUX: -N1 -S a="""x "y" z"""'],
    "attributes": [
        "#FLUX: -N1 -S a.b=2 -S user.x=3 -S system.c -S .d.e=true",
        "#FLUX: -S attributes.f=1.5 -S 'g={\"h\":[1,null]}' -S i= -S j==",
    ],
    "shell options": ["#FLUX: -N1 -o verbose=2 -o a.b"],
    "comments": ["#FLUX: -N1 # two nodes", "", "# text", "#FLUX:", "#FLUX: -n1"],
    "a last option wins": ["#FLUX: -N1 -n1", "#FLUX: -n7"],
    "constraints": ["#FLUX: -N1 --requires='host:a[1-2] and not (x or y)'"],
    "dependencies": [
        "#FLUX: -N1 --dependency=afterok:1 --dependency=dws-out",
    ],
    "what is no directive": ["#DW jobdw type=xfs", "#FLUX: -N1"],
}

BAD = {
    "unknown option": (
        ["#FLUX: -N1", "#FLUX: --nods=2"],
        "line 3: unknown option --nods, did you mean --nodes?",
    ),
    "not here": (
        ["#FLUX: -N1 --begin-time=now"],
        "line 2: --begin-time is an option of Flux that its stand-in does not have",
    ),
    "not a dependency": (
        ["#FLUX: -N1 --dependency=:1"],
        "--dependency: ':1' is not SCHEME:VALUE",
    ),
    "no option": (["#FLUX: hello"], "line 2: expected an option like -N2, not 'hello'"),
    "no slots": (
        [],
        "the number of slots is missing: give -n, --nslots or -N, --nodes",
    ),
    "unclosed quote": (
        ["#FLUX: -N1 -S a='x"],
        "line 2: No closing quotation in `-N1 -S a='x'",
    ),
    "unclosed lines": (
        ["#FLUX: -N1", '#FLUX: -S a="""', "#FLUX: x"],
        'the quote """ of line 3 is not closed',
    ),
    "too late": (
        ["#FLUX: -N1", "hostname", "#FLUX: -n2"],
        "line 4: FLUX: directive after the script's first command (line 3)",
    ),
    "bad constraint": (
        ["#FLUX: -N1 --requires='a or'"],
        "--requires: 'a or' ends too early",
    ),
    "attribute without a key": (["#FLUX: -N1 -S =3"], "-S, --setattr: '=3' has no key"),
    "urgency": (["#FLUX: -N1 --urgency=99"], "'99' is not an urgency"),
}


FLUX_BATCH = """
import contextlib, io, json, sys
import flux.cli.batch

def dry_run(path):
    sys.argv = ["flux-batch", "--dry-run", path]
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            command = flux.cli.batch.BatchCmd("flux batch")
            command.main(command.get_parser().parse_args(sys.argv[1:]))
    except BaseException as error:
        if output.getvalue():
            return json.loads(output.getvalue())
        return str(error)

print(json.dumps([dry_run(path) for path in sys.argv[1:]]))
"""
"""Real ``flux batch --dry-run`` for many scripts in one process."""


def flux_batch(folder: pathlib.Path, scripts: list[str]) -> list[Any]:
    names = []
    for number, text in enumerate(scripts):
        (folder / f"job{number}.sh").write_text(text)
        names.append(f"job{number}.sh")
    result = subprocess.run(
        ["flux", "python", "-c", FLUX_BATCH, *names],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    answers: list[Any] = json.loads(result.stdout)
    return answers


@needs_flux
def test_flux_batch_makes_the_same_jobspecs(tmp_path: pathlib.Path) -> None:
    scripts = [script(*lines) for lines in GOOD.values()]
    for number, real in enumerate(flux_batch(tmp_path, scripts)):
        assert isinstance(real, dict), real
        del real["attributes"]["system"]["shell"]["options"]["rlimit"]
        ours, _ = batch_jobspec(
            scripts[number],
            f"job{number}.sh",
            cwd=str(tmp_path),
            environment=real["attributes"]["system"]["environment"],
        )
        assert ours == real


@pytest.mark.parametrize("lines,problem", BAD.values(), ids=BAD.keys())
def test_a_bad_script_gets_one_line_that_says_where_and_why(
    lines: list[str], problem: str
) -> None:
    assert problem in refused(*lines)


CONSTRAINTS = [
    "foo",
    "foo,bar",
    "foo bar",
    "^foo",
    "-foo",
    "not foo",
    "not not foo",
    "host:node[1-2],x3",
    "rank:0-1",
    "foo or bar and baz",
    "foo or bar baz",
    "a b or c d",
    "a and b or c && d",
    "(a or b) | c",
    "a & (b and c)",
    "not (a or b)",
    "not a b",
    "a -b c",
    "rank:0 foo host:b bar",
    "'foo bar'",
    'host:"x"',
    "a,b|c",
    "+foo",
]


@needs_flux
def test_flux_reads_constraints_in_the_same_way(tmp_path: pathlib.Path) -> None:
    quoted = [json.dumps(text) for text in CONSTRAINTS]
    scripts = [script(f"#FLUX: -N1 --requires={text}") for text in quoted]
    for text, real in zip(CONSTRAINTS, flux_batch(tmp_path, scripts)):
        assert requires.parse(text) == real["attributes"]["system"]["constraints"]
