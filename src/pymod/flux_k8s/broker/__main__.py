# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program that the supervisor runs: the service."""

import os
import sys
from pathlib import Path

# Import the flux_k8s that this file is part of. Python would look in the folder of this
# file first, and might then find another flux_k8s. The packages that flux_k8s needs are
# installed beside it, and not beside the link by which Flux's Python finds it.
sys.path[0] = str(Path(__file__).resolve().parents[2])

# PYTHONPATH has the packages of Flux's Python. Programs that the service runs, of the
# site or for credentials, may be written for another Python.
os.environ.pop("PYTHONPATH", None)

if __name__ == "__main__":
    from flux_k8s.broker.process import main

    sys.exit(main(sys.argv[1:]))
