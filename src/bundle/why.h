#ifndef AGX_BUNDLE_WHY_H
#define AGX_BUNDLE_WHY_H
/*
 * Why a step of a build or a deploy failed, in words for the person who asked for it. Functions of this room that take an
 * `agx_why *` give 0, AGX_WHY_E_TOLD with the words filled in, or a negated errno without any. The first words stay: who
 * has more to say about what it was doing puts that in front with agx_why_wrap().
 */
#include "base/view.h"

enum { AGX_WHY_E_TOLD = 1 };

enum { AGX_WHY_TEXT = 4096, AGX_WHY_HINT = 1024 };

typedef struct agx_why {
        const char *kind; /* one word for programs, static: "project", "lock", "python", "namespace", "nix", ... */
        int exit_code;    /* what the process should end with */
        char text[AGX_WHY_TEXT];
        char hint[AGX_WHY_HINT]; /* what to do; may be empty */
} agx_why;

#define AGX_WHY_NULL ((agx_why){.kind = "failure", .exit_code = 1})

/* Says why, unless it is said already; gives AGX_WHY_E_TOLD. `kind` is static. */
int agx_why_set(agx_why *w, const char *kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with what the system said about `error` (positive or negated errno) behind a colon. */
int agx_why_errno(agx_why *w, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Adds what to do, unless something is said already; gives AGX_WHY_E_TOLD. */
int agx_why_hint(agx_why *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "<what>: " in front of the text. */
void agx_why_wrap(agx_why *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
