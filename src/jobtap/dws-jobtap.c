/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* dws-jobtap: storage for jobs with #DW directives
 *
 * Load:   flux jobtap load dws-jobtap.so [epilog-timeout=SECONDS]
 *
 * A job whose jobspec has attributes.system.dw gets a dependency, a prolog and
 * an epilog, each outstanding while the dws module works on its Workflow:
 *
 *   dws-create   dws.create is sent, job-manager.dws.resource-update ends it
 *   dws-setup    dws.setup is sent, job-manager.dws.prolog-remove ends it
 *   dws-epilog   dws.post_run is sent, job-manager.dws.epilog-remove ends it;
 *                dws.teardown is sent at a fatal exception meanwhile
 *
 * The module and the plugin may be loaded in any order, and go away and come
 * back at any time:
 *
 *   job-manager.dws.hello  from the module when it starts, and when it gets
 *       dws.hello. Answered by {"jobs":[...], "cursor":N}, where "phase" is one
 *       of "depend" (dws-create is outstanding), "sched", "prolog" (dws-setup is),
 *       "running", "epilog" (dws-epilog is, and no task runs any more). For these
 *       jobs, what was not answered or may be lost is sent again. With "cursor"
 *       there are more: a hello with {"cursor":N} gets them.
 *   dws.hello              from the plugin when it was loaded.
 *
 * A request that the module died of five times in a row is failed, and with it
 * its job; from the second time on such requests are sent one at a time.
 *
 * dws.post_run waits until the job's tasks have ended. Where no event tells,
 * job-exec.stats-get says whether job-exec has the job.
 *
 * epilog-timeout is the last resort: a dws-epilog-timeout exception is raised
 * after this time. When the instance owner or root raises one (not a guest, who may
 * do so for jobs of their own), dws.abort is sent: the module takes
 * out of service what is in use, raises an exception that says what that is, and
 * releases the epilog; it is released without the module after 10 seconds, or at
 * once if there is none.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "dws.h"

#define DWS_AUX "dws"

/* Return the current job, or NULL for one without #DW directives. */
static struct dws_job *current_job (flux_plugin_t *p)
{
    return flux_jobtap_job_aux_get (p, FLUX_JOBTAP_CURRENT_JOB, DWS_JOB_AUX);
}

static int conf_parse_key (struct dws *dws,
                           const char *key,
                           json_t *value,
                           char *error,
                           size_t size)
{
    char shown[40];

    if (strcmp (key, "epilog-timeout") != 0) {
        dws_format (error,
                    size,
                    "dws: expected epilog-timeout, found unknown key %s",
                    key);
        return -1;
    }
    if (!json_is_number (value) || !(json_number_value (value) > 0.)) {
        snprintf (error,
                  size,
                  "dws: %s is %s, expected seconds > 0",
                  key,
                  dws_show (value, shown, sizeof (shown)));
        return -1;
    }
    dws->epilog_timeout = json_number_value (value);
    return 0;
}

static int conf_parse (struct dws *dws, char *error, size_t size)
{
    const char *s = flux_plugin_get_conf (dws->p);
    json_t *conf;
    const char *key;
    json_t *value;
    int rc = 0;

    dws->epilog_timeout = 0.;
    if (!s || !(conf = json_loads (s, 0, NULL)))
        return 0;
    json_object_foreach (conf, key, value) {
        if (conf_parse_key (dws, key, value, error, size) < 0)
            rc = -1;
    }
    json_decref (conf);
    return rc;
}

/* Called right after flux_plugin_init(), and the only place where a load can be
 * refused with a reason.
 */
static int conf_update_cb (flux_plugin_t *p,
                           const char *topic,
                           flux_plugin_arg_t *args,
                           void *data)
{
    struct dws *dws = flux_plugin_aux_get (p, DWS_AUX);
    char error[128];

    if (conf_parse (dws, error, sizeof (error)) < 0)
        return flux_jobtap_error (p, args, "%s", error);
    return 0;
}

static int validate_cb (flux_plugin_t *p,
                        const char *topic,
                        flux_plugin_arg_t *args,
                        void *data)
{
    json_t *dw = NULL;
    json_t *tolerance = NULL;
    json_t *directives;
    int n;
    char error[160];

    if (flux_plugin_arg_unpack (args,
                                FLUX_PLUGIN_ARG_IN,
                                "{s:{s?{s?{s?o s?o}}}}",
                                "jobspec",
                                  "attributes",
                                    "system",
                                      "dw", &dw,
                                      "dw_failure_tolerance", &tolerance) < 0
        || !dw
        || dws_jobspec_is_empty (dw))
        return 0;
    if (dws_jobspec_parse (dw,
                           tolerance,
                           &directives,
                           &n,
                           error,
                           sizeof (error)) < 0)
        return flux_jobtap_reject_job (p, args, "%s", error);
    json_decref (directives);
    return 0;
}

/* A job that was active when the plugin was loaded may be in any state. Do what
 * can be done in a callback only, or must be done before the job goes on, and
 * ask for the eventlog.
 *
 * After a restart of the instance there is no such thing: all that we had added
 * to the job was restored with it. (Events from before it count as not posted.)
 */
