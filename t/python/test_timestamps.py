# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Time stamps that the service writes, and those of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.timestamps import format_timestamp, parse_timestamp


@given(st.floats(1.6e9, 2.2e9))
def test_a_time_that_was_noted_is_read_as_it_was_written(time: float) -> None:
    text = format_timestamp(time)
    read = parse_timestamp(text)
    assert read is not None and format_timestamp(read) == text


@given(st.integers(0, 9999), st.integers(-23, 23))
def test_a_time_stamp_of_others_is_read_as_a_time_that_can_be_written(
    year: int, zone: int
) -> None:
    for day in ("01-01T00:00:00", "12-31T23:59:59", "12-31T23:59:59.9999999999"):
        read = parse_timestamp(f"{year:04d}-{day}{zone:+03d}:00")
        if read is not None:
            assert parse_timestamp(format_timestamp(read)) == pytest.approx(read)
