/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* rpc.c: RPCs to the dws module, and its answers */

#include <errno.h>
#include <syslog.h>

#include "text.h"
#include "request.h"

flux_future_t *dws_then (flux_future_t *f, flux_continuation_f cb, void *arg)
{
    if (f && flux_future_then (f, -1., cb, arg) < 0) {
        int saved_errno = errno;
        flux_future_destroy (f);
        f = NULL;
        errno = saved_errno;
    }
    return f;
}

flux_future_t *dws_eventlog_lookup (struct dws *dws, flux_jobid_t id)
{
    return flux_rpc_pack (dws->h,
                          "job-manager.getattr",
                          0,
                          0,
                          "{s:I s:[s]}",
                          "id", (json_int_t)id,
                          "attrs", "eventlog");
}

enum dws_answer dws_answer_get (flux_future_t *f, char *reason, size_t size)
{
    int success;
    const char *errstr = NULL;

    if (flux_rpc_get_unpack (f,
                             "{s:b s?s}",
                             "success", &success,
                             "errstr", &errstr) < 0) {
        if (errno == ENOSYS) {
            dws_format (reason, size, "the dws module is not loaded");
            return DWS_ANSWER_ABSENT;
        }
        if (errno == EAGAIN) {
            dws_format (reason, size, "%s", future_strerror (f, errno));
            return DWS_ANSWER_LATER;
        }
        if (errno == EHOSTUNREACH) {
            dws_format (reason, size, "the dws module went away");
            return DWS_ANSWER_LOST;
        }
        dws_format (reason, size, "%s", future_strerror (f, errno));
        return DWS_ANSWER_NO;
    }
    if (success)
        return DWS_ANSWER_YES;
    dws_format (reason,
                size,
                "%s",
                errstr ? errstr : "refused without a reason");
    return DWS_ANSWER_NO;
}

static void hello_cb (flux_future_t *f, void *arg)
{
    struct dws *dws = arg;

    // A module that is not there, or not ready, will say hello itself.
    if (flux_rpc_get (f, NULL) < 0
        && errno != ENOSYS
        && errno != EAGAIN
        && errno != EHOSTUNREACH)
        flux_log (dws->h,
                  LOG_ERR,
                  "dws: dws.hello failed: %s",
                  future_strerror (f, errno));
    flux_plugin_aux_delete_value (dws->p, f); // destroys the future
}

void dws_hello (struct dws *dws)
{
    flux_future_t *f = flux_rpc_pack (dws->h, "dws.hello", 0, 0, "{}");

    if (!(f = dws_then (f, hello_cb, dws))
        || flux_plugin_aux_set (dws->p,
                                NULL,
                                f,
                                (flux_free_f)flux_future_destroy) < 0) {
        flux_log_error (dws->h, "dws: error sending dws.hello");
        flux_future_destroy (f);
    }
}

// vi:ts=4 sw=4 expandtab
