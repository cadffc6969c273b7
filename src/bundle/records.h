#ifndef AGX_BUNDLE_RECORDS_H
#define AGX_BUNDLE_RECORDS_H
/*
 * What a helper in Python answers: pairs of key and value, each ended by a NUL (`agentix._project`). A record `error` is the
 * helper's way to say that the project is at fault.
 */
#include "base/buf.h"
#include "bundle/run.h"

typedef struct agx_records {
        agx_buf bytes;
        size_t at; /* where agx_records_next() goes on */
} agx_records;

enum { AGX_RECORDS_MAX = 64 << 20 };

#define AGX_RECORDS_NULL ((agx_records){.bytes = AGX_BUF_NULL(AGX_RECORDS_MAX)})

void agx_records_deinit(agx_records *r);
AGX_DEFINE_CLEANUP(agx_records, agx_records_deinit)

/* Runs argv and takes its answer; told also when it fails or answers `error`. */
int agx_records_ask(agx_records *r, char *const *argv, agx_why *why);
/* The next pair, as C strings that live as long as the records; false: no more. */
bool agx_records_next(agx_records *r, const char **key, const char **value);
/* The first value of a key, or NULL. */
const char *agx_records_get(const agx_records *r, const char *key);

#endif
