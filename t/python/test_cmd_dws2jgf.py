# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws2jgf."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flux_k8s.formats import jgf, rset
from support.commands import SOURCES, refused, run
from support.fluxpython import needs_flux
from support.mapping import EXAMPLE
from support.tables import rows

R: dict[str, Any] = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-17", "children": {"core": "0-95", "gpu": "0-3"}}],
        "nodelist": ["hetchy[1001-1018]"],
        "properties": {"batch": "0-3"},
    },
}

CONFIG = """
[resource]
noverify = true
exclude = "hetchy1002"

[[resource.config]]
hosts = "hetchy[1001-1018]"
cores = "0-95"
gpus = "0-3"

[[resource.config]]
hosts = "login1"
cores = "0-7"
properties = ["login"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "resource.toml"
    path.write_text(CONFIG)
    return path


def toml_can_be_read() -> bool:
    """Python has a parser since 3.11; Flux brings one."""
    if sys.version_info >= (3, 11):
        return True
    try:
        from flux.utils import tomli  # noqa: F401
    except ImportError:
        return False
    return True


needs_toml = pytest.mark.skipif(not toml_can_be_read(), reason="no parser for TOML")

BROKERS = '[[bootstrap.hosts]]\nhost = "mgmt,login1,hetchy[1002-1018,1001]"'


def written(*args: Any, stdin: str = json.dumps(R)) -> Any:
    """What the command writes, as JSON; it does so without a word."""
    done = run("dws2jgf", *args, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_r_gets_a_graph_with_the_rabbits(mapping: Path) -> None:
    found = written(mapping)
    graph = jgf.parse(found.pop("scheduling"))
    assert found == R
    assert graph.rabbit_of == EXAMPLE["computes"]
    assert graph.ssd == {"hetchy201": 28548, "hetchy202": 28548}


def test_the_output_of_dws2jgf_can_be_its_input(mapping: Path) -> None:
    first = written(mapping)
    assert written(mapping, stdin=json.dumps(first)) == first
    assert written("--only-sched", mapping) == first["scheduling"]


def test_chunks_and_the_cluster_s_name_can_be_chosen(mapping: Path) -> None:
    found = written("-c18", "--cluster-name=hetchy", "--only-sched", mapping)
    ssd = [v for v in jgf.vertices(found, "it") if v.type == "ssd"]
    assert [vertex.size for vertex in ssd] == [28554 // 18] * 36
    assert ssd[0].path == "/hetchy/chassis0/ssd0"
    assert ssd[-1].path == "/hetchy/chassis1/ssd17"


@needs_flux
@needs_toml
def test_r_is_made_from_a_configuration_without_its_excluded_hosts(
    mapping: Path, config: Path
) -> None:
    done = run("dws2jgf", "--from-config", config, mapping)
    assert done.stderr == (
        "flux-dws2jgf: WARNING: without a Rabbit, outside of all chassis: login1\n"
    )
    found = json.loads(done.stdout)
    assert rset.parse(found).hosts[-1] == "login1"
    assert found["execution"]["properties"] == {"login": "18"}
    expected = {**EXAMPLE["computes"], "login1": None}
    del expected["hetchy1002"]
    assert jgf.parse(found["scheduling"]).rabbit_of == expected
    assert (
        run("dws2jgf", "--no-validate", "--from-config", config, mapping).stderr == ""
    )


@needs_flux
@needs_toml
@pytest.mark.parametrize("exclude", ["1", "1,18", "hetchy1002,login1"])
def test_ranks_are_those_of_the_brokers_and_hosts_are_excluded_by_rank_or_name(
    exclude: str, mapping: Path, config: Path
) -> None:
    text = CONFIG.replace('exclude = "hetchy1002"', f'exclude = "{exclude}"')
    for brokers, ranks, first in (("", range(19), 0), (BROKERS, range(1, 20), 19)):
        config.write_text(text + brokers)
        found = written("--no-validate", "--from-config", config, mapping)
        R = rset.parse(found)
        rank_of = dict(zip(R.hosts, R.ranks))
        assert R.ranks == tuple(ranks) and rank_of["hetchy1001"] == first
        assert found["execution"]["properties"] == {"login": str(rank_of["login1"])}
        host_of = {str(rank): host for host, rank in rank_of.items()}
        gone = {host_of.get(name, name) for name in exclude.split(",")}
        assert jgf.parse(found["scheduling"]).rabbit_of.keys() == {*R.hosts} - gone


WRONG = r"""
hetchy1002 -> 19 -> resource.exclude is "19", expected .* not rank 19
hetchy1002 -> login[1-2] -> not login2
hetchy1002 -> login[ -> an RFC 29 hostlist
exclude = "hetchy1002" -> exclude = 3 -> resource.exclude is 3
gpus -> gpu -> config.0.: .* gpu
cores = "0-7" -> gpus = "0" -> children.core is missing
noverify -> [bootstrap]\nhosts = []\n[resource]\nnoverify -> TOML
"login"] -> "login"]\nBROKERS -> login1 is not
"""


@needs_flux
@needs_toml
@pytest.mark.parametrize(("before", "after", "words"), rows(WRONG, 3))
def test_a_configuration_that_is_wrong_is_refused(
    before: str, after: str, words: str, mapping: Path, config: Path
) -> None:
    after = after.replace(r"\n", "\n")
    after = after.replace("BROKERS", BROKERS.replace("login1", "x"))
    config.write_text(CONFIG.replace(before, after))
    (line,) = refused(run("dws2jgf", "--from-config", config, mapping))
    assert str(config) in line and re.search(words, line)


def test_nodes_of_the_mapping_that_r_lacks_are_refused_by_name(mapping: Path) -> None:
    resources = {**R["execution"], "properties": {}}
    lite = [{**resources["R_lite"][0], "rank": "0-15"}]
    resources.update(R_lite=lite, nodelist=["hetchy[1001-1016]"])
    part = json.dumps({**R, "execution": resources})
    (line,) = refused(run("dws2jgf", mapping, stdin=part))
    assert line == (
        "flux-dws2jgf: ERROR: not in R, but in the mapping: hetchy[1017-1018]"
        " (--no-validate leaves them out)"
    )
    found = written("--no-validate", mapping, stdin=part)
    assert len(jgf.parse(found["scheduling"]).rabbit_of) == 16
    done = run("dws2jgf", "-c", 15, mapping, stdin=json.dumps(R))
    assert done.returncode == 0 and done.stderr == (
        "flux-dws2jgf: WARNING: more nodes than chunks, so not all can have storage at"
        " once: hetchy202\n"
    )


@pytest.mark.parametrize(
    ("args", "stdin", "words"),
    [
        ((), "{", "standard input: is not JSON"),
        ((), "{}", "R on standard input: version is missing"),
        (("-c0",), json.dumps(R), "cannot be cut into 0 chunks"),
        (("--from-config=/none.toml",), "", "/none.toml: No such file or directory"),
    ],
)
def test_an_impossible_request_is_an_error_of_one_line(
    args: tuple[str, ...], stdin: str, words: str, mapping: Path
) -> None:
    (line, *others) = refused(run("dws2jgf", *args, mapping, stdin=stdin))
    assert line.startswith("flux-dws2jgf: ERROR: ")
    assert words in line
    assert not others


def test_a_file_that_is_wrong_is_an_error_of_one_line(
    mapping: Path, config: Path
) -> None:
    if toml_can_be_read():
        config.write_text("[resource")
        (line,) = refused(run("dws2jgf", "--from-config", config, mapping))
        assert str(config) in line
    mapping.write_text(json.dumps({**EXAMPLE, "computes": {}}))
    (line,) = refused(run("dws2jgf", mapping, stdin=json.dumps(R)))
    assert f"{mapping}: computes.hetchy1001 is null" in line


def test_a_reader_that_has_seen_enough_ends_it_quietly(mapping: Path) -> None:
    program = [sys.executable, str(SOURCES / "cmd" / "flux-dws2jgf.py"), str(mapping)]
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(SOURCES / "pymod")},
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(json.dumps(R).encode())
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()
