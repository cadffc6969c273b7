#ifndef AGX_BASE_CLEANUP_H
#define AGX_BASE_CLEANUP_H
/*
 * Locals that clean up after themselves. AGX_DEFINE_CLEANUP(agx_buf, agx_buf_deinit) declares agx_buf_deinitp(), to be
 * used as `_cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(max);`. Build in a cleaned local, hand over last.
 */
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

#define AGX_DEFINE_CLEANUP(type, function)                                                                             \
        static inline void function##p(type *object)                                                                   \
        {                                                                                                              \
                function(object);                                                                                      \
        }

#define AGX_DEFINE_CLEANUP_POINTER(type, function)                                                                     \
        static inline void function##p(type **object)                                                                  \
        {                                                                                                              \
                if (*object)                                                                                           \
                        function(*object);                                                                             \
        }

/* For `_cleanup_(agx_freep) char *text`. */
static inline void agx_freep(void *pointer)
{
        free(*(void **)pointer);
}

/* For `_cleanup_(agx_closep) int fd = -1`. Closing is never retried: on Linux the descriptor is gone either way. */
static inline void agx_closep(int *fd)
{
        if (*fd >= 0)
                close(*fd);
        *fd = -1;
}

#endif
