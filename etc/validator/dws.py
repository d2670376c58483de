# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux-dws for the job ingest: a plugin of flux-job-validator.

It refuses wrong #DW directives, as cli/plugins/rabbit.py does in the validator
"jobspec". But it knows who submits the job: persistent storage of a guest is refused as
well where rabbit.restrict_persistent_creation says so.
"""

from flux.job.validator import ValidatorPlugin


class Validator(ValidatorPlugin):
    def __init__(self, parser):
        super().__init__(parser)
        self.ingest = None

    def validate(self, job):
        system = job.jobspec["attributes"].get("system")
        if not isinstance(system, dict) or system.get("dw") is None:
            return
        if self.ingest is None:
            from flux_k8s.ingest import Ingest

            self.ingest = Ingest()
        self.ingest.check(self.flux, job.jobspec, job.userid)
