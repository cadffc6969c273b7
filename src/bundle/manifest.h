#ifndef AGX_BUNDLE_MANIFEST_H
#define AGX_BUNDLE_MANIFEST_H
/*
 * `manifest.json`, the first member of a bundle: what the bundle is and where its tree begins. Writing and parsing; it
 * opens nothing.
 *
 * A manifest comes from a file that anybody may have made. Parsing insists on the format, on schema version 1, and on
 * strings where strings belong; keys it does not know are passed over. The digest is what the manifest says, no more:
 * whoever unpacks computes it.
 */
#include "base/buf.h"
#include "base/strv.h"

#define AGX_MANIFEST_FORMAT "agentix-bundle"
#define AGX_MANIFEST_ENTRYPOINT "/nix/runtime/bootstrap.sh"

enum {
        AGX_MANIFEST_VERSION = 1,
        AGX_MANIFEST_MAX = 256 << 10,      /* bytes of a manifest */
        AGX_MANIFEST_LINES_MAX = 16 << 20, /* more than the lines of one that large can be */
};

enum {
        AGX_MANIFEST_E_JSON = 1, /* not a JSON object, a key twice, or a value of the wrong kind */
        AGX_MANIFEST_E_FORMAT,   /* `format` is missing or not AGX_MANIFEST_FORMAT: no bundle of ours */
        AGX_MANIFEST_E_VERSION,  /* a schema version this program does not know */
        AGX_MANIFEST_E_MISSING,  /* name, tag, platform, digest or entrypoint is missing or empty */
        AGX_MANIFEST_E_DIGEST,   /* `digest` is not "sha256:" and 64 hex digits */
};

typedef struct agx_manifest {
        char *name; /* all owned; never NULL after a good parse but nix_system */
        char *tag;
        char *platform;   /* "linux/amd64" or "linux/arm64" */
        char *nix_system; /* "x86_64-linux" or "aarch64-linux"; may be NULL */
        char *digest;     /* "sha256:<hex>" */
        char *entrypoint;
        agx_strv runtime_env;       /* "NAME=value": what the entry point puts in front of the image's variables */
        agx_strv agentix_added_env; /* the same under AGENTIX_ADDED_<NAME> */
        agx_strv npm;               /* "<package>@<version>=<integrity>"; empty: the key is not there */
} agx_manifest;

#define AGX_MANIFEST_NULL ((agx_manifest){0})

void agx_manifest_deinit(agx_manifest *m);
AGX_DEFINE_CLEANUP(agx_manifest, agx_manifest_deinit)

/* Fills runtime_env and agentix_added_env with what every bundle has. 0 or -ENOMEM. */
int agx_manifest_set_env(agx_manifest *m);
/* Appends the manifest as indented JSON with a newline at its end. 0, AGX_BUF_E_FULL, -ENOMEM, or -EINVAL for a string that is not UTF-8. */
int agx_manifest_write(const agx_manifest *m, agx_buf *out);
/* Parses all of `json`. 0, a condition above (*m is then deinitialised), or -ENOMEM. */
int agx_manifest_parse(agx_manifest *m, agx_view json);
/*
 * Appends what counts of it in the bundle's digest, a line for each text but the digest, then one for each variable, those
 * of a key in the order of their bytes:
 *
 *     m <key> <length>:<text>\n
 *
 * where a variable's text is NAME=value. Errors are those of agx_buf_append.
 */
int agx_manifest_lines(const agx_manifest *m, agx_buf *out);
/* A condition of agx_manifest_parse as words, for "not a bundle: %s"; static. */
const char *agx_manifest_why(int condition);

#endif
