/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 *
 * Run a Python program in a fork of forkserver.py, which says what is sent.
 *
 * usage: forkclient [-p FILE] SOCKET ARG...
 *
 * With -p the ID of the process is in FILE before the program does anything that a
 * test can see.
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

    if (fd < 0 || strlen (path) >= sizeof (address.sun_path))
        err (125, "%s", path);
    strcpy (address.sun_path, path);
    if (connect (fd, (struct sockaddr *)&address, sizeof (address)) < 0)
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

static int answer (int fd)
{
    int number;

    if (recv (fd, &number, sizeof (number), 0) != sizeof (number))
        err (125, "no answer");
    return number;
}

int main (int argc, char **argv)
{
    const char *pidfile = NULL;

    if (argc > 2 && !strcmp (argv[1], "-p")) {
        pidfile = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc < 3)
        errx (125, "usage: forkclient [-p FILE] SOCKET ARG...");
    int fd = connect_to (argv[1]);
    request (fd, argc - 2, argv + 2);
    int pid = answer (fd);
    if (pidfile) {
        FILE *file = fopen (pidfile, "w");
        if (!file || fprintf (file, "%d\n", pid) < 0 || fclose (file) < 0)
            err (125, "%s", pidfile);
    }
    int status = answer (fd);
    if (WIFSIGNALED (status)) {
        signal (WTERMSIG (status), SIG_DFL);
        raise (WTERMSIG (status));
    }
    return WEXITSTATUS (status);
}
