/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* What the plugins use of <flux/core.h>, for machines without Flux.
 *
 * src/standin/check.c includes this after the real headers (with STANDIN_CHECK
 * defined): a declaration that disagrees is a compile-time error.
 */

#ifndef STANDIN_FLUX_CORE_H
#define STANDIN_FLUX_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef STANDIN_CHECK
#define STANDIN_CONSTANT(name, value) \
    _Static_assert ((name) == (value), #name " disagrees")
#define STANDIN_STRUCT(name) standin_##name
#else
#define STANDIN_CONSTANT(name, value) enum { name = (value) }
#define STANDIN_STRUCT(name) name
#endif

typedef void (*flux_free_f) (void *arg);

typedef struct flux_msg flux_msg_t;
typedef struct flux_handle flux_t;
typedef struct flux_watcher flux_watcher_t;
typedef struct flux_reactor flux_reactor_t;
typedef struct flux_future flux_future_t;
typedef struct flux_msg_handler flux_msg_handler_t;
typedef struct flux_plugin flux_plugin_t;
typedef struct flux_plugin_arg flux_plugin_arg_t;
typedef uint64_t flux_jobid_t;

/* log */

int flux_log (flux_t *h, int level, const char *fmt, ...);
void flux_log_error (flux_t *h, const char *fmt, ...);
const char *flux_strerror (int errnum);

/* reactor */

typedef void (*flux_watcher_f) (flux_reactor_t *r,
                                flux_watcher_t *w,
                                int revents,
                                void *arg);

flux_reactor_t *flux_get_reactor (flux_t *h);
const char *flux_attr_get (flux_t *h, const char *name);
double flux_reactor_now (flux_reactor_t *r);
flux_watcher_t *flux_timer_watcher_create (flux_reactor_t *r,
                                           double after,
                                           double repeat,
                                           flux_watcher_f cb,
                                           void *arg);
void flux_watcher_start (flux_watcher_t *w);
void flux_watcher_destroy (flux_watcher_t *w);

/* future */

typedef void (*flux_continuation_f) (flux_future_t *f, void *arg);

int flux_future_then (flux_future_t *f,
                      double timeout,
                      flux_continuation_f cb,
                      void *arg);
void flux_future_destroy (flux_future_t *f);
void flux_future_reset (flux_future_t *f);
int flux_future_wait_for (flux_future_t *f, double timeout);
bool flux_future_has_error (flux_future_t *f);
const char *flux_future_error_string (flux_future_t *f);

#ifndef STANDIN_CHECK
#define future_strerror(f, errnum) \
    (flux_future_has_error ((f)) ? flux_future_error_string ((f)) \
                                 : flux_strerror ((errnum)))
#endif

/* messages */

STANDIN_CONSTANT (FLUX_ROLE_OWNER, 1);
STANDIN_CONSTANT (FLUX_NODEID_ANY, 0xFFFFFFFF);

typedef void (*flux_msg_handler_f) (flux_t *h,
                                    flux_msg_handler_t *mh,
                                    const flux_msg_t *msg,
                                    void *arg);

STANDIN_CONSTANT (FLUX_RPC_NORESPONSE, 1);
flux_future_t *flux_rpc (flux_t *h,
                         const char *topic,
                         const char *s,
                         uint32_t nodeid,
                         int flags);
flux_future_t *flux_rpc_pack (flux_t *h,
                              const char *topic,
                              uint32_t nodeid,
                              int flags,
                              const char *fmt,
                              ...);
flux_future_t *flux_rpc_raw (flux_t *h,
                             const char *topic,
                             const void *data,
                             size_t len,
                             uint32_t nodeid,
                             int flags);
int flux_rpc_get (flux_future_t *f, const char **s);
int flux_rpc_get_raw (flux_future_t *f, const void **data, size_t *len);
int flux_rpc_get_unpack (flux_future_t *f, const char *fmt, ...);
int flux_request_unpack (const flux_msg_t *msg,
                         const char **topic,
                         const char *fmt,
                         ...);
int flux_respond (flux_t *h, const flux_msg_t *request, const char *s);
int flux_respond_pack (flux_t *h,
                       const flux_msg_t *request,
                       const char *fmt,
                       ...);
int flux_respond_error (flux_t *h,
                        const flux_msg_t *request,
                        int errnum,
                        const char *errstr);

/* KVS */

STANDIN_CONSTANT (FLUX_KVS_TREEOBJ, 16);

flux_future_t *flux_kvs_lookup (flux_t *h,
                                const char *ns,
                                int flags,
                                const char *key);
int flux_kvs_lookup_get_treeobj (flux_future_t *f, const char **treeobj);

/* jobs */

STANDIN_CONSTANT (FLUX_JOB_STATE_NEW, 1);
STANDIN_CONSTANT (FLUX_JOB_STATE_DEPEND, 2);
STANDIN_CONSTANT (FLUX_JOB_STATE_SCHED, 8);
STANDIN_CONSTANT (FLUX_JOB_STATE_RUN, 16);
STANDIN_CONSTANT (FLUX_JOB_STATE_CLEANUP, 32);
STANDIN_CONSTANT (FLUX_JOB_STATE_INACTIVE, 64);

int flux_job_id_parse (const char *s, flux_jobid_t *id);
int flux_job_id_encode (flux_jobid_t id,
                        const char *type,
                        char *buf,
                        size_t bufsz);
int flux_job_kvs_key (char *buf,
                      int bufsz,
                      flux_jobid_t id,
                      const char *key);
flux_future_t *flux_job_event_watch (flux_t *h,
                                     flux_jobid_t id,
                                     const char *path,
                                     int flags);
int flux_job_event_watch_get (flux_future_t *f, const char **event);
int flux_job_event_watch_cancel (flux_future_t *f);

/* plugins */

STANDIN_CONSTANT (FLUX_PLUGIN_ARG_IN, 0);
STANDIN_CONSTANT (FLUX_PLUGIN_ARG_OUT, 1);

typedef int (*flux_plugin_f) (flux_plugin_t *p,
                              const char *topic,
                              flux_plugin_arg_t *args,
                              void *data);

struct STANDIN_STRUCT (flux_plugin_handler) {
    const char *topic;
    flux_plugin_f cb;
    void *data;
};

#ifdef STANDIN_CHECK
#define STANDIN_MEMBER(name) \
    _Static_assert (offsetof (struct flux_plugin_handler, name) \
                    == offsetof (struct standin_flux_plugin_handler, name), \
                    "flux_plugin_handler." #name " disagrees")
STANDIN_MEMBER (topic);
STANDIN_MEMBER (cb);
STANDIN_MEMBER (data);
_Static_assert (sizeof (struct flux_plugin_handler)
                == sizeof (struct standin_flux_plugin_handler),
                "flux_plugin_handler disagrees");
#endif

int flux_plugin_register (flux_plugin_t *p,
                          const char *name,
                          const struct flux_plugin_handler t[]);
int flux_plugin_set_name (flux_plugin_t *p, const char *name);
int flux_plugin_aux_set (flux_plugin_t *p,
                         const char *key,
                         void *val,
                         flux_free_f free_fn);
void *flux_plugin_aux_get (flux_plugin_t *p, const char *key);
void flux_plugin_aux_delete_value (flux_plugin_t *p, const void *val);
const char *flux_plugin_get_conf (flux_plugin_t *p);
int flux_plugin_arg_unpack (flux_plugin_arg_t *args,
                            int flags,
                            const char *fmt,
                            ...);
void flux_plugin_arg_destroy (flux_plugin_arg_t *args);

/* What each plugin gives to its host. */
int flux_plugin_init (flux_plugin_t *p);

#endif // !STANDIN_FLUX_CORE_H
