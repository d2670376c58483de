# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``[rabbit]`` table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.broker.files import check_files, check_program
from flux_k8s.config.table import Config, misspelt
from flux_k8s.config.values import parse_fsd
from flux_k8s.errors import ConfigError, DWSError
from support.tables import rows

PRESET = "#DW jobdw type=xfs capacity=10GiB name=p1"


def test_without_a_table_the_defaults_hold() -> None:
    assert Config.parse(None) == Config() == Config.parse({})
    assert Config().tc_timeout == 10
    assert Config().setup_timeout is None


def test_all_keys_are_read() -> None:
    """Those that a site may set: what is no default."""
    presets = {"small": PRESET, "both": [PRESET, "#DW persistentdw name=x"]}
    table: dict[str, Any] = {
        **{"mapping": "/a", "kubeconfig": "/b", "instance": "elcap", "tc_timeout": 5},
        **{"setup_timeout": 60, "prerun_timeout": 61.5, "postrun_timeout": 62},
        **{"teardown_after": 63, "stall_timeout": 64, "drain_compute_nodes": False},
        **{"soft_drain": False, "save_datamovements": 5, "user_workflows": 0},
        **{"directives_limit": 65536, "user_directives_limit": 4096},
        **{"restrict_persistent_creation": False, "dws_api_version": "v1alpha7"},
        **{"nnf_api_version": "v1alpha11", "module_nopanic": False},
    }
    config = Config.parse(
        {
            **table,
            **{"unmount_failure": "keep", "keep_failed": "2h", "prolog_timeout": "30m"},
            "policy": {"maximums": {"xfs": 100, "lustre": 1024}},
            "presets": presets,
            "daemons": {"x": {"environment": {"A": "1"}, "unit": "co.service"}},
        }
    )
    assert {key: getattr(config, key) for key in table} == table
    assert all(getattr(Config(), key) != table[key] for key in table)
    assert (config.prolog_timeout, config.keep_failed) == (1800, 7200)
    assert config.keeps_mounted and not Config().keeps_mounted
    assert config.maximums == {"xfs": 100, "lustre": 1024}
    assert config.presets["both"] == (PRESET, "#DW persistentdw name=x")
    assert config.daemons["x"].unit == "co.service"
    assert config.daemons["x"].environment == {"A": "1"}


# A table, and what is said of it.

