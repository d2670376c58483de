# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Flux itself makes of something."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

needs_flux = pytest.mark.skipif(shutil.which("flux") is None, reason="no flux on PATH")


def of_flux(imports: str, expression: str, given: Any) -> Any:
    """An expression about ``given`` in Flux's Python; both are JSON."""
    program = f"import json, sys; {imports}; given = json.load(sys.stdin)\n"
    run = subprocess.run(
        ["flux", "python", "-c", f"{program}json.dump({expression}, sys.stdout)"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(run.stdout)
