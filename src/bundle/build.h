#ifndef AGX_BUNDLE_BUILD_H
#define AGX_BUNDLE_BUILD_H
/* A project becomes a bundle: the steps, in their order. See docs/internals/bundles.md. */
#include "base/strv.h"
#include "bundle/why.h"

typedef struct agx_build_request {
        const char *path;     /* the project directory */
        const char *name;     /* NAME or NAME:TAG; NULL: the project's */
        const char *output;   /* see agx_names_output(); NULL: below dist/ */
        const char *platform; /* NULL: the machine's own */
        bool zstd;            /* a name of ours ends in .tar.zst */
        bool dry_run;
        bool fresh; /* reuse no earlier result */
        bool quiet;
        agx_strv uv_args;
        agx_strv nix_args;
        const char *engine; /* build inside this container engine; NULL: here */
        const char *image;  /* what it runs; NULL: see engine.h */
        agx_strv engine_args, engine_run_args;
        const char *context; /* the context's root, instead of looking for a git work tree; NULL */
        /* What is going on, for people: `step` for a progress line, else a line to keep. May be NULL. */
        void (*tell)(void *user, bool step, const char *text);
        void *user;
} agx_build_request;

typedef struct agx_build_result {
        char *name, *tag, *output; /* all owned */
        char *context, *subpath;
        char *python; /* "3.11", after a real build "3.11.7" */
        char *staged; /* of a dry run: where; else NULL */
        agx_strv npm; /* "<package>@<version>", as far as it is known without installing the project */
        const char *platform;
        char digest[80]; /* "" in a dry run */
        uint64_t size;
        bool zstd;
        bool reused;
} agx_build_result;

int agx_build(const agx_build_request *request, agx_build_result *result, agx_why *why);
void agx_build_result_deinit(agx_build_result *result);
AGX_DEFINE_CLEANUP(agx_build_result, agx_build_result_deinit)

#endif
