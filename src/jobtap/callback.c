/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* callback.c: the callbacks of the job manager, for each job */

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "action.h"
#include "request.h"
#include "phase.h"
#include "dataout.h"
#include "plugin.h"

/* Return the current job, or NULL for one without #DW directives. */
static struct dws_job *current_job (flux_plugin_t *p)
{
    return flux_jobtap_job_aux_get (p, FLUX_JOBTAP_CURRENT_JOB, DWS_JOB_AUX);
}

/* Called right after flux_plugin_init(), and at each reload of the configuration.
 * The only place where a load can be refused with a reason.
 */
static int conf_update_cb (flux_plugin_t *p,
                           const char *topic,
                           flux_plugin_arg_t *args,
                           void *data)
{
    struct dws *dws = flux_plugin_aux_get (p, DWS_AUX);
    json_t *limit = NULL;
    char error[128];

    if (dws_conf_parse (dws, error, sizeof (error)) < 0)
        return flux_jobtap_error (p, args, "%s", error);
    (void)flux_plugin_arg_unpack (args,
                                  FLUX_PLUGIN_ARG_IN,
                                  "{s:{s?{s?o}}}",
                                  "conf",
                                    "rabbit",
                                      "directives_limit", &limit);
    dws_conf_limit_directives (dws, limit);
    return 0;
}

static int validate_cb (flux_plugin_t *p,
                        const char *topic,
                        flux_plugin_arg_t *args,
                        void *data)
{
    struct dws *dws = flux_plugin_aux_get (p, DWS_AUX);
    json_t *dw = NULL;
    json_t *tolerance = NULL;
    json_t *release = NULL;
    json_t *stage = NULL;
    json_t *resources = NULL;
    json_t *constraints = NULL;
    json_t *directives;
    const char *mode;
    int n;
    char error[160];

    if (flux_plugin_arg_unpack (args,
                                FLUX_PLUGIN_ARG_IN,
                                "{s:{s?o s?{s?{s?o s?o s?o s?o s?o}}}}",
                                "jobspec",
                                  "resources", &resources,
                                  "attributes",
                                    "system",
                                      "dw", &dw,
                                      "dw_failure_tolerance", &tolerance,
                                      "dw_release", &release,
                                      "dw_stage", &stage,
                                      "constraints", &constraints) < 0
        || !dw
        || dws_jobspec_is_empty (dw))
        return 0;
    if (dws_jobspec_check_part ("resources",
                                resources,
                                error,
                                sizeof (error)) < 0
        || dws_jobspec_check_part ("attributes.system.constraints",
                                   constraints,
                                   error,
                                   sizeof (error)) < 0)
        return flux_jobtap_reject_job (p, args, "%s", error);
    if (dws_jobspec_parse (dw,
                           tolerance,
                           release,
                           stage,
                           &directives,
                           &n,
                           &mode,
                           &mode,
                           error,
                           sizeof (error)) < 0)
        return flux_jobtap_reject_job (p, args, "%s", error);
    n = dws_jobspec_check_bytes (directives,
                                 dws->directives_limit,
                                 " (rabbit.directives_limit)",
                                 error,
                                 sizeof (error));
    json_decref (directives);
    return n < 0 ? flux_jobtap_reject_job (p, args, "%s", error) : 0;
}

