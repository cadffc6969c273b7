#ifndef AGX_WORKER_MEMGROUP_UV_H
#define AGX_WORKER_MEMGROUP_UV_H
/* The kernel's count of out-of-memory kills in the control group we run in. */
#include <stdbool.h>
#include <stdint.h>

/* False: this machine does not say. */
bool agx_memgroup_kills(uint64_t *count);

#endif
