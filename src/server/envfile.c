/* Called before anything else looks at the environment, while there is one thread. */
#include "server/envfile.h"

#include "base/buf.h"
#include "base/err.h"
#include "proto/limits.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024 };

/* `entry` ends with a NUL that is not counted. */
static int apply_one(agx_view entry)
{
        const char *equals = memchr(entry.p, '=', entry.n);
        _cleanup_(agx_freep) char *name = NULL;

        if (!equals || equals == entry.p)
                return agx_trace(-EINVAL);
        name = strndup(entry.p, (size_t)(equals - entry.p));
        if (!name)
                return agx_trace(-ENOMEM);
        return setenv(name, equals + 1, 1) ? agx_trace(-errno) : 0;
}

int agx_envfile_apply(agx_view content)
{
        while (content.n) {
                const char *end = memchr(content.p, 0, content.n);
                int r = end ? apply_one(agx_view_of(content.p, (size_t)(end - content.p))) : -EINVAL;

                if (r)
                        return agx_trace(r);
                content = agx_view_from(content, (size_t)(end - content.p) + 1);
        }
        return 0;
}

static int read_all(int fd, agx_buf *content)
{
        for (;;) {
                uint8_t *place;
                int r = agx_buf_reserve(content, CHUNK, &place);
                ssize_t n = r ? 0 : read(fd, place, CHUNK);

                if (r)
                        return r < 0 ? r : -EFBIG;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n ? -errno : 0;
                agx_buf_commit(content, (size_t)n);
        }
}

int agx_envfile_load(void)
{
        _cleanup_(agx_buf_deinitp) agx_buf content = AGX_BUF_NULL(AGX_ENGINE_ENV_MAX + CHUNK);
        const char *path = getenv("AGENTIX_ENV_FILE");
        int fd, r;

        if (!path || !*path)
                return 0;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return agx_trace(-errno);
        unsetenv("AGENTIX_ENV_FILE");
        r = read_all(fd, &content);
        close(fd);
        return r ? agx_trace(r) : agx_envfile_apply(agx_buf_view(&content));
}
