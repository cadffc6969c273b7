/*
 * What a head must be as a whole. Every rule that decides where a message ends is checked here anew, whatever the
 * parser below has checked: two readers that disagree about an end is how requests are smuggled.
 *
 * A table maps the few field names that matter to one function each; it notes what the field says and may object.
 */
#include "wire/http1_head.h"

typedef struct facts {
        agx_http1_head *head;
        bool coded;
        bool hosted;
        bool close;
        bool keep_alive;
        bool may_upgrade; /* Connection: upgrade */
        bool upgrade;     /* Upgrade: something */
} facts;

/* Notes a field's value; gives the objection, or NULL. */
typedef const char *(*note_fn)(facts *f, agx_view value);

static const char *note_length(facts *f, agx_view value)
{
        if (f->head->has_length)
                return "two lengths";
        f->head->has_length = true;
        return agx_view_u64(value, UINT64_MAX, &f->head->length) ? NULL : "a length that is not a number";
}

static const char *note_coding(facts *f, agx_view value)
{
        if (f->coded)
                return "two Transfer-Encoding fields";
        f->coded = f->head->chunked = true;
        return agx_view_ieq(value, AGX_VIEW("chunked")) ? NULL : "a transfer coding other than chunked";
}

static const char *note_host(facts *f, agx_view value)
{
        if (f->hosted)
                return "two Host fields";
        f->hosted = true;
        for (size_t i = 0; i < value.n; ++i)
                if (value.p[i] <= ' ' || value.p[i] >= 0x7f || strchr("\"#/<>?@\\^`{|}", value.p[i]))
                        return "a malformed Host";
        return NULL;
}

static const char *note_connection(facts *f, agx_view value)
{
        agx_view token;

        while (agx_view_split(&value, ',', &token)) {
                token = agx_view_trim(token);
                f->close |= agx_view_ieq(token, AGX_VIEW("close"));
                f->keep_alive |= agx_view_ieq(token, AGX_VIEW("keep-alive"));
                f->may_upgrade |= agx_view_ieq(token, AGX_VIEW("upgrade"));
        }
        return NULL;
}

static const char *note_upgrade(facts *f, agx_view value)
{
        f->upgrade |= value.n > 0;
        return NULL;
}

static const char *note_expect(facts *f, agx_view value)
{
        f->head->expect_continue |= agx_view_ieq(value, AGX_VIEW("100-continue"));
        return NULL;
}

static const struct {
        agx_view name;
        note_fn note;
} notes[] = {
        {{"host", 4}, note_host},
        {{"expect", 6}, note_expect},
        {{"upgrade", 7}, note_upgrade},
        {{"connection", 10}, note_connection},
        {{"content-length", 14}, note_length},
        {{"transfer-encoding", 17}, note_coding},
};

static const char *note_field(facts *f, const agx_http1_field *field)
{
        for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); ++i)
                if (field->name.n == notes[i].name.n && agx_view_ieq(field->name, notes[i].name))
                        return notes[i].note(f, field->value);
        return NULL;
}

/* Visible ASCII without a fragment, in one of the forms of RFC 9112, section 3.2, as far as its first byte tells. */
static bool target_ok(const agx_http1_head *head)
{
        agx_view t = head->target;

        for (size_t i = 0; i < t.n; ++i)
                if (t.p[i] <= ' ' || t.p[i] >= 0x7f || t.p[i] == '#')
                        return false;
        return t.n && (t.p[0] != '*' || t.n == 1);
}

static const char *judge_request(facts *f)
{
        agx_http1_head *head = f->head;

        if (!target_ok(head))
                return "a malformed target";
        if (head->http11 && !f->hosted)
                return "no Host";
        if (agx_view_eq(head->method, AGX_VIEW("CONNECT"))) {
                if (head->chunked || head->has_length)
                        return "a body with CONNECT";
                head->keep_alive = false;
        }
        head->expect_continue &= head->http11;
        head->upgrade = head->http11 && f->upgrade && f->may_upgrade;
        return NULL;
}

static const char *judge_response(facts *f)
{
        agx_http1_head *head = f->head;

        if (head->status < 100 || head->status > 999)
                return "a status out of range";
        head->expect_continue = false;
        head->upgrade = head->status == 101 && f->upgrade && f->may_upgrade;
        return NULL;
}

static const char *judge(facts *f, agx_http1_role role)
{
        agx_http1_head *head = f->head;
        const char *objection = NULL;

        for (size_t i = 0; i < head->n_fields && !objection; ++i)
                objection = note_field(f, &head->fields[i]);
        if (objection)
                return objection;
        if (head->chunked && head->has_length)
                return "two framings";
        if (head->chunked && !head->http11)
                return "a transfer coding in HTTP/1.0";
        head->keep_alive = !f->close && (head->http11 || f->keep_alive);
        return role == AGX_HTTP1_SERVER ? judge_request(f) : judge_response(f);
}

int agx_http1_judge(agx_http1_head *head, agx_http1_role role, const char **reason)
{
        facts f = {.head = head};
        const char *objection = judge(&f, role);

        if (!objection)
                return 0;
        *reason = objection;
        return AGX_HTTP1_E_BAD;
}
