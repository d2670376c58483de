/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* dws-jobtap: storage for jobs with #DW directives
 *
 * Load:   flux jobtap load dws-jobtap.so [epilog-timeout=SECONDS]
 *
 * A job whose jobspec has a non-empty attributes.system.dw (a string of
 * directives or a list of them) gets a dependency, a prolog and an epilog,
 * each outstanding while the dws module works on its Workflow.
 * attributes.system.dw_failure_tolerance (an integer >= 0, by default 0) is
 * passed on: without the storage of how many nodes the job may run. What is
 * malformed is refused at submission, and so are directives of more bytes than
 * rabbit.directives_limit of the configuration has.
 *
 *   dws-create   dws.create is sent, job-manager.dws.resource-update ends it
 *   dws-setup    dws.setup is sent, job-manager.dws.prolog-remove ends it
 *   dws-epilog   dws.post_run is sent, job-manager.dws.epilog-remove ends it;
 *                dws.teardown is sent at a fatal exception meanwhile
 *
 * The dependency scheme rabbit-storage is known here and holds nobody up: a
 * site's job ingest adds it to jobs that must not get by a plugin that is not
 * loaded.
 *
 * The scheme dws-out, with a job ID for a value, holds a job until the data of
 * that job, its target, is where copy_out asked for it. If it is lost, the job
 * fails, with an exception of the type dependency. The module is asked for the
 * data of a target that has ended without a record: it may yet go out. A job
 * whose target has no storage, is another user's, was purged or never was, is
 * refused at submission. Reports that the plugin missed because it was not
 * loaded are in the KVS: see fate.c.
 *
 * Requests to the module, answered by {"success":b "errstr"?s "reason"?s}. With
 * false the job fails, or, in the epilog, is let go with a note; errstr says
 * why. "reason", here and below, is a word for programs; it is not used here.
 *
 *   dws.create     {"jobid":I "userid":I "dw_directives":[s]
 *                   "resources":[o] "failure_tolerance":i "release"?s
 *                   "stage"?s "constraints"?o "urgency":i "depends":b}
 *   dws.setup      {"jobid":I "R":o}  R as it is in the KVS, with "scheduling"
 *   dws.post_run   {"jobid":I "run_started":b}  when no task runs any more
 *   dws.teardown   {"jobid":I}
 *   dws.abort      {"jobid":I}
 *   dws.report_data  {"jobid":I}  without a response: jobs wait for the data of
 *                  a job that ended before it was out; job-manager.dws.data-out
 *                  follows, also if the module knows nothing of it any more
 *   dws.hello      {}  the plugin is loaded, and knows what each job waits for
 *
 * Each may be sent any number of times. ENOSYS (no module), EAGAIN (its
 * service is not ready, or has too much to do) and EHOSTUNREACH (it died) are
 * no answers: the job waits with a memo until the module says hello.
 *
 * Services, for the instance owner. ENOENT: no job with directives has this
 * ID. EAGAIN: the eventlogs of jobs that were active when the plugin was
 * loaded are being read. (data-out has neither.) Otherwise a request that comes
 * late, or twice, succeeds.
 *
 * The record rabbit_data_out is {"success":b "errstr"?s "reason"?s "note"?s}.
 *
 *   job-manager.dws.resource-update
 *                  {"id":I "resources":[o] "exclude":o "errmsg"?s "reason"?s}
 *       Update the jobspec, and let the job go on. "exclude", a constraint
 *       (RFC 31) or null, is and-ed with the user's. With "errmsg", which
 *       needs neither, the job fails instead.
 *   job-manager.dws.prolog-remove
 *                  {"id":I "variables":{NAME:s} "copy_out"?s}
 *       Post dws_environment {"variables":{NAME:s} "copy_out"?s}, and let the
 *       job start. "copy_out" says which data is copied after its tasks.
 *   job-manager.dws.epilog-remove    {"id":I "data"?s}
 *       Let the job end. With "data":"moving" its data goes out later: the
 *       event dws_released, without a context, is posted first. Without it,
 *       the record rabbit_data_out is in the job's KVS directory already.
 *   job-manager.dws.data-out         {"id":I "errstr"?s "reason"?s}
 *       The data of a job is out, or with "errstr" it is lost, and the job's
 *       record says so. Sent for each job with storage, once or several times;
 *       the job may have ended long ago.
 *   job-manager.dws.hello            {"cursor"?I "version"?s "protocol"?i}
 *       From the module when it starts, and when it gets dws.hello. Answered by
 *       some jobs, {"jobs":[...] "version":s "protocol":i "cursor"?I}: the
 *       versions are those of the sender and of the protocol; with "cursor"
 *       there are more, which a hello with that cursor gets. What these jobs
 *       wait for is sent again, and with the first ones each dws.abort that was
 *       not answered, and dws.report_data.
 *       Of each:
 *       "id":I
 *       "userid":I             the user of the job
 *       "phase":s              "depend" (dws-create is outstanding), "sched",
 *                              "prolog" (dws-setup is), "running", or "epilog"
 *                              (dws-epilog is, and no task runs any more)
 *       "t_submit":f           when it was submitted (UNIX time)
 *       "t_prolog":f           when dws-setup was started; 0 if it was not
 *       "failure_tolerance":i  as in dws.create
 *       "run_started":b        its tasks were started
 *       "teardown":b           an exception in the epilog asks for Teardown
 *       "told":b               it has a fatal exception of the type dws
 *       "waits":s or null      its memo of the module; empty if that was not
 *                              posted by a module
 *
 * dws.post_run waits until the job's tasks have ended. Where no event tells,
 * job-exec.stats-get says whether job-exec has the job.
 *
 * epilog-timeout is the last resort: a dws-epilog-timeout exception is raised
 * after this time. When the instance owner or root raises one (not a guest,
 * who may do so for jobs of their own), dws.abort is sent: the module takes
 * out of service what is in use, raises an exception that says what that is,
 * and releases the epilog. If there is no module, or after 10 seconds, the
 * plugin releases it, with an exception that names the nodes.
 */

#include <errno.h>
#include <stdlib.h>

#include "request.h"
#include "dataout.h"
#include "plugin.h"

/* Jobs, and those that wait for data, are freed before this through the aux
 * items of the job manager's jobs: when the plugin is unloaded, and when the
 * job manager exits, because their destructors are code of the plugin.
 */
static void dws_destroy (struct dws *dws)
{
    if (dws) {
        int saved_errno = errno;
        dws_requests_clear (dws);
        dws_abort_clear (dws);
        dws_tasks_clear (dws);
        dws_dataout_clear (dws);
        free (dws);
        errno = saved_errno;
    }
}

int flux_plugin_init (flux_plugin_t *p)
{
    struct dws *dws;
    const char *owner;

    if (flux_plugin_register (p, "dws", dws_callbacks) < 0
        || !(dws = calloc (1, sizeof (*dws))))
        return -1;
    dws->p = p;
    dws_conf_limit_directives (dws, NULL);
    TAILQ_INIT (&dws->jobs);
    LIST_INIT (&dws->aborts);
    dws_requests_init (dws, dws_send_request);
    if (flux_plugin_aux_set (p,
                             DWS_AUX,
                             dws,
                             (flux_free_f)dws_destroy) < 0) {
        dws_destroy (dws);
        return -1;
    }
    if (!(dws->h = flux_jobtap_get_flux (p))
        || !(owner = flux_attr_get (dws->h, "security.owner"))
        || dws_service_register (dws) < 0)
        return -1;
    dws->owner = strtoll (owner, NULL, 10);
    dws_hello (dws);
    return 0;
}

// vi:ts=4 sw=4 expandtab
