#ifndef AGX_BASE_LIST_H
#define AGX_BASE_LIST_H
/*
 * An intrusive doubly linked ring. A head is a node that holds no object; an unlinked node points to itself, so
 * unlinking twice is harmless. Nothing is allocated.
 */
#include <stdbool.h>
#include <stddef.h>

typedef struct agx_list {
        struct agx_list *prev;
        struct agx_list *next;
} agx_list;

/* The object of type `type` whose `member` is `*node`. */
#define agx_container_of(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))
/* Walks a list; the body may unlink the node it is at. */
#define agx_list_foreach_safe(node, head)                                                                              \
        for (agx_list *node = (head)->next, *node##_next = node->next; node != (head);                                 \
             node = node##_next, node##_next = node->next)

static inline void agx_list_init(agx_list *l)
{
        l->prev = l->next = l;
}

static inline bool agx_list_empty(const agx_list *head)
{
        return head->next == head;
}

static inline void agx_list_push_back(agx_list *head, agx_list *node)
{
        node->prev = head->prev;
        node->next = head;
        head->prev->next = node;
        head->prev = node;
}

static inline void agx_list_unlink(agx_list *node)
{
        node->prev->next = node->next;
        node->next->prev = node->prev;
        agx_list_init(node);
}

static inline agx_list *agx_list_first(const agx_list *head)
{
        return agx_list_empty(head) ? NULL : head->next;
}

#endif