WRONG = r"""
"mapping" -> rabbit: is "mapping", expected a table
{"tc_timout": 1} -> rabbit.tc_timout: unknown key, did you mean 'tc_timeout'?
{"zzz": 1} -> rabbit.zzz: unknown key, known:
{"tc_timeout": "10x"} -> rabbit.tc_timeout: "10x" is not a duration, expected
{"tc_timeout": -1} -> is -1, expected a duration like "30m", or a number of sec
{"setup_timeout": True} -> rabbit.setup_timeout: is true, expected a duration
{"setup_timeout": nan} -> rabbit.setup_timeout: is NaN
{"stall_timeout": -1} -> a number of seconds, 0 or more
{"stall_timeout": ""} -> rabbit.stall_timeout: "" is not a duration
{"keep_failed": 1e300} -> rabbit.keep_failed: is 1e+300 s, expected at most
{"stage_timeout": "1" * 300} -> expected at most 1e+10 s
{"unmount_failure": "kept"} -> rabbit.unmount_failure: is "kept", expected "teardown" or
  "keep"
{"fence_command": "x"} -> rabbit.fence_command: is "x", expected a list of
{"fence_command": [1]} -> rabbit.fence_command: is [1], expected a list of
{"fence_command": ["x"]} -> rabbit.fence_command[0]: is "x", expected a path
{"fence_command": [""]} -> rabbit.fence_command[0]: is "", expected a path
{"fence_command": ["/x", "\0"]} -> expected no NUL characters
{"mapping": ""} -> rabbit.mapping: is "", expected a string, not an empty one
{"mapping": 3} -> rabbit.mapping: is 3, expected a string
{"instance": "el cap"} -> rabbit.instance: is "el cap", expected a name of up to 63
{"instance": ""} -> rabbit.instance: is "", expected a name of up to 63
{"instance": "a" * 64} -> rabbit.instance: is
{"instance": "-a"} -> rabbit.instance: is "-a"
{"instance": "a\n"} -> rabbit.instance: is
{"dws_api_version": "latest!"} -> is "latest!", expected a version like
{"nnf_api_version": "g/v1"} -> nnf_api_version: is "g/v1", expected a version
{"soft_drain": "no"} -> rabbit.soft_drain: is "no", expected true or false
{"save_datamovements": 1.5} -> rabbit.save_datamovements: is 1.5, expected an
{"stage_limit": 101} -> rabbit.stage_limit: is 101, expected
{"stage_user_limit": 101} -> rabbit.stage_user_limit: is 101, expected
{"keep_failed_limit": 101} -> rabbit.keep_failed_limit: is 101, expected
{"user_workflows": -1} -> rabbit.user_workflows: is -1, expected an integer
{"directives_limit": 0} -> is 0, expected an integer from 1 to 65536, in bytes
{"directives_limit": 65537} -> rabbit.directives_limit: is 65537, expected an
{"user_directives_limit": "1M"} -> limit: is "1M", expected an integer, 0
{"policy": {"maximum": {}}} -> rabbit.policy.maximum: unknown key, did you
{"policy": {"maximums": {"zfs": 1}}} -> rabbit.policy.maximums.zfs: unknown
{"policy": 3} -> rabbit.policy: is 3, expected a table
{"presets": {"x": "#DW"}} -> rabbit.presets.x: #DW: missing command
{"presets": {"x": 5}} -> rabbit.presets.x: 5: expected a string or a list of
{"presets": {"x": []}} -> rabbit.presets.x: []: has no #DW directive
{"presets": {"x": ["#"] * 65}} -> rabbit.presets.x: ["#", "#",
{"presets": {"x": "#DW" * 30000}} -> rabbit.presets.x: "#DW#DW
{"daemons": {"x": {"units": "a"}}} -> rabbit.daemons.x.units: unknown key
{"daemons": {"x": {"unit": "a.service b.service"}}} -> rabbit.daemons.x.unit: is
  "a.service b.service", expected the name of one
{"daemons": {"x": {"unit": "nnf"}}} -> unit: is "nnf", expected the name
{"daemons": {"x": {"unit": "nnf.servce"}}} -> unit: is "nnf.servce", expected
{"daemons": {"x": {"unit": "../a"}}} -> rabbit.daemons.x.unit: is "../a"
{"daemons": {"x": {"environment": {"A=B": "1"}}}} -> rabbit.daemons.x.environment: has
  "A=B", expected names of variables
{"daemons": {"x": {"environment": {"": "1"}}}} -> environment: has "", exp
{"daemons": {"x": {"environment": {"A B": "1"}}}} -> environment: has "A B", exp
{"daemons": {"x": {"environment": {"A": "\0"}}}} -> rabbit.daemons.x.environment.A: is
{"daemons": {"x": {"environment": {"A": 1}}}} -> environment.A: is 1, exp
"""


