/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* host.h: how the stand-in libflux reaches its host, which is in Python
 *
 * Everything that the stand-in cannot do by itself goes through one function.
 */

#ifndef STANDIN_HOST_H
#define STANDIN_HOST_H

#include <jansson.h>
#include <flux/core.h>

struct aux_item;
struct handler;
struct service;

/* The broker handle. There is one plugin to one handle. */
struct flux_handle {
    void *host;                     // the argument of standin_host_call()
    struct flux_plugin *p;
    char owner[16];                 // the instance owner's user ID
    flux_jobid_t current;           // FLUX_JOBTAP_CURRENT_JOB, 0: none
    struct flux_future *futures;
    struct flux_watcher *timers;
    struct service *services;
    struct aux_item *job_aux;
    int64_t serial;                 // the last ID of a future or timer
};

struct flux_plugin {
    struct flux_handle *h;
    char *name;
    char *conf;
    struct handler *handlers;
    struct aux_item *aux;
};

/* A list of named items; 'jobid' is 0 for those of the plugin. */
struct aux_item {
    struct aux_item *next;
    flux_jobid_t jobid;
    char *name;
    void *val;
    flux_free_f free_fn;
};

int aux_add (struct aux_item **list,
             flux_jobid_t jobid,
             const char *name,
             void *val,
             flux_free_f free_fn);
void *aux_find (struct aux_item *list, flux_jobid_t jobid, const char *name);
void aux_delete_value (struct aux_item **list, const void *val);
void aux_delete_job (struct aux_item **list, flux_jobid_t jobid);
void aux_delete_all (struct aux_item **list);

/* Carry out 'op' with JSON arguments (an object as text). Return 0, and the
 * result as JSON text (or NULL) in '*result', which the caller frees; or minus
 * an errno. Implemented in Python.
 */
int standin_host_call (void *host,
                       const char *op,
                       const char *args,
                       char **result);

/* The same with packed arguments, and the result parsed if 'result' is not
 * NULL. Return 0, or -1 with errno set.
 */
int host_call (flux_t *h,
               json_t **result,
               const char *op,
               const char *fmt,
               ...);

flux_plugin_t *plugin_create (flux_t *h, const char *conf);
void plugin_destroy (flux_plugin_t *p);

flux_plugin_arg_t *plugin_arg_create (json_t *in);
json_t *plugin_arg_out (flux_plugin_arg_t *args);

/* Call the handler for 'topic'. Return 0 if there is none, 1 if it succeeded,
 * -1 if it failed.
 */
int plugin_call (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args);

/* Drop all futures and timers. */
void reactor_clear (flux_t *h);

/* For the Python side: text that C frees, and text that Python frees. */
char *standin_strdup (const char *s);
void standin_free (char *s);

#endif // !STANDIN_HOST_H
