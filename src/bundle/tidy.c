/*
 * The environment without what tells of its making. Shebangs are pointed at programs of the bundle wherever they stand: a
 * script of a package may be run from where it lies, and the image need not have an interpreter at all.
 */
#include "base/err.h"
#include "bundle/digest.h"
#include "bundle/tree.h"
#include "bundle/venv.h"

#include <fcntl.h>
#include <limits.h>
#include <nettle/base64.h>
#include <nettle/sha2.h>
#include <stdio.h>

enum { SHEBANG_MAX = 512, SCRIPT_MAX = 64 << 20, RECORD_MAX = 64 << 20 };

/* ---- what goes ---- */

static const char *const traces[] = {"direct_url.json", "uv_cache.json", "uv_build.json",
                                     "REQUESTED",       ".lock",         ".gitignore"};

static bool is_trace(const agx_tree_entry *entry)
{
        if (!strncmp(entry->relative, "bin/activate", 12) || !strncmp(entry->relative, "bin/deactivate", 14) ||
            !strcmp(entry->relative, "bin/pydoc.bat") || !strcmp(entry->relative, "CACHEDIR.TAG"))
                return true;
        for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++)
                if (!strcmp(entry->name, traces[i]))
                        return strstr(entry->relative, ".dist-info/") || !strchr(entry->relative, '/');
        return false;
}

/* ---- shebangs ---- */

static const char *base_of(agx_view path, size_t *n)
{
        const char *base = path.p;

        for (size_t i = 0; i < path.n; i++)
                if (path.p[i] == '/')
                        base = path.p + i + 1;
        *n = path.n - (size_t)(base - path.p);
        return base;
}

/* A word of a command line; the rest goes on behind it. */
static agx_view word_of(agx_view *rest)
{
        agx_view word;

        *rest = agx_view_trim(*rest);
        if (!rest->n || !agx_view_split(rest, ' ', &word))
                return AGX_VIEW("");
        return word;
}

static int put_shebang(agx_buf *out, agx_view program, agx_view arguments)
{
        size_t n;
        const char *base = base_of(program, &n);
        agx_view name = agx_view_of(base, n);
        const char *there = NULL;

        if (agx_view_starts(name, AGX_VIEW("python")))
                there = AGX_VENV "/bin/python";
        else if (agx_view_eq(name, AGX_VIEW("bash")))
                there = "/nix/closure/bin/bash";
        else if (agx_view_eq(name, AGX_VIEW("sh")) || agx_view_eq(name, AGX_VIEW("dash")) ||
                 agx_view_eq(name, AGX_VIEW("ash")))
                there = "/nix/closure/bin/sh";
        arguments = agx_view_trim(arguments);
        if (there)
                return agx_buf_printf(out, "#!%s%s%.*s", there, arguments.n ? " " : "", (int)arguments.n, arguments.p);
        /* The kernel passes one argument, so what would follow the program is lost. */
        return agx_buf_printf(out, "#!/nix/closure/bin/env %.*s", (int)n, base);
}

/* The line without its end, rewritten into `out`; empty: it may stay. */
static int rewrite_line(agx_view line, agx_buf *out)
{
        agx_view rest = agx_view_from(line, 2), program, inner;
        size_t n;
        const char *base;

        program = word_of(&rest);
        if (!program.n || program.p[0] != '/' || agx_view_starts(program, AGX_VIEW("/nix/")))
                return 0;
        base = base_of(program, &n);
        if (!agx_view_eq(agx_view_of(base, n), AGX_VIEW("env")))
                return put_shebang(out, program, rest.p ? rest : AGX_VIEW(""));
        inner = word_of(&rest);
        if (agx_view_eq(inner, AGX_VIEW("-S")))
                inner = word_of(&rest);
        return inner.n ? put_shebang(out, inner, rest.p ? rest : AGX_VIEW("")) : 0;
}

