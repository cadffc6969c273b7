/* Runs the cases of tests/transcripts/http1/: see the README there for the form of the files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/http1_rows.h"

typedef enum block { BLOCK_NONE, BLOCK_REQUEST, BLOCK_RESPONSE, BLOCK_EVENTS } block;

typedef struct transcript {
        agx_http1_feed feed;
        agx_buf bytes; /* of the case at hand */
        agx_buf events;
        block block;
        size_t cases;
        size_t wrong;
} transcript;

static void read_file(const char *name, agx_buf *text)
{
        char path[1024];
        uint8_t *place;
        FILE *file;
        size_t n;

        snprintf(path, sizeof(path), "%s/transcripts/http1/%s", AGX_TEST_DIR, name);
        file = fopen(path, "rb");
        if (!file)
                fail_msg("%s is not there", path);
        assert_int_equal(agx_buf_reserve(text, 1 << 20, &place), 0);
        n = fread(place, 1, 1 << 20, file);
        agx_buf_commit(text, n);
        fclose(file);
}

static void put(agx_buf *b, char c)
{
        assert_int_equal(agx_buf_append(b, &c, 1), 0);
}

/* A line of bytes: escapes undone, and the line end it stands for. */
static void put_bytes(agx_buf *b, agx_view line)
{
        static const char from[] = "rnt0\\", to[] = "\r\n\t\0\\";

        for (size_t i = 0; i < line.n; ++i) {
                const char *known;

                if (line.p[i] != '\\') {
                        put(b, line.p[i]);
                        continue;
                }
                if (++i == line.n)
                        return;
                known = strchr(from, line.p[i]);
                assert_non_null(known);
                put(b, to[known - from]);
        }
        put(b, '\r');
        put(b, '\n');
}

static void run_case(transcript *t)
{
        agx_http1_row row = {.in = agx_buf_view(&t->bytes)};

        put(&t->events, '\0');
        row.want = agx_buf_view(&t->events).p;
        t->wrong += agx_http1_rows_check(&t->feed, &row, 1);
        t->cases++;
        agx_buf_clear(&t->bytes);
        agx_buf_clear(&t->events);
}

static void fence(transcript *t, agx_view mark)
{
        if (t->block == BLOCK_EVENTS)
                run_case(t);
        if (t->block != BLOCK_NONE)
                t->block = BLOCK_NONE;
        else if (agx_view_eq(mark, AGX_VIEW("request")))
                t->block = BLOCK_REQUEST;
        else if (agx_view_eq(mark, AGX_VIEW("response")))
                t->block = BLOCK_RESPONSE;
        else if (agx_view_eq(mark, AGX_VIEW("events")))
                t->block = BLOCK_EVENTS;
        else
                fail_msg("an unknown block");
        if (t->block == BLOCK_REQUEST || t->block == BLOCK_RESPONSE)
                t->feed.role = t->block == BLOCK_REQUEST ? AGX_HTTP1_SERVER : AGX_HTTP1_CLIENT;
}

static void read_line(transcript *t, agx_view line)
{
        if (agx_view_starts(line, AGX_VIEW("```")))
                fence(t, agx_view_from(line, 3));
        else if (t->block == BLOCK_EVENTS)
                assert_int_equal(agx_buf_append_view(&t->events, line), 0);
        else if (t->block != BLOCK_NONE)
                put_bytes(&t->bytes, line);
}

static void run_file(const char *name, size_t cases)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1 << 20);
        transcript t = {.feed = {.bounds = agx_http1_test_bounds},
                        .bytes = AGX_BUF_NULL(1 << 20),
                        .events = AGX_BUF_NULL(1 << 20)};
        agx_view rest, line;

        read_file(name, &text);
        rest = agx_buf_view(&text);
        while (agx_view_split(&rest, '\n', &line))
                read_line(&t, line);
        assert_int_equal(t.block, BLOCK_NONE);
        assert_int_equal(t.wrong, 0);
        assert_int_equal(t.cases, cases); /* so that none is lost unnoticed */
        agx_buf_deinit(&t.bytes);
        agx_buf_deinit(&t.events);
}

static void test_requests(void **state)
{
        (void)state;
        run_file("requests.md", 8);
}

static void test_smuggling(void **state)
{
        (void)state;
        run_file("smuggling.md", 10);
}

static void test_chunks(void **state)
{
        (void)state;
        run_file("chunks.md", 9);
}

static void test_responses(void **state)
{
        (void)state;
        run_file("responses.md", 5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_requests),
                cmocka_unit_test(test_smuggling),
                cmocka_unit_test(test_chunks),
                cmocka_unit_test(test_responses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
