/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* shell.h: the interface of the shell's host to Python */

#ifndef STANDIN_SHELL_H
#define STANDIN_SHELL_H

/* Load the plugin into a shell and call shell.init, and shell.exit if 'to_the_end'
 * is true. Return -1 if the shell would end.
 */
int standin_shell_run (void *host, int to_the_end);

#endif // !STANDIN_SHELL_H
