#ifndef AGX_CLI_REDACT_H
#define AGX_CLI_REDACT_H
/*
 * Settings on show without the secrets that people put into arguments: the user part of a URL, and the value of whatever
 * is called a token, password, secret, key or credential (`NAME=value`, `--name=value`, or the word after `--name`).
 */
#include "base/buf.h"
#include "base/strv.h"

/* Appends the n-th of a list of words so. Errors are those of agx_buf_append. */
int agx_redact(agx_buf *out, const agx_strv *words, size_t n);

#endif
