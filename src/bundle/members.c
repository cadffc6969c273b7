/*
 * The tree is a table from whole normalised paths to nodes: each question ("is this parent a directory?") is one look-up
 * per component of a path, and memory grows with the members that came, never with what one of them announces.
 */
#include "bundle/members.h"

#include "base/err.h"

#include <stdlib.h>

typedef enum node_kind { NODE_FILE, NODE_DIRECTORY, NODE_SYMLINK, NODE_OMITTED } node_kind;

typedef struct node {
        agx_map_node in_map;
        agx_list in_all;
        agx_list in_crooked;
        node_kind kind;
        agx_view link; /* of a symbolic link */
        char bytes[];  /* the path, then the link */
} node;

static node *node_of(agx_map_node *n)
{
        return agx_container_of(n, node, in_map);
}

void agx_members_init(agx_members *m, const agx_members_limits *limits, const uint8_t seed[16])
{
        *m = (agx_members){.limits = *limits};
        agx_map_init(&m->map, seed);
        agx_list_init(&m->all);
        agx_list_init(&m->crooked);
        agx_buf_init(&m->path, AGX_MEMBERS_PATH_MAX);
        agx_buf_init(&m->link, AGX_MEMBERS_PATH_MAX);
}

void agx_members_deinit(agx_members *m)
{
        agx_list_foreach_safe(link, &m->all) free(agx_container_of(link, node, in_all));
        agx_list_init(&m->all);
        agx_map_deinit(&m->map);
        agx_buf_deinit(&m->path);
        agx_buf_deinit(&m->link);
}

static node *find(const agx_members *m, agx_view path)
{
        agx_map_node *n = agx_map_find(&m->map, path);

        return n ? node_of(n) : NULL;
}

static int add(agx_members *m, agx_view path, node_kind kind, agx_view link, node **made)
{
        node *n;
        int r;

        if (m->count >= m->limits.count)
                return AGX_MEMBERS_E_MANY;
        n = malloc(sizeof(*n) + path.n + link.n);
        if (!n)
                return agx_trace(-ENOMEM);
        *n = (node){.kind = kind};
        memcpy(n->bytes, path.p, path.n);
        if (link.n)
                memcpy(n->bytes + path.n, link.p, link.n);
        n->in_map.key = agx_view_of(n->bytes, path.n);
        n->link = agx_view_of(n->bytes + path.n, link.n);
        agx_list_init(&n->in_crooked);
        r = agx_map_insert(&m->map, &n->in_map);
        if (r) {
                free(n);
                return r;
        }
        agx_list_push_back(&m->all, &n->in_all);
        m->count++;
        if (made)
                *made = n;
        return 0;
}

/* ---- paths ---- */

/* Takes the last component away; false if there is none. */
static bool path_up(agx_buf *path)
{
        agx_view v = agx_buf_view(path);

        if (!v.n)
                return false;
        while (v.n && v.p[v.n - 1] != '/')
                v.n--;
        agx_buf_truncate(path, v.n ? v.n - 1 : 0);
        return true;
}

static int path_down(agx_buf *path, agx_view name)
{
        int r = 0;

        if (name.n > AGX_MEMBERS_NAME_MAX)
                return AGX_MEMBERS_E_LONG;
        if (path->len)
                r = agx_buf_append(path, "/", 1);
        if (!r)
                r = agx_buf_append_view(path, name);
        return r == AGX_BUF_E_FULL ? AGX_MEMBERS_E_LONG : r;
}

/*
 * Goes the way `text` from where `path` stands. Above the root is AGX_MEMBERS_E_UNSAFE. `crooked` (or NULL) tells whether
 * the way goes up after it went down: where that leads depends on whether what it passed is a link.
 */
static int path_walk(agx_buf *path, agx_view text, bool *crooked)
{
        agx_view rest = text;
        agx_view name;
        bool down = false;

        while (agx_view_split(&rest, '/', &name)) {
                int r = 0;

                if (!name.n || agx_view_eq(name, AGX_VIEW(".")))
                        continue;
                if (agx_view_eq(name, AGX_VIEW(".."))) {
                        if (crooked)
                                *crooked |= down;
                        r = path_up(path) ? 0 : AGX_MEMBERS_E_UNSAFE;
                } else {
                        down = true;
                        r = path_down(path, name);
                }
                if (r)
                        return r;
        }
        return 0;
}

