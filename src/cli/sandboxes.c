/* One `ps` an engine. Rows come in the engine's order; a name of two engines is two sandboxes. */
#include "cli/sandboxes.h"

#include "base/err.h"
#include "bundle/program.h"
#include "oci/engine.h"
#include "oci/word.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 16 << 20, ASK_MS = 30000, REMOVE_MS = 120000 };

static void sandbox_free(agx_sandbox *s)
{
        agx_list_unlink(&s->node);
        free(s->name);
        free(s->engine);
        free(s->lease);
        free(s);
}

void agx_sandboxes_deinit(agx_sandboxes *s)
{
        if (s->list.next)
                agx_list_foreach_safe(link, &s->list)
                {
                        sandbox_free(agx_container_of(link, agx_sandbox, node));
                }
        agx_strv_deinit(&s->engines);
}

/* ---- who started it ---- */

static bool read_line(const char *path, char *line, size_t size)
{
        FILE *f = fopen(path, "re");
        bool ok = f && fgets(line, (int)size, f);

        if (f)
                fclose(f);
        if (ok)
                line[strcspn(line, "\n")] = 0;
        return ok;
}

/* Field 22 of /proc/<pid>/stat; the second one may hold blanks and ends with the last parenthesis. */
static bool start_time(uint64_t pid, agx_view *field, char *line, size_t size)
{
        char path[64];
        const char *end;
        agx_view rest;

        snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
        if (!read_line(path, line, size) || !(end = strrchr(line, ')')) || end[1] != ' ')
                return false;
        rest = agx_view_str(end + 2);
        for (int i = 3; i <= 22; i++)
                if (!agx_view_split(&rest, ' ', field))
                        return false;
        return true;
}

/* <boot id>:<pid>:<start time> */
static bool host_is_alive(agx_view host)
{
        char boot[64], line[1024];
        agx_view id, pid_text, start;
        uint64_t pid;

        if (!read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) || !agx_view_split(&host, ':', &id) ||
            !agx_view_split(&host, ':', &pid_text) || !host.p)
                return false;
        return agx_view_eq(id, agx_view_str(boot)) && agx_view_u64(pid_text, UINT32_MAX, &pid) &&
               start_time(pid, &start, line, sizeof(line)) && agx_view_eq(start, host);
}

/* ---- asking ---- */

static int add_row(agx_sandboxes *s, const char *engine, const agx_oci_row *row)
{
        agx_sandbox *sandbox = calloc(1, sizeof(*sandbox));

        if (!sandbox)
                return agx_trace(-ENOMEM);
        agx_list_init(&sandbox->node);
        sandbox->name = agx_strv_dup(row->name);
        sandbox->engine = strdup(engine);
        sandbox->lease = agx_strv_dup(row->lease);
        sandbox->running = row->running;
        sandbox->exited = row->exited;
        sandbox->host_alive = host_is_alive(row->host);
        if (!sandbox->name || !sandbox->engine || !sandbox->lease) {
                sandbox_free(sandbox);
                return agx_trace(-ENOMEM);
        }
        agx_list_push_back(&s->list, &sandbox->node);
        return 0;
}

static int run_engine(const agx_strv *argv, uint64_t timeout_ms, agx_program *run)
{
        agx_program_spec spec = {.argv = argv->items, .keep = ANSWER_MAX, .timeout_ms = timeout_ms};
        int r = agx_strv_end(argv);

        *run = (agx_program){0};
        return r ? r : agx_program_run(run, &spec);
}

/* Why an engine did not do it, in its own last words. */
static void explain(int r, const agx_program *run, char *why, size_t size)
{
        agx_view text = agx_buf_view(run->err.len ? &run->err : &run->out);

        while (text.n && text.p[text.n - 1] == '\n')
                text.n--;
        if (r)
                snprintf(why, size, "it cannot be started: %s", r < 0 ? strerror(-r) : "no such program");
        else if (run->timed_out)
                snprintf(why, size, "it did not answer in time");
        else if (text.n)
                snprintf(why, size, "%.*s", (int)agx_view_first(text, 800).n, text.p);
        else
                snprintf(why, size, "exit status %d", agx_program_code(run));
}

enum { E_SILENT = 1 };

