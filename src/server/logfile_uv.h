#ifndef AGX_SERVER_LOGFILE_UV_H
#define AGX_SERVER_LOGFILE_UV_H
/*
 * The durable logs: one file a worker, `sandbox-<worker-id>.log` in a directory of ours, begun with its first line. Lines
 * gather and are written at the end of the loop's turn. At AGX_LOG_FILE_BYTES a file is renamed to `.log.1` and begun anew;
 * what had that name before shrinks while the new one grows, and step by step when nothing is written, since to free it
 * at once takes a tenth of a second.
 *
 * A write that fails costs the lines at hand, is said once, and the file is tried again a moment later; nothing waits for
 * it. The directory must be ours, and so must a file that is there already; links are not followed.
 */
#include "base/buf.h"
#include "io/deadline.h"
#include "proto/limits.h"

enum { AGX_LOG_ID = 9 };

typedef struct agx_logfile {
        char id[AGX_LOG_ID]; /* of the worker; empty: the slot is free */
        int fd;              /* -1: not open */
        uint64_t size;
        int replaced; /* the second file before this one, which has no name any more; -1: none */
        uint64_t replaced_size;
        uint64_t used; /* when it was last written to, in turns */
        agx_buf waiting;
} agx_logfile;

typedef struct agx_logfiles {
        agx_loop *loop;
        const char *path; /* NULL: none are kept */
        int dir;          /* -1: not open */
        agx_flush flush;
        agx_deadline idle; /* when what replaced files still have is to shrink by itself */
        uint64_t turn, retry_ms;
        bool failed;
        const char *trouble; /* to be said, once: what failed; static, take it and set it to NULL */
        int error;
        agx_logfile files[AGX_LOG_FILES_OPEN];
} agx_logfiles;

/* `path` NULL or empty: no logs are kept. */
void agx_logfiles_init(agx_logfiles *l, agx_loop *loop, const char *path);
/* Writes what waits. */
void agx_logfiles_close(agx_logfiles *l);
/* Where the next line of this worker is to be appended, newline included; NULL: nowhere, for now. */
agx_buf *agx_logfiles_out(agx_logfiles *l, const char *worker_id);

#endif
