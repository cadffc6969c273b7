/*
 * Directories in the order in which an interpreter would search them; of two distributions of one name the first counts,
 * as it is the one that would be imported. Metadata is read up to a ceiling: a file that is larger offers nothing.
 */
#include "cli/plugins.h"

#include "base/err.h"
#include "cli/entry_points.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20, DIRS_MAX = 256 };

typedef struct dist {
        agx_list node;
        char *name;
} dist;

typedef struct scan {
        agx_plugins *to;
        agx_list dists; /* seen so far */
        bool site;      /* .pth files count */
} scan;

static const char *variable(const char *name)
{
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

/* ---- files ---- */

/* The whole file, or an empty buffer. */
static int read_file(int dir, const char *path, agx_buf *to)
{
        _cleanup_(agx_closep) int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        uint8_t *place;
        ssize_t n = 1;

        agx_buf_clear(to);
        while (fd >= 0 && n > 0) {
                int r = agx_buf_reserve(to, 16 << 10, &place);

                if (r < 0)
                        return r;
                n = r ? -1 : read(fd, place, 16 << 10);
                if (n > 0)
                        agx_buf_commit(to, (size_t)n);
        }
        if (fd < 0 || n < 0)
                agx_buf_clear(to);
        return 0;
}

static bool is_directory(const char *path)
{
        struct stat st;

        return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* ---- where to look ---- */

static void add_dir(agx_strv *path, agx_view dir)
{
        _cleanup_(agx_freep) char *text = agx_strv_dup(dir);

        if (!text || !dir.n || path->count >= DIRS_MAX || !is_directory(text))
                return;
        for (size_t i = 0; i < path->count; i++)
                if (!strcmp(path->items[i], text))
                        return;
        agx_strv_add_str(path, text);
}

static void add_list(agx_strv *path, const char *list)
{
        agx_view rest = agx_view_str(list);
        agx_view dir;

        while (list && agx_view_split(&rest, ':', &dir))
                add_dir(path, dir);
}

/* <prefix>/lib/python3.N/{site,dist}-packages for every N there is; a virtual environment has one. */
static void add_site(agx_strv *path, const char *prefix)
{
        static const char *const kinds[] = {"lib/python3.%u/site", "local/lib/python3.%u/dist", "lib/python3.%u/dist"};

        for (unsigned minor = 11; minor < 14; minor++)
                for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                        _cleanup_(agx_freep) char *dir = NULL;
                        const char *where = strchr(kinds[i], '%');

                        if (asprintf(&dir, "%s/%.*s%u%s-packages", prefix, (int)(where - kinds[i]), kinds[i], minor,
                                     where + 2) < 0)
                                dir = NULL;
                        add_dir(path, agx_view_str(dir));
                }
        if (!strcmp(prefix, "/usr"))
                add_dir(path, AGX_VIEW("/usr/lib/python3/dist-packages"));
}

/* The directory two levels above this executable: <prefix>/bin/agentix. */
static bool own_prefix(char *prefix, size_t size)
{
        ssize_t n = readlink("/proc/self/exe", prefix, size - 1);

        if (n <= 0)
                return false;
        prefix[n] = 0;
        for (int up = 0; up < 2; up++) {
                char *slash = strrchr(prefix, '/');

                if (!slash || slash == prefix)
                        return false;
                *slash = 0;
        }
        return true;
}

static int find_python(agx_plugins *p)
{
        static const char *const names[] = {"bin/python3", "bin/python"};
        char prefix[4096], path[4200];

        if (variable("AGENTIX_PYTHON")) {
                p->python = strdup(variable("AGENTIX_PYTHON"));
                return p->python ? 0 : -ENOMEM;
        }
        for (size_t i = 0; i < 2 && own_prefix(prefix, sizeof(prefix)); i++) {
                snprintf(path, sizeof(path), "%s/%s", prefix, names[i]);
                if (!access(path, X_OK)) {
                        p->python = strdup(path);
                        return p->python ? 0 : -ENOMEM;
                }
        }
        p->python = strdup("python3");
        return p->python ? 0 : -ENOMEM;
}

static bool find_dirs(agx_plugins *p)
{
        char prefix[4096];

        if (variable("AGENTIX_PYTHON_PATH")) {
                add_list(&p->path, variable("AGENTIX_PYTHON_PATH"));
                return false;
        }
        add_list(&p->path, variable("PYTHONPATH"));
        if (own_prefix(prefix, sizeof(prefix)))
                add_site(&p->path, prefix);
        return true;
}

/* ---- reading a distribution ---- */

static bool seen(scan *s, agx_view name)
{
        agx_list_foreach_safe(link,
                              &s->dists) if (agx_dist_name_eq(agx_view_str(agx_container_of(link, dist, node)->name),
                                                              name)) return true;
        return false;
}

static int remember(scan *s, agx_view name)
{
        dist *d = calloc(1, sizeof(*d));

        if (!d || !(d->name = agx_strv_dup(name))) {
                free(d);
                return agx_trace(-ENOMEM);
        }
        agx_list_push_back(&s->dists, &d->node);
        return 0;
}

static void plugin_free(agx_plugin *plugin)
{
        agx_list_unlink(&plugin->node);
        free(plugin->name);
        free(plugin->value);
        free(plugin->dist);
        free(plugin->version);
        free(plugin->conflict);
        free(plugin);
}

static int claim_twice(agx_plugin *first, agx_view dist_name, agx_view version)
{
        char *both;

        if (asprintf(&both, "%s and %.*s@%.*s", first->conflict ? first->conflict : "", (int)dist_name.n, dist_name.p,
                     (int)version.n, version.p) < 0)
                return agx_trace(-ENOMEM);
        if (!first->conflict) {
                char *whole;
                int n = asprintf(&whole, "%s@%s%s", first->dist, first->version, both);

                free(both);
                if (n < 0)
                        return agx_trace(-ENOMEM);
                both = whole;
        }
        free(first->conflict);
        first->conflict = both;
        return 0;
}

static void insert_sorted(agx_plugins *p, agx_plugin *plugin)
{
        agx_list *at = &p->list;

        agx_list_foreach_safe(link, &p->list)
        {
                const agx_plugin *other = agx_container_of(link, agx_plugin, node);
                int order = strcmp(other->group, plugin->group);

                if (order > 0 || (!order && strcmp(other->name, plugin->name) > 0)) {
                        at = link;
                        break;
                }
        }
        agx_list_push_back(at, &plugin->node); /* before `at` */
}

static int add_plugin(agx_plugins *p, const char *group, const agx_entry_point *entry, agx_view dist_name,
                      agx_view version)
{
        _cleanup_(agx_freep) char *name = agx_strv_dup(entry->name);
        agx_plugin *plugin;

        if (!name)
                return agx_trace(-ENOMEM);
        agx_list_foreach_safe(link, &p->list)
        {
                agx_plugin *other = agx_container_of(link, agx_plugin, node);

                if (!strcmp(other->group, group) && !strcmp(other->name, name))
                        return claim_twice(other, dist_name, version);
        }
        plugin = calloc(1, sizeof(*plugin));
        if (!plugin)
                return agx_trace(-ENOMEM);
        agx_list_init(&plugin->node);
        plugin->group = group;
        plugin->name = agx_strv_dup(entry->name);
        plugin->value = agx_strv_dup(entry->value);
        plugin->dist = agx_strv_dup(dist_name);
        plugin->version = agx_strv_dup(version);
        if (!plugin->name || !plugin->value || !plugin->dist || !plugin->version) {
                plugin_free(plugin);
                return agx_trace(-ENOMEM);
        }
        insert_sorted(p, plugin);
        return 0;
}

static const char *our_group(agx_view group)
{
        if (agx_view_eq(group, AGX_VIEW(AGX_GROUP_PROVIDERS)))
                return AGX_GROUP_PROVIDERS;
        return agx_view_eq(group, AGX_VIEW(AGX_GROUP_NIX)) ? AGX_GROUP_NIX : NULL;
}

/* A distribution whose metadata cannot be read is called what its directory is: "acme-1.0.dist-info". */
static agx_view name_from_directory(const char *info)
{
        agx_view name = agx_view_str(info);
        const char *dash = memchr(name.p, '-', name.n);

        return dash ? agx_view_first(name, (size_t)(dash - name.p)) : name;
}

static int read_dist(scan *s, int dir, const char *info)
{
        _cleanup_(agx_buf_deinitp) agx_buf metadata = AGX_BUF_NULL(FILE_MAX), entries = AGX_BUF_NULL(FILE_MAX);
        agx_entry_points cursor;
        agx_entry_point entry;
        agx_view name, version;
        char path[512];
        int r;

        snprintf(path, sizeof(path), "%.255s/METADATA", info);
        r = read_file(dir, path, &metadata);
        if (!r && !metadata.len) {
                snprintf(path, sizeof(path), "%.255s/PKG-INFO", info);
                r = read_file(dir, path, &metadata);
        }
        name = agx_metadata_get(agx_buf_view(&metadata), AGX_VIEW("Name"));
        version = agx_metadata_get(agx_buf_view(&metadata), AGX_VIEW("Version"));
        if (!name.n)
                name = name_from_directory(info);
        if (!version.n)
                version = AGX_VIEW("unknown");
        if (r || seen(s, name))
                return r;
        r = remember(s, name);
        snprintf(path, sizeof(path), "%.255s/entry_points.txt", info);
        if (!r)
                r = read_file(dir, path, &entries);
        cursor = agx_entry_points_on(agx_buf_view(&entries));
        while (!r && agx_entry_points_next(&cursor, &entry)) {
                const char *group = our_group(entry.group);

                if (group)
                        r = add_plugin(s->to, group, &entry, name, version);
        }
        return r;
}

/* ---- directories ---- */

static bool ends_with(const char *name, const char *end)
{
        size_t n = strlen(name), m = strlen(end);

        return n > m && !strcmp(name + n - m, end);
}

/* A .pth file adds directories, one a line; its `import` lines are not for us. */
static int read_pth(scan *s, int dir, const char *base, const char *file)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(FILE_MAX);
        agx_view rest, line;
        int r = read_file(dir, file, &text);

        rest = agx_buf_view(&text);
        while (!r && agx_view_split(&rest, '\n', &line)) {
                char path[4096];

                while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == ' '))
                        line.n--;
                if (!line.n || line.p[0] == '#' || agx_view_starts(line, AGX_VIEW("import")))
                        continue;
                if (line.p[0] == '/')
                        add_dir(&s->to->path, line);
                else if (snprintf(path, sizeof(path), "%s/%.*s", base, (int)line.n, line.p) < (int)sizeof(path))
                        add_dir(&s->to->path, agx_view_str(path));
        }
        return r;
}

