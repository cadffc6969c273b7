#ifndef AGX_IO_TREE_H
#define AGX_IO_TREE_H
/*
 * The processes below this one, and their end. A process that is child subreaper becomes the parent of whatever below
 * it loses its own, so nobody gets out of its tree: not by a double fork, not by a session of one's own.
 *
 * Neither verb waits or reaps. Needs /proc.
 */
#include <stdbool.h>
#include <sys/types.h>

/* SIGKILLs our own children; how many there were. Whoever they leave behind becomes our child. */
int agx_tree_kill_children(void);
/* Whether this process is stopped, by a signal or by who traces it. */
bool agx_tree_is_stopped(pid_t pid);
/* SIGKILLs everybody below us, at any depth; how many there were. Dearer, but one pass reaches a whole tree. */
int agx_tree_kill_below(void);

#endif
