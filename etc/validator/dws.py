# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux-dws for the job ingest: a plugin of flux-job-validator.

It refuses wrong #DW directives, as cli/plugins/rabbit.py does in the validator
"jobspec". But it knows who submits the job: persistent storage of a guest is refused as
well where rabbit.restrict_persistent_creation says so.

flux-job-validator ends at exceptions that are neither ValueError, TypeError nor
OSError, and with it the check of others' jobs. It calls all plugins at the same time:
the jobspecs that come here may be malformed, and "jobspec" refuses them.
"""

from flux.job.validator import ValidatorPlugin


class Validator(ValidatorPlugin):
    def __init__(self, parser):
        super().__init__(parser)
        self.ingest = None

    def validate(self, job):
        try:
            directives = job.jobspec["attributes"]["system"]["dw"]
        except (LookupError, TypeError):
            return
        if directives is None:
            return
        if self.ingest is None:
            from flux_k8s.ingest import Ingest

            self.ingest = Ingest()
        self.ingest.check(self.flux, job.jobspec, job.userid)