static bool below_nix(agx_view path)
{
        return agx_view_eq(path, AGX_VIEW("nix")) || agx_view_starts(path, AGX_VIEW("nix/"));
}

static unsigned depth_of(agx_view path)
{
        unsigned n = 0;

        for (size_t i = 0; i < path.n; i++)
                n += path.p[i] == '/';
        return n;
}

static int normalise(agx_buf *path, agx_view name)
{
        agx_buf_clear(path);
        if (agx_view_starts(name, AGX_VIEW("/")) || memchr(name.p, 0, name.n))
                return AGX_MEMBERS_E_UNSAFE;
        return path_walk(path, name, NULL);
}

/* ---- the rules ---- */

/* Every directory above `path` is one, or is made. */
static int check_parents(agx_members *m, agx_view path)
{
        for (size_t i = 0; i < path.n; i++) {
                agx_view above = agx_view_first(path, i);
                const node *n;
                int r;

                if (path.p[i] != '/')
                        continue;
                n = find(m, above);
                if (n && n->kind == NODE_OMITTED)
                        return AGX_MEMBERS_E_OMITTED;
                if (n && n->kind != NODE_DIRECTORY)
                        return AGX_MEMBERS_E_PARENT;
                r = n ? 0 : add(m, above, NODE_DIRECTORY, AGX_VIEW_NULL, NULL);
                if (r)
                        return r;
        }
        return 0;
}

static int check_place(agx_members *m, agx_view path, bool directory)
{
        const node *n = find(m, path);

        if (!n)
                return 0;
        if (n->kind == NODE_OMITTED)
                return AGX_MEMBERS_E_OMITTED;
        return directory && n->kind == NODE_DIRECTORY ? 0 : AGX_MEMBERS_E_TWICE;
}

static int judge_file(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        if (member->size > m->limits.bytes - m->bytes)
                return AGX_MEMBERS_E_BIG;
        m->bytes += member->size;
        verdict->mode = (member->mode & 0777) | 0400;
        return add(m, verdict->path, NODE_FILE, AGX_VIEW_NULL, NULL);
}

static int judge_directory(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        verdict->mode = (member->mode & 0777) | 0700;
        if (find(m, verdict->path))
                return 0;
        return add(m, verdict->path, NODE_DIRECTORY, AGX_VIEW_NULL, NULL);
}

/* Where a symbolic link leads, as a path in m->link. E_UNSAFE: above the root. */
static int link_target(agx_members *m, agx_view path, agx_view link, bool *crooked)
{
        int r = 0;

        agx_buf_clear(&m->link);
        if (!agx_view_starts(link, AGX_VIEW("/"))) {
                r = agx_buf_append_view(&m->link, path);
                path_up(&m->link);
        }
        return r ? r : path_walk(&m->link, link, crooked);
}

static int judge_symlink(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        bool crooked = false;
        bool away;
        node *n;
        int r;

        if (!member->link.n || memchr(member->link.p, 0, member->link.n))
                return AGX_MEMBERS_E_UNSAFE;
        if (member->link.n > AGX_MEMBERS_PATH_MAX)
                return AGX_MEMBERS_E_LONG;
        r = link_target(m, verdict->path, member->link, &crooked);
        if (r < 0 || r == AGX_MEMBERS_E_LONG)
                return r;
        away = r || !below_nix(agx_buf_view(&m->link));
        r = add(m, verdict->path, away ? NODE_OMITTED : NODE_SYMLINK, member->link, &n);
        if (r)
                return r;
        if (!away && crooked)
                agx_list_push_back(&m->crooked, &n->in_crooked);
        verdict->kind = away ? AGX_VERDICT_OMIT : AGX_VERDICT_TAKE;
        verdict->link = n->link;
        return 0;
}