/* 0, E_SILENT with `why`, or -ENOMEM. */
static int ask(agx_sandboxes *s, const char *engine, char *why, size_t size)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_program_deinitp) agx_program run = {0};
        agx_oci_row row;
        agx_view output;
        int r;

        agx_oci_list_argv(&argv, agx_view_str(engine));
        r = run_engine(&argv, ASK_MS, &run);
        if (r == -ENOMEM)
                return r;
        if (r || run.timed_out || agx_program_code(&run)) {
                explain(r, &run, why, size);
                return E_SILENT;
        }
        agx_strv_add_str(&s->engines, engine);
        output = agx_buf_view(&run.out);
        while (agx_oci_list_next(&output, &row)) {
                r = add_row(s, engine, &row);
                if (r)
                        return r;
        }
        return agx_strv_end(&s->engines);
}

static int complain(agx_cli *cli, const char *hint, const char *text, const char *more)
{
        return agx_say_error(&cli->say, &(agx_complaint){"backend", hint, AGX_EXIT_BACKEND}, "%s%s", text, more);
}

static int ask_one(agx_sandboxes *s, agx_cli *cli, const char *engine)
{
        char why[1024], what[256];
        int r = ask(s, engine, why, sizeof(why));

        if (r != E_SILENT)
                return r ? agx_say_no_memory(&cli->say) : 0;
        snprintf(what, sizeof(what), "container engine '%.200s': ", engine);
        return complain(cli, "agentix doctor says what is amiss", what, why);
}

static int ask_all(agx_sandboxes *s, agx_cli *cli)
{
        static const char *const names[] = {"docker", "podman"};
        const char *path = getenv("PATH");
        char why[1024] = "", first[1100] = "";
        unsigned found = 0;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                _cleanup_(agx_freep) char *program = NULL;
                int r = agx_oci_find(agx_view_str(names[i]), agx_view_str(path ? path : ""), &program);

                if (r == AGX_OCI_E_NOT_FOUND)
                        continue;
                found++;
                r = r ? r : ask(s, names[i], why, sizeof(why));
                if (r < 0)
                        return agx_say_no_memory(&cli->say);
                if (r && !*first)
                        snprintf(first, sizeof(first), "%s: %s", names[i], why);
        }
        if (!found)
                return complain(cli, "install docker or podman, or name one with --container-engine",
                                "there is no container engine: neither docker nor podman is on PATH", "");
        if (!s->engines.count)
                return complain(cli, "agentix doctor says what is amiss", "no container engine answers; ", first);
        if (*first)
                agx_say_detail(&cli->say, "left out %s", first);
        return 0;
}

int agx_sandboxes_init(agx_sandboxes *s, agx_cli *cli, const char *engine)
{
        *s = (agx_sandboxes){0};
        agx_list_init(&s->list);
        return engine ? ask_one(s, cli, engine) : ask_all(s, cli);
}

const agx_sandbox *agx_sandboxes_find(const agx_sandboxes *s, const char *name)
{
        agx_list_foreach_safe(link, &s->list)
        {
                const agx_sandbox *sandbox = agx_container_of(link, agx_sandbox, node);

                if (!strcmp(sandbox->name, name))
                        return sandbox;
        }
        return NULL;
}

int agx_sandbox_remove(agx_cli *cli, const agx_sandbox *sandbox)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_program_deinitp) agx_program run = {0};
        char why[1024], what[512];
        int r = 0;

        if (!agx_oci_name(agx_view_str(sandbox->name)))
                return complain(cli, NULL, "the engine told of a container whose name is none: ", sandbox->name);
        agx_oci_remove_argv(&argv, agx_view_str(sandbox->engine), agx_view_str(sandbox->name));
        r = run_engine(&argv, REMOVE_MS, &run);
        if (!r && !run.timed_out && !agx_program_code(&run))
                return AGX_EXIT_OK;
        if (!r && agx_oci_trouble_of(agx_buf_view(&run.err)) == AGX_OCI_TROUBLE_NO_CONTAINER)
                return AGX_EXIT_OK; /* somebody else was faster */
        explain(r, &run, why, sizeof(why));
        snprintf(what, sizeof(what), "%.100s could not remove %.200s: ", sandbox->engine, sandbox->name);
        return agx_say_error(&cli->say, &(agx_complaint){"backend", NULL, AGX_EXIT_FAILURE}, "%s%s", what, why);
}