static void active_job (struct dws_job **jobp)
{
    struct dws *dws = (*jobp)->dws;
    flux_plugin_t *p = dws->p;
    flux_jobid_t id = (*jobp)->id;
    int rc = 0;

    (*jobp)->phase = DWS_RECOVER;
    dws->recovering++;
    if (flux_jobtap_job_event_posted (p, id, "submit") != 1)
        goto out;
    if ((*jobp)->state == FLUX_JOB_STATE_DEPEND) {
        // If some dependency was removed it may have been ours: then Proposal
        // is over, and nothing may be added again.
        if (flux_jobtap_job_event_posted (p, id, "dependency-remove") != 1)
            rc = dws_job_dependency_add (jobp);
    }
    else if ((*jobp)->state == FLUX_JOB_STATE_CLEANUP) {
        if (flux_jobtap_job_event_posted (p, id, "epilog-start") != 1
            && flux_jobtap_job_event_posted (p, id, "free") != 1)
            rc = dws_job_epilog_start (jobp);
    }
    if (rc < 0)
        dws_log (dws, LOG_ERR, id, "error holding the job: %s", strerror (errno));
out:
    if (*jobp)
        dws_job_recover (*jobp);
}

/* The frobnicator of flux-dws adds this dependency to #DW jobs, which are refused
 * then where this plugin is not loaded. There is nothing to wait for.
 */
static int dependency_cb (flux_plugin_t *p,
                          const char *topic,
                          flux_plugin_arg_t *args,
                          void *data)
{
    return 0;
}

static int new_cb (flux_plugin_t *p,
                   const char *topic,
                   flux_plugin_arg_t *args,
                   void *data)
{
    struct dws *dws = flux_plugin_aux_get (p, DWS_AUX);
    json_t *dw = NULL;
    json_t *tolerance = NULL;
    json_int_t id;
    json_int_t userid;
    int state;
    struct dws_job *job;

    if (flux_plugin_arg_unpack (args,
                                FLUX_PLUGIN_ARG_IN,
                                "{s:I s:I s:i s:{s?{s?{s?o s?o}}}}",
                                "id", &id,
                                "userid", &userid,
                                "state", &state,
                                "jobspec",
                                  "attributes",
                                    "system",
                                      "dw", &dw,
                                      "dw_failure_tolerance", &tolerance) < 0
        || !dw
        || dws_jobspec_is_empty (dw))
        return 0;
    if (!(job = dws_job_create (dws, id, userid))
        || flux_jobtap_job_subscribe (p, id) < 0) {
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error creating job: %s",
                 strerror (errno));
        return -1;
    }
    /* A jobspec that job.validate would refuse may be here already when the
     * plugin is loaded. It is of no use, but its job need not fail now.
     */
    if (dws_jobspec_parse (dw,
                           tolerance,
                           &job->directives,
                           &job->failure_tolerance,
                           job->error,
                           sizeof (job->error)) < 0) {
        job->phase = DWS_DONE;
        return 0;
    }
    job->state = state;
    if (state != FLUX_JOB_STATE_NEW)
        active_job (&job);
    return 0;
}

static int depend_cb (flux_plugin_t *p,
                      const char *topic,
                      flux_plugin_arg_t *args,
                      void *data)
{
    struct dws_job *job = current_job (p);

    if (!job || job->phase == DWS_RECOVER)
        return 0;
    if (job->error[0] != '\0') {
        dws_job_raise (&job, "%s", job->error);
        return 0;
    }
    job->phase = DWS_DEPEND;
    if (dws_job_dependency_add (&job) < 0 && job) {
        dws_job_raise (&job,
                       "error adding dependency %s: %s",
                       DWS_DEPENDENCY,
                       strerror (errno));
        return 0;
    }
    if (job) {
        job->admitted = true;
        dws_job_resume (job);
    }
    return 0;
}

static int run_cb (flux_plugin_t *p,
                   const char *topic,
                   flux_plugin_arg_t *args,
                   void *data)
{
    struct dws_job *job = current_job (p);

    if (!job)
        return 0;
    if (dws_job_prolog_start (&job) < 0 && job)
        dws_job_raise (&job,
                       "error starting %s: %s",
                       DWS_PROLOG,
                       strerror (errno));
    if (!job || job->prologs == 0)
        return 0;
    if (job->phase == DWS_RECOVER) {
        job->state = FLUX_JOB_STATE_RUN;
        job->stale = true;
        return 0;
    }
    job->phase = DWS_SETUP;
    if (job->error[0] != '\0')
        dws_job_raise (&job, "%s", job->error);
    else if (!job->admitted)
        dws_job_raise (&job,
                       "submitted while dws-jobtap was not loaded,"
                       " please submit it again");
    else
        dws_job_resume (job);
    return 0;
}

static void start_epilog (struct dws_job **jobp)
{
    struct dws *dws = (*jobp)->dws;
    flux_jobid_t id = (*jobp)->id;

    if (dws_job_epilog_start (jobp) < 0) {
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error starting %s, storage may be left behind: %s",
                 DWS_EPILOG,
                 strerror (errno));
        *jobp = NULL;
    }
}

