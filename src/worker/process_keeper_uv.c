/*
 * What a keeper says is believed, what it does not say is found out: its death by the kernel, never by the end of its
 * socket, whose last words are read first. It may be killed itself, or stopped, by the very tree it keeps; then
 * its cgroup and the program's own group are all that is known of the rest, and both are killed.
 */
#include "io/group.h"
#include "io/tree.h"
#include "worker/process_uv.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { CONTROL_BYTES = 4096 };

void agx_process_say(agx_process *p, agx_keeper_kind kind, int value)
{
        agx_keeper_word word = {.kind = (uint16_t)kind, .value = value};
        int fd;

        if (agx_stream_closing(&p->control) || uv_fileno(&p->control.uv.handle, &fd))
                return;
        if (send(fd, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
                agx_child_kill(&p->keeper, SIGTERM, false); /* it does not read: this ends the tree as well */
}

/* ---- its words ---- */

static void tell_failure(agx_process *p, const agx_keeper_word *word)
{
        const char *why = agx_process_why(word->value), *path = agx_process_text(&p->path);

        if (word->stage == AGX_KEEPER_CHDIR)
                agx_process_fail(p, word->value, "cannot run %.400s in the directory %.400s: %s", path,
                                 agx_process_text(&p->directory), why);
        else if (word->stage == AGX_KEEPER_EXEC)
                agx_process_fail(p, word->value, "cannot execute %.800s: %s", path, why);
        else
                agx_process_fail(p, word->value, "cannot make a process for %.800s: %s", path, why);
}

static void take_word(agx_process *p, const agx_keeper_word *word)
{
        switch ((agx_keeper_kind)word->kind) {
        case AGX_KEEPER_STARTED:
                p->started = true;
                p->pid = word->value;
                break;
        case AGX_KEEPER_FAILED:
                tell_failure(p, word);
                break;
        case AGX_KEEPER_EXITED:
                p->started = true;
                p->pid = 0;
                agx_process_close_in(p);
                agx_process_carry_out(p, agx_proc_exited(&p->brain, agx_process_now(p), word->value));
                break;
        case AGX_KEEPER_LEFT:
        case AGX_KEEPER_KILL:
        case AGX_KEEPER_SIGNAL:
        case AGX_KEEPER_LEAVE:
                break;
        }
}

static void control_data(agx_stream *s, agx_view in)
{
        agx_process *p = agx_container_of(s, agx_process, control);

        if (agx_buf_append_view(&p->words, in)) {
                agx_child_kill(&p->keeper, SIGKILL, false); /* that is no keeper of ours */
                return;
        }
        while (p->words.len >= sizeof(agx_keeper_word) && !p->over) {
                agx_keeper_word word;

                memcpy(&word, agx_buf_view(&p->words).p, sizeof(word));
                agx_buf_consume(&p->words, sizeof(word));
                take_word(p, &word);
        }
}

static void control_ended(agx_stream *s, int error)
{
        (void)s; /* the keeper's death is told by the kernel */
        (void)error;
}

static void control_closed(agx_stream *s)
{
        agx_process_part_closed(agx_container_of(s, agx_process, control));
}

static const agx_stream_ops control_ops = {.data = control_data, .ended = control_ended, .closed = control_closed};

void agx_process_init_control(agx_process *p)
{
        agx_buf_init(&p->words, CONTROL_BYTES);
        agx_stream_init_pipe(&p->control, p->procs->loop, 0, &control_ops);
        p->open++;
}

/* ---- when it says nothing ---- */

/* Whoever the keeper left behind is not known one by one any more, but for its group and the program itself. */
static void kill_rest(agx_process *p)
{
        agx_group group;

        if (agx_group_find(&group, p->group))
                agx_group_kill(&group);
        if (p->pid > 0)
                kill(-p->pid, SIGKILL);
        p->pid = 0;
}

/*
 * A tree may have stopped its keeper, and do so again. One that is stopped reaps nobody, so what we know of its program, once
 * all it has said is read, is true. The keeper is then let go on, since it alone finds those who got away from the group.
 */
void agx_process_rouse(agx_process *p)
{
        if (p->keeper.dead || p->keeper.pid <= 0 || !agx_tree_is_stopped(p->keeper.pid))
                return;
        agx_stream_drain(&p->control, CONTROL_BYTES);
        if (p->over)
                return;
        kill_rest(p);
        agx_child_kill(&p->keeper, SIGCONT, false);
}

void agx_process_force(agx_process *p)
{
        kill_rest(p);
        agx_child_kill(&p->keeper, SIGKILL, false);
}

void agx_process_keeper_exited(agx_child *c)
{
        agx_process *p = agx_container_of(c, agx_process, keeper);
        int error = agx_child_exec_error(c);

        agx_stream_drain(&p->control, CONTROL_BYTES);
        if (p->over)
                return;
        if (error || (!p->started && !WIFSIGNALED(c->status))) { /* one that was killed may have started it */
                agx_process_fail(p, error ? error : EAGAIN, "cannot make a process for %.800s: %s",
                                 agx_process_text(&p->path), error ? agx_process_why(error) : "its keeper has ended");
                return;
        }
        if (WIFSIGNALED(c->status))
                kill_rest(p);
        agx_process_carry_out(p, agx_proc_alone(&p->brain));
}
