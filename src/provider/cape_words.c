/*
 * The command line of `cape`, as it is documented, and its answers.
 *
 * Nothing here trusts an answer: an id has one form, a host and a port are checked before they become a URL, and a state
 * that is not known to be the last one is taken for one on the way. Output of both streams arrives together, so what is
 * looked for is found among other lines.
 */
#include "provider/cape_words.h"

#include "base/err.h"
#include "wire/json.h"

#include <ctype.h>
#include <stdio.h>

enum { REQUEST_DIGITS_MIN = 6, REQUEST_MAX = 64, HOST_MAX = 255 };

/* ---- what is said ---- */

static void add_option(agx_strv *argv, const char *option, agx_view value)
{
        if (!value.p)
                return;
        agx_strv_add_str(argv, option);
        agx_strv_add(argv, value);
}

void agx_cape_run_argv(agx_strv *argv, const agx_cape_config *c, const agx_strv *env, const char *script)
{
        agx_strv_add(argv, c->binary);
        agx_strv_add_str(argv, "run");
        add_option(argv, "--controller-url", c->controller_url);
        add_option(argv, "--pool", c->pool);
        add_option(argv, "--user", c->user);
        add_option(argv, "--task-id", c->id);
        add_option(argv, "--image", c->image);
        add_option(argv, "--gpus", c->gpus);
        add_option(argv, "--cpu-cores", c->cpu_cores);
        add_option(argv, "--memory-gb", c->memory_gb);
        add_option(argv, "--isolation-policy", c->isolation_policy);
        add_option(argv, "--runtime-adapter", c->runtime_adapter);
        add_option(argv, "--max-duration-seconds", c->max_duration);
        agx_strv_add_str(argv, "--session-key");
        agx_strv_addf(argv, "agentix-%.*s", (int)c->id.n, c->id.p);
        agx_strv_add_str(argv, "--bind");
        agx_strv_addf(argv, "%.*s:/nix:ro", (int)c->bundle.n, c->bundle.p);
        for (size_t i = 0; i < c->extra_binds->count; ++i)
                add_option(argv, "--bind", agx_view_str(c->extra_binds->items[i]));
        if (c->meta.p) {
                agx_strv_add_str(argv, "--bind");
                agx_strv_addf(argv, "%.*s:%.*s", (int)c->meta.n, c->meta.p, (int)c->meta.n, c->meta.p);
        }
        for (size_t i = 0; i < env->count; ++i)
                add_option(argv, "--env", agx_view_str(env->items[i]));
        agx_strv_add_str(argv, "--");
        agx_strv_add_str(argv, "sh");
        agx_strv_add_str(argv, "-c");
        agx_strv_add_str(argv, script);
}

void agx_cape_ask_argv(agx_strv *argv, const char *verb, agx_view binary, agx_view controller_url, agx_view request)
{
        agx_strv_add(argv, binary);
        agx_strv_add_str(argv, verb);
        add_option(argv, "--controller-url", controller_url);
        agx_strv_add(argv, request);
}

void agx_cape_cancel_argv(agx_strv *argv, agx_view binary, agx_view controller_url, agx_view request,
                          const char *reason)
{
        agx_strv_add(argv, binary);
        agx_strv_add_str(argv, "cancel");
        add_option(argv, "--controller-url", controller_url);
        add_option(argv, "--reason", agx_view_str(reason));
        agx_strv_add(argv, request);
}

/* Between single quotes of a shell. */
static int append_quoted(agx_buf *out, agx_view text)
{
        int r = agx_buf_append(out, "'", 1);

        for (size_t i = 0; i < text.n && !r; ++i)
                r = text.p[i] == '\'' ? agx_buf_append(out, "'\\''", 4) : agx_buf_append(out, &text.p[i], 1);
        return r ? r : agx_buf_append(out, "'", 1);
}

/* The marker goes to a file of the shared directory at once whole, and to the log. */
int agx_cape_script(agx_buf *out, const agx_cape_config *c)
{
        static const char marker[] = "printf 'AGENTIX_ENDPOINT %s %s\\n' \"$h\" \"$AGENTIX_BIND_PORT\"";
        int r = agx_buf_printf(out, "set -e; mkdir -p ");

        r = r ? r : append_quoted(out, c->workspace_root);
        r = r ? r : agx_buf_printf(out, "/%.*s; cd ", (int)c->id.n, c->id.p);
        r = r ? r : append_quoted(out, c->workspace_root);
        r = r ? r : agx_buf_printf(out, "/%.*s; ", (int)c->id.n, c->id.p);
        if (!c->meta.p)
                r = r ? r
                      : agx_buf_printf(out, "(umask 077; printf %%s \"$AGENTIX_CAPE_SECRET\" >token); "
                                            "unset AGENTIX_CAPE_SECRET; ");
        r = r ? r : agx_buf_printf(out, "h=$(hostname -i); h=${h%%%% *}; ");
        if (c->meta.p) {
                r = r ? r : agx_buf_printf(out, "(cd ");
                r = r ? r : append_quoted(out, c->meta);
                r = r ? r : agx_buf_printf(out, " && ");
                r = r ? r : agx_buf_append(out, marker, sizeof(marker) - 1);
                r = r ? r : agx_buf_printf(out, " >endpoint.new && mv endpoint.new endpoint); ");
        }
        r = r ? r : agx_buf_append(out, marker, sizeof(marker) - 1);
        r = r ? r : agx_buf_printf(out, "; exec /nix/runtime/bootstrap.sh");
        return r ? r : agx_buf_append(out, "", 1);
}

