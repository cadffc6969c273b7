/*
 * A sandbox that is a child of the host's: a runtime server itself, or a program that runs one inside of something.
 *
 * One that tells by itself when it listens holds the read end of a lifeline too: when the host dies, however it dies,
 * it ends. One that cannot be given descriptors is asked at its URL while its process is watched, so that an early end
 * is told at once; what ends it if its host dies is its lease.
 */
#include "provider/process.h"

#include "base/err.h"
#include "provider/text.h"

#include <signal.h>
#include <stdio.h>

enum state {
        STATE_START,
        STATE_STARTING,
        STATE_ASK,
        STATE_LIVE,
        STATE_TERM,
        STATE_TERMING,
        STATE_KILL,
        STATE_KILLING,
        STATE_GONE,
        STATE_FAILED
};

/* The server bounds its own shutdown to 5 s; a little more, then it is killed. */
enum { SANDBOX_TERM_MS = 7000 };

typedef struct process {
        agx_brain brain;
        enum state state;
        bool failing; /* ends in FAILED, not in GONE */
        bool asked;   /* at `url`; else the ready line tells */
        const char *subject;
        agx_strv argv;
        agx_strv env;
        agx_buf content;
        agx_wish_file file;
        agx_strv words; /* file, dir, cwd, token file */
        char *url;
        char *message;
        uint64_t ready_ms;
} process;

enum { WORD_FILE, WORD_DIR, WORD_CWD, WORD_TOKEN };

static process *self_of(agx_brain *brain)
{
        return (process *)(void *)brain;
}

static void process_free(agx_brain *brain)
{
        process *self = self_of(brain);

        agx_strv_deinit(&self->argv);
        agx_strv_deinit(&self->env);
        agx_strv_deinit(&self->words);
        agx_buf_deinit(&self->content);
        free(self->url);
        free(self->message);
        free(self);
}

/* ---- wishes: one small function a state ---- */

static void wish_start(process *self, agx_wish *wish)
{
        wish->kind = AGX_WISH_START;
        wish->argv = &self->argv;
        wish->env = &self->env;
        wish->cwd = self->words.items[WORD_CWD];
        wish->files = &self->file;
        wish->file_count = self->file.path ? 1 : 0;
        wish->bare = self->asked;
        wish->timeout_ms = self->ready_ms;
        self->state = self->asked ? STATE_ASK : STATE_STARTING;
}

static void wish_here(process *self, agx_wish *wish, agx_wish_kind kind)
{
        wish->kind = kind;
        wish->url = self->url;
        wish->token_file = self->words.items[WORD_TOKEN];
        wish->timeout_ms = kind == AGX_WISH_PROBE ? self->ready_ms : 0;
}

static void wish_signal(process *self, agx_wish *wish)
{
        bool term = self->state == STATE_TERM;

        wish->kind = AGX_WISH_SIGNAL;
        wish->signal = term ? SIGTERM : SIGKILL;
        wish->timeout_ms = term ? SANDBOX_TERM_MS : 0;
        self->state = term ? STATE_TERMING : STATE_KILLING;
}

/* After an event that changed nothing; the time starts anew, which is better than none. */
static void wish_wait(process *self, agx_wish *wish)
{
        wish->kind = AGX_WISH_WAIT;
        if (self->state != STATE_KILLING)
                wish->timeout_ms = self->state == STATE_STARTING ? self->ready_ms : SANDBOX_TERM_MS;
}

static void wish_end(process *self, agx_wish *wish)
{
        wish->kind = self->state == STATE_GONE ? AGX_WISH_GONE : AGX_WISH_FAILED;
        wish->path = self->words.items[WORD_DIR];
        wish->message = self->message;
}

static void process_next(agx_brain *brain, agx_wish *wish)
{
        process *self = self_of(brain);

        switch (self->state) {
        case STATE_START:
                wish_start(self, wish);
                break;
        case STATE_ASK:
                wish_here(self, wish, AGX_WISH_PROBE);
                break;
        case STATE_LIVE:
                wish_here(self, wish, AGX_WISH_DONE);
                break;
        case STATE_TERM:
        case STATE_KILL:
                wish_signal(self, wish);
                break;
        case STATE_GONE:
        case STATE_FAILED:
                wish_end(self, wish);
                break;
        default:
                wish_wait(self, wish);
        }
}

/* ---- events ---- */

static const char starting[] = "starting the sandbox";

static bool is_starting(const process *self)
{
        return self->state == STATE_STARTING || self->state == STATE_ASK;
}

/* Fails while a process may still run: it is ended first. */
static int fail_running(process *self, const char *what, agx_view detail, bool gently)
{
        self->failing = true;
        self->state = gently ? STATE_TERM : STATE_KILL;
        return agx_text_failure(&self->message, starting, what, detail);
}

