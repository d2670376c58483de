# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the watch has shown of one job's Workflow, apart from answers to requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from flux_k8s.resourceversion import is_newer
from flux_k8s.slots import slotted


@slotted
@dataclass
class Watched:
    """The version of a Workflow that the watch has shown last.

    Kubernetes may be set back, as by a backup that was restored, and one of its servers
    may lag. Then the watch shows an older version after a newer one, or a Workflow
    after its end.

    Attributes:
        uid: that of the Workflow.
        version: its resource version, which the answer to a request may have shown too.
        gone: the uid of the Workflow whose end the watch has shown last.
    """

    uid: Optional[str] = None
    version: str = ""
    gone: Optional[str] = None

    def precedes(self, uid: str, version: str) -> bool:
        """Whether a version of the Workflow that was shown last is not older."""
        return uid == self.uid and not self.goes_back(uid, version)

    def goes_back(self, uid: str, version: str) -> bool:
        """Whether a version of a Workflow is older than the one shown last."""
        return uid == self.uid and bool(is_newer(self.version, version))

    def revives(self, uid: str) -> bool:
        """Whether the end of a Workflow was shown, and no other one's since."""
        return self.gone is not None and uid == self.gone

    def show(self, uid: str, version: str) -> None:
        """The watch shows a version of a Workflow."""
        self.uid, self.version = uid, version
        if self.revives(uid):
            self.gone = None