static int fix_shebang(const agx_tree_entry *entry, agx_strv *changed, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf line = AGX_BUF_NULL(PATH_MAX), text = AGX_BUF_NULL(SCRIPT_MAX);
        char head[SHEBANG_MAX];
        int fd = open(entry->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof(head));
        const char *end;
        agx_view rest;
        int r;

        agx_closep(&fd);
        if (n < 0)
                return agx_why_errno(why, errno, "%s could not be read", entry->path);
        if (n < 3 || head[0] != '#' || head[1] != '!' || !(end = memchr(head, '\n', (size_t)n)))
                return 0;
        if (end > head && end[-1] == '\r')
                end--;
        if (rewrite_line(agx_view_of(head, (size_t)(end - head)), &line))
                return agx_trace(-ENOMEM);
        if (!line.len)
                return 0;
        r = agx_tree_read(entry->path, &text, why);
        if (r)
                return r;
        rest = agx_view_from(agx_buf_view(&text), (size_t)(end - head));
        line.max = SCRIPT_MAX + PATH_MAX;
        if (agx_buf_append_view(&line, rest))
                return agx_trace(-ENOMEM);
        r = agx_tree_write(entry->path, agx_buf_view(&line), entry->st->st_mode & S_IXUSR ? 0755 : 0644, why);
        agx_strv_add_str(changed, entry->path);
        return r ? r : agx_strv_end(changed);
}

/* ---- the walk ---- */

static int tidy_entry(const agx_tree_entry *entry, void *user, agx_why *why)
{
        if (S_ISDIR(entry->st->st_mode)) {
                if (strcmp(entry->name, "__pycache__"))
                        return 0;
                return agx_tree_remove(entry->path, why) ? AGX_WHY_E_TOLD : AGX_TREE_SKIP;
        }
        if (is_trace(entry))
                return agx_tree_remove(entry->path, why);
        return S_ISREG(entry->st->st_mode) ? fix_shebang(entry, user, why) : 0;
}

static int fix_entry(const agx_tree_entry *entry, void *user, agx_why *why)
{
        return S_ISREG(entry->st->st_mode) ? fix_shebang(entry, user, why) : 0;
}

int agx_venv_fix_shebangs(const char *root, agx_strv *changed, agx_why *why)
{
        return agx_tree_walk(root, fix_entry, changed, why);
}

int agx_venv_tidy(const agx_stage *s, agx_strv *changed, agx_why *why)
{
        _cleanup_(agx_freep) char *venv = agx_tree_join(s->tree, &AGX_VENV[1]);

        return venv ? agx_tree_walk(venv, tidy_entry, changed, why) : agx_trace(-ENOMEM);
}

/* ---- RECORD ---- */

typedef struct settling {
        const char *site;
        const agx_strv *changed;
} settling;

/* The path of a line, unquoted; what follows the comma behind it goes to *rest. */
static int path_of(agx_view line, agx_buf *path, agx_view *rest)
{
        size_t i = 0;
        bool quoted = line.n && line.p[0] == '"';
        int r = 0;

        for (i = quoted; !r && i < line.n; i++) {
                if (quoted && line.p[i] == '"' && i + 1 < line.n && line.p[i + 1] == '"')
                        i++;
                else if (line.p[i] == (quoted ? '"' : ','))
                        break;
                r = agx_buf_append(path, line.p + i, 1);
        }
        i += quoted && i < line.n;
        *rest = i < line.n ? agx_view_from(line, i) : AGX_VIEW(",,");
        return r ? agx_trace(-ENOMEM) : 0;
}

static int put_quoted(agx_buf *out, agx_view path)
{
        bool quote = memchr(path.p, ',', path.n) || memchr(path.p, '"', path.n);
        int r = quote ? agx_buf_append(out, "\"", 1) : 0;

        for (size_t i = 0; !r && i < path.n; i++) {
                if (path.p[i] == '"')
                        r = agx_buf_append(out, "\"", 1);
                if (!r)
                        r = agx_buf_append(out, path.p + i, 1);
        }
        return r || !quote ? r : agx_buf_append(out, "\"", 1);
}

