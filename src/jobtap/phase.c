/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* phase.c: the begin of a job's phases */

#include <errno.h>
#include <string.h>

#include "action.h"
#include "request.h"
#include "phase.h"

void dws_job_resume (struct dws_job *job)
{
    dws_job_send_request (job);
    dws_job_await_tasks (job);
}

void dws_job_begin_depend (struct dws_job **jobp)
{
    dws_job_enter (*jobp, DWS_DEPEND);
    (*jobp)->admitted = true;
    if (dws_job_dependency_add (jobp) == 0) {
        if (*jobp)
            dws_job_resume (*jobp);
    }
    else if (*jobp)
        dws_job_raise (jobp,
                       "error adding dependency %s: %s; please submit it again",
                       DWS_DEPENDENCY,
                       strerror (errno));
}

void dws_job_begin_setup (struct dws_job **jobp)
{
    dws_job_enter (*jobp, DWS_SETUP);
    if ((*jobp)->error[0] != '\0')
        dws_job_raise (jobp, "%s", (*jobp)->error);
    else if (!(*jobp)->admitted)
        dws_job_raise (jobp,
                       "submitted while dws-jobtap was not loaded,"
                       " please submit it again");
    else
        dws_job_resume (*jobp);
}

void dws_job_begin_post_run (struct dws_job *job, double epilog_start)
{
    dws_job_enter (job, DWS_POST_RUN);
    if (job->aborted)
        dws_job_epilog_abort (job);
    else
        dws_job_epilog_timer (job, epilog_start);
    dws_job_resume (job);
}

// vi:ts=4 sw=4 expandtab
