#ifndef AGX_BUNDLE_NPM_H
#define AGX_BUNDLE_NPM_H
/*
 * Packages from npm: each by its exact version and the hash of its archive, so that it does not matter where the archive
 * comes from. What has been fetched once is kept in the build cache and not asked for again; the rest is fetched by the
 * machine's own npm, which knows its registry, proxy and credentials.
 *
 * They are unpacked to /nix/npm/node_modules/<name>, where Node finds one beside the other, and their programs are linked
 * into /nix/runtime/bin. Nothing of a package is run, and what it depends on is not looked at: that is declared likewise.
 */
#include "bundle/stage.h"

#define AGX_NPM_MODULES "/nix/npm/node_modules"

typedef struct agx_npm_package {
        char *name, *version; /* all owned */
        char *integrity;      /* "sha512-<base64>" */
        char *platform;       /* "": any */
        agx_strv programs;    /* "<name>\t<path in the package>"; none: as the package says */
        bool wanted;          /* on the platform that is built for */
        bool unpacked;
} agx_npm_package;

typedef struct agx_npm_list {
        agx_npm_package *items;
        size_t count;
        size_t taking; /* private: the one that the next records are about, `count` if it is known already */
} agx_npm_list;

#define AGX_NPM_LIST_NULL ((agx_npm_list){0})

void agx_npm_list_deinit(agx_npm_list *l);
AGX_DEFINE_CLEANUP(agx_npm_list, agx_npm_list_deinit)
/* Takes a record of agentix._project if it is one of ours ("npm", "npm-bin"), and new. 0 or -ENOMEM. */
int agx_npm_list_take(agx_npm_list *l, const char *platform, const char *key, const char *value);

typedef struct agx_npm_job {
        const agx_stage *stage;
        const agx_tools *tools;
        const char *cwd;   /* where npm is run: the project, whose .npmrc counts */
        const char *offer; /* a directory with archives named as in the cache, looked at before npm is asked; NULL */
        /* Told of each package that npm is asked for. */
        void (*tell)(void *user, const char *name, const char *version);
        void *user;
} agx_npm_job;

/* Puts the packages of the list that are not there yet into the stage; the list learns the names of their programs. */
int agx_npm_unpack(const agx_npm_job *job, agx_npm_list *list, agx_why *why);
/* Links the programs of unpacked packages; rewritten files are added to `changed`. */
int agx_npm_link(const agx_npm_job *job, const agx_npm_list *list, agx_strv *changed, agx_why *why);
/* Puts their archives into the directory `to`, for somebody's `offer`. */
int agx_npm_gather(const agx_npm_job *job, const agx_npm_list *list, const char *to, agx_why *why);

#endif
