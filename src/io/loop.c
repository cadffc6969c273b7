/*
 * The flush list is served from a check handle, which libuv runs right after the descriptors of a turn, and from a
 * prepare handle, which catches what timers wrote. Both are unreferenced: they never keep the loop alive.
 */
#include "io/loop.h"

#include <stdlib.h>

void agx_flush_init(agx_flush *f, void (*flush)(agx_flush *self))
{
        agx_list_init(&f->node);
        f->flush = flush;
}

void agx_flush_cancel(agx_flush *f)
{
        agx_list_unlink(&f->node);
}

void agx_loop_flush_later(agx_loop *l, agx_flush *f)
{
        if (agx_list_empty(&f->node))
                agx_list_push_back(&l->dirty, &f->node);
}

void agx_loop_flush(agx_loop *l)
{
        agx_list *node;

        while ((node = agx_list_first(&l->dirty))) {
                agx_flush *f = agx_container_of(node, agx_flush, node);

                agx_list_unlink(node);
                f->flush(f);
        }
}

static void on_prepare(uv_prepare_t *handle)
{
        agx_loop_flush(agx_container_of(handle, agx_loop, before_sleep));
}

static void on_check(uv_check_t *handle)
{
        agx_loop_flush(agx_container_of(handle, agx_loop, after_poll));
}

int agx_loop_init(agx_loop *l)
{
        int r;

        *l = (agx_loop){0};
        agx_list_init(&l->dirty);
        l->read_buffer = malloc(AGX_LOOP_READ_BYTES);
        if (!l->read_buffer)
                return agx_trace(-ENOMEM);
        r = uv_loop_init(&l->uv);
        if (r) {
                free(l->read_buffer);
                return agx_trace(r);
        }
        uv_prepare_init(&l->uv, &l->before_sleep);
        uv_check_init(&l->uv, &l->after_poll);
        uv_prepare_start(&l->before_sleep, on_prepare);
        uv_check_start(&l->after_poll, on_check);
        uv_unref((uv_handle_t *)&l->before_sleep);
        uv_unref((uv_handle_t *)&l->after_poll);
        return 0;
}

void agx_loop_run(agx_loop *l)
{
        uv_run(&l->uv, UV_RUN_DEFAULT);
}

void agx_loop_stop(agx_loop *l)
{
        uv_stop(&l->uv);
}

void agx_loop_deinit(agx_loop *l)
{
        if (!l->read_buffer)
                return;
        uv_close((uv_handle_t *)&l->before_sleep, NULL);
        uv_close((uv_handle_t *)&l->after_poll, NULL);
        uv_run(&l->uv, UV_RUN_DEFAULT);
        uv_loop_close(&l->uv);
        free(l->read_buffer);
        l->read_buffer = NULL;
}