static int judge_hardlink(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        agx_view target;
        const node *n;
        int r = normalise(&m->link, member->link);

        target = agx_buf_view(&m->link);
        if (r == AGX_MEMBERS_E_UNSAFE || (!r && !below_nix(target)))
                return AGX_MEMBERS_E_LINK;
        if (r)
                return r;
        for (size_t i = 0; i < target.n; i++) {
                if (target.p[i] != '/')
                        continue;
                n = find(m, agx_view_first(target, i));
                if (!n || n->kind != NODE_DIRECTORY)
                        return n ? AGX_MEMBERS_E_LINK : AGX_MEMBERS_E_MISSING;
        }
        n = find(m, target);
        if (!n || n->kind != NODE_FILE)
                return n ? AGX_MEMBERS_E_LINK : AGX_MEMBERS_E_MISSING;
        verdict->link = target;
        return add(m, verdict->path, NODE_FILE, AGX_VIEW_NULL, NULL);
}

static int judge_manifest(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        if (member->type != AGX_MEMBER_FILE)
                return AGX_MEMBERS_E_TYPE;
        if (m->has_manifest)
                return AGX_MEMBERS_E_TWICE;
        m->has_manifest = true;
        verdict->kind = AGX_VERDICT_MANIFEST;
        return 0;
}

static int judge_below_nix(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        int r;

        if (depth_of(verdict->path) > m->limits.depth)
                return AGX_MEMBERS_E_DEEP;
        r = check_parents(m, verdict->path);
        if (!r)
                r = check_place(m, verdict->path, member->type == AGX_MEMBER_DIRECTORY);
        if (r)
                return r;
        switch (member->type) {
        case AGX_MEMBER_FILE:
                return judge_file(m, member, verdict);
        case AGX_MEMBER_DIRECTORY:
                return judge_directory(m, member, verdict);
        case AGX_MEMBER_SYMLINK:
                return judge_symlink(m, member, verdict);
        case AGX_MEMBER_HARDLINK:
                return judge_hardlink(m, member, verdict);
        default:
                return AGX_MEMBERS_E_TYPE;
        }
}

int agx_members_judge(agx_members *m, const agx_member *member, agx_verdict *verdict)
{
        int r = normalise(&m->path, member->name);

        *verdict = (agx_verdict){.kind = AGX_VERDICT_TAKE, .path = agx_buf_view(&m->path)};
        if (r)
                return r;
        if (!verdict->path.n) {
                verdict->kind = AGX_VERDICT_PASS;
                return member->type == AGX_MEMBER_DIRECTORY ? 0 : AGX_MEMBERS_E_UNSAFE;
        }
        if (agx_view_eq(verdict->path, AGX_VIEW("manifest.json")))
                return judge_manifest(m, member, verdict);
        if (!below_nix(verdict->path))
                return AGX_MEMBERS_E_FOREIGN;
        if (verdict->path.n == 3 && member->type != AGX_MEMBER_DIRECTORY)
                return AGX_MEMBERS_E_UNSAFE;
        return judge_below_nix(m, member, verdict);
}

/* ---- at the end ---- */

enum { HOPS_MAX = 40 };

/* A way through the tree: where it stands, and what is still to go. */
typedef struct way {
        agx_buf at;
        agx_buf rest;
        unsigned hops; /* links it may still follow */
} way;

typedef enum step { STEP_ON, STEP_AWAY, STEP_ENDS } step;

/* Takes the first name of what is still to go; an empty one for "//" and at the end. */
static int way_next(way *w, char name[AGX_MEMBERS_NAME_MAX + 1])
{
        agx_view rest = agx_buf_view(&w->rest);
        const char *slash = memchr(rest.p, '/', rest.n);
        size_t n = slash ? (size_t)(slash - rest.p) : rest.n;

        if (n > AGX_MEMBERS_NAME_MAX)
                return AGX_MEMBERS_E_LONG;
        memcpy(name, rest.p, n);
        name[n] = 0;
        agx_buf_consume(&w->rest, slash ? n + 1 : n);
        return 0;
}

