#ifndef AGX_CLI_NEAREST_H
#define AGX_CLI_NEAREST_H
/* What somebody who wrote `text` may have meant. */
#include "base/view.h"

enum { AGX_NEAREST_MAX = 64 }; /* longer words resemble nothing */

/* How many letters have to be put in, left out, changed or swapped with their neighbour to make `b` of `a`; SIZE_MAX: one is too long. */
size_t agx_nearest_distance(agx_view a, agx_view b);
/* Whether that is few enough, for the length of the words, to ask "did you mean". */
bool agx_nearest_resembles(agx_view text, agx_view candidate);

#endif
