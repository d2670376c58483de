/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* The actions of the plugin on a job */

#ifndef DWS_ACTION_H
#define DWS_ACTION_H

#include "job.h"

/* Nothing but action.c posts events.
 *
 * Outside of a callback for the same job, an event that is posted takes effect
 * at once: callbacks are called, ours and those of other plugins, which may
 * raise an exception or post events in turn. When the call returns the job may
 * have ended, and the struct may have been freed.
 *
 * So whatever posts takes the address of the caller's only pointer to the job,
 * and looks the job up again: afterwards *jobp is NULL unless the job is still
 * there, in the phase that it was in. A job that has moved on was dealt with in
 * the callback that moved it. A function that takes struct dws_job * does not
 * post.
 */
void dws_job_raise (struct dws_job **jobp, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));
int dws_job_raise_timeout (struct dws_job **jobp);
int dws_job_dependency_add (struct dws_job **jobp);
int dws_job_dependency_remove (struct dws_job **jobp);
int dws_job_update (struct dws_job **jobp, json_t *updates);
/* 'copy_out', for the shell plugin, may be NULL. */
int dws_job_environment (struct dws_job **jobp,
                         json_t *variables,
                         const char *copy_out);
/* The data of the job goes out after its epilog. */
int dws_job_data_moving (struct dws_job **jobp);
int dws_job_prolog_start (struct dws_job **jobp);
void dws_job_prolog_release (struct dws_job **jobp, int status);

/* Start the epilog of a job in CLEANUP, and once more for each of its early
 * epilogs. The job manager does not count these, but it does count their ends,
 * and takes them for those of ours.
 */
int dws_job_epilog_start (struct dws_job **jobp);
void dws_job_epilog_release (struct dws_job **jobp, int status);

/* Release the epilog of a job whose storage may be in use, and say so. */
void dws_job_epilog_abandon (struct dws_job **jobp, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

/* Say in a memo, and once in the log, that jobs wait for the module. */
void dws_job_hold (struct dws_job **jobp, const char *reason);
void dws_job_unhold (struct dws_job **jobp);

/* The dependencies of any job, one of ours or not. A job that has left DEPEND
 * is left alone.
 */
int dws_dependency_add (struct dws *dws,
                        flux_jobid_t id,
                        const char *description);
void dws_dependency_remove (struct dws *dws,
                            flux_jobid_t id,
                            const char *description);
void dws_dependency_fail (struct dws *dws, flux_jobid_t id, const char *note);

/* Log 'fmt' with the job's F58 ID in front of it. */
void dws_log (struct dws *dws,
              int level,
              flux_jobid_t id,
              const char *fmt,
              ...) __attribute__ ((format (printf, 4, 5)));

#endif // !DWS_ACTION_H
