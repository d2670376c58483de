# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The user database: found, unknown, and out of order."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from flux_k8s.broker.users import primary_group

FAILING = """
#include <pwd.h>
#include <stdlib.h>
int getpwuid_r (uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **r)
{
    *r = NULL;
    return atoi (getenv ("FAIL"));
}
"""


def test_each_user_has_the_group_that_pwd_tells() -> None:
    entries = pwd.getpwall()
    assert entries
    for entry in entries:
        group = pwd.getpwuid(entry.pw_uid).pw_gid
        assert primary_group(entry.pw_uid) == group


def test_an_unknown_user_has_no_group() -> None:
    unknown = next(
        userid
        for userid in range(4_000_000_000, 4_000_001_000)
        if userid not in {entry.pw_uid for entry in pwd.getpwall()}
    )
    assert primary_group(unknown) is None


@pytest.mark.parametrize("number", [0, 2, 5, 11, 110])
def test_a_database_that_fails_is_not_an_unknown_user(
    number: int, tmp_path: Path
) -> None:
    """A C library whose look-up fails with this errno; with 0 it finds no user."""
    source = tmp_path / "failing.c"
    source.write_text(FAILING)
    library = tmp_path / "failing.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    program = (
        "from flux_k8s.broker.users import primary_group\n"
        "try: print(primary_group(0))\n"
        "except OSError as error: print(error.errno)\n"
    )
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAIL": str(number)}
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == (str(number) if number else "None")
