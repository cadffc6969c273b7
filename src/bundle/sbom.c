/* One walk over the tree, in the order of the names; each kind of thing is recognised by where it lies. */
#include "bundle/sbom.h"
#include "base/err.h"
#include "bundle/digest.h"
#include "bundle/tree.h"
#include "wire/json.h"

#include <fcntl.h>
#include <nettle/base64.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <sys/stat.h>

enum { SBOM_MAX = 64 << 20, PURL_MAX = 1024, INTEGRITY_TEXT = 88 /* of 64 bytes in base64 */ };

typedef struct writing {
        agx_json_writer w;
} writing;

static void put(agx_json_writer *w, const char *key, agx_view text)
{
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_string(w, text);
}

static void begin(agx_json_writer *w, const char *type, agx_view name, agx_view version)
{
        agx_json_put_object(w);
        put(w, "type", agx_view_str(type));
        put(w, "name", name);
        if (version.n)
                put(w, "version", version);
}

/* "numpy-2.4.6.dist-info" */
static void put_distribution(agx_json_writer *w, const char *directory)
{
        agx_view text = agx_view_of(directory, strlen(directory) - strlen(".dist-info"));
        const char *dash = memrchr(text.p, '-', text.n);
        char purl[PURL_MAX] = "pkg:pypi/", *p = purl + strlen(purl);
        agx_view name, version;

        if (!dash || text.n > PURL_MAX - 32)
                return;
        name = agx_view_of(text.p, (size_t)(dash - text.p));
        version = agx_view_of(dash + 1, text.n - name.n - 1);
        for (size_t i = 0; i < name.n; i++) {
                char c = name.p[i];

                *p++ = (char)(c == '_' || c == '.' ? '-' : c >= 'A' && c <= 'Z' ? c + 32 : c);
        }
        snprintf(p, (size_t)(purl + sizeof(purl) - p), "@%.*s", (int)version.n, version.p);
        begin(w, "library", agx_view_of(purl + 9, (size_t)(p - purl - 9)), version);
        put(w, "purl", agx_view_str(purl));
        agx_json_put_object_end(w);
}

