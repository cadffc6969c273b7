/* Looking fields up in a head: a walk over an array of at most some dozens. */
#include "wire/http1.h"

agx_view agx_http1_field_get(const agx_http1_head *head, agx_view name, bool *repeated)
{
        agx_view value = AGX_VIEW_NULL;
        size_t n = 0;

        for (size_t i = 0; i < head->n_fields; ++i)
                if (agx_view_ieq(head->fields[i].name, name) && ++n == 1)
                        value = head->fields[i].value;
        if (repeated)
                *repeated = n > 1;
        return n == 1 ? value : AGX_VIEW_NULL;
}

static bool list_has_token(agx_view list, agx_view token)
{
        agx_view part;

        while (agx_view_split(&list, ',', &part))
                if (agx_view_ieq(agx_view_trim(part), token))
                        return true;
        return false;
}

bool agx_http1_field_has_token(const agx_http1_head *head, agx_view name, agx_view token)
{
        for (size_t i = 0; i < head->n_fields; ++i)
                if (agx_view_ieq(head->fields[i].name, name) && list_has_token(head->fields[i].value, token))
                        return true;
        return false;
}
