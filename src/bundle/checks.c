/*
 * Links are resolved by the kernel with the stage as its root (openat2, RESOLVE_IN_ROOT), which is what a container does; a
 * link that leads out of /nix leads nowhere there.
 *
 * Extension modules are imported for real. One process does it for as long as it lives; a module that takes the process
 * down is noted and the rest goes on in a new one: some modules are not made to be imported alone, and that is no fault of
 * the bundle.
 */
#include "bundle/checks.h"
#include "base/err.h"
#include "bundle/manifest.h"
#include "bundle/records.h"
#include "bundle/tree.h"
#include "bundle/venv.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- links ---- */

typedef struct linking {
        const agx_stage *stage;
        int root;
} linking;

static int resolves(int root, const char *path)
{
        struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

        if (fd < 0)
                return errno;
        close(fd);
        return 0;
}

/* Whether a target that is absolute, or climbs, ends outside of /nix: told apart only to say so. */
static bool leads_out(const char *relative, const char *target)
{
        long depth = 0;
        agx_view rest = agx_view_str(relative), part;

        if (target[0] == '/')
                return strncmp(target, "/nix/", 5) != 0;
        while (agx_view_split(&rest, '/', &part))
                depth++;
        rest = agx_view_str(target);
        depth--; /* the link's own name */
        while (agx_view_split(&rest, '/', &part)) {
                if (agx_view_eq(part, AGX_VIEW("..")))
                        depth--;
                else if (part.n && !agx_view_eq(part, AGX_VIEW(".")))
                        depth++;
                if (depth < 1)
                        return true;
        }
        return false;
}

static int read_target(const agx_tree_entry *entry, char target[PATH_MAX], agx_why *why)
{
        ssize_t n = readlink(entry->path, target, PATH_MAX - 1);

        if (n < 0)
                return agx_why_errno(why, errno, "link %s could not be read", entry->path);
        target[n] = 0;
        return 0;
}

/* First all targets, so that a link out is blamed and not the one that leads to it. */
static int check_target(const agx_tree_entry *entry, void *user, agx_why *why)
{
        char target[PATH_MAX];
        int r = S_ISLNK(entry->st->st_mode) ? read_target(entry, target, why) : 0;

        (void)user;
        if (!r && S_ISLNK(entry->st->st_mode) && leads_out(entry->relative, target))
                r = agx_why_set(why, "link", "/%s is a link to %s, which is outside of /nix", entry->relative, target);
        return r;
}

static int check_link(const linking *l, const agx_tree_entry *entry, agx_why *why)
{
        int error = resolves(l->root, entry->relative);
        char target[PATH_MAX];

        if (!error)
                return 0;
        return read_target(entry, target, why) ? AGX_WHY_E_TOLD
                                               : agx_why_set(why, "link", "/%s is a dangling link to %s (%s)",
                                                             entry->relative, target, strerror(error));
}

static int check_entry(const agx_tree_entry *entry, void *user, agx_why *why)
{
        mode_t mode = S_ISDIR(entry->st->st_mode) || (entry->st->st_mode & 0111) ? 0755 : 0644;

        if (S_ISLNK(entry->st->st_mode))
                return check_link(user, entry, why);
        if (!S_ISDIR(entry->st->st_mode) && !S_ISREG(entry->st->st_mode))
                return agx_why_set(why, "file", "/%s is neither a file, a directory nor a link", entry->relative);
        if ((entry->st->st_mode & 07777) != mode && chmod(entry->path, mode))
                return agx_why_errno(why, errno, "the mode of %s could not be set", entry->path);
        return 0;
}