static int put_file(agx_json_writer *w, const agx_tree_entry *entry, agx_why *why)
{
        _cleanup_(agx_closep) int fd = open(entry->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        char digest[AGX_DIGEST_SIZE], path[PURL_MAX];
        int r = fd < 0 ? -errno : agx_digest_fd(fd, digest);

        if (r)
                return agx_why_errno(why, r, "%s could not be read", entry->path);
        snprintf(path, sizeof(path), "/%s", entry->relative);
        begin(w, "file", agx_view_str(path), AGX_VIEW(""));
        agx_json_put_key(w, AGX_VIEW("hashes"));
        agx_json_put_array(w);
        agx_json_put_object(w);
        put(w, "alg", AGX_VIEW("SHA-256"));
        put(w, "content", agx_view_str(digest + 7));
        agx_json_put_object_end(w);
        agx_json_put_array_end(w);
        agx_json_put_object_end(w);
        return 0;
}

static bool ends(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n > m && !strcmp(text + n - m, end);
}

static bool is_below(const agx_tree_entry *entry, const char *directory)
{
        return !strncmp(entry->relative, directory, strlen(directory));
}

static int visit(const agx_tree_entry *entry, void *user, agx_why *why)
{
        writing *s = user;

        if (S_ISDIR(entry->st->st_mode)) {
                if (is_below(entry, "nix/closure/python/lib") || is_below(entry, &AGX_NPM_MODULES[1]))
                        return AGX_TREE_SKIP;
                if (is_below(entry, "nix/store/")) {
                        begin(&s->w, "application", agx_view_str(entry->name), AGX_VIEW(""));
                        agx_json_put_object_end(&s->w);
                        return AGX_TREE_SKIP;
                }
                if (!ends(entry->name, ".dist-info"))
                        return 0;
                put_distribution(&s->w, entry->name);
                return AGX_TREE_SKIP;
        }
        if (!S_ISREG(entry->st->st_mode))
                return 0;
        if (is_below(entry, "nix/closure/") || is_below(entry, "nix/runtime/bin/"))
                return put_file(&s->w, entry, why);
        return 0;
}

/* "sha512-<base64>" */
static void put_integrity(agx_json_writer *w, const char *integrity)
{
        static const char digits[] = "0123456789abcdef";
        uint8_t raw[BASE64_DECODE_LENGTH(INTEGRITY_TEXT)];
        char hex[2 * SHA512_DIGEST_SIZE];
        struct base64_decode_ctx decoder;
        size_t size = sizeof(raw), n = strlen(integrity);

        base64_decode_init(&decoder);
        if (n != 7 + INTEGRITY_TEXT || !base64_decode_update(&decoder, &size, raw, n - 7, integrity + 7) ||
            size != SHA512_DIGEST_SIZE)
                return;
        for (size_t i = 0; i < sizeof(hex); i++)
                hex[i] = digits[i % 2 ? raw[i / 2] & 15 : raw[i / 2] >> 4];
        agx_json_put_key(w, AGX_VIEW("hashes"));
        agx_json_put_array(w);
        agx_json_put_object(w);
        put(w, "alg", AGX_VIEW("SHA-512"));
        put(w, "content", agx_view_of(hex, sizeof(hex)));
        agx_json_put_object_end(w);
        agx_json_put_array_end(w);
}

static void put_npm(agx_json_writer *w, const agx_npm_package *p)
{
        bool scoped = p->name[0] == '@';
        char purl[PURL_MAX];

        if (!p->wanted)
                return;
        snprintf(purl, sizeof(purl), "pkg:npm/%s%s@%s", scoped ? "%40" : "", p->name + scoped, p->version);
        begin(w, "library", agx_view_str(p->name), agx_view_str(p->version));
        put(w, "purl", agx_view_str(purl));
        put_integrity(w, p->integrity);
        agx_json_put_object_end(w);
}

static void put_subject(agx_json_writer *w, const char *name, const char *tag)
{
        agx_json_put_key(w, AGX_VIEW("metadata"));
        agx_json_put_object(w);
        agx_json_put_key(w, AGX_VIEW("component"));
        begin(w, "application", agx_view_str(name), agx_view_str(tag));
        agx_json_put_object_end(w);
        agx_json_put_object_end(w);
}

int agx_sbom_write(const agx_stage *s, const char *name, const char *tag, const char *python, const agx_npm_list *npm,
                   agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(SBOM_MAX);
        _cleanup_(agx_freep) char *path = agx_tree_join(s->nix, "runtime/sbom.cdx.json");
        writing all = {agx_json_writer_on(&json)};
        int r;

        if (!path)
                return agx_trace(-ENOMEM);
        agx_json_put_object(&all.w);
        put(&all.w, "bomFormat", AGX_VIEW("CycloneDX"));
        put(&all.w, "specVersion", AGX_VIEW("1.5"));
        agx_json_put_key(&all.w, AGX_VIEW("version"));
        agx_json_put_u64(&all.w, 1);
        put_subject(&all.w, name, tag);
        agx_json_put_key(&all.w, AGX_VIEW("components"));
        agx_json_put_array(&all.w);
        begin(&all.w, "platform", AGX_VIEW("cpython"), agx_view_str(python));
        agx_json_put_object_end(&all.w);
        r = agx_tree_walk(s->tree, visit, &all, why);
        for (size_t i = 0; i < npm->count; i++)
                put_npm(&all.w, &npm->items[i]);
        agx_json_put_array_end(&all.w);
        agx_json_put_object_end(&all.w);
        if (r)
                return r;
        if (agx_json_writer_end(&all.w) || agx_buf_append(&json, "\n", 1))
                return agx_why_set(why, "sbom", "the list of what is in the bundle could not be made");
        return agx_tree_write(path, agx_buf_view(&json), 0644, why);
}
