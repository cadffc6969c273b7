#ifndef AGX_WORKER_OUTPUT_H
#define AGX_WORKER_OUTPUT_H
/*
 * What a worker and its children write to one descriptor: bytes in, lines out, and the last of it kept.
 *
 * A line longer than AGX_OUTPUT_LINE is given out in pieces of that size, the later ones marked as continuing; a piece
 * ends at the end of a character, if need be up to three bytes later. Text without a newline stays until more comes,
 * agx_output_pause() or agx_output_flush().
 */
#include "base/buf.h"

typedef struct agx_output {
        agx_buf partial; /* an unfinished line */
        bool continuing; /* the line at hand has already been given out in part */
        uint64_t lines;  /* given out, ever */
        char held[3];    /* the beginning of a character that was kept back */
        size_t n_held;
        uint64_t bytes; /* taken in, ever */
} agx_output;

typedef struct agx_output_line {
        agx_view text;  /* without its newline; until the next call of any verb, or as long as the input */
        bool continues; /* the rest of a line too long for one piece */
        bool cut;       /* and more of it follows */
} agx_output_line;

void agx_output_init(agx_output *o);
void agx_output_deinit(agx_output *o);
/* The next line off the front of `*in`; false when all input is used. A failed allocation gives the text in pieces. */
bool agx_output_next(agx_output *o, agx_view *in, agx_output_line *line);
/* Of the unfinished line, if there is one, what are whole characters: it has waited long enough. */
bool agx_output_pause(agx_output *o, agx_output_line *line);
/* All of it: this is the end. */
bool agx_output_flush(agx_output *o, agx_output_line *line);

/*
 * The last bytes of both descriptors together, for error texts.
 */
typedef struct agx_tail {
        char *ring; /* AGX_OUTPUT_TAIL bytes, taken with the first write */
        uint64_t total;
} agx_tail;

void agx_tail_init(agx_tail *t);
void agx_tail_deinit(agx_tail *t);
void agx_tail_clear(agx_tail *t);
/* Without memory the tail stays empty. */
void agx_tail_write(agx_tail *t, agx_view bytes);
/* Appends at most `max` of the last bytes as valid UTF-8, from the start of a line where that leaves something; control
 * bytes other than newline and tab become \xHH. Errors of agx_buf_append. */
int agx_tail_text(const agx_tail *t, size_t max, agx_buf *out);

#endif
