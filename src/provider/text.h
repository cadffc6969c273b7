#ifndef AGX_PROVIDER_TEXT_H
#define AGX_PROVIDER_TEXT_H
/* The words of failed steps. Output of a command is hostile text: it is cut to its last 8 KiB and control bytes are escaped. */
#include "base/buf.h"

/* "exit code 3" or "signal 9 (Killed)" for a code as in agx_event. */
void agx_text_exit(char *out, size_t size, int code);
/* Sets `*message` (freed first) to "<doing> failed: <what>" and, if there is any, the detail on lines of its own. 0 or -ENOMEM. */
int agx_text_failure(char **message, const char *doing, const char *what, agx_view detail);
/* The same, but what was said first stays, with this on lines after it. */
int agx_text_failure_more(char **message, const char *doing, const char *what, agx_view detail);
/* Appends "http+unix://" and the path with every '/' and other special byte as %XX. 0 or what the buffer gave. */
int agx_text_unix_url(agx_buf *out, const char *path);

#endif
