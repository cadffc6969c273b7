/* Pairs of NUL-terminated strings need no parser, and no quoting of paths. An answer cut short is no answer. */
#include "bundle/records.h"
#include "base/err.h"

void agx_records_deinit(agx_records *r)
{
        agx_buf_deinit(&r->bytes);
        *r = AGX_RECORDS_NULL;
}

bool agx_records_next(agx_records *r, const char **key, const char **value)
{
        const char *start = agx_buf_view(&r->bytes).p;

        if (r->at >= r->bytes.len)
                return false;
        *key = start + r->at;
        *value = *key + strlen(*key) + 1;
        r->at = (size_t)(*value - start) + strlen(*value) + 1;
        return true;
}

const char *agx_records_get(const agx_records *r, const char *key)
{
        agx_records copy = *r;
        const char *k, *v;

        copy.at = 0;
        while (agx_records_next(&copy, &k, &v))
                if (!strcmp(k, key))
                        return v;
        return NULL;
}

/* An even number of strings, the last one terminated. */
static bool whole(const agx_buf *b)
{
        size_t nuls = 0;

        for (size_t i = 0; i < b->len; i++)
                nuls += !b->data[b->head + i];
        return nuls % 2 == 0 && (!b->len || !b->data[b->head + b->len - 1]);
}

int agx_records_ask(agx_records *r, char *const *argv, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(2048);
        const char *error;
        int status, e;

        agx_records_deinit(r);
        e = agx_run_wait(&(agx_run){.argv = argv, .out = &r->bytes, .err = &said}, &status, why);
        if (e)
                return e;
        if (status || !whole(&r->bytes))
                return agx_why_set(why, "python", "%s could not tell about the project: %.*s", argv[0], (int)said.len,
                                   said.len ? (char *)said.data + said.head : "it gave no answer");
        error = agx_records_get(r, "error");
        return error ? agx_why_set(why, "project", "%s", error) : 0;
}
