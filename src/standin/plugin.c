/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* plugin.c: plugins, their arguments and auxiliary data; used by both hosts */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

struct handler {
    struct handler *next;
    struct flux_plugin_handler entry;
};

struct flux_plugin_arg {
    json_t *in;
    json_t *out;
};

#ifdef __SANITIZE_ADDRESS__
/* libjansson has no frame pointers. This puts one frame of ours into the stack
 * of each of its allocations, by which a test tells our leaks from Python's.
 */
static void *json_malloc (size_t size)
{
    return malloc (size);
}

__attribute__ ((constructor))
static void json_malloc_init (void)
{
    json_set_alloc_funcs (json_malloc, free);
}
#endif

char *standin_strdup (const char *s)
{
    return strdup (s);
}

void standin_free (char *s)
{
    free (s);
}

int host_call (flux_t *h,
               json_t **result,
               const char *op,
               const char *fmt,
               ...)
{
    json_t *o;
    char *args;
    char *text = NULL;
    va_list ap;
    int rc;

    va_start (ap, fmt);
    o = json_vpack_ex (NULL, 0, fmt, ap);
    va_end (ap);
    if (!o) {
        errno = EINVAL;
        return -1;
    }
    args = json_dumps (o, JSON_COMPACT);
    json_decref (o);
    if (!args) {
        errno = ENOMEM;
        return -1;
    }
    rc = standin_host_call (h->host, op, args, &text);
    free (args);
    if (rc == 0
        && result
        && !(*result = json_loads (text ? text : "", JSON_DECODE_ANY, NULL)))
        rc = -EPROTO;
    free (text);
    if (rc < 0) {
        errno = -rc;
        return -1;
    }
    return 0;
}

static void aux_item_destroy (struct aux_item *item)
{
    if (item->free_fn)
        item->free_fn (item->val);
    free (item->name);
    free (item);
}

int aux_add (struct aux_item **list,
             flux_jobid_t jobid,
             const char *name,
             void *val,
             flux_free_f free_fn)
{
    struct aux_item *item;

    if (!(item = calloc (1, sizeof (*item)))
        || (name && !(item->name = strdup (name)))) {
        free (item);
        errno = ENOMEM;
        return -1;
    }
    item->jobid = jobid;
    item->val = val;
    item->free_fn = free_fn;
    item->next = *list;
    *list = item;
    return 0;
}

void *aux_find (struct aux_item *list, flux_jobid_t jobid, const char *name)
{
    struct aux_item *item;

    for (item = list; item; item = item->next) {
        if (item->jobid == jobid
            && item->name
            && strcmp (item->name, name) == 0)
            return item->val;
    }
    errno = ENOENT;
    return NULL;
}

void aux_delete_value (struct aux_item **list, const void *val)
{
    for (struct aux_item **p = list; *p; p = &(*p)->next) {
        if ((*p)->val == val) {
            struct aux_item *item = *p;
            *p = item->next;
            aux_item_destroy (item);
            return;
        }
    }
}

void aux_delete_job (struct aux_item **list, flux_jobid_t jobid)
{
    struct aux_item **p = list;

    while (*p) {
        struct aux_item *item = *p;
        if (item->jobid == jobid) {
            *p = item->next;
            aux_item_destroy (item);
        }
        else
            p = &item->next;
    }
}

void aux_delete_all (struct aux_item **list)
{
    while (*list) {
        struct aux_item *item = *list;
        *list = item->next;
        aux_item_destroy (item);
    }
}

flux_plugin_t *plugin_create (flux_t *h, const char *conf)
{
    flux_plugin_t *p;

    if (!(p = calloc (1, sizeof (*p)))
        || (conf && !(p->conf = strdup (conf)))) {
        free (p);
        errno = ENOMEM;
        return NULL;
    }
    p->h = h;
    return p;
}

void plugin_destroy (flux_plugin_t *p)
{
    struct handler *handler;

    if (!p)
        return;
    aux_delete_all (&p->aux);
    while ((handler = p->handlers)) {
        p->handlers = handler->next;
        free (handler);
    }
    free (p->name);
    free (p->conf);
    free (p);
}

int plugin_call (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args)
{
    struct handler *handler;

    for (handler = p->handlers; handler; handler = handler->next) {
        struct flux_plugin_handler *entry = &handler->entry;
        if (strcmp (entry->topic, topic) == 0)
            return entry->cb (p, topic, args, entry->data) < 0 ? -1 : 1;
    }
    return 0;
}

int flux_plugin_set_name (flux_plugin_t *p, const char *name)
{
    char *copy;

    if (!(copy = strdup (name)))
        return -1;
    free (p->name);
    p->name = copy;
    return 0;
}

int flux_plugin_register (flux_plugin_t *p,
                          const char *name,
                          const struct flux_plugin_handler t[])
{
    struct handler *handler;

    if (flux_plugin_set_name (p, name) < 0)
        return -1;
    for (; t->topic; t++) {
        if (!(handler = calloc (1, sizeof (*handler))))
            return -1;
        handler->entry = *t;
        handler->next = p->handlers;
        p->handlers = handler;
    }
    return 0;
}