static int new_cb (flux_plugin_t *p,
                   const char *topic,
                   flux_plugin_arg_t *args,
                   void *data)
{
    struct dws *dws = flux_plugin_aux_get (p, DWS_AUX);
    json_t *dependencies = NULL;
    json_t *dw = NULL;
    json_t *tolerance = NULL;
    json_t *release = NULL;
    json_t *stage = NULL;
    json_int_t id;
    json_int_t userid;
    double t_submit;
    int state;
    struct dws_job *job;

    if (flux_plugin_arg_unpack (args,
                                FLUX_PLUGIN_ARG_IN,
                                "{s:I s:I s:F s:i"
                                " s:{s?{s?{s?o s?o s?o s?o s?o}}}}",
                                "id", &id,
                                "userid", &userid,
                                "t_submit", &t_submit,
                                "state", &state,
                                "jobspec",
                                  "attributes",
                                    "system",
                                      "dependencies", &dependencies,
                                      "dw", &dw,
                                      "dw_failure_tolerance", &tolerance,
                                      "dw_release", &release,
                                      "dw_stage", &stage) < 0)
        return 0;
    dws_out_take_up (dws, id, userid, dependencies);
    if (!dw || dws_jobspec_is_empty (dw))
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
                           release,
                           stage,
                           &job->directives,
                           &job->failure_tolerance,
                           &job->release,
                           &job->stage,
                           job->error,
                           sizeof (job->error)) < 0) {
        dws_job_enter (job, DWS_DONE);
        return 0;
    }
    job->t_submit = t_submit;
    job->state = state;
    if (state != FLUX_JOB_STATE_NEW)
        dws_job_adopt (&job);
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
    job->uncounted = flux_jobtap_job_event_posted (p,
                                                   job->id,
                                                   "dependency-add") == 1;
    dws_job_begin_depend (&job);
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
                       "error starting %s: %s; please submit it again",
                       DWS_PROLOG,
                       strerror (errno));
    if (!job || job->prologs == 0)
        return 0;
    if (job->phase == DWS_RECOVER) {
        job->state = FLUX_JOB_STATE_RUN;
        job->stale = true;
        return 0;
    }
    dws_job_begin_setup (&job);
    return 0;
}

static void start_epilog (struct dws_job **jobp)
{
    struct dws *dws = (*jobp)->dws;
    flux_jobid_t id = (*jobp)->id;

    if (dws_job_epilog_start (jobp) < 0)
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error starting %s, storage may be left behind: %s",
                 DWS_EPILOG,
                 strerror (errno));
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
    dws_job_enter (job, DWS_DONE);
    dws_job_prolog_release (&job, 1);
    if (job && !job->delivered) // the module has nothing of it
        dws_job_unhold (&job);
    else if (job)
        start_epilog (&job);
    if (job && job->epilogs > 0)
        dws_job_begin_post_run (job, 0.);
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

/* An epilog may be started in CLEANUP only. If the site's prolog fails,
 * perilog.so starts the epilog before it raises the exception (flux-core 0.88,
 * perilog_proc_finish()).
 */
static int early_epilog_cb (flux_plugin_t *p,
                            const char *topic,
                            flux_plugin_arg_t *args,
                            void *data)
{
    struct dws_job *job = current_job (p);
    int state;

    if (job
        && flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:i}",
                                   "state", &state) == 0
        && state != FLUX_JOB_STATE_CLEANUP)
        job->early_epilogs++;
    return 0;
}

/* The module stages storage ahead in the order of urgency, and for no job that
 * others hold: it gets dws.create again when that has changed.
 */
static int dependency_cb (flux_plugin_t *p,
                          const char *topic,
                          flux_plugin_arg_t *args,
                          void *data)
{
    struct dws_job *job = current_job (p);
    const char *description;

    if (!job
        || flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:{s:{s:s}}}",
                                   "entry",
                                     "context",
                                       "description", &description) < 0)
        return 0;
    if (job->phase == DWS_RECOVER)
        job->stale = true;
    else if ((dws_job_note_dependency (job,
                                       topic + strlen ("job.event."),
                                       description)
              || job->uncounted)
             && job->phase == DWS_DEPEND)
        dws_job_note_change (job);
    return 0;
}

/* Others change the job's constraints, as flux update does with a queue. */
static int update_cb (flux_plugin_t *p,
                      const char *topic,
                      flux_plugin_arg_t *args,
                      void *data)
{
    struct dws_job *job = current_job (p);
    json_t *constraints;

    if (job
        && job->phase == DWS_DEPEND
        && !job->updating
        && flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:{s:{s:o}}}",
                                   "entry",
                                     "context",
                                       "attributes.system.constraints",
                                       &constraints) == 0)
        dws_job_note_change (job);
    return 0;
}

