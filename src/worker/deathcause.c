/* Words for a wait status, and the few lines of text that tell whether the kernel killed for want of memory. */
#include "worker/deathcause.h"

#include <string.h>
#include <sys/wait.h>

int agx_death_returncode(const agx_death *death)
{
        return WIFSIGNALED(death->status) ? -WTERMSIG(death->status) : WEXITSTATUS(death->status);
}

static int describe_status(const agx_death *death, agx_buf *out)
{
        const char *name;

        if (!WIFSIGNALED(death->status))
                return agx_buf_printf(out, "exit code %d", WEXITSTATUS(death->status));
        name = sigabbrev_np(WTERMSIG(death->status));
        return name ? agx_buf_printf(out, "signal %d (SIG%s)", WTERMSIG(death->status), name)
                    : agx_buf_printf(out, "signal %d", WTERMSIG(death->status));
}

int agx_death_describe(const agx_death *death, agx_buf *out)
{
        int r;

        if (death->exec_error)
                return agx_buf_printf(out, "it could not be executed: %s", strerrordesc_np(death->exec_error));
        if (death->fault) {
                r = agx_buf_printf(out, "%s; ", death->fault);
                if (r)
                        return r;
        }
        r = describe_status(death, out);
        return !r && death->oom
                       ? agx_buf_append_view(out, AGX_VIEW(", out of memory (OOM) as the control group counts"))
                       : r;
}

bool agx_death_oom_count(agx_view text, uint64_t *count)
{
        agx_view line;

        while (agx_view_split(&text, '\n', &line))
                if (agx_view_starts(line, AGX_VIEW("oom_kill ")))
                        return agx_view_u64(agx_view_trim(agx_view_from(line, 9)), UINT64_MAX, count);
        return false;
}

static bool has_memory(agx_view controllers)
{
        agx_view one;

        while (agx_view_split(&controllers, ',', &one))
                if (agx_view_eq(one, AGX_VIEW("memory")))
                        return true;
        return false;
}

bool agx_death_memory_group(agx_view text, agx_view *path, int *version)
{
        agx_view line, id, controllers;

        *version = 0;
        while (agx_view_split(&text, '\n', &line)) {
                if (!agx_view_split(&line, ':', &id) || !agx_view_split(&line, ':', &controllers) || !line.p)
                        continue;
                if (has_memory(controllers)) {
                        *path = line;
                        *version = 1;
                        return true; /* where version 1 accounts for memory, version 2 does not */
                }
                if (agx_view_eq(id, AGX_VIEW("0")) && !controllers.n) {
                        *path = line;
                        *version = 2;
                }
        }
        return *version != 0;
}
