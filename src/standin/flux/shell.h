/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* What dws_environment uses of <flux/shell.h>, for machines without Flux. */

#ifndef STANDIN_FLUX_SHELL_H
#define STANDIN_FLUX_SHELL_H

#include "core.h"

typedef struct flux_shell flux_shell_t;

flux_shell_t *flux_plugin_get_shell (flux_plugin_t *p);
flux_t *flux_shell_get_flux (flux_shell_t *shell);
int flux_shell_info_unpack (flux_shell_t *shell, const char *fmt, ...);
int flux_shell_setenvf (flux_shell_t *shell,
                        int overwrite,
                        const char *name,
                        const char *fmt,
                        ...);

/* Return 1 if the option is there, 0 if not, -1 if it is another. */
int flux_shell_getopt_unpack (flux_shell_t *shell,
                              const char *name,
                              const char *fmt,
                              ...);

STANDIN_CONSTANT (FLUX_SHELL_ERROR, 3);
STANDIN_CONSTANT (FLUX_SHELL_NOTICE, 5);
STANDIN_CONSTANT (FLUX_SHELL_DEBUG, 6);

void flux_shell_log (const char *component,
                     int level,
                     const char *file,
                     int line,
                     const char *fmt,
                     ...);

#ifndef STANDIN_CHECK
#define shell_debug(...) \
    flux_shell_log (FLUX_SHELL_PLUGIN_NAME, \
                    FLUX_SHELL_DEBUG, __FILE__, __LINE__, __VA_ARGS__)

#define shell_log(...) \
    flux_shell_log (FLUX_SHELL_PLUGIN_NAME, \
                    FLUX_SHELL_NOTICE, __FILE__, __LINE__, __VA_ARGS__)

#define shell_log_error(...) \
    flux_shell_log (FLUX_SHELL_PLUGIN_NAME, \
                    FLUX_SHELL_ERROR, __FILE__, __LINE__, __VA_ARGS__)
#endif

#endif // !STANDIN_FLUX_SHELL_H