static int cleanup_cb (flux_plugin_t *p,
                       const char *topic,
                       flux_plugin_arg_t *args,
                       void *data)
{
    struct dws_job *job = current_job (p);

    if (!job)
        return 0;
    if (job->phase == DWS_RECOVER) {
        job->state = FLUX_JOB_STATE_CLEANUP;
        job->stale = true;
        start_epilog (&job);
        return 0;
    }
    if (job->phase == DWS_DEPEND && job->f)
        job->delivered = true; // it may be
    job->phase = DWS_DONE;
    dws_job_settle (job);
    dws_job_prolog_release (&job, 1);
    if (job && !job->delivered) // then there is no Workflow
        dws_job_unhold (&job);
    else if (job)
        start_epilog (&job);
    if (job && job->epilogs > 0) {
        job->phase = DWS_POST_RUN;
        dws_job_epilog_timer (job, 0.);
        dws_job_resume (job);
    }
    return 0;
}

/* A job that leaves DEPEND while its eventlog is read is beyond dws-create. */
static int depend_event_cb (flux_plugin_t *p,
                            const char *topic,
                            flux_plugin_arg_t *args,
                            void *data)
{
    struct dws_job *job = current_job (p);

    if (job && job->phase == DWS_RECOVER) {
        job->state = FLUX_JOB_STATE_SCHED;
        job->stale = true;
    }
    return 0;
}

/* start, finish and release tell about the job's tasks: see tasks.c. */
static int event_cb (flux_plugin_t *p,
                     const char *topic,
                     flux_plugin_arg_t *args,
                     void *data)
{
    struct dws_job *job = current_job (p);
    bool had_tasks;
    int final = 0;

    if (!job)
        return 0;
    if (job->phase == DWS_RECOVER) {
        job->stale = true;
        return 0;
    }
    had_tasks = dws_job_has_tasks (job);
    (void)flux_plugin_arg_unpack (args,
                                  FLUX_PLUGIN_ARG_IN,
                                  "{s:{s:{s:b}}}",
                                  "entry",
                                    "context",
                                      "final", &final);
    dws_job_note_event (job, topic + strlen ("job.event."), final);
    if (job->phase == DWS_POST_RUN && had_tasks && !dws_job_has_tasks (job))
        dws_job_resume (job);
    return 0;
}

/* The exception that ends a job comes before job.state.cleanup, so the job is
 * not in DWS_POST_RUN yet.
 */
static int exception_cb (flux_plugin_t *p,
                         const char *topic,
                         flux_plugin_arg_t *args,
                         void *data)
{
    struct dws_job *job = current_job (p);
    const char *type;
    int severity;
    json_int_t userid = -1;

    if (!job
        || flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:{s:{s:s s:i s?I}}}",
                                   "entry",
                                     "context",
                                       "type", &type,
                                       "severity", &severity,
                                       "userid", &userid) < 0
        || severity != 0)
        return 0;
    if (dws_exception_is_ours (type))
        job->told = true;
    if (job->phase == DWS_RECOVER)
        job->stale = true;
    else if (job->phase != DWS_POST_RUN)
        return 0;
    else if (dws_exception_is_abort (job, type, userid)) {
        if (!job->aborted)
            dws_job_epilog_abort (job);
    }
    else if (!job->teardown
             && dws_exception_asks_teardown (type,
                                             dws_job_has_tasks (job),
                                             !job->started || job->exec_done))
        dws_job_ask_teardown (job);
    return 0;
}

/* Jobs are freed through their aux items, before this when the plugin is
 * unloaded, after this when the job manager exits.
 */
static void dws_destroy (struct dws *dws)
{
    if (dws) {
        struct dws_job *job;
        int saved_errno = errno;
        dws->cautious = false;
        for (job = dws->first; job; job = job->next) {
            dws_job_quiesce (job);
            job->dws = NULL;
        }
        dws_abort_clear (dws);
        dws_tasks_clear (dws);
        free (dws);
        errno = saved_errno;
    }
}

static const struct flux_plugin_handler tab[] = {
    { "conf.update", conf_update_cb, NULL },
    { "job.validate", validate_cb, NULL },
    { "job.dependency.rabbit-storage", dependency_cb, NULL },
    { "job.new", new_cb, NULL },
    { "job.state.depend", depend_cb, NULL },
    { "job.state.run", run_cb, NULL },
    { "job.state.cleanup", cleanup_cb, NULL },
    { "job.event.depend", depend_event_cb, NULL },
    { "job.event.start", event_cb, NULL },
    { "job.event.finish", event_cb, NULL },
    { "job.event.release", event_cb, NULL },
    { "job.event.exception", exception_cb, NULL },
    { 0 },
};

int flux_plugin_init (flux_plugin_t *p)
{
    struct dws *dws;
    const char *owner;

    if (flux_plugin_register (p, "dws", tab) < 0
        || !(dws = calloc (1, sizeof (*dws))))
        return -1;
    dws->p = p;
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
