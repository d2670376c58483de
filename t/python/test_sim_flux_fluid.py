# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job IDs."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitsim.flux import fluid


class TestJobIds:
    @given(st.integers(0, 2**64 - 1))
    def test_every_id_survives_each_encoding(self, jobid: int) -> None:
        text = fluid.encode(jobid)
        assert fluid.decode(text) == jobid
        assert fluid.decode("f" + text[1:]) == jobid
        assert fluid.decode(str(jobid)) == jobid
        assert fluid.decode(fluid.dothex(jobid)) == jobid

    @pytest.mark.parametrize("text", ["", "ƒ", "ƒ0", "fjpXCZedGfVR", "-1", "1.2", "x"])
    def test_a_text_that_is_no_id_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a job ID"):
            fluid.decode(text)

    def test_new_ids_are_greater_than_all_before(self) -> None:
        ids = fluid.FluidGenerator(0.0)
        made = [ids.next(now) for now in (1.0, 1.0, 0.5, 1.0, 2.0) for _ in range(600)]
        assert made == sorted(set(made))

    @pytest.mark.skipif(shutil.which("flux") is None, reason="no flux on PATH")
    def test_flux_encodes_ids_in_the_same_way(self) -> None:
        ids = [0, 57, 58, 6731191091200, 2**64 - 1]
        result = subprocess.run(
            ["flux", "job", "id", "--to=f58", *map(str, ids)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.split() == [fluid.encode(i) for i in ids]
