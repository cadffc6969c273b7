/*
 * A container may show us the host's path of our group while only the group itself is mounted, so the path from
 * /proc/self/cgroup is tried first and the mount's root after it.
 */
#include "worker/memgroup_uv.h"
#include "base/cleanup.h"
#include "worker/deathcause.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static agx_view read_text(const char *path, char *text, size_t size)
{
        _cleanup_(agx_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, size);

        return n > 0 ? agx_view_of(text, (size_t)n) : AGX_VIEW_NULL;
}

static bool count_in(int version, agx_view group, uint64_t *count)
{
        char path[512], text[1024];
        int n = snprintf(path, sizeof(path), "/sys/fs/cgroup%s%.*s/%s", version == 1 ? "/memory" : "", (int)group.n,
                         group.p, version == 1 ? "memory.oom_control" : "memory.events");

        return n > 0 && (size_t)n < sizeof(path) && agx_death_oom_count(read_text(path, text, sizeof(text)), count);
}

bool agx_memgroup_kills(uint64_t *count)
{
        char text[4096];
        agx_view group;
        int version;

        if (!agx_death_memory_group(read_text("/proc/self/cgroup", text, sizeof(text)), &group, &version))
                return false;
        return count_in(version, group, count) || count_in(version, AGX_VIEW(""), count);
}
