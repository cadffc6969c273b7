#ifndef AGX_IO_GROUP_H
#define AGX_IO_GROUP_H
/*
 * A cgroup for one process tree, below the one we are in: made where the tree of cgroups is writable, of version 2 or
 * the freezer of version 1. It limits nothing; it is there so that everybody in it can be ended at one stroke.
 */
#include <stdbool.h>
#include <sys/types.h>

enum { AGX_GROUP_PATH = 512 };

typedef struct agx_group {
        int version; /* 0: there is none */
        char dir[AGX_GROUP_PATH];
} agx_group;

/* Makes it; false, and no group, where that cannot be done, or if the name is empty. */
bool agx_group_make(agx_group *g, const char *name);
/* One that another process made; false: there is none of that name. */
bool agx_group_find(agx_group *g, const char *name);
/* A descriptor to which a process writes "0" to enter; -1: none. Closed on exec. */
int agx_group_door(const agx_group *g);
/* As fork(), and the child is in the group if there is one and that can be had. Being born there costs nothing; to enter
 * later, as the kernel has it for version 1, costs some 10 ms. */
pid_t agx_group_fork(const agx_group *g);
/* SIGKILLs everybody in it: one pass, and nobody in it forks meanwhile if the kernel can see to that. */
void agx_group_kill(const agx_group *g);
/* Removes it if it is empty. */
void agx_group_remove(agx_group *g);
/* Removes the empty groups whose names begin so, as others made them and did not live to remove them. */
void agx_group_sweep(const char *prefix);

#endif
