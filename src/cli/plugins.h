#ifndef AGX_CLI_PLUGINS_H
#define AGX_CLI_PLUGINS_H
/*
 * What other distributions contribute through entry points. The metadata is read here, without Python; an interpreter is
 * started only to import one plugin, and a plugin that cannot be imported, or dies on it, hides no other.
 *
 * Where to look: $AGENTIX_PYTHON_PATH if set (agentix.cli.main gives its sys.path so), else $PYTHONPATH and the
 * site-packages that belong to this executable, with what their .pth files add. With which interpreter: $AGENTIX_PYTHON,
 * else the one beside this executable, else python3 on PATH.
 */
#include "base/buf.h"
#include "base/list.h"
#include "base/strv.h"

#define AGX_GROUP_PROVIDERS "agentix.provider"
#define AGX_GROUP_NIX "agentix.nix"

typedef struct agx_plugin {
        agx_list node;
        const char *group; /* static */
        char *name;
        char *value; /* "module:attribute" */
        char *dist;
        char *version;
        char *conflict; /* "a@1 and b@2" if several claim the name, else NULL */
} agx_plugin;

typedef struct agx_plugins {
        agx_list list; /* sorted by group, then name */
        char *python;
        agx_strv path; /* directories that were looked into */
} agx_plugins;

/* Reads the metadata of all that is installed. 0 or -ENOMEM; what cannot be read offers nothing. */
int agx_plugins_init(agx_plugins *p);
void agx_plugins_deinit(agx_plugins *p);
AGX_DEFINE_CLEANUP(agx_plugins, agx_plugins_deinit)

/* The plugin of that name, or NULL. */
const agx_plugin *agx_plugins_find(const agx_plugins *p, const char *group, const char *name);

/* What an import of a plugin gave. */
typedef struct agx_probe {
        bool ok;
        bool deploys;  /* a provider with deploy_bundle */
        char *summary; /* one line; never NULL after a good one */
        char *error;   /* "Type: message"; NULL if ok */
} agx_probe;

/* 0 or -ENOMEM. */
int agx_plugins_probe(const agx_plugins *p, const agx_plugin *plugin, agx_probe *probe);
void agx_probe_deinit(agx_probe *probe);
AGX_DEFINE_CLEANUP(agx_probe, agx_probe_deinit)

/*
 * Has the plugin deploy a bundle; what it prints goes to our standard error. `answer` gets its JSON, {"error": ...} or a
 * result. 0, AGX_PLUGINS_E_DIED with `why` filled in, or -ENOMEM.
 */
enum { AGX_PLUGINS_E_DIED = 1 };
int agx_plugins_deploy(const agx_plugins *p, const agx_plugin *plugin, const char *bundle, const char *name,
                       const char *platform, agx_buf *answer, char *why, size_t why_size);

#endif
