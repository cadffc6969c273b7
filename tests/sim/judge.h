#ifndef AGX_SIM_JUDGE_H
#define AGX_SIM_JUDGE_H
/*
 * The checker: reads three journals, what the hosts got, what the targets wrote of themselves, and what the server's table
 * did, and finds what breaks a promise of the wire contract. It includes nothing of the project and believes nobody: each
 * fact comes from the one who was there.
 *
 * A call is known by its key, which travels in its arguments and is written down by the target; its id, a pair of a host
 * and a counter, is what the server knows. Hosts are numbered from 0; those from `n_hosts` on are strangers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum sim_fact {
        /* hosts */
        SIM_STARTED,   /* .a: milliseconds to its deadline from now on, UINT64_MAX: none; .b: items taken ahead */
        SIM_CLOCKED,   /* its deadline counts from now on */
        SIM_ENDED,     /* .a: an outcome; .b: digest of the value */
        SIM_ABANDONED, /* nobody waits for it any more */
        SIM_HEARD,     /* .a: the outcome a stranger was told of; .b: digest; .host: who heard it */
        SIM_GOT,       /* an item of a stream; .a: its number; .b: digest */
        /* targets */
        SIM_RAN,         /* its first line; .a: the run; .b: the worker */
        SIM_TOUCHED,     /* another line of a run, a side effect */
        SIM_RETURNED,    /* its last line; .b: digest of what it returned, 0: it raised */
        SIM_GAVE,        /* an item; .a: its number; .b: digest */
        SIM_WORKER_DEAD, /* .b: the worker's process is gone */
        /* the server's table */
        SIM_ACCEPTED, /* .host, .counter */
        SIM_CANCEL,   /* its own session asked for it; .a: the grace; key 0: before the call came */
        SIM_CLOSED,   /* .a: the outcome; .b: digest */
        SIM_ANSWERED, /* written to an HTTP client: it stays for a while */
        SIM_EVICTED,  /* for want of room; key 0: .a of calls unknown */
        SIM_REPEATED, /* a stranger with the session's name asked for it */
        SIM_TABLE,    /* .a: calls open; .b: results kept */
        SIM_RESTARTED /* another instance */
} sim_fact;

typedef enum sim_outcome {
        SIM_VALUE,
        SIM_RAISED,          /* the target's own error */
        SIM_CANCELLED,       /* it was running */
        SIM_CANCELLED_EARLY, /* it had not begun */
        SIM_WORKER_DIED,
        SIM_NOT_BEGUN, /* Busy, WorkerBootError, never_seen, too large: a definite no */
        SIM_DROPPED,
        SIM_INSTANCE_CHANGED,
        SIM_UNREACHED, /* and it never left the host */
        SIM_UNKNOWN,   /* unreachable, fate unknown */
        SIM_DEADLINE,
        SIM_OTHER,
        SIM_OUTCOMES
} sim_outcome;

typedef struct sim_record {
        uint64_t at, step;
        sim_fact fact;
        uint32_t key; /* 0: none */
        uint32_t host;
        uint64_t counter;
        uint64_t a, b;
} sim_record;

typedef struct sim_judge sim_judge;

typedef struct sim_rules {
        uint32_t n_hosts, n_strangers;
        uint32_t calls; /* keys are 1 to this */
        uint64_t kept_max, open_max;
        uint64_t inline_ms; /* how long an answered result stays */
        uint64_t host_slack_ms, box_slack_ms;
        bool calm; /* nothing fails: every call ends as its target does */
} sim_rules;

sim_judge *sim_judge_new(const sim_rules *rules);
void sim_judge_free(sim_judge *j);
void sim_judge_note(sim_judge *j, const sim_record *record);
/* The run is over and the network was well for long: what is still open should not be. */
void sim_judge_close(sim_judge *j, uint64_t now);
/* What else the simulator finds wrong. */
void sim_judge_blame(sim_judge *j, uint32_t key, const char *what);
/* NULL: no promise was broken. */
const char *sim_judge_verdict(const sim_judge *j);
/* The last records, and those of the call in question. */
void sim_judge_print(const sim_judge *j, FILE *to);
/* A digest of all records, to compare runs. */
uint64_t sim_judge_digest(const sim_judge *j);
uint64_t sim_judge_count(const sim_judge *j, sim_fact fact);
uint64_t sim_judge_outcomes(const sim_judge *j, sim_outcome outcome);

#endif
