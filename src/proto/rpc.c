/*
 * One table of keys for all events, and for each kind which of them it needs and may have. What may be large comes last,
 * so that it can be sent from where it lies.
 */
#include "proto/rpc.h"
#include "proto/fields.h"
#include "proto/limits.h"

enum { CALL_ID, CALL_IDS, CALLABLE, STREAM, SEQ, N, GRACE, FAULT, CONTEXT, ARGUMENTS, VALUE, ROWS };

static const agx_field rows[ROWS] = {
        [CALL_ID] = AGX_FIELD(agx_rpc_event, call_id, "call_id", LAX_STR, "a str"),
        [CALL_IDS] = AGX_FIELD(agx_rpc_event, call_ids, "call_ids", ARRAY, "an array"),
        [CALLABLE] = AGX_FIELD(agx_rpc_event, callable, "callable", LAX_STR, "a str"),
        [STREAM] = AGX_FIELD(agx_rpc_event, stream, "stream", UINT, "a non-negative int"),
        [SEQ] = AGX_FIELD(agx_rpc_event, seq, "seq", UINT, "a non-negative int"),
        [N] = AGX_FIELD(agx_rpc_event, n, "n", UINT, "a non-negative int"),
        [GRACE] = AGX_FIELD(agx_rpc_event, grace, "grace", LAX_NUMBER, "a number"),
        [FAULT] = AGX_FIELD(agx_rpc_event, fault, "error", FAULT, "a map"),
        [CONTEXT] = AGX_FIELD(agx_rpc_event, context, "context", BIN, "a bin"),
        [ARGUMENTS] = AGX_FIELD(agx_rpc_event, arguments, "arguments", LAX_BIN, "a bin"),
        [VALUE] = AGX_FIELD(agx_rpc_event, value, "value", BIN, "a bin"),
};

#define BIT(row) ((uint32_t)1 << (row))

static const struct shape {
        uint32_t needs, allows;
} shapes[] = {
        [AGX_RPC_UNKNOWN] = {0, 0},
        [AGX_RPC_CALL] = {BIT(CALL_ID), BIT(CALLABLE) | BIT(ARGUMENTS) | BIT(CONTEXT) | BIT(STREAM)},
        [AGX_RPC_CANCEL] = {BIT(CALL_ID), BIT(GRACE)},
        [AGX_RPC_RESUME] = {BIT(CALL_IDS), 0},
        [AGX_RPC_ACK] = {0, BIT(CALL_ID) | BIT(CALL_IDS)},
        [AGX_RPC_CREDIT] = {BIT(CALL_ID) | BIT(N), 0},
        [AGX_RPC_RESULT] = {BIT(CALL_ID), BIT(VALUE)},
        [AGX_RPC_ERROR] = {BIT(CALL_ID) | BIT(FAULT), 0},
        [AGX_RPC_ITEM] = {BIT(CALL_ID) | BIT(SEQ) | BIT(VALUE), 0},
};

static const agx_view kind_texts[] = {[AGX_RPC_UNKNOWN] = {NULL, 0},
#define X(name, text) [AGX_RPC_##name] = {"" text, sizeof(text) - 1},
                                      AGX_RPC_MAP(X)
#undef X
};

agx_rpc_kind agx_rpc_kind_of(agx_view name)
{
        for (size_t kind = AGX_RPC_UNKNOWN + 1; kind < sizeof(kind_texts) / sizeof(*kind_texts); ++kind)
                if (agx_view_eq(kind_texts[kind], name))
                        return (agx_rpc_kind)kind;
        return AGX_RPC_UNKNOWN;
}

agx_view agx_rpc_kind_text(agx_rpc_kind kind)
{
        return kind_texts[kind];
}

/* ---- reading ---- */

/* What is wrong with the fields of the event, or NULL. */
static const char *complaint(const agx_rpc_event *event, uint32_t present)
{
        uint32_t missing = shapes[event->kind].needs & ~present;
        bool from_host = event->kind < AGX_RPC_RESULT;

        if (missing & BIT(CALL_ID) || (from_host && event->call_id.p && !event->call_id.n))
                return "missing call_id";
        if (missing & BIT(CALL_IDS))
                return "missing call_ids";
        if (missing & BIT(FAULT))
                return "missing error";
        if (missing & (BIT(SEQ) | BIT(N) | BIT(VALUE)))
                return missing & BIT(SEQ) ? "missing seq" : missing & BIT(N) ? "missing n" : "missing value";
        if (event->call_id.n > AGX_MAX_CALL_ID)
                return "call_id is too long";
        if (event->callable.n > AGX_MAX_CALLABLE)
                return "callable is too long";
        if (event->call_ids.p && agx_call_acks_of(event->call_ids).left > AGX_MAX_EVENT_IDS)
                return "too many call_ids";
        return NULL;
}

