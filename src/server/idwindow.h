#ifndef AGX_SERVER_IDWINDOW_H
#define AGX_SERVER_IDWINDOW_H
/*
 * Which numbers of a rising sequence have been seen, in fixed space.
 *
 * Numbers at or below `mark` count as seen; of the `size` numbers above it each is known exactly; none above those has
 * been seen. Seeing a number beyond the window moves the mark up until the number is the window's last. So a number
 * that is skipped for too long counts as seen, never the other way round. Numbers start at 1.
 */
#include "base/view.h"
#include "proto/limits.h"

typedef struct agx_idwindow {
        uint64_t mark;
        uint64_t newest; /* the highest number seen, or the mark the window began with */
        uint32_t size;   /* 1 to AGX_LEDGER_WINDOW */
        uint64_t bits[AGX_LEDGER_WINDOW / 64];
} agx_idwindow;

/* Nothing above `mark` has been seen. */
void agx_idwindow_init(agx_idwindow *w, uint32_t size, uint64_t mark);
bool agx_idwindow_has(const agx_idwindow *w, uint64_t number);
void agx_idwindow_add(agx_idwindow *w, uint64_t number);

#endif
