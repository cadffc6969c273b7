#ifndef AGX_BASE_STRV_H
#define AGX_BASE_STRV_H
/*
 * A NULL-terminated vector of owned C strings: argv, environments. Its error is sticky, so that a list can be built
 * without checks and judged once by agx_strv_end(). A string with a NUL inside is refused (-EINVAL): it would be cut.
 */
#include "base/cleanup.h"
#include "base/view.h"

typedef struct agx_strv {
        char **items; /* NULL while empty; else items[count] == NULL */
        size_t count;
        size_t cap;
        int error;
} agx_strv;

#define AGX_STRV_NULL ((agx_strv){0})

void agx_strv_deinit(agx_strv *v);
AGX_DEFINE_CLEANUP(agx_strv, agx_strv_deinit)

void agx_strv_add(agx_strv *v, agx_view item);
void agx_strv_addf(agx_strv *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A copy of each of theirs; NULL: there are none. */
void agx_strv_add_all(agx_strv *v, const agx_strv *from);
/* Adds a copy of what each of the views sees and has it see that instead; an absent one stays absent. The copies do not
 * move. 0, or what agx_strv_end() says: then the views are as they were. */
int agx_strv_keep(agx_strv *v, agx_view *const *views, size_t count);
/* Environments: replaces or adds "name=value". */
void agx_strv_set(agx_strv *v, agx_view name, agx_view value);
/* The value of "name=", or an absent view; lives until the vector changes. */
agx_view agx_strv_get(const agx_strv *v, agx_view name);
/* 0, -ENOMEM or -EINVAL: how the building went. */
int agx_strv_end(const agx_strv *v);

static inline void agx_strv_add_str(agx_strv *v, const char *item)
{
        agx_strv_add(v, agx_view_str(item));
}

/* A C string of the view's bytes, the caller's to free; NULL without memory. */
char *agx_strv_dup(agx_view v);

#endif
