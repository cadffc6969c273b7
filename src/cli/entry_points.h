#ifndef AGX_CLI_ENTRY_POINTS_H
#define AGX_CLI_ENTRY_POINTS_H
/*
 * The two files of a distribution that say what it offers: `METADATA` (headers as in mail; name and version), and
 * `entry_points.txt` (sections in brackets, lines `name = module:attribute`; Python packaging's entry points
 * specification). Cursors over bytes in memory; they allocate nothing.
 */
#include "base/view.h"

typedef struct agx_entry_point {
        agx_view group;
        agx_view name;
        agx_view value;
} agx_entry_point;

typedef struct agx_entry_points {
        agx_view rest;
        agx_view group;
} agx_entry_points;

static inline agx_entry_points agx_entry_points_on(agx_view text)
{
        return (agx_entry_points){.rest = text};
}

/* The next entry; false at the end. Lines that are none are passed over. */
bool agx_entry_points_next(agx_entry_points *e, agx_entry_point *entry);
/* The value of the first header of that name, or an absent view. */
agx_view agx_metadata_get(agx_view text, agx_view name);
/* Whether two names of distributions are one: case, and runs of '-', '_' and '.', do not count. */
bool agx_dist_name_eq(agx_view a, agx_view b);

#endif
