#ifndef AGX_PROVIDER_CAPE_WORDS_H
#define AGX_PROVIDER_CAPE_WORDS_H
/* The words of the `cape` program, both ways: what is said to it, and what its answers, which are hostile text, mean. */
#include "base/buf.h"
#include "provider/cape.h"

enum { AGX_CAPE_REQUESTS_MAX = 4 };

/* `cape run`; `script` is what the workload's shell does. Errors are the vector's. */
void agx_cape_run_argv(agx_strv *argv, const agx_cape_config *config, const agx_strv *env, const char *script);
/* `cape status`, `cape logs`; `cape cancel` with a reason. */
void agx_cape_ask_argv(agx_strv *argv, const char *verb, agx_view binary, agx_view controller_url, agx_view request);
void agx_cape_cancel_argv(agx_strv *argv, agx_view binary, agx_view controller_url, agx_view request,
                          const char *reason);
/* Appends, NUL-terminated, the shell script of the workload. 0, -ENOMEM or AGX_BUF_E_FULL. */
int agx_cape_script(agx_buf *out, const agx_cape_config *config);

/* "req-" and six digits or more. */
bool agx_cape_is_request(agx_view text);
/* Adds each line of the output that is a request's id, no more than AGX_CAPE_REQUESTS_MAX and none twice. */
void agx_cape_requests(agx_view output, agx_strv *found);

typedef struct agx_cape_state {
        agx_view state; /* as written */
        bool terminal;
        bool other; /* it speaks of another request */
} agx_cape_state;

/* Reads what `cape status` prints, a JSON object among lines of other text; false if there is no state in it. */
bool agx_cape_state_read(agx_view output, agx_view request, agx_cape_state *state);
/* Whether the output says that there is no such request: a JSON object with a "status" of 404. */
bool agx_cape_is_unknown(agx_view output);
/* Finds the line "AGENTIX_ENDPOINT host port"; views into the output. */
bool agx_cape_marker(agx_view output, agx_view *host, agx_view *port);

#endif
