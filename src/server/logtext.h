#ifndef AGX_SERVER_LOGTEXT_H
#define AGX_SERVER_LOGTEXT_H
/*
 * What is written of logs: the records of /log that the server itself makes, and the lines of the durable file. A brain.
 *
 * A line of the file is "<UTC time> <what> <text>". Control characters, those above 7F included, line separators and bytes
 * that are no UTF-8 are escaped, so nothing in a text begins a line or drives a terminal; a record of several lines
 * goes on in lines that begin with four blanks.
 */
#include "base/buf.h"

typedef struct agx_log_line {
        double created; /* seconds since 1970 */
        int fd;         /* 1 or 2: output; 0: words of the server's */
        agx_view text;  /* any bytes */
        agx_view worker_id, context;
} agx_log_line;

/* Appends the record of a line, one msgpack map. Errors of agx_buf_append. */
int agx_log_put_record(agx_buf *out, const agx_log_line *line);
/* Appends a line of the file. */
int agx_log_put_line(agx_buf *out, const agx_log_line *line);
/* Appends the lines of the file for a record of the worker's; one that cannot be read gives a line that says so. */
int agx_log_put_record_lines(agx_buf *out, agx_view record);
/* A template's {uname}, {hostname}, {pid}, {id} filled in; other braces stay. */
typedef struct agx_log_names {
        agx_view uname, hostname, id;
        long pid;
} agx_log_names;
int agx_log_expand(agx_buf *out, agx_view template, const agx_log_names *names);

#endif