int flux_plugin_aux_set (flux_plugin_t *p,
                         const char *key,
                         void *val,
                         flux_free_f free_fn)
{
    return aux_add (&p->aux, 0, key, val, free_fn);
}

void *flux_plugin_aux_get (flux_plugin_t *p, const char *key)
{
    return aux_find (p->aux, 0, key);
}

void flux_plugin_aux_delete_value (flux_plugin_t *p, const void *val)
{
    aux_delete_value (&p->aux, val);
}

const char *flux_plugin_get_conf (flux_plugin_t *p)
{
    return p->conf;
}

flux_plugin_arg_t *plugin_arg_create (json_t *in)
{
    flux_plugin_arg_t *args;

    if (!(args = calloc (1, sizeof (*args)))
        || !(args->out = json_object ())) {
        free (args);
        errno = ENOMEM;
        return NULL;
    }
    args->in = json_incref (in);
    return args;
}

void flux_plugin_arg_destroy (flux_plugin_arg_t *args)
{
    if (args) {
        int saved_errno = errno;
        json_decref (args->in);
        json_decref (args->out);
        free (args);
        errno = saved_errno;
    }
}

json_t *plugin_arg_out (flux_plugin_arg_t *args)
{
    return args->out;
}

int flux_plugin_arg_unpack (flux_plugin_arg_t *args,
                            int flags,
                            const char *fmt,
                            ...)
{
    json_t *o = flags == FLUX_PLUGIN_ARG_IN ? args->in : args->out;
    va_list ap;
    int rc;

    va_start (ap, fmt);
    rc = json_vunpack_ex (o, NULL, 0, fmt, ap);
    va_end (ap);
    return rc;
}

const char *flux_strerror (int errnum)
{
    return strerror (errnum);
}

static const char f58_digits[] =
    "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/* F58 (RFC 19). Plugins encode no other type. */
int flux_job_id_encode (flux_jobid_t id,
                        const char *type,
                        char *buf,
                        size_t bufsz)
{
    const char *prefix = strcmp (type, "f58plain") == 0 ? "f" : "\u0192";
    char reversed[16];
    size_t n = 0;

    do {
        reversed[n++] = f58_digits[id % 58];
        id /= 58;
    } while (id > 0);
    if (strncmp (type, "f58", 3) != 0 || bufsz < strlen (prefix) + n + 1) {
        errno = EOVERFLOW;
        return -1;
    }
    buf = stpcpy (buf, prefix);
    while (n > 0)
        *buf++ = reversed[--n];
    *buf = '\0';
    return 0;
}

static int f58_decode (const char *s, flux_jobid_t *id)
{
    const char *digit;

    if (*s == '\0' || strlen (s) > 12)
        return -1;
    for (*id = 0; *s != '\0'; s++) {
        if (!(digit = strchr (f58_digits, *s)))
            return -1;
        *id = *id * 58 + (digit - f58_digits);
    }
    return 0;
}

static int dothex_decode (const char *s, flux_jobid_t *id)
{
    unsigned int word[4];
    int n = 0;

    if (sscanf (s,
                "%4x.%4x.%4x.%4x%n",
                &word[0],
                &word[1],
                &word[2],
                &word[3],
                &n) != 4
        || s[n] != '\0')
        return -1;
    for (*id = 0, n = 0; n < 4; n++)
        *id = *id << 16 | word[n];
    return 0;
}

static int integer_decode (const char *s, flux_jobid_t *id)
{
    char *end;

    errno = 0;
    *id = strtoull (s, &end, strncmp (s, "0x", 2) == 0 ? 16 : 10);
    return errno != 0 || end[strspn (end, " \t\n\v\f\r")] != '\0' ? -1 : 0;
}

/* All encodings of RFC 19 but words and emoji. */
int flux_job_id_parse (const char *s, flux_jobid_t *id)
{
    int rc = -1;

    if (s && *s != '\0') {
        s += strspn (s, " \t\n\v\f\r");
        if (strncmp (s, "job.", 4) == 0)
            s += 4;
        if (strchr (s, '.'))
            rc = dothex_decode (s, id);
        else if (strchr (s, '-'))
            rc = -1;
        else if (strncmp (s, "\u0192", 2) == 0)
            rc = f58_decode (s + 2, id);
        else if (*s == 'f')
            rc = f58_decode (s + 1, id);
        else
            rc = integer_decode (s, id);
    }
    if (rc < 0)
        errno = EINVAL;
    return rc;
}

int flux_log (flux_t *h, int level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (text, sizeof (text), fmt, ap);
    va_end (ap);
    return host_call (h,
                      NULL,
                      "log",
                      "{s:i s:s}",
                      "level", level,
                      "message", text);
}

// vi:ts=4 sw=4 expandtab
