# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons for what is raised, logged and recorded.

Texts are for people, and change. A :class:`Reason` is for programs: the monitoring of a
site, and tests. It names the cause of an exception or a record, not its consequence:
that data is lost is said elsewhere.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from flux_k8s.text import LINE, printable_bytes


class Reason(enum.Enum):
    """The reason for an exception, a line of the log, or a record of a job's data. The
    values are stable."""

    # What a job asks for, and what there is for it

    BAD_REQUEST = "bad-request"
    """What the job asks for is wrong, or the site does not allow it."""

    UNSATISFIABLE = "unsatisfiable"
    """The job asks for what this machine, or its nodes, cannot give it."""

    NO_ROOM = "no-room"
    """The Rabbits have no room for the job's storage, at least not now."""

    LIMIT_REACHED = "limit-reached"
    """The job waits for a limit of its user, or for its turn to get storage ahead."""

    STORAGE_IN_USE = "storage-in-use"
    """The job waits for storage that another one has not unmounted."""

    WISH_UNMET = "wish-unmet"
    """The job has its storage, but not just where its profile would like it."""

    OTHER_NODES = "other-nodes"
    """The job has other nodes, or constraints, than its storage was made for."""

    USER_UNKNOWN = "user-unknown"
    """The user database does not know the job's user."""

    TOKEN_MISSING = "token-missing"
    """The Secret that is to have the job's workflow token has none."""

    # DWS

    DWS_REFUSED = "dws-refused"
    """DWS has refused the job's directives, or calls its Error one of the user."""

    DWS_FAILED = "dws-failed"
    """DWS reports an Error, but for Teardown."""

    TRANSIENT_CONDITION = "transient-condition"
    """DWS reports a TransientCondition for longer than ``tc_timeout``."""

    SETUP_TIMEOUT = "setup-timeout"
    """Proposal, Setup, or the begin of DataIn took longer than ``setup_timeout``."""

    PRERUN_TIMEOUT = "prerun-timeout"
    """PreRun took longer than ``prerun_timeout``."""

    PROLOG_TIMEOUT = "prolog-timeout"
    """The job has waited for its storage for half of ``prolog_timeout``."""

    POSTRUN_TIMEOUT = "postrun-timeout"
    """PostRun took longer than ``postrun_timeout``."""

    TEARDOWN_AFTER = "teardown-after"
    """PostRun and DataOut took longer than ``teardown_after``."""

    STALL_TIMEOUT = "stall-timeout"
    """No data has moved for ``stall_timeout``."""

    STAGE_TIMEOUT = "stage-timeout"
    """Data that was staged has waited for nodes for ``stage_timeout``."""

    TEARDOWN_LATE = "teardown-late"
    """Teardown takes long."""

    TEARDOWN_FAILED = "teardown-failed"
    """DWS reports an Error in Teardown."""

    NOT_READY = "not-ready"
    """Something that the job needs is not known, or not filled in, yet."""

    BAD_OBJECT = "bad-object"
    """An object of DWS, R, a jobspec, or a message has not the form that it should."""

    # Workflows

    WORKFLOW_DELETED = "workflow-deleted"
    """Somebody else has deleted the job's Workflow."""

    WORKFLOW_MOVED = "workflow-moved"
    """Somebody else has moved the job's Workflow to Teardown."""

    WORKFLOW_REMADE = "workflow-remade"
    """A Workflow that was lost while nothing was at stake is made again."""

    NAME_TAKEN = "name-taken"
    """A Workflow of this name belongs, or may belong, to another job or instance."""

    ORPHAN = "orphan"
    """A Workflow whose job has ended is torn down, after its data has gone out if
    the job ran."""

    # Nodes and Rabbits

    NODES_FAILED = "nodes-failed"
    """More nodes lack their storage than the job tolerates."""

    NODES_EXCLUDED = "nodes-excluded"
    """The job goes on without nodes that lack their storage; they are drained."""

    UNMOUNT_FAILED = "unmount-failed"
    """Nodes have not unmounted; they are drained."""

    UNMOUNTED_LATE = "unmounted-late"
    """Nodes have unmounted, but late: what they had not written may be lost."""

    USE_UNKNOWN = "use-unknown"
    """Kubernetes does not say which nodes have mounts, or lack them."""

    DRAIN_FAILED = "drain-failed"
    """Flux did not drain nodes that are to be drained."""

    NODE_DISABLED = "node-disabled"
    """Somebody else has set a node to Disabled in the SystemStatus of DWS."""

    NODE_BACK = "node-back"
    """A node is undrained, fenced no more, or Enabled again by somebody else."""

    FENCED = "fenced"
    """A node cannot write any more, by ``fence_command``."""

    FENCE_FAILED = "fence-failed"
    """``fence_command`` fails."""

    RABBIT_BROKEN = "rabbit-broken"
    """A Rabbit is out of service."""

    RABBIT_BACK = "rabbit-back"
    """A Rabbit is used again."""

    MAPPING_DISAGREES = "mapping-disagrees"
    """The rabbit mapping, the scheduler's graph and the cluster do not agree."""

    # The end of a job, and its data

    EPILOG_GIVEN_UP = "epilog-given-up"
    """The job was let go while its storage was in use: ``epilog-timeout``, or an
    administrator."""

    GIVEN_UP = "given-up"
    """The job's user, or an administrator, has given its data up."""

    NOT_RUN = "not-run"
    """The job did not run, so there is nothing to copy."""

    CAUSE_UNKNOWN = "cause-unknown"
    """The cause is known only as a text from before the module was loaded, or not at
    all."""

    DATA_OUT = "data-out"
    """The data of a job that had ended is out."""

    RESCUE = "rescue"
    """A user has data copied again that could not be copied out."""

    PERSISTENT_LEFT = "persistent-left"
    """A job that did not run has made persistent storage."""

    RECORD_INCOMPLETE = "record-incomplete"
    """A record of the job, such as that of its data movements, is missing or lacks
    something."""

    # The service, and what it needs

    SERVICE_FAULT = "service-fault"
    """An internal error of flux-dws."""

    SERVICE_DIED = "service-died"
    """The dws service has died, or was killed, and is started again."""

    BARRED = "barred"
    """The service has died of work for this job too often: it is not tried again."""

    STARTED = "started"
    """The service runs, or module and plugin have found each other."""

    OVERLOADED = "overloaded"
    """The module has more to do than it can: requests are refused, or repeated."""

    KUBERNETES_AWAY = "kubernetes-away"
    """Kubernetes is out of reach: all jobs wait."""

    KUBERNETES_BACK = "kubernetes-back"
    """Kubernetes is in reach again."""

    KUBERNETES_ERROR = "kubernetes-error"
    """A request to Kubernetes has failed, or had no effect."""

    KUBERNETES_SETTINGS = "kubernetes-settings"
    """The credentials were read anew, or another version of the API is used."""

    OBJECTS_UNSEEN = "objects-unseen"
    """Kubernetes does not show objects that no job has to wait for."""

    FLUX_ERROR = "flux-error"
    """A request to Flux has failed."""

    PLUGIN_MISSING = "plugin-missing"
    """``dws-jobtap.so`` is not loaded."""

    VERSIONS_DIFFER = "versions-differ"
    """Module and plugin are not of one version."""

    FLUXION_MISSING = "fluxion-missing"
    """No scheduler that knows Rabbits is loaded."""

    FLUXION_ERROR = "fluxion-error"
    """A request to the scheduler has failed."""

    USER_DATABASE = "user-database"
    """The user database does not answer."""

    CONFIG_WRONG = "config-wrong"
    """A key of the configuration, or an argument, is wrong. The table before stays in
    force, or the module is not loaded."""

    CONFIG_WAITS = "config-waits"
    """A key of the configuration is in force when the module is loaded again."""


@dataclass(frozen=True)
class Note:
    """A text for people, with its reason."""

    text: str
    reason: Reason


def read_reason(value: object) -> Reason:
    """The reason in a record; CAUSE_UNKNOWN where it has none, or one that another
    version of the service has."""
    try:
        return Reason(value)
    except ValueError:
        return Reason.CAUSE_UNKNOWN


def log_line(text: str, reason: Reason) -> str:
    """The line of the log with a text, which may have any characters. It ends with the
    reason, for which a long text is cut."""
    end = f" [{reason.value}]"
    return printable_bytes(text, LINE - len(end)).decode() + end


# The job exceptions (RFC 21) that are about storage: their types, and severities.

DWS = "dws"
"""A job's storage is in trouble, or something of it is lost."""

NODE_FAILURE = "dws-node-failure"
"""A job goes on without the storage of a node, or a node has not unmounted."""

EPILOG_TIMEOUT = "dws-epilog-timeout"
"""The plugin gives an epilog up: it raises this one itself."""

FATAL = 0
WARNING = 1