int agx_checks_links(const agx_stage *s, agx_why *why)
{
        _cleanup_(agx_closep) int root = open(s->tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r;

        if (root < 0)
                return agx_why_errno(why, errno, "%s could not be opened", s->tree);
        r = agx_tree_walk(s->tree, check_target, NULL, why);
        if (!r)
                r = agx_tree_walk(s->tree, check_entry, &(linking){s, root}, why);
        if (!r && resolves(root, AGX_MANIFEST_ENTRYPOINT))
                r = agx_why_set(why, "bundle", "there is no " AGX_MANIFEST_ENTRYPOINT);
        return r;
}

/* ---- imports ---- */

static const char import_all[] =
        "import importlib, importlib.machinery, os, signal, sys, warnings\n"
        "def modules(root):\n"
        "    for path, dirs, files in os.walk(root):\n"
        "        dirs.sort()\n"
        "        for name in sorted(files):\n"
        "            for end in importlib.machinery.EXTENSION_SUFFIXES:\n"
        "                if name.endswith(end):\n"
        "                    inner = os.path.relpath(os.path.join(path, name[:-len(end)]), root)\n"
        "                    parts = inner.split(os.sep)\n"
        "                    if all(part.isidentifier() for part in parts): yield '.'.join(parts)\n"
        "                    break\n"
        "def outside():\n"
        "    for line in open('/proc/self/maps', 'rb'):\n"
        "        fields = line.rstrip(b'\\n').split(None, 5)\n"
        "        if len(fields) == 6 and fields[5].startswith(b'/') and not fields[5].startswith((b'/nix/', b'/dev/', "
        "b'/memfd:', b'/SYSV')):\n"
        "            yield os.fsdecode(fields[5])\n"
        "def put(key, value):\n"
        "    os.write(out, f'{key}\\0{value}\\0'.encode('utf-8', 'replace'))\n"
        "def work(names, at, tell):\n"
        "    for number in range(at, len(names)):\n"
        "        os.write(tell, b'%d\\n' % number)\n"
        "        signal.alarm(120)\n"
        "        try:\n"
        "            importlib.import_module(names[number])\n"
        "        except BaseException as error:\n"
        "            text = f'{type(error).__name__}: {error}'\n"
        "            lost = isinstance(error, ImportError) and any(part in str(error) for part in\n"
        "                ('cannot open shared object', 'undefined symbol', \"version `\", 'cannot allocate memory in "
        "static TLS'))\n"
        "            put('broken' if lost else 'odd', f'{names[number]}: {text}')\n"
        "    signal.alarm(0)\n"
        "    for path in sorted(set(outside())): put('outside', path)\n"
        "out = os.dup(1)\n"
        "os.dup2(2, 1)\n"
        "warnings.simplefilter('ignore')\n"
        "import agentix\n"
        "names = [name for root in sys.argv[1:] for name in modules(root)]\n"
        "at = 0\n"
        "while at < len(names):\n"
        "    heard, tell = os.pipe()\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os.close(heard)\n"
        "        work(names, at, tell)\n"
        "        os._exit(0)\n"
        "    os.close(tell)\n"
        "    last = at\n"
        "    with os.fdopen(heard) as lines:\n"
        "        for line in lines: last = int(line)\n"
        "    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "    at = len(names)\n"
        "    if status:\n"
        "        put('odd', f'{names[last]}: importing it ends the process ({status})')\n"
        "        at = last + 1\n";

static int check_bash(const agx_stage *s, agx_why *why)
{
        char bash[] = "/nix/runtime/bin/bash", c[] = "-c", colon[] = ":";
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(2048);
        char *env[] = {NULL};

        return agx_stage_run(s, (agx_run){.argv = (char *[]){bash, c, colon, NULL}, .env = env, .err = &said},
                             AGX_JAIL_BARE, "starting the bundle's bash in an empty root", why);
}

static int judge(agx_records *answer, agx_strv *odd, agx_why *why)
{
        const char *key, *value;

        while (agx_records_next(answer, &key, &value)) {
                if (!strcmp(key, "broken"))
                        return agx_why_set(why, "closure", "a module cannot be imported from the bundle alone: %s",
                                           value);
                if (!strcmp(key, "outside"))
                        return agx_why_set(why, "closure", "a file outside of /nix is mapped: %s", value);
                agx_strv_add_str(odd, value);
        }
        return agx_strv_end(odd);
}

int agx_checks_imports(const agx_stage *s, unsigned minor, agx_strv *odd, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records answer = AGX_RECORDS_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(4096);
        char path[] = "PATH=" AGX_VENV "/bin:/nix/runtime/bin", home[] = "HOME=/dev/null";
        char *env[] = {path, home, NULL};
        int r = check_bash(s, why);

        if (r)
                return r;
        agx_strv_addf(&argv, AGX_VENV "/bin/python");
        agx_strv_addf(&argv, "-IB");
        agx_strv_addf(&argv, "-Wignore");
        agx_strv_addf(&argv, "-c");
        agx_strv_add_str(&argv, import_all);
        agx_strv_addf(&argv, AGX_INTERPRETER_HOME "/lib/python3.%u/lib-dynload", minor);
        agx_strv_addf(&argv, AGX_VENV "/lib/python3.%u/site-packages", minor);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_stage_run(s, (agx_run){.argv = argv.items, .env = env, .out = &answer.bytes, .err = &said},
                                  AGX_JAIL_BARE, "importing the bundle's modules in an empty root", why);
        return r ? r : judge(&answer, odd, why);
}
