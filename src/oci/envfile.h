#ifndef AGX_OCI_ENVFILE_H
#define AGX_OCI_ENVFILE_H
/*
 * An environment as files, since a secret has no place in an argv.
 *
 * An engine's --env-file is a list of lines, so it cannot carry a value with a line's end in it; docker also drops a
 * trailing CR, stops at lines of 64 KiB, and refuses what is not UTF-8. Such variables go into a second file in the
 * format of /proc/<pid>/environ, "name=value" and a NUL each, which agentix-runtime reads itself (AGENTIX_ENV_FILE).
 */
#include "base/buf.h"
#include "base/strv.h"

/* Splits `env` ("name=value" each, names as agx_oci_variable()) over the two files, appending.
 * 0, -ENOMEM, or AGX_BUF_E_FULL: more than a buffer may hold. */
int agx_oci_env_files(const agx_strv *env, agx_buf *lines, agx_buf *rest);

#endif
