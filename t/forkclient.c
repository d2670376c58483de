/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 *
 * Run a Python program in a fork of forkserver.py, which says what is sent.
 *
 * usage: forkclient SOCKET ARG...
 */

#define _GNU_SOURCE
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int connect_to (const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket (AF_UNIX, SOCK_SEQPACKET, 0);

    if (strlen (path) >= sizeof (address.sun_path))
        errx (125, "%s: too long for a socket", path);
    strcpy (address.sun_path, path);
    if (fd < 0 || connect (fd, (struct sockaddr *)&address, sizeof (address)) < 0)
        err (125, "%s", path);
    return fd;
}

static void request (int fd, int argc, char **argv)
{
    int files[3] = { 0, 1, 2 };
    union {
        char space[CMSG_SPACE (sizeof (files))];
        struct cmsghdr align;
    } control = { 0 };
    struct iovec part;
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.space,
                              .msg_controllen = sizeof (control.space) };
    struct cmsghdr *header = CMSG_FIRSTHDR (&message);
    char *folder = getcwd (NULL, 0);
    char *text;
    FILE *stream = open_memstream (&text, &part.iov_len);

    if (!folder || !stream)
        err (125, "no request");
    fprintf (stream, "%s%c%d%c", folder, 0, argc, 0);
    for (char **word = argv; *word; word++)
        fprintf (stream, "%s%c", *word, 0);
    for (char **word = environ; *word; word++)
        fprintf (stream, "%s%c", *word, 0);
    if (fclose (stream) < 0)
        err (125, "no request");
    part.iov_base = text;
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN (sizeof (files));
    memcpy (CMSG_DATA (header), files, sizeof (files));
    if (sendmsg (fd, &message, 0) < 0)
        err (125, "a request of %zu bytes", part.iov_len);
    free (text);
    free (folder);
}

int main (int argc, char **argv)
{
    int status;

    if (argc < 3)
        errx (125, "usage: forkclient SOCKET ARG...");
    int fd = connect_to (argv[1]);
    request (fd, argc - 2, argv + 2);
    if (recv (fd, &status, sizeof (status), 0) != sizeof (status))
        err (125, "no answer");
    if (WIFSIGNALED (status)) {
        signal (WTERMSIG (status), SIG_DFL);
        raise (WTERMSIG (status));
    }
    return WEXITSTATUS (status);
}
