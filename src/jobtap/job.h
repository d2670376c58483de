/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* The state of the plugin and of its jobs */

#ifndef DWS_JOB_H
#define DWS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <jansson.h>
#include <flux/core.h>
#include <flux/jobtap.h>

// The version that the plugin was built as; setup.py knows it.
#ifndef DWS_VERSION
#define DWS_VERSION "unknown"
#endif

// As in flux_k8s/version.py.
#define DWS_PROTOCOL 1

#define DWS_DEPENDENCY "dws-create"
#define DWS_PROLOG "dws-setup"
#define DWS_EPILOG "dws-epilog"
#define DWS_MEMO "dws"
#define DWS_MODULE_MEMO "rabbit_waits_for"
#define DWS_EXCEPTION "dws"
#define DWS_EPILOG_TIMEOUT "dws-epilog-timeout"
#define DWS_RELEASED "dws_released"

#define DWS_AUX "dws"
#define DWS_JOB_AUX "dws::job"

// The limits of a job's directives, as in flux_k8s/limits.py.
#define DWS_DIRECTIVES_BYTES 65536
#define DWS_DIRECTIVES 64

// rabbit.directives_limit, of a job that is submitted: that of a site without
// one, as in flux_k8s/config/table.py.
#define DWS_DIRECTIVES_LIMIT 8192

// The most bytes of each other part of a jobspec that dws.create has. In it are
// 4096 values of resources (limits.py), or the names of some thousand nodes.
#define DWS_REQUEST_BYTES 65536

/* The phase of a job, as far as its storage is concerned. */
enum dws_phase {
    DWS_NEW,      // submitted, but not in DEPEND yet
    DWS_RECOVER,  // the plugin was loaded meanwhile: reading the eventlog
    DWS_DEPEND,   // dws-create is outstanding: the Workflow is in Proposal
    DWS_SCHED,    // dws-create was removed, the job waits for resources
    DWS_SETUP,    // dws-setup is outstanding: Setup, DataIn, PreRun
    DWS_RUNNING,  // dws-setup was finished
    DWS_POST_RUN, // dws-epilog is outstanding: PostRun, DataOut, Teardown
    DWS_DONE,     // nothing of ours is left, or there never was
};

struct dws_abort;
struct dws_dataout;
struct dws_job;

/* Sends a job's request: see window.c. */
typedef void (*dws_send_f) (struct dws_job *job);

TAILQ_HEAD (dws_queue, dws_job);

/* The plugin: one per load. */
struct dws {
    flux_plugin_t *p;
    flux_t *h;
    json_int_t owner;            // the instance owner's user ID
    double epilog_timeout;       // seconds; 0: none
    int directives_limit;        // bytes, at submission
    bool module_away;            // the module is known to be away
    int recovering;              // how many jobs are in DWS_RECOVER
    int lookups;                 // for how many of them one is in flight
    uint64_t serial;             // of the last job
    struct dws_queue jobs;       // in the order in which they were seen
    LIST_HEAD (, dws_abort) aborts; // dws.abort requests not answered yet
    int requests;                // how many jobs have a request in flight
    struct dws_queue actions;    // jobs with a prolog or an epilog that wait to
                                 // send theirs
    struct dws_queue creates;    // jobs in DWS_DEPEND that do
    flux_watcher_t *request_timer; // when they do
    dws_send_f send_request;       // and how
    flux_future_t *f_exec;       // asks job-exec which jobs have tasks
    flux_watcher_t *exec_timer;  // when to ask
    struct dws_dataout *dataout; // who waits for data; NULL if nobody ever did
};

/* One job with #DW directives, owned by the job's aux items. */
struct dws_job {
    struct dws *dws;
    TAILQ_ENTRY (dws_job) link;
    uint64_t serial;             // later jobs have greater ones
    flux_jobid_t id;
    uint32_t userid;
    double t_submit;             // UNIX time
    json_t *directives;          // array of strings
    int failure_tolerance;
    const char *release;         // when the nodes are given back; NULL: as the
                                 // module is configured
    const char *stage;           // when the storage is made; NULL: likewise
    int others;                  // the job's dependencies that are not ours
    bool uncounted;              // some were added before ours: they are in the
                                 // eventlog
    bool changed;                // since the dws.create that is in flight
    bool updating;               // its jobspec is updated by us
    char error[256];             // why the jobspec is bad, or ""
    enum dws_phase phase;
    int state;                   // as of the last callback while DWS_RECOVER
    bool stale;                  // state changed while DWS_RECOVER
    json_t *late;                // array of exceptions and memos since then
    bool admitted;               // dws-create was added to the job
    bool delivered;              // the module may know the job
    bool released;               // the dws_environment event was posted
    bool startable;              // dws-setup finished in time: tasks may run
    bool started;                // the start event was posted
    bool ended;                  // finish, or the last release, was posted
    bool exec_done;              // the last release was posted
    bool exec_asked;             // job-exec is being asked about its tasks
    bool teardown;               // an exception asks for Teardown at once
    bool failed;                 // a fatal exception is about its storage
    bool aborted;                // dws-epilog-timeout: the module takes nodes
                                 // and Rabbits in use out of service, then the
                                 // epilog is released
    bool away_memo;              // a memo says that the module is away
    json_t *module_memo;         // the reason to wait, by a memo of the module
    double prolog_start;         // UNIX time; 0: not yet
    int prologs;                 // prolog and epilog actions that are open
    int epilogs;
    int early_epilogs;           // of others, not counted by the job manager
    flux_future_t *f;            // the phase's request or look-up, in flight
    bool in_flight;              // a request of ours is, or a look-up for it
    struct dws_queue *queue;     // where the job waits to send it, or NULL
    TAILQ_ENTRY (dws_job) queued;
    bool accepted;               // dws.post_run was answered
    flux_watcher_t *timer;
};