@pytest.mark.parametrize(("table", "message"), rows(WRONG))
def test_a_bad_key_or_value_is_named_together_with_what_it_may_be(
    table: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(eval(table, {"nan": float("nan")}))
    assert message in str(caught.value)


DURATIONS = "30m=1800 1.5h=5400 10=10 250ms=0.25 1e3=1000 1.5E-1h=540 2e+3ms=2"


@pytest.mark.parametrize("duration", DURATIONS.split())
def test_durations_are_those_of_rfc_23(duration: str) -> None:
    text, _, seconds = duration.partition("=")
    assert parse_fsd("key", text) == float(seconds)


TIMES = (
    *("tc_timeout", "setup_timeout", "prerun_timeout", "postrun_timeout"),
    *("teardown_after", "stall_timeout", "keep_failed", "prolog_timeout"),
    "stage_timeout",
)


@pytest.mark.parametrize("key", TIMES)
def test_each_time_is_a_duration_or_a_number_of_seconds(key: str) -> None:
    for value in ("1.5m", "90", 90, 90.0):
        assert getattr(Config.parse({key: value}), key) == 90
    for value in ("0s", 0):
        assert not getattr(Config.parse({key: value}), key)


@pytest.mark.parametrize("text", ["infinity", "inf", "Infinity"])
def test_an_infinite_duration_is_no_limit_and_keeps_data_for_good(text: str) -> None:
    """RFC 23: the string ``infinity`` is a duration."""
    config = Config.parse(dict.fromkeys(TIMES, text))
    assert all(getattr(config, key) is None for key in TIMES[1:6] + TIMES[7:])
    century = 100 * 365.25 * 86400
    assert config.keep_failed is not None and config.keep_failed > century
    assert config.tc_timeout > century


def test_keys_that_the_module_reads_once_are_in_force_when_it_is_loaded_again() -> None:
    keys = ["mapping", "kubeconfig", "instance", "dws_api_version", "nnf_api_version"]
    loaded = Config.parse({**dict.fromkeys(keys, "v1"), "tc_timeout": 5})
    later = Config.parse({**dict.fromkeys(keys, "v2"), "tc_timeout": 6})
    assert later.not_in_force(loaded) == [f"rabbit.{key}" for key in keys]
    assert later.not_in_force(later) == []


@pytest.mark.parametrize("name", ["rabit", "rabbits", "Rabbit", "rabbbit"])
def test_a_table_with_a_misspelt_name_is_named(name: str) -> None:
    tables = ["resource", "rabbit", name, "queues"]
    assert misspelt(tables) == f'; there is one named "{name}": did you mean that?'


def test_other_tables_are_not_mistaken_for_that_of_rabbits() -> None:
    known = "access archive bootstrap cron exec ingest job-manager kvs policy queues"
    others = "rabbit resource sched-fluxion-resource systemd tbon heartbeat"
    assert misspelt([*known.split(), *others.split()]) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        ("", "is empty, expected what flux rabbitmapping writes"),
        (" \n", "is empty, expected what flux rabbitmapping writes"),
        ("computes:", "is not JSON: "),
        ('{"computes": 3}', "computes is 3, expected an object"),
    ],
)
def test_a_mapping_that_cannot_be_read_is_named_with_what_is_to_be_done(
    tmp_path: Path, text: Optional[str], problem: str
) -> None:
    path = tmp_path / "rabbitmapping.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DWSError, match=re.escape(f"{path}: {problem}")):
        check_files(Config.parse({"mapping": str(path)}))


def test_a_mapping_and_a_kubeconfig_that_is_named_are_required(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rabbit.mapping: is not set"):
        check_files(Config.parse({}))
    path = tmp_path / "rabbitmapping.json"
    path.write_text('{"computes": {}, "rabbits": {}}')
    named = {"mapping": str(path), "kubeconfig": "/nonexistent"}
    with pytest.raises(ConfigError, match="rabbit.kubeconfig: /nonexistent: No such"):
        check_files(Config.parse(named))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["mapping", "tc_timeout", "prolog_timeout", "policy", "presets", "daemons", "x"]
)


@given(st.dictionaries(KEYS, VALUES))
@example({"presets": {"a\nb": 5}})
def test_any_table_gives_a_config_or_one_config_error(table: dict[str, Any]) -> None:
    try:
        Config.parse(table)
    except ConfigError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "path, problem",
    [
        ("/nosuch/is-fenced", "No such file or directory"),
        ("/", "is no program that may be executed"),
        (__file__, "is no program that may be executed"),
    ],
)
def test_a_fence_command_that_cannot_be_run_is_refused(path: str, problem: str) -> None:
    config = Config.parse({"fence_command": [path, "--quiet"]})
    with pytest.raises(ConfigError) as caught:
        check_program(config)
    assert str(caught.value) == f"rabbit.fence_command[0]: {path}: {problem}"


def test_a_fence_command_that_can_be_run_is_accepted() -> None:
    check_program(Config.parse({"fence_command": ["/bin/sh"]}))
    check_program(Config.parse({}))
