/* The string vector: an array that doubles, each string in an allocation of its own. */
#include "base/strv.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

static void fail(agx_strv *v, int error)
{
        if (!v->error)
                v->error = agx_trace(error);
}

static bool make_room(agx_strv *v)
{
        size_t cap = v->cap ? v->cap * 2 : 16;
        char **items;

        if (v->count + 1 < v->cap)
                return true;
        items = realloc(v->items, cap * sizeof(*items));
        if (!items)
                return false;
        v->items = items;
        v->cap = cap;
        return true;
}

/* Takes `item` over. */
static void push(agx_strv *v, char *item)
{
        if (!item || !make_room(v)) {
                free(item);
                fail(v, -ENOMEM);
                return;
        }
        v->items[v->count++] = item;
        v->items[v->count] = NULL;
}

void agx_strv_deinit(agx_strv *v)
{
        for (size_t i = 0; i < v->count; ++i)
                free(v->items[i]);
        free(v->items);
        *v = AGX_STRV_NULL;
}

void agx_strv_add(agx_strv *v, agx_view item)
{
        if (v->error)
                return;
        if (item.n && memchr(item.p, '\0', item.n))
                fail(v, -EINVAL);
        else
                push(v, agx_strv_dup(item));
}

void agx_strv_addf(agx_strv *v, const char *format, ...)
{
        char *item;
        va_list ap;
        int n;

        if (v->error)
                return;
        va_start(ap, format);
        n = vsnprintf(NULL, 0, format, ap);
        va_end(ap);
        item = n < 0 ? NULL : malloc((size_t)n + 1);
        if (item) {
                va_start(ap, format);
                vsnprintf(item, (size_t)n + 1, format, ap);
                va_end(ap);
        }
        push(v, item);
}

void agx_strv_add_all(agx_strv *v, const agx_strv *from)
{
        for (size_t i = 0; from && i < from->count; ++i)
                agx_strv_add_str(v, from->items[i]);
}

int agx_strv_keep(agx_strv *v, agx_view *const *views, size_t count)
{
        size_t first = v->count;

        for (size_t i = 0; i < count; ++i)
                agx_strv_add(v, views[i]->p ? *views[i] : AGX_VIEW(""));
        for (size_t i = 0; i < count && !v->error; ++i)
                if (views[i]->p)
                        *views[i] = agx_view_str(v->items[first + i]);
        return agx_strv_end(v);
}

/* The index of "name=...", or `count`. */
static size_t find(const agx_strv *v, agx_view name)
{
        size_t i = 0;

        while (i < v->count && !(strncmp(v->items[i], name.p, name.n) == 0 && v->items[i][name.n] == '='))
                ++i;
        return i;
}

void agx_strv_set(agx_strv *v, agx_view name, agx_view value)
{
        size_t at = find(v, name);
        char *old;

        if (v->error)
                return;
        if (!name.n || memchr(name.p, '=', name.n) || memchr(name.p, '\0', name.n) ||
            (value.n && memchr(value.p, '\0', value.n))) {
                fail(v, -EINVAL);
                return;
        }
        agx_strv_addf(v, "%.*s=%.*s", (int)name.n, name.p, (int)value.n, value.n ? value.p : "");
        if (v->error || at == v->count - 1)
                return;
        old = v->items[at];
        v->items[at] = v->items[--v->count];
        v->items[v->count] = NULL;
        free(old);
}

agx_view agx_strv_get(const agx_strv *v, agx_view name)
{
        size_t at = find(v, name);

        return at < v->count ? agx_view_str(v->items[at] + name.n + 1) : AGX_VIEW_NULL;
}

int agx_strv_end(const agx_strv *v)
{
        return v->error;
}

char *agx_strv_dup(agx_view v)
{
        char *copy = malloc(v.n + 1);

        if (!copy)
                return NULL;
        if (v.n)
                memcpy(copy, v.p, v.n);
        copy[v.n] = '\0';
        return copy;
}