/* Puts a link's target in front of what is still to go. What cannot be held counts as leading away. */
static step way_follow(way *w, agx_view link)
{
        _cleanup_(agx_buf_deinitp) agx_buf on = AGX_BUF_NULL(w->rest.max);

        if (!w->hops--)
                return STEP_ENDS;
        if (agx_buf_append_view(&on, link) || agx_buf_append(&on, "/", 1) ||
            agx_buf_append_view(&on, agx_buf_view(&w->rest)))
                return STEP_AWAY;
        if (link.p[0] == '/')
                agx_buf_clear(&w->at);
        else
                path_up(&w->at);
        agx_buf_clear(&w->rest);
        return agx_buf_append_view(&w->rest, agx_buf_view(&on)) ? STEP_AWAY : STEP_ON;
}

/* One name further, as a kernel would go with the tree at /nix. A way that ends nowhere, or never, does not lead away. */
static step way_step(const agx_members *m, way *w)
{
        char name[AGX_MEMBERS_NAME_MAX + 1];
        const node *n;

        if (way_next(w, name))
                return STEP_AWAY;
        if (!*name || !strcmp(name, "."))
                return STEP_ON;
        if (!strcmp(name, ".."))
                path_up(&w->at);
        else if (path_down(&w->at, agx_view_str(name)))
                return STEP_AWAY;
        if (!below_nix(agx_buf_view(&w->at)))
                return STEP_AWAY;
        n = find(m, agx_buf_view(&w->at));
        if (!n || n->kind == NODE_FILE)
                return STEP_ENDS;
        if (n->kind == NODE_OMITTED)
                return STEP_AWAY;
        return n->kind == NODE_SYMLINK ? way_follow(w, n->link) : STEP_ON;
}

static bool crooked_leads_away(const agx_members *m, const node *n)
{
        way w = {.at = AGX_BUF_NULL(AGX_MEMBERS_PATH_MAX),
                 .rest = AGX_BUF_NULL(HOPS_MAX * AGX_MEMBERS_PATH_MAX),
                 .hops = HOPS_MAX};
        step s = agx_buf_append_view(&w.at, n->in_map.key) ? STEP_AWAY : way_follow(&w, n->link);

        while (s == STEP_ON && w.rest.len)
                s = way_step(m, &w);
        agx_buf_deinit(&w.at);
        agx_buf_deinit(&w.rest);
        return s == STEP_AWAY;
}

bool agx_members_finish(agx_members *m, agx_verdict *verdict)
{
        agx_list *link;

        while ((link = agx_list_first(&m->crooked)) != NULL) {
                node *n = agx_container_of(link, node, in_crooked);

                agx_list_unlink(link);
                if (!crooked_leads_away(m, n))
                        continue;
                n->kind = NODE_OMITTED;
                *verdict = (agx_verdict){.kind = AGX_VERDICT_OMIT, .path = n->in_map.key, .link = n->link};
                return true;
        }
        return false;
}

bool agx_members_has(const agx_members *m, agx_view path)
{
        const node *n = find(m, path);

        return n && (n->kind == NODE_FILE || n->kind == NODE_SYMLINK);
}

const char *agx_members_why(int condition)
{
        static const char *const words[] = {
                [AGX_MEMBERS_E_UNSAFE] = "unsafe member",
                [AGX_MEMBERS_E_FOREIGN] = "non-/nix member",
                [AGX_MEMBERS_E_LINK] = "unsafe hard-link target",
                [AGX_MEMBERS_E_MISSING] = "hard-link target does not exist",
                [AGX_MEMBERS_E_PARENT] = "parent is not a directory",
                [AGX_MEMBERS_E_TYPE] = "unsupported member type",
                [AGX_MEMBERS_E_TWICE] = "duplicate member",
                [AGX_MEMBERS_E_OMITTED] = "unsafe member at or below a link out of /nix: its parent is not a directory",
                [AGX_MEMBERS_E_LONG] = "name too long",
                [AGX_MEMBERS_E_DEEP] = "too many directories inside one another",
                [AGX_MEMBERS_E_MANY] = "too many members",
                [AGX_MEMBERS_E_BIG] = "too many bytes",
        };

        return words[condition];
}