/* window.c: how many requests are in flight.
 */

/* Have dws->send_request called with the job when its turn comes, instead of
 * the request that it has in flight. That puts the future into job->f; each one
 * that follows in its place belongs to the same request.
 */
void dws_job_queue_request (struct dws_job *job);

/* Return true if dws.create is in flight, and not the look-up that comes before
 * the first one of a job that is 'uncounted'.
 */
bool dws_job_is_creating (struct dws_job *job);

/* Neither is a request in flight, nor does one wait. */
void dws_job_drop_request (struct dws_job *job);

/* The request was answered, or cannot be sent. */
void dws_job_request_done (struct dws_job *job);
void dws_requests_init (struct dws *dws, dws_send_f send_request);
void dws_requests_clear (struct dws *dws);

/* job.c: the life of the struct.
 */

/* Create the job and tie it to the job's aux items. The job is in DWS_NEW. */
struct dws_job *dws_job_create (struct dws *dws,
                                flux_jobid_t id,
                                uint32_t userid);

/* Return NULL for a job without #DW directives, or one that is not active. */
struct dws_job *dws_job_lookup (struct dws *dws, flux_jobid_t id);

/* Return the state of any job that was not purged, ours or not; 0 if there is
 * none.
 */
int dws_job_state (struct dws *dws, flux_jobid_t id);

/* Encode a job ID as 'type', "f58" or "f58plain"; in decimal if that fails. */
void dws_job_id_encode (flux_jobid_t id,
                        const char *type,
                        char *buf,
                        size_t size);

/* Enter a phase. Drop all requests that are in flight for the last one. */
void dws_job_enter (struct dws_job *job, enum dws_phase phase);

/* Take note of the value of a memo of the module. */
void dws_job_note_memo (struct dws_job *job, json_t *memo);

/* The demand of a fatal exception during the epilog. */
enum dws_demand {
    DWS_DEMAND_NOTHING,
    DWS_DEMAND_TEARDOWN, // at once
    DWS_DEMAND_ABORT,    // the last resort: the epilog-timeout, or a person who
                         // may take nodes and Rabbits out of service, asks
};

/* Take note of a fatal exception, and return its demand. */
enum dws_demand dws_job_note_exception (struct dws_job *job,
                                        const char *type,
                                        json_int_t userid);

/* Keep an exception or a memo that comes while DWS_RECOVER: it may be missing
 * in the eventlog that is being read. Guests can post as many of these as they
 * like, so none of them has the eventlog read again.
 */
void dws_job_note_late (struct dws_job *job, json_t *entry);

/* Take note of an event of the job that says something about its tasks. */
void dws_job_note_event (struct dws_job *job, const char *name, bool final);

/* Take note of a dependency that was added to the job, or removed from it.
 * Return true if it is the first one that is not ours, or the last one.
 */
bool dws_job_note_dependency (struct dws_job *job,
                              const char *name,
                              const char *description);

/* Return true if the job's tasks may be running, or may be started yet. */
bool dws_job_has_tasks (struct dws_job *job);

/* jobspec.c: the storage that a jobspec asks for.
 */

/* Return true if attributes.system.dw, an empty string or list, has no
 * directives.
 */
bool dws_jobspec_is_empty (json_t *dw);

/* Check dw, dw_failure_tolerance, dw_release and dw_stage of attributes.system
 * (NULL when missing). On success return 0, the directives as a new array of
 * strings, and '*releasep' and '*stagep', constant strings, or NULL without the
 * attribute. On failure return -1 with a sentence in 'error'.
 */
int dws_jobspec_parse (json_t *dw,
                       json_t *tolerance,
                       json_t *release,
                       json_t *stage,
                       json_t **directivesp,
                       int *failure_tolerancep,
                       const char **releasep,
                       const char **stagep,
                       char *error,
                       size_t size);

/* Check the size of the directives of a job that is submitted. 'key' is empty,
 * or names what sets the limit, in parentheses after a blank. Return 0, or -1
 * with a sentence in 'error'.
 */
int dws_jobspec_check_bytes (json_t *directives,
                             size_t most,
                             const char *key,
                             char *error,
                             size_t size);

/* Check the size of a part of a jobspec that dws.create has. It may be NULL.
 * Return 0, or -1 with a sentence in 'error'.
 */
int dws_jobspec_check_part (const char *name,
                            json_t *part,
                            char *error,
                            size_t size);

/* eventlog.c: the state of a job's storage by its eventlog.
 */

/* Set the members that follow from the job's eventlog (an array of RFC 18
 * entries), and '*epilog_start' to the time at which our epilog was started, 0
 * if it was not. Return the phase that it and job->state put the job in.
 */
enum dws_phase dws_job_replay (struct dws_job *job,
                               json_t *eventlog,
                               double *epilog_start);

/* Count the job's dependencies that are not ours. */
void dws_job_count_dependencies (struct dws_job *job, json_t *eventlog);

/* Return true if the eventlog of a job in DEPEND says that this dependency was
 * not removed.
 */
bool dws_dependency_is_held (json_t *eventlog, const char *description);

#endif // !DWS_JOB_H
