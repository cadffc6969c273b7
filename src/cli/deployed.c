/* Pairs are kept flat; sorting them moves two pointers at a time. */
#include "cli/deployed.h"

#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

enum { RESULT_MAX = 1 << 20, DEPTH_MAX = 8 };

void agx_deploy_result_deinit(agx_deploy_result *r)
{
        free(r->bundle);
        free(r->platform);
        r->bundle = r->platform = NULL;
        agx_strv_deinit(&r->metadata);
        agx_strv_deinit(&r->hints);
}

static int by_key(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_pairs(agx_strv *pairs)
{
        if (pairs->count)
                qsort(pairs->items, pairs->count / 2, 2 * sizeof(*pairs->items), by_key);
}

static void print_pair(agx_cli *cli, const char *key, const char *value)
{
        agx_say_data_view(&cli->say, agx_view_str(key));
        agx_say_data(&cli->say, " -> ");
        agx_say_data_view(&cli->say, agx_view_str(value));
        agx_say_data(&cli->say, "\n");
}

static void print_text(agx_cli *cli, const agx_deploy_result *r)
{
        print_pair(cli, "bundle", r->bundle);
        if (r->platform)
                print_pair(cli, "platform", r->platform);
        for (size_t i = 0; i + 1 < r->metadata.count; i += 2)
                print_pair(cli, r->metadata.items[i], r->metadata.items[i + 1]);
        if (r->hints.count)
                agx_say_data(&cli->say, "\n");
        for (size_t i = 0; i + 1 < r->hints.count; i += 2) {
                agx_say_data(&cli->say, "# ");
                agx_say_data_view(&cli->say, agx_view_str(r->hints.items[i]));
                agx_say_data(&cli->say, "\n");
                agx_say_data_view(&cli->say, agx_view_str(r->hints.items[i + 1]));
                agx_say_data(&cli->say, "\n");
        }
}

static void put_pairs(agx_json_writer *w, const char *key, const agx_strv *pairs)
{
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_object(w);
        for (size_t i = 0; i + 1 < pairs->count; i += 2) {
                agx_json_put_key(w, agx_view_str(pairs->items[i]));
                agx_json_put_string(w, agx_view_str(pairs->items[i + 1]));
        }
        agx_json_put_object_end(w);
}

static int print_json(agx_cli *cli, const agx_deploy_result *r)
{
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(8 * RESULT_MAX);
        agx_json_writer w = agx_json_writer_on(&json);

        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("bundle"));
        agx_json_put_string(&w, agx_view_str(r->bundle));
        agx_json_put_key(&w, AGX_VIEW("platform"));
        if (r->platform)
                agx_json_put_string(&w, agx_view_str(r->platform));
        else
                agx_json_put_null(&w);
        put_pairs(&w, "metadata", &r->metadata);
        put_pairs(&w, "hints", &r->hints);
        agx_json_put_object_end(&w);
        if (agx_json_writer_end(&w))
                return agx_say_error(&cli->say, &(agx_complaint){"output", NULL, AGX_EXIT_FAILURE},
                                     "the result cannot be written as JSON: a path is not UTF-8");
        agx_say_data_json(&cli->say, &json);
        return AGX_EXIT_OK;
}

int agx_deploy_result_print(agx_cli *cli, agx_deploy_result *r)
{
        if (agx_strv_end(&r->metadata) || agx_strv_end(&r->hints))
                return agx_say_no_memory(&cli->say);
        sort_pairs(&r->metadata);
        if (cli->say.json)
                return print_json(cli, r);
        print_text(cli, r);
        return AGX_EXIT_OK;
}

/* ---- reading ---- */

static bool read_text(const agx_json_token *token, agx_buf *text)
{
        agx_buf_clear(text);
        return (token->kind == AGX_JSON_STRING || token->kind == AGX_JSON_KEY) && !agx_json_text(token, text);
}

static bool read_pairs(agx_json_reader *in, agx_strv *pairs)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(RESULT_MAX);
        agx_json_token token = agx_json_next(in);

        if (token.kind != AGX_JSON_OBJECT)
                return false;
        while ((token = agx_json_next(in)).kind == AGX_JSON_KEY) {
                if (!read_text(&token, &text))
                        return false;
                agx_strv_add(pairs, agx_buf_view(&text));
                token = agx_json_next(in);
                if (!read_text(&token, &text))
                        return false;
                agx_strv_add(pairs, agx_buf_view(&text));
        }
        return token.kind == AGX_JSON_OBJECT_END && !agx_strv_end(pairs);
}

static bool read_string(agx_json_reader *in, char **to, bool maybe)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(RESULT_MAX);
        agx_json_token token = agx_json_next(in);

        if (maybe && token.kind == AGX_JSON_NULL)
                return true;
        if (*to || !read_text(&token, &text))
                return false;
        *to = agx_strv_dup(agx_buf_view(&text));
        return *to != NULL;
}

static bool read_member(agx_json_reader *in, const agx_json_token *key, agx_deploy_result *r)
{
        if (agx_json_is(key, AGX_VIEW("bundle")))
                return read_string(in, &r->bundle, false);
        if (agx_json_is(key, AGX_VIEW("platform")))
                return read_string(in, &r->platform, true);
        if (agx_json_is(key, AGX_VIEW("metadata")))
                return read_pairs(in, &r->metadata);
        if (agx_json_is(key, AGX_VIEW("hints")))
                return read_pairs(in, &r->hints);
        return agx_json_skip(in).p != NULL;
}

bool agx_deploy_result_read(agx_deploy_result *r, agx_view json)
{
        agx_json_reader in = agx_json_reader_on(json, DEPTH_MAX);
        agx_json_token token = agx_json_next(&in);

        if (token.kind != AGX_JSON_OBJECT)
                return false;
        while ((token = agx_json_next(&in)).kind == AGX_JSON_KEY)
                if (!read_member(&in, &token, r))
                        return false;
        return token.kind == AGX_JSON_OBJECT_END && agx_json_done(&in) && r->bundle;
}

int agx_shell_quote(agx_buf *line, const char *word)
{
        static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
        int r;

        if (*word && word[strspn(word, plain)] == 0)
                return agx_buf_append_view(line, agx_view_str(word));
        r = agx_buf_append(line, "'", 1);
        for (; !r && *word; word++)
                r = *word == '\'' ? agx_buf_append(line, "'\\''", 4) : agx_buf_append(line, word, 1);
        return r ? r : agx_buf_append(line, "'", 1);
}