static int on_exited(process *self, const agx_event *event)
{
        char what[160], cause[64];

        if (is_starting(self)) {
                self->state = STATE_FAILED;
                agx_text_exit(cause, sizeof(cause), event->code);
                snprintf(what, sizeof(what), "%s ended with %s before it was ready", self->subject, cause);
                return agx_text_failure(&self->message, starting, what, event->text);
        }
        self->state = self->failing ? STATE_FAILED : STATE_GONE;
        return 0;
}

/* "ready URL INSTANCE", or "failed REASON". */
static int on_ready(process *self, const agx_event *event)
{
        agx_view rest = event->text, word, url;

        if (self->state == STATE_ASK)
                self->state = STATE_LIVE;
        if (self->state != STATE_STARTING)
                return 0;
        if (!agx_view_split(&rest, ' ', &word) || !agx_view_eq(word, AGX_VIEW("ready")) ||
            !agx_view_split(&rest, ' ', &url) || !url.n)
                return fail_running(self, "the runtime server could not listen", event->text, false);
        self->url = agx_strv_dup(url);
        if (!self->url)
                return agx_trace(-ENOMEM);
        self->state = STATE_LIVE;
        return 0;
}

static int on_timer(process *self, const agx_event *event)
{
        char what[96];

        if (is_starting(self)) {
                snprintf(what, sizeof(what), "%s was not ready after %.1f s", self->subject,
                         (double)self->ready_ms / 1000);
                return fail_running(self, what, event->text, false);
        }
        if (self->state == STATE_TERMING)
                self->state = STATE_KILL;
        return 0;
}

static int on_spawn_failed(process *self, const agx_event *event)
{
        char what[96];

        self->state = STATE_FAILED;
        snprintf(what, sizeof(what), "%s could not be started", self->subject);
        return agx_text_failure(&self->message, starting, what, event->text);
}

static int process_event(agx_brain *brain, const agx_event *event)
{
        process *self = self_of(brain);

        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return on_exited(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                return on_spawn_failed(self, event);
        case AGX_EVENT_READY:
                return on_ready(self, event);
        case AGX_EVENT_TIMER:
                return on_timer(self, event);
        case AGX_EVENT_DELETE:
                if (self->state == STATE_LIVE)
                        self->state = STATE_TERM;
                return 0;
        case AGX_EVENT_CANCEL:
                if (is_starting(self) || self->state == STATE_LIVE)
                        return fail_running(self, "cancelled", AGX_VIEW(""), true);
                if (self->state == STATE_START)
                        self->state = STATE_FAILED;
                return 0;
        default:
                return 0;
        }
}

static const agx_brain_ops process_ops = {"process", process_next, process_event, process_free};

/* ---- building ---- */

void agx_process_plan_deinit(agx_process_plan *plan)
{
        agx_strv_deinit(&plan->argv);
        agx_strv_deinit(&plan->env);
        agx_buf_deinit(&plan->content);
}

static int take_over(process *self, agx_process_plan *plan)
{
        agx_view words[] = {plan->file.p ? plan->file : AGX_VIEW(""), plan->dir, plan->cwd, plan->token_file};
        int r;

        self->subject = plan->subject;
        self->ready_ms = plan->ready_ms;
        self->asked = plan->url.p != NULL;
        self->argv = plan->argv;
        self->env = plan->env;
        self->content = plan->content;
        plan->argv = plan->env = AGX_STRV_NULL;
        plan->content = AGX_BUF_NULL(0);
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
                agx_strv_add(&self->words, words[i]);
        r = agx_strv_end(&self->argv);
        r = r ? r : agx_strv_end(&self->env);
        r = r ? r : agx_strv_end(&self->words);
        if (r)
                return r;
        if (plan->file.p)
                self->file = (agx_wish_file){self->words.items[WORD_FILE], 0444, agx_buf_view(&self->content)};
        self->url = self->asked ? agx_strv_dup(plan->url) : NULL;
        return self->asked && !self->url ? -ENOMEM : 0;
}

int agx_process_new(agx_brain **brain, agx_process_plan *plan)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        process *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &process_ops;
        made = &self->brain;
        r = take_over(self, plan);
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}

bool agx_process_owns(agx_view name)
{
        static const char *const names[] = {"AGENTIX_BIND_PORT", "AGENTIX_BIND_SOCKET", "AGENTIX_TOKEN_FILE",
                                            "AGENTIX_READY_FD",  "AGENTIX_LIFELINE_FD", "AGENTIX_LEASE",
                                            "AGENTIX_ENV_FILE"};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (agx_view_eq(name, agx_view_str(names[i])))
                        return true;
        return false;
}

void agx_process_set_lease(agx_strv *env, double lease_s)
{
        char number[32];

        if (lease_s <= 0)
                return;
        snprintf(number, sizeof(number), "%.3f", lease_s);
        agx_strv_set(env, AGX_VIEW("AGENTIX_LEASE"), agx_view_str(number));
}
