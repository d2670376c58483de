# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job IDs in F58."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.jobid import decode, f58


@given(st.integers(0, 2**64 - 1))
def test_a_job_id_is_read_as_the_same_number_in_each_encoding(jobid: int) -> None:
    digits = f"{jobid:016x}"
    dothex = ".".join(digits[i : i + 4] for i in range(0, 16, 4))
    for text in (f58(jobid), "ƒ" + f58(jobid)[1:], str(jobid), dothex):
        assert decode(text) == jobid


@pytest.mark.parametrize("text", ["", "ƒ", "ƒ0", "fjpXCZedGfVR", "-1", "1.2", "x"])
def test_a_text_that_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a job ID"):
        decode(text)


@pytest.mark.parametrize("text", ["0o1777777777777777777777", f"0x{'f' * 16:0>22}"])
def test_a_job_id_has_at_most_24_characters(text: str) -> None:
    assert decode(text) == 2**64 - 1
    with pytest.raises(ValueError, match="is not a job ID"):
        decode(f"{text[:2]}0{text[2:]}")


def test_a_negative_number_is_no_job_id() -> None:
    with pytest.raises(ValueError, match="-1 is no job ID: it is negative"):
        f58(-1)
