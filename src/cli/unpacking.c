/* Progress is told in whole percent, so that a large bundle redraws a line a hundred times and no more. */
#include "cli/unpacking.h"

#include "cli/limits.h"
#include "cli/trouble.h"

#include <sys/stat.h>

typedef struct teller {
        agx_cli *cli;
        uint64_t total;
        unsigned percent;
} teller;

static void warn(void *user, const char *text)
{
        const teller *t = user;

        agx_say_warn(&t->cli->say, "%s", text);
}

static void progress(void *user, uint64_t packed)
{
        teller *t = user;
        unsigned percent = t->total ? (unsigned)(packed * 100 / t->total) : 100;

        if (percent == t->percent || percent > 100)
                return;
        t->percent = percent;
        agx_say_progress(&t->cli->say, "unpacking %3u %%", percent);
}

int agx_cli_open_cache(agx_cache *c, const char *dir, bool make, agx_why *why)
{
        _cleanup_(agx_freep) char *path = agx_cache_where(dir);

        if (path)
                return agx_cache_open(c, path, make, why);
        (void)agx_why_hint(why, "set HOME, or name a directory with --bundle-cache-dir");
        return agx_why_set(why, "cache", "there is no home directory for the bundle cache");
}

int agx_cli_unpack(agx_cli *cli, agx_cache *c, const char *tar, agx_cache_deploy_verb verb, agx_deployed *d,
                   agx_why *why)
{
        agx_unpack_limits limits = agx_cli_unpack_limits();
        struct stat st;
        teller t = {.cli = cli, .total = stat(tar, &st) ? 0 : (uint64_t)st.st_size, .percent = 101};
        agx_unpack_hooks hooks = {.stop = agx_cli_stopped, .warn = warn, .progress = progress, .user = &t};
        int r;

        agx_cli_catch_signals();
        r = verb(c, tar, &limits, &hooks, d, why);
        agx_say_progress(&cli->say, "%s", "");
        return r;
}
