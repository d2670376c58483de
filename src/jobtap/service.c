/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* service.c: job-manager.dws.*, for the instance owner only
 *
 * Each request may come late, twice, or for a job that has moved on: then it
 * succeeds without effect. An ID that no job has gets ENOENT.
 */

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "text.h"
#include "action.h"
#include "request.h"
#include "phase.h"
#include "dataout.h"
#include "plugin.h"

static void respond_error (struct dws *dws,
                           const flux_msg_t *msg,
                           int errnum,
                           const char *text)
{
    if (flux_respond_error (dws->h, msg, errnum, text) < 0)
        flux_log_error (dws->h, "dws: error responding");
}

static void respond (struct dws *dws, const flux_msg_t *msg)
{
    if (flux_respond (dws->h, msg, NULL) < 0)
        flux_log_error (dws->h, "dws: error responding");
}

/* Find the job of a request. Return NULL after having responded if there is
 * nothing to do for it in 'phase'.
 */
static struct dws_job *request_job (struct dws *dws,
                                    const flux_msg_t *msg,
                                    flux_jobid_t id,
                                    enum dws_phase phase)
{
    struct dws_job *job;

    if ((job = dws_job_lookup (dws, id))) {
        if (job->phase == phase)
            return job;
        if (job->phase == DWS_RECOVER)
            respond_error (dws, msg, EAGAIN, dws_not_ready);
        else
            respond (dws, msg);
    }
    else if (dws_job_state (dws, id) == FLUX_JOB_STATE_INACTIVE)
        respond (dws, msg);
    else
        respond_error (dws, msg, ENOENT, "no such job with #DW directives");
    return NULL;
}

/* Add to 'updates' the user's constraints and-ed with 'exclude'. */
static int update_constraints (json_t *updates,
                               json_t *constraints,
                               json_t *exclude)
{
    json_t *both;

    if (json_object_size (exclude) == 0 || json_equal (constraints, exclude))
        return 0;
    if (json_object_size (constraints) == 0)
        both = json_incref (exclude);
    else
        both = json_pack ("{s:[O O]}", "and", constraints, exclude);
    return json_object_set_new (updates,
                                "attributes.system.constraints",
                                both);
}

static int job_update (struct dws_job **jobp,
                       json_t *resources,
                       json_t *exclude)
{
    flux_plugin_arg_t *args;
    json_t *current = NULL;
    json_t *constraints = NULL;
    json_t *updates = NULL;
    int saved_errno;
    int rc = -1;

    if (!(args = flux_jobtap_job_lookup ((*jobp)->dws->p, (*jobp)->id)))
        return -1;
    if (flux_plugin_arg_unpack (args,
                                FLUX_PLUGIN_ARG_IN,
                                "{s:{s?o s?{s?{s?o}}}}",
                                "jobspec",
                                  "resources", &current,
                                  "attributes",
                                    "system",
                                      "constraints", &constraints) < 0) {
        errno = EINVAL;
        goto out;
    }
    if (!(updates = json_object ())
        || (!json_equal (resources, current)
            && json_object_set (updates, "resources", resources) < 0)
        || update_constraints (updates, constraints, exclude) < 0) {
        errno = ENOMEM;
        goto out;
    }
    rc = 0;
    (*jobp)->updating = true;
    if (json_object_size (updates) > 0)
        rc = dws_job_update (jobp, updates);
    if (*jobp)
        (*jobp)->updating = false;
out:
    saved_errno = errno;
    flux_plugin_arg_destroy (args);
    json_decref (updates);
    errno = saved_errno;
    return rc;
}

/* Let the job go on to be scheduled. */
static int job_admit (struct dws_job **jobp, json_t *resources, json_t *exclude)
{
    struct dws *dws = (*jobp)->dws;
    flux_jobid_t id = (*jobp)->id;

    (*jobp)->delivered = true;
    if (job_update (jobp, resources, exclude) < 0) {
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error updating jobspec: %s",
                 strerror (errno));
        return -1;
    }
    if (*jobp)
        dws_job_unhold (jobp);
    if (!*jobp)
        return 0;
    dws_job_enter (*jobp, DWS_SCHED);
    if (dws_job_dependency_remove (jobp) < 0) {
        dws_log (dws,
                 LOG_ERR,
                 id,
                 "error removing dependency %s: %s",
                 DWS_DEPENDENCY,
                 strerror (errno));
        return -1;
    }
    return 0;
}

