/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* The phases of a job, and how it gets back into one */

#ifndef DWS_PHASE_H
#define DWS_PHASE_H

#include "job.h"

/* phase.c: the begin of a job's phases.
 */

/* The job leaves NEW: ask for its Workflow. */
void dws_job_begin_depend (struct dws_job **jobp);

/* The job has resources, and its prolog was started: ask for Setup. */
void dws_job_begin_setup (struct dws_job **jobp);

/* The job's epilog was started, at 'epilog_start', or just now if that is 0. */
void dws_job_begin_post_run (struct dws_job *job, double epilog_start);

/* Send the request of the job's phase again. */
void dws_job_resume (struct dws_job *job);

/* recover.c: finding back into the life of a job after the plugin was loaded.
 */

/* Take up a job that was active when the plugin was loaded, in any state. */
void dws_job_adopt (struct dws_job **jobp);

/* Set the phase of a job in DWS_RECOVER. After the last one the module is told
 * that the plugin is there.
 */
void dws_job_recovered (struct dws_job *job, enum dws_phase phase);

#endif // !DWS_PHASE_H
