/*
 * The text starts small, doubles, and never outgrows the head's bound because the parser hands over no more than that
 * many bytes. A larger text is a new one: the views are moved over before the old one goes.
 */
#include "base/err.h"
#include "wire/http1_head.h"

enum { TEXT_FIRST = 1024, FIELDS_FIRST = 16 };

static void move_view(agx_view *v, const char *from, const char *to)
{
        if (v->p)
                v->p = to + (v->p - from);
}

static int grow_text(agx_http1_store *store, size_t need)
{
        size_t cap = store->text_cap ? store->text_cap : TEXT_FIRST;
        char *text;

        while (cap < need)
                cap *= 2;
        text = malloc(cap);
        if (!text)
                return agx_trace(-ENOMEM);
        if (store->text_n)
                memcpy(text, store->text, store->text_n);
        move_view(&store->head.method, store->text, text);
        move_view(&store->head.target, store->text, text);
        for (size_t i = 0; i < store->head.n_fields; ++i) {
                move_view(&store->fields[i].name, store->text, text);
                move_view(&store->fields[i].value, store->text, text);
        }
        free(store->text);
        store->text = text;
        store->text_cap = cap;
        return 0;
}

static int grow_fields(agx_http1_store *store)
{
        size_t cap = store->fields_cap ? store->fields_cap * 2 : FIELDS_FIRST;
        agx_http1_field *fields;

        if (cap > store->fields_max)
                cap = store->fields_max;
        fields = realloc(store->fields, cap * sizeof(*fields));
        if (!fields)
                return agx_trace(-ENOMEM);
        store->fields = fields;
        store->fields_cap = cap;
        store->head.fields = fields;
        return 0;
}

void agx_http1_store_init(agx_http1_store *store, size_t fields_max)
{
        *store = (agx_http1_store){.fields_max = fields_max};
}

void agx_http1_store_deinit(agx_http1_store *store)
{
        free(store->text);
        free(store->fields);
        agx_http1_store_init(store, store->fields_max);
}

void agx_http1_store_clear(agx_http1_store *store)
{
        store->text_n = 0;
        store->head = (agx_http1_head){.fields = store->fields};
}

int agx_http1_store_add(agx_http1_store *store, agx_view *piece, const char *at, size_t n)
{
        int r;

        if (n > store->text_cap - store->text_n) {
                r = grow_text(store, store->text_n + n);
                if (r)
                        return r;
        }
        if (!piece->p)
                *piece = agx_view_of(store->text + store->text_n, 0);
        if (n)
                memcpy(store->text + store->text_n, at, n);
        store->text_n += n;
        piece->n += n;
        return 0;
}

int agx_http1_store_open_field(agx_http1_store *store)
{
        int r;

        if (store->head.n_fields == store->fields_max)
                return AGX_HTTP1_E_HEAD_SIZE;
        if (store->head.n_fields == store->fields_cap) {
                r = grow_fields(store);
                if (r)
                        return r;
        }
        store->fields[store->head.n_fields++] = (agx_http1_field){AGX_VIEW_NULL, AGX_VIEW_NULL};
        return 0;
}

agx_http1_field *agx_http1_store_field(agx_http1_store *store)
{
        return &store->fields[store->head.n_fields - 1];
}