static void resource_update_cb (flux_t *h,
                                flux_msg_handler_t *mh,
                                const flux_msg_t *msg,
                                void *arg)
{
    struct dws *dws = arg;
    json_int_t id;
    json_t *resources = NULL;
    json_t *exclude = NULL;
    const char *errmsg = NULL;
    struct dws_job *job;

    if (flux_request_unpack (msg,
                             NULL,
                             "{s:I s?o s?o s?s}",
                             "id", &id,
                             "resources", &resources,
                             "exclude", &exclude,
                             "errmsg", &errmsg) < 0) {
        respond_error (dws,
                       msg,
                       EPROTO,
                       "expected {id:integer, resources:array,"
                       " exclude:object or null, errmsg:string}");
        return;
    }
    // A job that went on without them would not wait for room on a Rabbit.
    if (!errmsg && !json_is_array (resources)) {
        respond_error (dws, msg, EPROTO, "resources: expected an array");
        return;
    }
    if (!errmsg && !json_is_object (exclude) && !json_is_null (exclude)) {
        respond_error (dws, msg, EPROTO, "exclude: expected an object or null");
        return;
    }
    if (!(job = request_job (dws, msg, id, DWS_DEPEND)))
        return;
    if (errmsg)
        dws_job_raise (&job, "%s", errmsg);
    else if (job_admit (&job, resources, exclude) < 0) {
        respond_error (dws, msg, EINVAL, "the jobspec could not be updated");
        return;
    }
    respond (dws, msg);
}

/* Return the key of a variable that is not a string, or NULL. */
static const char *variables_check (json_t *variables)
{
    const char *key;
    json_t *value;

    json_object_foreach (variables, key, value) {
        if (!json_is_string (value))
            return key;
    }
    return NULL;
}

static void prolog_remove_cb (flux_t *h,
                              flux_msg_handler_t *mh,
                              const flux_msg_t *msg,
                              void *arg)
{
    struct dws *dws = arg;
    json_int_t id;
    json_t *variables;
    const char *copy_out = NULL;
    const char *key;
    struct dws_job *job;

    if (flux_request_unpack (msg,
                             NULL,
                             "{s:I s:o s?s}",
                             "id", &id,
                             "variables", &variables,
                             "copy_out", &copy_out) < 0
        || !json_is_object (variables)) {
        respond_error (dws,
                       msg,
                       EPROTO,
                       "expected {id:integer, variables:object,"
                       " copy_out:string}");
        return;
    }
    if ((key = variables_check (variables))) {
        char text[128];
        dws_format (text,
                    sizeof (text),
                    "expected a string for variables.%s",
                    key);
        respond_error (dws, msg, EPROTO, text);
        return;
    }
    if (!(job = request_job (dws, msg, id, DWS_SETUP)))
        return;
    if (!job->released
        && dws_job_environment (&job, variables, copy_out) < 0) {
        respond_error (dws, msg, errno, "error posting dws_environment");
        return;
    }
    if (job) {
        job->released = true;
        dws_job_unhold (&job);
    }
    if (job) {
        dws_job_enter (job, DWS_RUNNING);
        job->startable = true;
        dws_job_prolog_release (&job, 0);
    }
    respond (dws, msg);
}

static void epilog_remove_cb (flux_t *h,
                              flux_msg_handler_t *mh,
                              const flux_msg_t *msg,
                              void *arg)
{
    struct dws *dws = arg;
    json_int_t id;
    const char *data = NULL;
    struct dws_job *job;

    if (flux_request_unpack (msg,
                             NULL,
                             "{s:I s?s}",
                             "id", &id,
                             "data", &data) < 0
        || (data && strcmp (data, "moving") != 0)) {
        respond_error (dws,
                       msg,
                       EPROTO,
                       "expected {id:integer, data:moving}");
        return;
    }
    if (!(job = request_job (dws, msg, id, DWS_POST_RUN)))
        return;
    if (data && dws_job_data_moving (&job) < 0) {
        respond_error (dws, msg, errno, "error posting " DWS_RELEASED);
        return;
    }
    if (job)
        dws_job_epilog_release (&job, job->aborted ? 1 : 0);
    respond (dws, msg);
}

/* The data of a job that is inactive, or purged, goes out as well. */
static void data_out_cb (flux_t *h,
                         flux_msg_handler_t *mh,
                         const flux_msg_t *msg,
                         void *arg)
{
    struct dws *dws = arg;
    json_int_t id;
    const char *errstr = NULL;

    if (flux_request_unpack (msg,
                             NULL,
                             "{s:I s?s}",
                             "id", &id,
                             "errstr", &errstr) < 0) {
        respond_error (dws,
                       msg,
                       EPROTO,
                       "expected {id:integer, errstr:string}");
        return;
    }
    dws_dataout_report (dws, id, errstr);
    respond (dws, msg);
}

int dws_service_register (struct dws *dws)
{
    static const struct {
        const char *method;
        flux_msg_handler_f cb;
    } services[] = {
        { "resource-update", resource_update_cb },
        { "prolog-remove", prolog_remove_cb },
        { "epilog-remove", epilog_remove_cb },
        { "data-out", data_out_cb },
        { "hello", dws_hello_cb },
    };

    for (size_t i = 0; i < sizeof (services) / sizeof (services[0]); i++) {
        if (flux_jobtap_service_register_ex (dws->p,
                                             services[i].method,
                                             FLUX_ROLE_OWNER,
                                             services[i].cb,
                                             dws) < 0)
            return -1;
    }
    return 0;
}

// vi:ts=4 sw=4 expandtab