static int urgency_cb (flux_plugin_t *p,
                       const char *topic,
                       flux_plugin_arg_t *args,
                       void *data)
{
    struct dws_job *job = current_job (p);

    if (job && job->phase == DWS_DEPEND)
        dws_job_note_change (job);
    return 0;
}

/* The next module removes the memo of the last one: see hello_job(). */
static int memo_cb (flux_plugin_t *p,
                    const char *topic,
                    flux_plugin_arg_t *args,
                    void *data)
{
    struct dws_job *job = current_job (p);
    json_t *entry;
    json_t *waits;

    if (!job
        || flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:o s:{s:{s:o}}}",
                                   "entry", &entry,
                                   "entry",
                                     "context",
                                       DWS_MODULE_MEMO, &waits) < 0)
        return 0;
    if (job->phase == DWS_RECOVER)
        dws_job_note_late (job, entry);
    else
        dws_job_note_memo (job, waits);
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
    json_t *entry;
    const char *type;
    int severity;
    json_int_t userid = -1;
    enum dws_demand demand;

    if (!job
        || flux_plugin_arg_unpack (args,
                                   FLUX_PLUGIN_ARG_IN,
                                   "{s:o s:{s:{s:s s:i s?I}}}",
                                   "entry", &entry,
                                   "entry",
                                     "context",
                                       "type", &type,
                                       "severity", &severity,
                                       "userid", &userid) < 0
        || severity != 0)
        return 0;
    if (job->phase == DWS_RECOVER) {
        dws_job_note_late (job, entry);
        return 0;
    }
    demand = dws_job_note_exception (job, type, userid);
    if (job->phase != DWS_POST_RUN)
        return 0;
    if (demand == DWS_DEMAND_ABORT && !job->aborted)
        dws_job_epilog_abort (job);
    else if (demand == DWS_DEMAND_TEARDOWN && !job->teardown)
        dws_job_ask_teardown (job);
    return 0;
}

/* A job that had released its nodes when the plugin was loaded gets no epilog,
 * so it may end while its eventlog is being read. Others are recovered all the
 * same.
 */
static int clean_cb (flux_plugin_t *p,
                     const char *topic,
                     flux_plugin_arg_t *args,
                     void *data)
{
    struct dws_job *job = current_job (p);

    if (job)
        dws_dataout_ended (job->dws, job->id);
    if (job && job->phase == DWS_RECOVER)
        dws_job_recovered (job, DWS_DONE);
    else if (job && job->phase == DWS_POST_RUN)
        dws_job_ended (job);
    return 0;
}

const struct flux_plugin_handler dws_callbacks[] = {
    { "conf.update", conf_update_cb, NULL },
    { "job.validate", validate_cb, NULL },
    { "job.dependency.rabbit-storage", dws_rabbit_storage_cb, NULL },
    { "job.dependency." DWS_OUT, dws_out_cb, NULL },
    { "job.new", new_cb, NULL },
    { "job.state.depend", depend_cb, NULL },
    { "job.state.run", run_cb, NULL },
    { "job.state.cleanup", cleanup_cb, NULL },
    { "job.event.epilog-start", early_epilog_cb, NULL },
    { "job.event.dependency-add", dependency_cb, NULL },
    { "job.event.dependency-remove", dependency_cb, NULL },
    { "job.event.urgency", urgency_cb, NULL },
    { "job.event.jobspec-update", update_cb, NULL },
    { "job.event.depend", depend_event_cb, NULL },
    { "job.event.start", event_cb, NULL },
    { "job.event.finish", event_cb, NULL },
    { "job.event.release", event_cb, NULL },
    { "job.event.exception", exception_cb, NULL },
    { "job.event.memo", memo_cb, NULL },
    { "job.event.clean", clean_cb, NULL },
    { 0 },
};

// vi:ts=4 sw=4 expandtab
