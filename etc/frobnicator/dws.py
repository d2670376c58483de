# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux-dws for the job ingest: a plugin of flux-job-frobnicator.

A job with #DW directives gets a dependency whose scheme only dws-jobtap.so serves. So
it is refused at submission as long as that is not loaded, and does not fail when its
shells find no storage.
"""

from flux.job.frobnicator import FrobnicatorPlugin

SCHEME = "rabbit-storage"
BLANKS = " \t\n\v\f\r"


def asks_for_nothing(dw):
    """As dws-jobtap.so sees it: a job with a blank string, or an empty list, is one
    without directives."""
    if isinstance(dw, str):
        return not dw.strip(BLANKS)
    return dw is None or dw == []


class Frobnicator(FrobnicatorPlugin):
    def frob(self, jobspec, user, urgency, flags):
        system = jobspec.attributes.get("system")
        if not isinstance(system, dict) or asks_for_nothing(system.get("dw")):
            return
        dependencies = system.get("dependencies", [])
        if not isinstance(dependencies, list):
            return  # that is for the validator to refuse
        entry = {"scheme": SCHEME, "value": "dws-jobtap.so"}
        if entry not in dependencies:
            jobspec.setattr("system.dependencies", [*dependencies, entry])
