/*
 * What each kind of opcode does: functions of the machine that unpickle.c runs, one for each row of its table. They
 * return 0, or -1 with an exception set.
 */
#ifndef AGX_EXT_UNPICKLE_OPS_H
#define AGX_EXT_UNPICKLE_OPS_H

#include "unpickle.h"

typedef int (*agx_unpickle_op)(agx_unpickler *u);

/* A terminated copy of a short text, to be freed with PyMem_Free(), or NULL with an exception. */
char *agx_unpickle_terminated(agx_view view);

/* --- unpickle_plain.c --- */

int agx_unpickle_on_proto(agx_unpickler *u);
int agx_unpickle_on_none(agx_unpickler *u);
int agx_unpickle_on_true(agx_unpickler *u);
int agx_unpickle_on_false(agx_unpickler *u);
int agx_unpickle_on_float(agx_unpickler *u);
int agx_unpickle_on_float_text(agx_unpickler *u);
int agx_unpickle_on_bytes(agx_unpickler *u);
int agx_unpickle_on_bytearray(agx_unpickler *u);
int agx_unpickle_on_landed(agx_unpickler *u);
int agx_unpickle_on_text(agx_unpickler *u);
int agx_unpickle_on_text_raw(agx_unpickler *u);
int agx_unpickle_on_old_text(agx_unpickler *u);
int agx_unpickle_on_old_quoted(agx_unpickler *u);

/* --- unpickle_ints.c --- */

int agx_unpickle_on_int(agx_unpickler *u);
int agx_unpickle_on_big_text(agx_unpickler *u);

/* --- unpickle_containers.c --- */

int agx_unpickle_on_empty_list(agx_unpickler *u);
int agx_unpickle_on_empty_tuple(agx_unpickler *u);
int agx_unpickle_on_empty_dict(agx_unpickler *u);
int agx_unpickle_on_empty_set(agx_unpickler *u);
int agx_unpickle_on_tuple(agx_unpickler *u);
int agx_unpickle_on_tuple1(agx_unpickler *u);
int agx_unpickle_on_tuple2(agx_unpickler *u);
int agx_unpickle_on_tuple3(agx_unpickler *u);
int agx_unpickle_on_append(agx_unpickler *u);
int agx_unpickle_on_appends(agx_unpickler *u);
int agx_unpickle_on_setitem(agx_unpickler *u);
int agx_unpickle_on_setitems(agx_unpickler *u);
int agx_unpickle_on_additems(agx_unpickler *u);
int agx_unpickle_on_list(agx_unpickler *u);
int agx_unpickle_on_dict(agx_unpickler *u);
int agx_unpickle_on_frozenset(agx_unpickler *u);

/* --- unpickle_calls.c --- */

int agx_unpickle_on_global(agx_unpickler *u);
int agx_unpickle_on_stack_global(agx_unpickler *u);
int agx_unpickle_on_reduce(agx_unpickler *u);
int agx_unpickle_on_newobj(agx_unpickler *u);
int agx_unpickle_on_newobj_ex(agx_unpickler *u);
int agx_unpickle_on_build(agx_unpickler *u);
int agx_unpickle_on_inst(agx_unpickler *u);
int agx_unpickle_on_ext(agx_unpickler *u);
int agx_unpickle_on_persid(agx_unpickler *u);
int agx_unpickle_on_buffer(agx_unpickler *u);

#endif