static int put_hash(agx_buf *out, const char *path, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf bytes = AGX_BUF_NULL((size_t)4 << 30);
        char text[BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) + 1];
        uint8_t raw[SHA256_DIGEST_SIZE];
        struct sha256_ctx sha;
        int r = agx_tree_read(path, &bytes, why);

        if (r)
                return r;
        sha256_init(&sha);
        sha256_update(&sha, bytes.len, (const uint8_t *)agx_buf_view(&bytes).p);
        sha256_digest(&sha, sizeof(raw), raw);
        base64_encode_raw(text, sizeof(raw), raw);
        for (size_t i = 0; i < sizeof(text); i++)
                text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
        return agx_buf_printf(out, ",sha256=%.43s,%zu", text, bytes.len) ? agx_trace(-ENOMEM) : 0;
}

static bool is_changed(const agx_strv *changed, const char *path)
{
        for (size_t i = 0; i < changed->count; i++)
                if (!strcmp(changed->items[i], path))
                        return true;
        return false;
}

/* Appends the line as it should be to `lines`, unless its file is gone. */
static int settle_line(const settling *s, agx_view line, agx_strv *lines, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf path = AGX_BUF_NULL(PATH_MAX), out = AGX_BUF_NULL(4 * PATH_MAX);
        _cleanup_(agx_freep) char *text = NULL, *full = NULL, *real = NULL;
        agx_view rest;
        int r = path_of(line, &path, &rest);

        if (r || !path.len)
                return r;
        text = agx_strv_dup(agx_buf_view(&path));
        full = text ? agx_tree_join(s->site, text) : NULL;
        if (!full)
                return agx_trace(-ENOMEM);
        real = realpath(full, NULL);
        if (!real || agx_view_starts(agx_view_str(strrchr(text, '.') ? strrchr(text, '.') : ""), AGX_VIEW(".pyc")))
                return 0;
        if (put_quoted(&out, agx_buf_view(&path)))
                return agx_trace(-ENOMEM);
        if (strstr(text, ".dist-info/RECORD"))
                r = agx_buf_append_view(&out, AGX_VIEW(",,"));
        else if (agx_view_eq(agx_view_trim(rest), AGX_VIEW(",,")) || is_changed(s->changed, real))
                r = put_hash(&out, real, why);
        else
                r = agx_buf_append_view(&out, rest);
        agx_strv_add(lines, agx_buf_view(&out));
        return r ? r : agx_strv_end(lines);
}

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int settle(const agx_tree_entry *entry, void *user, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(RECORD_MAX), out = AGX_BUF_NULL(RECORD_MAX);
        _cleanup_(agx_strv_deinitp) agx_strv lines = AGX_STRV_NULL;
        agx_view rest, line;
        int r;

        if (S_ISDIR(entry->st->st_mode))
                return strstr(entry->name, ".dist-info") ? 0 : AGX_TREE_SKIP;
        if (strcmp(entry->name, "RECORD"))
                return 0;
        r = agx_tree_read(entry->path, &text, why);
        rest = agx_buf_view(&text);
        while (!r && agx_view_split(&rest, '\n', &line)) {
                if (line.n && line.p[line.n - 1] == '\r')
                        line.n--;
                r = settle_line(user, line, &lines, why);
        }
        if (r)
                return r;
        if (lines.count)
                qsort(lines.items, lines.count, sizeof(*lines.items), compare);
        for (size_t i = 0; !r && i < lines.count; i++)
                r = agx_buf_printf(&out, "%s\n", lines.items[i]);
        return r ? agx_trace(-ENOMEM) : agx_tree_write(entry->path, agx_buf_view(&out), 0644, why);
}

int agx_venv_settle_records(const agx_stage *s, unsigned minor, const agx_strv *changed, agx_why *why)
{
        _cleanup_(agx_freep) char *site = NULL;

        if (asprintf(&site, "%s" AGX_VENV "/lib/python3.%u/site-packages", s->tree, minor) < 0)
                return agx_trace(-ENOMEM);
        return agx_tree_walk(site, settle, &(settling){site, changed}, why);
}