static int read_dir(scan *s, const char *path, bool pth)
{
        _cleanup_(agx_closep) int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct dirent **names = NULL;
        int n = dir < 0 ? 0 : scandir(path, &names, NULL, alphasort);
        int r = 0;

        for (int i = 0; i < n; i++) {
                const char *name = names[i]->d_name;

                if (!r && (ends_with(name, ".dist-info") || ends_with(name, ".egg-info")))
                        r = read_dist(s, dir, name);
                else if (!r && pth && ends_with(name, ".pth"))
                        r = read_pth(s, dir, path, name);
                free(names[i]);
        }
        free(names);
        return r;
}

int agx_plugins_init(agx_plugins *p)
{
        scan s = {.to = p};
        bool pth;
        int r;

        *p = (agx_plugins){0};
        agx_list_init(&p->list);
        agx_list_init(&s.dists);
        pth = find_dirs(p);
        r = find_python(p);
        /* The list grows while .pth files are read. */
        for (size_t i = 0; !r && i < p->path.count; i++)
                r = read_dir(&s, p->path.items[i], pth);
        agx_list_foreach_safe(link, &s.dists)
        {
                dist *d = agx_container_of(link, dist, node);

                free(d->name);
                free(d);
        }
        return r ? r : agx_strv_end(&p->path);
}

void agx_plugins_deinit(agx_plugins *p)
{
        if (p->list.next)
                agx_list_foreach_safe(link, &p->list) plugin_free(agx_container_of(link, agx_plugin, node));
        free(p->python);
        p->python = NULL;
        agx_strv_deinit(&p->path);
}

const agx_plugin *agx_plugins_find(const agx_plugins *p, const char *group, const char *name)
{
        agx_list_foreach_safe(link, &p->list)
        {
                const agx_plugin *plugin = agx_container_of(link, agx_plugin, node);

                if (!strcmp(plugin->group, group) && !strcmp(plugin->name, name))
                        return plugin;
        }
        return NULL;
}
