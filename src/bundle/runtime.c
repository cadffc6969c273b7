/*
 * The bootstrap script runs in a container whose environment was made for other programs. Its interpreter is static and so
 * is every program it calls, hence nothing that LD_PRELOAD or a foreign libc could break runs before the variables are
 * aside. It does for its own process what the runtime does for its workers; both leave alone what is done already.
 */
#include "bundle/runtime.h"
#include "base/err.h"
#include "bundle/closure.h"
#include "bundle/elf.h"
#include "bundle/manifest.h"
#include "bundle/tree.h"
#include "bundle/venv.h"

#include <stdio.h>

static const char bootstrap[] =
        "#!/nix/closure/bin/busybox sh\n"
        "# Entry point of a sandbox: makes the environment fit for the bundle, then becomes the runtime server.\n"
        "set -f\n"
        "\n"
        "# Moves a variable that would bend the bundle's programs out of their way.\n"
        "save() {\n"
        "  eval \"[ -n \\\"\\${$1+set}\\\" ]\" || return 0\n"
        "  eval \"export AGENTIX_SAVED_$1=\\\"\\$$1\\\"\"\n"
        "  unset \"$1\"\n"
        "}\n"
        "for name in LD_PRELOAD PYTHONPATH PYTHONHOME LOCALE_ARCHIVE SSL_CERT_FILE $(\n"
        "  /nix/closure/bin/busybox awk 'BEGIN { for (n in ENVIRON) if (n ~ /^(NIX|FONTCONFIG)_[A-Za-z0-9_]*$/) print "
        "n }'\n"
        "); do\n"
        "  save \"$name\"\n"
        "done\n"
        "\n"
        "# Sets a variable to the entries of the lists, each once.\n"
        "join() {\n"
        "  target=$1 out=\n"
        "  shift\n"
        "  IFS=:\n"
        "  for entry in $*; do\n"
        "    case :$out: in *:\"$entry\":*) ;; *) out=$out${out:+:}$entry ;; esac\n"
        "  done\n"
        "  unset IFS\n"
        "  export \"$target=$out\"\n"
        "}\n"
        "# Puts entries in front of a search path and records them.\n"
        "add() {\n"
        "  eval \"join AGENTIX_ADDED_$1 \\\"\\${AGENTIX_ADDED_$1-}\\\" \\\"\\$2\\\"; join $1 \\\"\\$2\\\" "
        "\\\"\\${$1-}\\\"\"\n"
        "}\n";

static const char bootstrap_end[] = "\nexec /nix/runtime/bin/agentix-runtime --python " AGX_VENV "/bin/python \"$@\"\n";

static int write_bootstrap(const agx_stage *s, agx_why *why)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(64 << 10);
        _cleanup_(agx_freep) char *path = agx_tree_join(s->tree, &AGX_MANIFEST_ENTRYPOINT[1]);
        int r = path ? agx_manifest_set_env(&m) : agx_trace(-ENOMEM);

        if (!r)
                r = agx_buf_append_view(&text, agx_view_str(bootstrap));
        for (size_t i = 0; !r && i < m.runtime_env.count; i++) {
                agx_view value = agx_view_str(m.runtime_env.items[i]), name;

                agx_view_split(&value, '=', &name);
                r = agx_buf_printf(&text, "add %.*s %.*s\n", (int)name.n, name.p, (int)value.n, value.p);
        }
        if (!r)
                r = agx_buf_append_view(&text, agx_view_str(bootstrap_end));
        return r ? agx_trace(-ENOMEM) : agx_tree_write(path, agx_buf_view(&text), 0755, why);
}

/* Copies a program that must be static. */
static int stage_static(const agx_stage *s, const char *from, const char *to, const char *hint, agx_why *why)
{
        _cleanup_(agx_elf_deinitp) agx_elf elf = AGX_ELF_NULL;
        _cleanup_(agx_freep) char *real = realpath(from, NULL), *path = agx_tree_join(s->tree, to);
        int r;

        if (!real || !path)
                return real ? agx_trace(-ENOMEM) : agx_why_errno(why, errno, "%s could not be read", from);
        r = agx_elf_read(&elf, real);
        if (r < 0)
                return agx_why_errno(why, r, "%s could not be read", real);
        if (r || elf.interp) {
                agx_why_set(why, "tool", "%s is not a static executable", real);
                return agx_why_hint(why, "%s", hint);
        }
        return agx_tree_copy(real, path, why);
}

static int stage_link(const agx_stage *s, const char *path, const char *target, agx_why *why)
{
        _cleanup_(agx_freep) char *full = agx_tree_join(s->tree, path);
        int r = full ? agx_tree_make_parents(full, why) : agx_trace(-ENOMEM);

        return !r && symlink(target, full) ? agx_why_errno(why, errno, "link %s could not be made", full) : r;
}

static int stage_bash(const agx_stage *s, const agx_tools *tools, agx_strv *missing, agx_why *why)
{
        _cleanup_(agx_closure_deinitp) agx_closure c = AGX_CLOSURE_NULL;
        _cleanup_(agx_freep) char *path = agx_tree_join(s->tree, "nix/closure/bin/bash");
        int r;

        c.stage = s->tree;
        c.patchelf = tools->patchelf;
        r = path ? agx_closure_add_program(&c, tools->bash, path, why) : agx_trace(-ENOMEM);
        for (size_t i = 0; !r && i < c.missing.count; i++)
                agx_strv_add_str(missing, c.missing.items[i]);
        return r ? r : agx_strv_end(missing);
}

int agx_runtime_stage(const agx_stage *s, const agx_tools *tools, agx_strv *missing, agx_why *why)
{
        int r = stage_static(s, tools->busybox, "nix/closure/bin/busybox",
                             "install a static one; on Debian: apt install busybox-static", why);

        if (!r)
                r = stage_static(s, tools->runtime, "nix/runtime/bin/agentix-runtime", "reinstall agentix", why);
        if (!r)
                r = stage_link(s, "nix/closure/bin/sh", "busybox", why);
        if (!r)
                r = stage_link(s, "nix/closure/bin/env", "busybox", why);
        if (!r)
                r = stage_bash(s, tools, missing, why);
        if (!r)
                r = stage_link(s, "nix/runtime/bin/bash", "/nix/closure/bin/bash", why);
        return r ? r : write_bootstrap(s, why);
}
