/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* jobspec.c: the storage that a jobspec asks for */

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "text.h"
#include "job.h"

#define BLANKS " \t\n\v\f\r"

static bool is_blank (json_t *string)
{
    const char *s = json_string_value (string);

    return s[strspn (s, BLANKS)] == '\0';
}

bool dws_jobspec_is_empty (json_t *dw)
{
    return (json_is_string (dw) && is_blank (dw))
        || (json_is_array (dw) && json_array_size (dw) == 0);
}

static json_t *directives_create (json_t *dw)
{
    size_t index;
    json_t *entry;

    if (json_is_string (dw) && !is_blank (dw))
        return json_pack ("[O]", dw);
    if (!json_is_array (dw) || json_array_size (dw) == 0)
        return NULL;
    json_array_foreach (dw, index, entry) {
        if (!json_is_string (entry) || is_blank (entry))
            return NULL;
    }
    return json_copy (dw);
}

static bool has_blank (json_t *dw)
{
    size_t index;
    json_t *entry;

    json_array_foreach (dw, index, entry) {
        if (json_is_string (entry) && is_blank (entry))
            return true;
    }
    return false;
}

/* Return how many words of 's' are the prefix of a directive.
 */
static size_t count_prefixes (const char *s)
{
    size_t count = 0;
    size_t length;

    for (s += strspn (s, BLANKS); *s != '\0'; s += strspn (s, BLANKS)) {
        length = strcspn (s, BLANKS);
        if (length == 3 && memcmp (s, "#DW", 3) == 0)
            count++;
        s += length;
    }
    return count;
}

int dws_jobspec_check_bytes (json_t *directives,
                             size_t most,
                             const char *key,
                             char *error,
                             size_t size)
{
    size_t bytes = 0;
    size_t index;
    json_t *entry;

    json_array_foreach (directives, index, entry)
        bytes += json_string_length (entry);
    if (bytes <= most)
        return 0;
    snprintf (error,
              size,
              "attributes.system.dw has %zu bytes, at most %zu are accepted%s",
              bytes,
              most,
              key);
    return -1;
}

/* A guest wrote the directives, and rank 0 reads them.
 */
static int check_size (json_t *directives, char *error, size_t size)
{
    size_t count = 0;
    size_t index;
    json_t *entry;

    if (dws_jobspec_check_bytes (directives,
                                 DWS_DIRECTIVES_BYTES,
                                 "",
                                 error,
                                 size) < 0)
        return -1;
    json_array_foreach (directives, index, entry)
        count += count_prefixes (json_string_value (entry));
    if (json_array_size (directives) > DWS_DIRECTIVES
        || count > DWS_DIRECTIVES) {
        snprintf (error,
                  size,
                  "attributes.system.dw has more than %d directives"
                  " for one job",
                  DWS_DIRECTIVES);
        return -1;
    }
    return 0;
}

static int count_bytes (const char *s, size_t size, void *data)
{
    size_t *left = data;

    if (size > *left)
        return -1;
    *left -= size;
    return 0;
}

/* dws.create is sent again whenever the job changes, and a guest may change it
 * thousands of times a second.
 */
int dws_jobspec_check_part (const char *name,
                            json_t *part,
                            char *error,
                            size_t size)
{
    size_t left = DWS_REQUEST_BYTES;

    if (!part
        || json_dump_callback (part,
                               count_bytes,
                               &left,
                               JSON_COMPACT | JSON_ENCODE_ANY) == 0)
        return 0;
    snprintf (error,
              size,
              "%s of a job with #DW directives has more than %d bytes",
              name,
              DWS_REQUEST_BYTES);
    return -1;
}

/* An attribute that chooses one of two modes. */
struct choice {
    const char *name;
    const char *modes[2];
};

static const struct choice release_choice = {
    "dw_release",
    { "teardown", "unmounted" },
};

static const struct choice stage_choice = {
    "dw_stage",
    { "prolog", "ahead" },
};

/* Set '*modep' to the mode that 'value' names, or to NULL without a value. */
static int choice_parse (const struct choice *choice,
                         json_t *value,
                         const char **modep,
                         char *error,
                         size_t size)
{
    const char *s = json_string_value (value);
    char shown[40];
    int i;

    *modep = NULL;
    for (i = 0; s && i < 2; i++) {
        if (strcmp (s, choice->modes[i]) == 0)
            *modep = choice->modes[i];
    }
    if (!value || *modep)
        return 0;
    snprintf (error,
              size,
              "attributes.system.%s is %s, expected \"%s\" or \"%s\"",
              choice->name,
              dws_show (value, shown, sizeof (shown)),
              choice->modes[0],
              choice->modes[1]);
    return -1;
}

int dws_jobspec_parse (json_t *dw,
                       json_t *tolerance,
                       json_t *release,
                       json_t *stage,
                       json_t **directivesp,
                       int *failure_tolerancep,
                       const char **releasep,
                       const char **stagep,
                       char *error,
                       size_t size)
{
    char value[40];

    *failure_tolerancep = 0;
    if (choice_parse (&release_choice, release, releasep, error, size) < 0
        || choice_parse (&stage_choice, stage, stagep, error, size) < 0)
        return -1;
    if (tolerance) {
        json_int_t n = json_integer_value (tolerance);
        if (!json_is_integer (tolerance) || n < 0 || n > INT_MAX) {
            snprintf (error,
                      size,
                      "attributes.system.dw_failure_tolerance is %s,"
                      " expected an integer from 0 to %d",
                      dws_show (tolerance, value, sizeof (value)),
                      INT_MAX);
            return -1;
        }
        *failure_tolerancep = n;
    }
    if (!(*directivesp = directives_create (dw))) {
        if (has_blank (dw))
            snprintf (error,
                      size,
                      "attributes.system.dw has an empty string,"
                      " expected a #DW directive in quotes");
        else
            snprintf (error,
                      size,
                      "attributes.system.dw is %s,"
                      " expected a string of #DW directives or a list of them",
                      dws_show (dw, value, sizeof (value)));
        return -1;
    }
    if (check_size (*directivesp, error, size) < 0) {
        json_decref (*directivesp);
        *directivesp = NULL;
        return -1;
    }
    return 0;
}

// vi:ts=4 sw=4 expandtab