/* The usable id in a payload that is not understood as a whole, or absent. */
static agx_view salvage_id(agx_view payload)
{
        agx_mp_reader r = agx_mp_reader_on(payload);
        agx_rpc_event event = {.kind = AGX_RPC_UNKNOWN};
        uint32_t present;

        if (!agx_fields_read(&r, (agx_fields){rows, ROWS, BIT(CALL_ID)}, AGX_MAX_NESTING, &event, &present))
                return AGX_VIEW_NULL;
        return event.call_id.n && event.call_id.n <= AGX_MAX_CALL_ID ? event.call_id : AGX_VIEW_NULL;
}

bool agx_rpc_event_get(agx_rpc_kind kind, agx_view payload, agx_rpc_event *event, const char **why)
{
        agx_mp_reader r = agx_mp_reader_on(payload);
        agx_fields fields = {rows, ROWS, shapes[kind].needs | shapes[kind].allows};
        uint32_t present;

        *event = (agx_rpc_event){.kind = kind};
        if (!agx_fields_read(&r, fields, AGX_MAX_NESTING, event, &present))
                *why = r.error;
        else if (!agx_mp_done(&r))
                *why = "bytes after the map";
        else
                *why = complaint(event, present);
        event->has_stream = (present & BIT(STREAM)) != 0;
        event->has_grace = (present & BIT(GRACE)) && event->grace >= 0; /* false for what is not a number */
        if (*why)
                event->call_id = salvage_id(payload);
        return !*why;
}

uint64_t agx_rpc_grace_ms(const agx_rpc_event *event)
{
        if (!event->has_grace)
                return AGX_CANCEL_GRACE_MS;
        return event->grace < AGX_CANCEL_GRACE_MAX_MS / 1000.0 ? (uint64_t)(event->grace * 1000)
                                                               : AGX_CANCEL_GRACE_MAX_MS;
}

/* ---- writing ---- */

/* The member of a text row. */
static agx_view text_of(const agx_rpc_event *event, size_t row)
{
        return *(const agx_view *)(const void *)((const char *)event + rows[row].offset);
}

static bool is_given(const agx_rpc_event *event, size_t row, size_t n_ids)
{
        if (row == STREAM)
                return event->has_stream;
        if (row == GRACE)
                return event->has_grace;
        return row == CALL_IDS ? n_ids > 0 : text_of(event, row).p != NULL;
}

/* The rows to be written: what the kind needs, and what else it may have if the event gives it. */
static uint32_t rows_of(const agx_rpc_event *event, size_t n_ids)
{
        uint32_t given = shapes[event->kind].needs;

        if (event->kind == AGX_RPC_RESULT)
                return given | BIT(VALUE); /* nil stands for none */
        for (size_t row = 0; row < ROWS; ++row)
                if (shapes[event->kind].allows >> row & 1 && is_given(event, row, n_ids))
                        given |= BIT(row);
        return given;
}

static void put_ids(agx_mp_writer *w, const agx_view *ids, size_t n)
{
        agx_mp_put_array(w, n);
        for (size_t i = 0; i < n; ++i)
                agx_mp_put_str(w, ids[i]);
}

static void put_bin(agx_mp_writer *w, agx_view v, bool head_only)
{
        if (!v.p)
                agx_mp_put_nil(w);
        else if (head_only)
                agx_mp_put_bin_head(w, v.n);
        else
                agx_mp_put_bin(w, v);
}

static void put(agx_mp_writer *w, const agx_rpc_event *event, const agx_view *ids, size_t n_ids, bool head_only)
{
        uint32_t given = rows_of(event, n_ids);

        agx_mp_put_map(w, (size_t)__builtin_popcount(given));
        for (size_t row = 0; row < ROWS; ++row) {
                if (!(given >> row & 1))
                        continue;
                agx_mp_put_str(w, rows[row].key);
                if (row == CALL_IDS)
                        put_ids(w, ids, n_ids);
                else if (row == STREAM)
                        agx_mp_put_uint(w, event->stream);
                else if (row == SEQ)
                        agx_mp_put_uint(w, event->seq);
                else if (row == N)
                        agx_mp_put_uint(w, event->n);
                else if (row == GRACE)
                        agx_mp_put_float(w, event->grace);
                else if (row == FAULT)
                        agx_fault_put(w, &event->fault);
                else if (row == CALL_ID || row == CALLABLE)
                        agx_mp_put_str(w, text_of(event, row));
                else
                        put_bin(w, text_of(event, row), head_only && row >= ARGUMENTS);
        }
}

void agx_rpc_event_put(agx_mp_writer *w, const agx_rpc_event *event, const agx_view *ids, size_t n_ids)
{
        put(w, event, ids, n_ids, false);
}

void agx_rpc_event_put_head(agx_mp_writer *w, const agx_rpc_event *event)
{
        put(w, event, NULL, 0, true);
}

void agx_rpc_event_put_fault_head(agx_mp_writer *w, agx_view call_id)
{
        agx_mp_put_map(w, 2);
        agx_mp_put_str(w, rows[CALL_ID].key);
        agx_mp_put_str(w, call_id);
        agx_mp_put_str(w, rows[FAULT].key);
}
