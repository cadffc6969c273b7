/*
 * Templates ask for one line of fields between tabs. Errors are known by phrases that the engines have kept for years;
 * what no phrase fits is no trouble of a special kind and is passed on in the engine's own words.
 */
#include "oci/engine.h"

#include "base/err.h"
#include "oci/labels.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK "agentix-container"
#define LOG_LINES "200"

/* ---- finding it ---- */

static bool is_program(const char *path)
{
        struct stat info;

        return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

int agx_oci_find(agx_view name, agx_view path, char **found)
{
        agx_view part;

        if (name.n && memchr(name.p, '/', name.n)) {
                *found = agx_strv_dup(name);
                if (!*found || is_program(*found))
                        return *found ? 0 : agx_trace(-ENOMEM);
                free(*found);
                *found = NULL;
                return AGX_OCI_E_NOT_FOUND;
        }
        while (agx_view_split(&path, ':', &part)) {
                char *candidate;

                if (!part.n)
                        continue;
                if (asprintf(&candidate, "%.*s/%.*s", (int)part.n, part.p, (int)name.n, name.p) < 0)
                        return agx_trace(-ENOMEM);
                if (name.n && is_program(candidate)) {
                        *found = candidate;
                        return 0;
                }
                free(candidate);
        }
        *found = NULL;
        return AGX_OCI_E_NOT_FOUND;
}

bool agx_oci_is_podman(agx_view engine)
{
        const char *slash = engine.n ? memrchr(engine.p, '/', engine.n) : NULL;
        agx_view file = slash ? agx_view_from(engine, (size_t)(slash + 1 - engine.p)) : engine;

        return agx_view_starts(file, AGX_VIEW("podman"));
}

/* ---- small commands ---- */

void agx_oci_look_argv(agx_strv *argv, agx_view engine, agx_view name)
{
        agx_strv_add(argv, engine);
        agx_strv_add(argv, AGX_VIEW("inspect"));
        agx_strv_add(argv, AGX_VIEW("--type"));
        agx_strv_add(argv, AGX_VIEW("container"));
        agx_strv_add(argv, AGX_VIEW("--format"));
        agx_strv_add(argv, AGX_VIEW(MARK "\t{{.State.Status}}\t{{.State.ExitCode}}\t{{.State.OOMKilled}}\t{{.Id}}\t"
                                         "{{with .Config.Labels}}{{index . \"" AGX_OCI_LABEL_SANDBOX "\"}}{{end}}"));
        agx_strv_add(argv, AGX_VIEW("--"));
        agx_strv_add(argv, name);
}

void agx_oci_list_argv(agx_strv *argv, agx_view engine)
{
        bool podman = agx_oci_is_podman(engine);

        agx_strv_add(argv, engine);
        agx_strv_add(argv, AGX_VIEW("ps"));
        agx_strv_add(argv, AGX_VIEW("-a"));
        agx_strv_add(argv, AGX_VIEW("--filter"));
        agx_strv_add(argv, AGX_VIEW("label=" AGX_OCI_LABEL_SANDBOX));
        agx_strv_add(argv, AGX_VIEW("--format"));
        if (podman)
                agx_strv_add(argv, AGX_VIEW(MARK "\t{{.Names}}\t{{.State}}\t{{index .Labels \"" AGX_OCI_LABEL_HOST
                                                 "\"}}\t{{index .Labels \"" AGX_OCI_LABEL_LEASE
                                                 "\"}}\t{{index .Labels \"" AGX_OCI_LABEL_SANDBOX "\"}}"));
        else
                agx_strv_add(argv, AGX_VIEW(MARK "\t{{.Names}}\t{{.State}}\t{{.Label \"" AGX_OCI_LABEL_HOST
                                                 "\"}}\t{{.Label \"" AGX_OCI_LABEL_LEASE
                                                 "\"}}\t{{.Label \"" AGX_OCI_LABEL_SANDBOX "\"}}"));
}

void agx_oci_remove_argv(agx_strv *argv, agx_view engine, agx_view name)
{
        agx_strv_add(argv, engine);
        agx_strv_add(argv, AGX_VIEW("rm"));
        agx_strv_add(argv, AGX_VIEW("-f"));
        agx_strv_add(argv, AGX_VIEW("-v"));
        if (agx_oci_is_podman(engine)) { /* which would first ask nicely, for 10 s */
                agx_strv_add(argv, AGX_VIEW("-t"));
                agx_strv_add(argv, AGX_VIEW("0"));
        }
        agx_strv_add(argv, name);
}

void agx_oci_logs_argv(agx_strv *argv, agx_view engine, agx_view name)
{
        agx_strv_add(argv, engine);
        agx_strv_add(argv, AGX_VIEW("logs"));
        agx_strv_add(argv, AGX_VIEW("--tail"));
        agx_strv_add(argv, AGX_VIEW(LOG_LINES));
        agx_strv_add(argv, name);
}

/* ---- answers ---- */

/* The fields after the mark of the next marked line: how many of `max` there were, 0 at the end. */
static unsigned marked_fields(agx_view *output, agx_view *fields, unsigned max)
{
        agx_view line, field;

        while (agx_view_split(output, '\n', &line)) {
                unsigned n = 0;

                if (!agx_view_split(&line, '\t', &field) || !agx_view_eq(field, AGX_VIEW(MARK)))
                        continue;
                while (n < max && agx_view_split(&line, '\t', &field))
                        fields[n++] = agx_view_trim(field);
                if (n == max)
                        return n;
        }
        return 0;
}

bool agx_oci_state_read(agx_view output, agx_oci_state *state)
{
        agx_view fields[5];
        uint64_t code;

        if (!marked_fields(&output, fields, 5) || !agx_view_u64(fields[1], INT32_MAX, &code))
                return false;
        *state = (agx_oci_state){
                .status = fields[0],
                .running = agx_view_eq(fields[0], AGX_VIEW("running")),
                .oom_killed = agx_view_eq(fields[2], AGX_VIEW("true")),
                .code = (int)code,
                .id = fields[3],
                .sandbox = fields[4],
        };
        return true;
}

/* podman says "Up 3 seconds" and "Exited (0) 3 seconds ago" where docker says "running" and "exited". */
bool agx_oci_list_next(agx_view *output, agx_oci_row *row)
{
        agx_view fields[5];

        if (!marked_fields(output, fields, 5))
                return false;
        *row = (agx_oci_row){
                .name = fields[0],
                .running = agx_view_eq(fields[1], AGX_VIEW("running")) || agx_view_starts(fields[1], AGX_VIEW("Up ")),
                .exited = agx_view_eq(fields[1], AGX_VIEW("exited")) || agx_view_starts(fields[1], AGX_VIEW("Exited")),
                .host = fields[2],
                .lease = fields[3],
                .sandbox = fields[4],
        };
        return true;
}

static bool holds(agx_view text, const char *phrase)
{
        return text.n && memmem(text.p, text.n, phrase, strlen(phrase));
}

static bool holds_any(agx_view text, const char *const *phrases)
{
        for (; *phrases; ++phrases)
                if (holds(text, *phrases))
                        return true;
        return false;
}

/* "received unexpected HTTP status: 502 Bad Gateway", and the same of a broken connection. */
static bool is_transient(agx_view output)
{
        static const char *const phrases[] = {
                "unexpected HTTP status: 500",
                "unexpected HTTP status: 502",
                "unexpected HTTP status: 503",
                "unexpected HTTP status: 504",
                "unexpected status code 500",
                "unexpected status code 502",
                "unexpected status code 503",
                "unexpected status code 504",
                "unexpected status from HEAD request to",
                "toomanyrequests",
                "TLS handshake timeout",
                "net/http: request canceled",
                "Client.Timeout exceeded",
                "connection reset by peer",
                "unexpected EOF",
                "i/o timeout",
                NULL,
        };

        return holds_any(output, phrases);
}

agx_oci_trouble agx_oci_trouble_of(agx_view output)
{
        static const char *const daemon[] = {"Cannot connect to the Docker daemon", "Is the docker daemon running",
                                             "unable to connect to Podman socket", NULL};
        static const char *const port[] = {"port is already allocated", "address already in use", NULL};
        static const char *const name[] = {"is already in use by container", "that name is already in use", NULL};
        static const char *const container[] = {
                "No such container", "no such container", "no container with name or ID",
                "no such object",    "No such object",    NULL};

        if (holds_any(output, daemon))
                return AGX_OCI_TROUBLE_NO_DAEMON;
        if (holds_any(output, port))
                return AGX_OCI_TROUBLE_PORT;
        if (holds_any(output, name))
                return AGX_OCI_TROUBLE_NAME;
        if (holds_any(output, container))
                return AGX_OCI_TROUBLE_NO_CONTAINER;
        return is_transient(output) ? AGX_OCI_TROUBLE_TRANSIENT : AGX_OCI_TROUBLE_OTHER;
}

bool agx_oci_is_pulling(agx_view output)
{
        static const char *const begins[] = {"Unable to find image", "Trying to pull", NULL};
        static const char *const ends[] = {"Status: Downloaded", "Status: Image is up to date", "Storing signatures",
                                           "Writing manifest", NULL};

        return holds_any(output, begins) && !holds_any(output, ends);
}
