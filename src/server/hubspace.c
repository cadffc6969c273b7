/* A space lives as long as its name means something to a worker or a host. */
#include "server/hubspace.h"
#include "base/err.h"
#include "proto/limits.h"

#include <stdlib.h>

agx_hub_space *agx_hub_space_find(const agx_hub *h, agx_view name)
{
        agx_map_node *node = agx_map_find(&h->spaces, name);

        return node ? agx_container_of(node, agx_hub_space, by_name) : NULL;
}

int agx_hub_space_make(agx_hub *h, agx_view name, agx_hub_space **made)
{
        agx_hub_space *s = agx_hub_space_find(h, name);
        int r;

        *made = s;
        if (s)
                return 0;
        if (h->spaces.count >= AGX_HUB_SPACES_MAX)
                return AGX_HUB_E_FULL;
        s = calloc(1, sizeof(*s) + name.n);
        if (!s)
                return agx_trace(-ENOMEM);
        memcpy(s->name, name.p, name.n);
        s->by_name.key = agx_view_of(s->name, name.n);
        agx_list_init(&s->members);
        agx_hub_queue_init(&s->outbound);
        agx_hub_queue_init(&s->inbound);
        r = agx_map_insert(&h->spaces, &s->by_name);
        if (r) {
                free(s);
                return r;
        }
        *made = s;
        return 0;
}

void agx_hub_space_free(agx_hub *h, agx_hub_space *s)
{
        agx_map_remove(&h->spaces, &s->by_name);
        h->n_open -= s->counted;
        agx_hub_queue_clear(&s->outbound);
        agx_hub_queue_clear(&s->inbound);
        free(s);
}

void agx_hub_space_tidy(agx_hub *h, agx_hub_space *s)
{
        if (agx_list_empty(&s->members) && !s->counted && !s->inbound.n)
                agx_hub_space_free(h, s);
}

bool agx_hub_space_has(const agx_hub_space *s, uint64_t worker)
{
        for (size_t i = 0; i < s->n_workers; ++i)
                if (s->workers[i] == worker)
                        return true;
        return false;
}