/* ---- what is answered ---- */

static agx_view trimmed_line(agx_view line)
{
        if (line.n && line.p[line.n - 1] == '\r')
                --line.n;
        return agx_view_trim(line);
}

bool agx_cape_is_request(agx_view text)
{
        size_t digits = text.n - 4;

        if (text.n > REQUEST_MAX || text.n < 4 + REQUEST_DIGITS_MIN || memcmp(text.p, "req-", 4) != 0)
                return false;
        for (size_t i = 0; i < digits; ++i)
                if (!isdigit((unsigned char)text.p[4 + i]))
                        return false;
        return true;
}

static bool is_among(const agx_strv *found, agx_view text)
{
        for (size_t i = 0; i < found->count; ++i)
                if (agx_view_eq(agx_view_str(found->items[i]), text))
                        return true;
        return false;
}

void agx_cape_requests(agx_view output, agx_strv *found)
{
        agx_view line;

        while (agx_view_split(&output, '\n', &line)) {
                line = trimmed_line(line);
                if (agx_cape_is_request(line) && !is_among(found, line) && found->count < AGX_CAPE_REQUESTS_MAX)
                        agx_strv_add(found, line);
        }
}

/* From the first line that begins with a brace to the last brace. */
static agx_view object_in(agx_view output)
{
        agx_view rest = output, line;
        const char *from = NULL;

        while (!from && agx_view_split(&rest, '\n', &line)) {
                line = agx_view_trim(line);
                if (line.n && line.p[0] == '{')
                        from = line.p;
        }
        if (!from)
                return AGX_VIEW_NULL;
        output = agx_view_from(output, (size_t)(from - output.p));
        while (output.n && output.p[output.n - 1] != '}')
                --output.n;
        return output;
}

/* The value of a key of the outermost object, as it is written there; absent if there is none. */
static agx_view value_of(agx_view object, const char *key)
{
        agx_json_reader reader = agx_json_reader_on(object, AGX_JSON_DEPTH_MAX);
        agx_json_token token = agx_json_next(&reader);
        agx_view found = AGX_VIEW_NULL;

        if (token.kind != AGX_JSON_OBJECT)
                return found;
        while ((token = agx_json_next(&reader)).kind == AGX_JSON_KEY) {
                bool wanted = agx_json_is(&token, agx_view_str(key));
                agx_view value = agx_json_skip(&reader);

                if (wanted)
                        found = value;
        }
        return reader.error ? AGX_VIEW_NULL : found;
}

/* Of a string, what is between the quotes. */
static agx_view string_of(agx_view object, const char *key)
{
        agx_view value = value_of(object, key);

        if (value.n < 2 || value.p[0] != '"')
                return AGX_VIEW_NULL;
        return agx_view_of(value.p + 1, value.n - 2);
}

static bool is_terminal(agx_view state)
{
        static const char *const names[] = {"succeeded", "success",   "completed", "complete",  "finished", "done",
                                            "failed",    "failure",   "error",     "cancelled", "canceled", "expired",
                                            "timeout",   "timed_out", "rejected",  "preempted", "evicted",  "killed",
                                            "lost",      "exited",    "stopped",   "terminated"};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (agx_view_ieq(state, agx_view_str(names[i])))
                        return true;
        return false;
}

bool agx_cape_state_read(agx_view output, agx_view request, agx_cape_state *state)
{
        agx_view object = object_in(output), echo;

        if (!object.p)
                return false;
        state->state = string_of(object, "state");
        echo = string_of(object, "request_id");
        state->other = echo.p && !agx_view_eq(echo, request);
        state->terminal = is_terminal(state->state);
        return state->other || state->state.n > 0;
}

bool agx_cape_is_unknown(agx_view output)
{
        return agx_view_eq(value_of(object_in(output), "status"), AGX_VIEW("404"));
}

/* A name or an address: nothing that would change the meaning of a URL. */
static bool is_host(agx_view host)
{
        if (!host.n || host.n > HOST_MAX)
                return false;
        for (size_t i = 0; i < host.n; ++i)
                if (!isalnum((unsigned char)host.p[i]) && !strchr(".-_:", host.p[i]))
                        return false;
        return true;
}

bool agx_cape_marker(agx_view output, agx_view *host, agx_view *port)
{
        agx_view line, word, rest;
        uint64_t number;

        while (agx_view_split(&output, '\n', &line)) {
                rest = trimmed_line(line);
                if (!agx_view_split(&rest, ' ', &word) || !agx_view_eq(word, AGX_VIEW("AGENTIX_ENDPOINT")))
                        continue;
                if (!agx_view_split(&rest, ' ', host) || !agx_view_split(&rest, ' ', port) || rest.p)
                        continue;
                if (is_host(*host) && agx_view_u64(*port, 65535, &number) && number)
                        return true;
        }
        return false;
}
