/*
 * A frame lies in two buffers: its head, which begins with the length that a whole frame has in front, and its body. Of a
 * frame in pieces that length is left out, and `sent` counts the rest.
 */
#include "worker/bulk.h"
#include "base/err.h"
#include "proto/deframer.h"
#include "proto/limits.h"

enum { HEADER = 4 };

/* ---- a frame ---- */

agx_bulk_frame *agx_bulk_frame_new(agx_view id)
{
        agx_bulk_frame *f = calloc(1, sizeof(*f));

        if (!f)
                return NULL;
        agx_list_init(&f->node);
        agx_buf_init(&f->id, SIZE_MAX);
        agx_buf_init(&f->head, SIZE_MAX);
        agx_buf_init(&f->body, AGX_MAX_MESSAGE);
        agx_buf_init(&f->behind, SIZE_MAX);
        if (agx_buf_append_view(&f->id, id)) {
                free(f);
                return NULL;
        }
        return f;
}

void agx_bulk_frame_free(agx_bulk_frame *f)
{
        if (!f)
                return;
        agx_list_unlink(&f->node);
        agx_buf_deinit(&f->id);
        agx_buf_deinit(&f->head);
        agx_buf_deinit(&f->body);
        agx_buf_deinit(&f->behind);
        free(f);
}

size_t agx_bulk_frame_size(const agx_bulk_frame *f)
{
        return f->head.len + f->body.len;
}

bool agx_bulk_in_pieces(size_t body)
{
        return body > AGX_FAST_FRAME_MAX;
}

static size_t payload_of(const agx_bulk_frame *f)
{
        return agx_bulk_frame_size(f) - HEADER;
}

/* ---- all of them ---- */

void agx_bulk_init(agx_bulk *b)
{
        *b = (agx_bulk){.last = AGX_BUF_NULL(SIZE_MAX)};
        agx_list_init(&b->middle);
        agx_list_init(&b->large);
}

static void free_all(agx_list *frames)
{
        agx_list_foreach_safe(node, frames)
        {
                agx_bulk_frame_free(agx_container_of(node, agx_bulk_frame, node));
        }
}

void agx_bulk_deinit(agx_bulk *b)
{
        if (!b->middle.next)
                return;
        free_all(&b->middle);
        free_all(&b->large);
        agx_buf_deinit(&b->last);
        b->at = NULL;
}

void agx_bulk_push(agx_bulk *b, agx_bulk_frame *f)
{
        bool large = agx_bulk_in_pieces(f->body.len);

        agx_list_push_back(large ? &b->large : &b->middle, &f->node);
        *(large ? &b->large_bytes : &b->middle_bytes) += payload_of(f);
}

/* ---- sending ---- */

static agx_list *whose_turn(const agx_bulk *b)
{
        agx_list *middle = agx_list_first(&b->middle), *large = agx_list_first(&b->large);

        return middle && !(large && b->went_before) ? middle : large;
}

static int put_whole(agx_bulk *b, agx_buf *out, agx_view *body)
{
        *body = agx_buf_view(&b->at->body);
        b->n = payload_of(b->at);
        return agx_buf_append_view(out, agx_buf_view(&b->at->head));
}

static int put_piece(agx_bulk *b, agx_buf *out, agx_view *body)
{
        uint8_t head[AGX_PIECE_HEAD_MAX];
        agx_bulk_frame *f = b->at;
        agx_view before = agx_view_from(agx_buf_view(&f->head), HEADER), mine;
        size_t n_head, of_body;
        int r;

        if (!f->sent)
                b->stream = b->stream + 1 ? b->stream + 1 : 1;
        n_head = agx_piece_head(head, b->stream, payload_of(f), f->sent, &b->n);
        mine = f->sent < before.n ? agx_view_first(agx_view_from(before, f->sent), b->n) : AGX_VIEW("");
        of_body = f->sent + mine.n - before.n;
        *body = f->sent + b->n > before.n
                        ? agx_view_first(agx_view_from(agx_buf_view(&f->body), of_body), b->n - mine.n)
                        : AGX_VIEW("");
        r = agx_buf_append(out, head, n_head);
        return r ? r : agx_buf_append_view(out, mine);
}

bool agx_bulk_next(agx_bulk *b, agx_buf *out, agx_view *body, int *r)
{
        agx_list *node = whose_turn(b);

        *r = 0;
        if (!node || b->at)
                return false;
        b->at = agx_container_of(node, agx_bulk_frame, node);
        b->went_before = !agx_bulk_in_pieces(b->at->body.len);
        *r = b->went_before ? put_whole(b, out, body) : put_piece(b, out, body);
        if (*r)
                *r = agx_trace(-ENOMEM);
        return !*r;
}

int agx_bulk_sent(agx_bulk *b, agx_buf *out)
{
        agx_bulk_frame *f = b->at;
        int r = 0;

        b->at = NULL;
        f->sent += b->n;
        *(b->went_before ? &b->middle_bytes : &b->large_bytes) -= b->n;
        if (f->sent == payload_of(f)) {
                r = agx_buf_append_view(out, agx_buf_view(&f->behind));
                agx_bulk_frame_free(f);
        }
        if (!r && agx_bulk_empty(b)) {
                r = agx_buf_append_view(out, agx_buf_view(&b->last));
                agx_buf_clear(&b->last);
        }
        return r ? agx_trace(-ENOMEM) : 0;
}

/* ---- what must not overtake ---- */

static agx_buf *behind(const agx_list *frames, agx_view id)
{
        agx_list_foreach_safe(node, frames)
        {
                agx_bulk_frame *f = agx_container_of(node, agx_bulk_frame, node);

                if (agx_view_eq(agx_buf_view(&f->id), id))
                        return &f->behind;
        }
        return NULL;
}

agx_buf *agx_bulk_behind(agx_bulk *b, agx_view id)
{
        agx_buf *found = behind(&b->middle, id);

        return found ? found : behind(&b->large, id);
}

agx_buf *agx_bulk_last(agx_bulk *b)
{
        return agx_bulk_empty(b) ? NULL : &b->last;
}
