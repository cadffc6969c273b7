/* Line by line; a line's end may be CR LF, blanks around a name or a value do not count. */
#include "cli/entry_points.h"

static agx_view strip(agx_view line)
{
        while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\t'))
                line.n--;
        return agx_view_trim(line);
}

bool agx_entry_points_next(agx_entry_points *e, agx_entry_point *entry)
{
        agx_view line;

        while (agx_view_split(&e->rest, '\n', &line)) {
                const char *equals;

                line = strip(line);
                if (!line.n || line.p[0] == '#' || line.p[0] == ';')
                        continue;
                if (line.p[0] == '[') {
                        bool closed = line.p[line.n - 1] == ']';

                        e->group = closed ? agx_view_trim(agx_view_of(line.p + 1, line.n - 2)) : AGX_VIEW_NULL;
                        continue;
                }
                equals = memchr(line.p, '=', line.n);
                if (!equals || !e->group.p)
                        continue;
                *entry = (agx_entry_point){
                        .group = e->group,
                        .name = agx_view_trim(agx_view_first(line, (size_t)(equals - line.p))),
                        .value = agx_view_trim(agx_view_from(line, (size_t)(equals - line.p) + 1)),
                };
                if (entry->name.n && entry->value.n)
                        return true;
        }
        return false;
}

agx_view agx_metadata_get(agx_view text, agx_view name)
{
        agx_view line;

        while (agx_view_split(&text, '\n', &line)) {
                const char *colon;

                line = strip(line);
                if (!line.n)
                        break;
                colon = memchr(line.p, ':', line.n);
                if (colon && agx_view_ieq(agx_view_first(line, (size_t)(colon - line.p)), name))
                        return agx_view_trim(agx_view_from(line, (size_t)(colon - line.p) + 1));
        }
        return AGX_VIEW_NULL;
}

static bool is_separator(char c)
{
        return c == '-' || c == '_' || c == '.';
}

static char lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Takes one letter or one run of separators from the front. */
static char take(agx_view *v)
{
        char c = lower(v->p[0]);

        if (!is_separator(c)) {
                *v = agx_view_from(*v, 1);
                return c;
        }
        while (v->n && is_separator(v->p[0]))
                *v = agx_view_from(*v, 1);
        return '-';
}

bool agx_dist_name_eq(agx_view a, agx_view b)
{
        while (a.n && b.n)
                if (take(&a) != take(&b))
                        return false;
        return !a.n && !b.n;
}
