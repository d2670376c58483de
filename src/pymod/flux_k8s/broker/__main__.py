# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program that the supervisor runs: the service."""

import sys
from pathlib import Path

# The script's folder comes first otherwise, and another flux_k8s might be found than
# the one that the supervisor is of. What this one needs is installed beside it, and not
# beside the link that Flux's Python finds it by.
sys.path[0] = str(Path(__file__).resolve().parents[2])

if __name__ == "__main__":
    from flux_k8s.broker.process import main

    sys.exit(main(sys.argv[1:]))
