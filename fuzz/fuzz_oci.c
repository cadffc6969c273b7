/*
 * Any bytes in the place of an engine's words and of a caller's: answers are read without a crash or an over-read; and
 * whatever passes the checks stands in the argv of `run` as it is, in one slot that no engine takes for an option, and
 * changes neither the number nor the order of the other slots.
 */
#include "oci/engine.h"
#include "oci/envfile.h"
#include "oci/run.h"
#include "oci/word.h"

#include <stdint.h>
#include <stdlib.h>

enum { FILE_MAX = 1 << 20 };

static void must(bool holds)
{
        if (!holds)
                abort();
}

static void read_answers(agx_view text)
{
        agx_view rest = text;
        agx_oci_state state;
        agx_oci_row row;

        if (agx_oci_state_read(text, &state))
                must(state.id.n <= text.n && state.code >= 0);
        while (agx_oci_list_next(&rest, &row))
                must(!(row.running && row.exited));
        agx_oci_trouble_of(text);
        agx_oci_is_pulling(text);
}

static void check_run(agx_view word)
{
        static const agx_strv none;
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        agx_oci_run run = {
                .engine = AGX_VIEW("docker"),
                .name = AGX_VIEW("a"),
                .image = word,
                .platform = word,
                .network = word,
                .entrypoint = "/e",
                .labels = &none,
                .cap_add = &none,
                .extra = &none,
                .mounts = {{word, "/nix", false}},
                .mount_count = word.n && word.p[0] == '/' ? 1 : 0,
                .host_proxies = true,
        };

        if (agx_oci_run_check(&run))
                return;
        agx_oci_run_argv(&argv, &run);
        must(!agx_strv_end(&argv));
        must(argv.count == 16 + 2 * run.mount_count);
        must(agx_view_eq(agx_view_str(argv.items[argv.count - 1]), word) && word.p[0] != '-');
        must(!strcmp(argv.items[argv.count - 2], "--"));
}

/* A variable comes out of the two files as it went in: NUL-separated, or one line. */
static void check_env(agx_view value)
{
        _cleanup_(agx_strv_deinitp) agx_strv env = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf lines = AGX_BUF_NULL(FILE_MAX), rest = AGX_BUF_NULL(FILE_MAX);

        agx_strv_set(&env, AGX_VIEW("NAME"), value);
        if (agx_strv_end(&env) || agx_oci_env_files(&env, &lines, &rest))
                return;
        must(!lines.len != !rest.len);
        must(lines.len + rest.len == value.n + 6);
        if (lines.len)
                must(memchr(agx_buf_view(&lines).p, '\n', lines.len) == agx_buf_view(&lines).p + lines.len - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view text = agx_view_of(data, size);

        read_answers(text);
        if (agx_oci_word(text))
                must(text.n && text.p[0] != '-');
        check_run(text);
        check_env(text);
        return 0;
}
